"""torch.npu.amp: mixed precision in the older spelling of torch.autocast("npu") and torch.amp.GradScaler("npu")."""

from torch_cann.npu.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_cann.npu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
