"""The norm of all gradients together, wherever they are, and clipping by it."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def with_gradient(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The parameters of ``optimizer`` that have a gradient."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def by_mesh(parameters: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Plain tensors, and DTensors of each mesh, apart, by their gradients: one foreach operator takes only one kind."""
    kinds: dict[object, list[torch.Tensor]] = {}
    for parameter in parameters:
        grad = parameter.grad
        kinds.setdefault(grad.device_mesh if isinstance(grad, DTensor) else None, []).append(parameter)
    return list(kinds.values())


def total_norm(parameters: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The 2-norm of the gradients as a scalar on the first one's device; of all shards where they are DTensors.

    The result is that of torch.nn.utils.clip_grad_norm_, which cannot take DTensors of several meshes, or beside plain
    tensors, in one call.

    Args:
        group: ranks that hold other parameters of the same model, as the stages of a pipeline do; all must call.
    """
    norms = [torch.nn.utils.get_total_norm([p.grad for p in kind]) for kind in by_mesh(parameters)]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    if not norms:
        norms = [torch.zeros((), device=torch.accelerator.current_accelerator())]
    norm = norms[0]
    if len(norms) > 1:
        norm = torch.linalg.vector_norm(torch.stack([n.to(norm.device) for n in norms]))
    if group is not None:
        square = norm.square()
        dist.all_reduce(square, group=group)
        norm = square.sqrt()
    return norm


def clip(parameters: list[torch.Tensor], max_norm: float, norm: torch.Tensor) -> None:
    """Scales the gradients, whose norm together is ``norm``, down to ``max_norm`` if they exceed it."""
    for kind in by_mesh(parameters):
        torch.nn.utils.clip_grads_with_norm_(kind, max_norm, norm)
