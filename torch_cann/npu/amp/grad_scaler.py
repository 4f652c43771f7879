"""Loss scaling for the npu device."""

from typing import Any

import torch

from torch_cann.npu.utils import clear_npu_overflow_flag, get_npu_overflow_flag

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("npu"), with torch_npu's ``dynamic``: False keeps the scale at ``init_scale``.

    Overflow is found by looking for inf and nan in the gradients. State dictionaries are interchangeable with
    torch.amp.GradScaler's.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        if self._enabled and not self._dynamic and new_scale is None:
            new_scale, _ = self._check_scale_growth_tracker("update")
        super().update(new_scale)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {**state, "dynamic": self._dynamic} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._dynamic = state_dict.get("dynamic", self._dynamic)

    get_npu_overflow_flag = staticmethod(get_npu_overflow_flag)
    clear_npu_overflow_flag = staticmethod(clear_npu_overflow_flag)
