"""GradScaler for optimizers whose parameters are plain tensors and DTensors of several meshes at once."""

from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from torch_cann.recipes.train import gradients


class _ByMesh:
    """Unscales each kind of gradient by itself: one foreach operator takes only one."""

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = {}
        for parameters in gradients.by_mesh(gradients.with_gradient(optimizer)):
            kind: Any = SimpleNamespace(param_groups=[{"params": parameters}])
            found |= super()._unscale_grads_(kind, inv_scale, found_inf, allow_fp16)
        return found


class GradScaler(_ByMesh, torch.amp.GradScaler):
    """torch.amp.GradScaler, kind by kind."""


class GroupGradScaler(_ByMesh, ShardedGradScaler):
    """ShardedGradScaler, kind by kind: an overflow on one rank of its process group counts for all."""
