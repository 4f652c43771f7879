"""Runs a pipeline over ranks, with the stages and schedules of torch.distributed.pipelining."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.utils.checkpoint import checkpoint

from torch_cann.recipes.train._pipeline_local import call_hooks
from torch_cann.recipes.train._pipeline_split import as_tuple, named_tensors

_SCHEDULES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zero-bubble": schedules.ScheduleInterleavedZeroBubble,
}


class _Stage(nn.Module):
    """What a rank sends on must be tensors, and a tuple of them must be one also if it has one element."""

    def __init__(self, module: nn.Module, index: int, is_last: bool, recompute: bool):
        super().__init__()
        self.module, self._index, self._is_last, self._recompute = module, index, is_last, recompute

    def forward(self, *inputs: Any) -> Any:
        if self._recompute and torch.is_grad_enabled():
            result = checkpoint(self.module, *inputs, use_reentrant=False)
        else:
            result = self.module(*inputs)
        if self._is_last:
            return result
        for value in result:
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"stage {self._index} hands on {value!r}, a {type(value).__name__}; between ranks only tensors can "
                    "travel: compute it in the block that uses it"
                )
        return result


class RankPipeline:
    """The stages of this rank: stage ``c * ranks + rank`` is its chunk ``c``.

    Args:
        stages: all of split_model, in order, on every rank.
        group: the ranks.
        device: this rank's card.
        schedule, micro_batches, recompute: as of LocalPipeline.
    """

    def __init__(
        self,
        stages: list[nn.Module],
        group: dist.ProcessGroup,
        device: torch.device,
        schedule: str,
        micro_batches: int,
        recompute: bool,
    ):
        self.group, self.device = group, device
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.mine = {i: stages[i] for i in range(self.rank, len(stages), self.size)}
        self.is_first, self.is_last = self.rank == 0, self.rank == self.size - 1
        holders = _holders(stages, self.size)
        for stage in self.mine.values():
            _move(stage, device)
        self.owners = {name: ranks[0] for name, (_, ranks) in holders.items()}
        self._tied = self._make_tied(holders)
        self._loss_fn: Callable[[Any, Any], torch.Tensor] | None = None
        made = [
            PipelineStage(_Stage(stage, i, i == len(stages) - 1, recompute), i, len(stages), device, group=group)
            for i, stage in self.mine.items()
        ]
        single = schedule in ("gpipe", "1f1b")
        self._schedule = _SCHEDULES[schedule](
            made[0] if single else made, micro_batches, loss_fn=self._loss, scale_grads=False
        )

    def train_step(
        self, inputs: tuple[Any, ...], target: Any, loss_fn: Callable[[Any, Any], torch.Tensor]
    ) -> torch.Tensor:
        """``loss_fn(output, target)`` is what to differentiate of a micro-batch; returns their sum, on every rank."""
        self._loss_fn = loss_fn
        before = [(parameter, parameter.grad) for parameter, _ in self._tied]
        for parameter, _ in before:
            parameter.grad = None
        losses: list[torch.Tensor] = []
        self._schedule.step(*self._arguments(inputs), **self._keywords(target, losses))
        for (parameter, tied), (_, grad) in zip(self._tied, before, strict=True):
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(mine, group=tied)
            parameter.grad = mine if grad is None else grad.add_(mine)
            call_hooks(parameter)
        return self._from_last(torch.stack(losses).sum().detach() if losses else None)

    def eval_loss(
        self, inputs: tuple[Any, ...], target: Any, loss_fn: Callable[[Any, Any], torch.Tensor]
    ) -> torch.Tensor:
        self._loss_fn = loss_fn
        losses: list[torch.Tensor] = []
        self._schedule.eval(*self._arguments(inputs), **self._keywords(target, losses))
        return self._from_last(torch.stack(losses).sum().detach() if losses else None)

    def outputs(self, inputs: tuple[Any, ...]) -> Any:
        """The whole output on the last rank, None on the others."""
        self._loss_fn = lambda output, target: torch.zeros((), device=self.device)
        result = self._schedule.eval(*self._arguments(inputs), **self._keywords(inputs[0], []))
        return result if self.is_last else None

    def gather(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """``tensors`` of every rank's stages under all their names, on the host of every rank."""
        mine = {name: t.cpu() for name, t in tensors.items() if self.owners.get(name, 0) == self.rank}
        everybody: list[Any] = [None] * self.size
        dist.all_gather_object(everybody, mine, group=self.group)
        found = {name: t for part in everybody for name, t in part.items()}
        return {name: found[name] for name in tensors}

    def total_norm(self, norm_type: float) -> torch.Tensor:
        """Of the gradients of all ranks, tied weights counted once."""
        grads, seen = [], set()
        for stage in self.mine.values():
            for name, parameter in stage.named_parameters():
                if parameter.grad is not None and self.owners[name] == self.rank and id(parameter) not in seen:
                    seen.add(id(parameter))
                    grads.append(parameter.grad)
        norm = nn.utils.get_total_norm(grads, norm_type) if grads else torch.zeros((), device=self.device)
        if norm_type == float("inf"):
            dist.all_reduce(norm, dist.ReduceOp.MAX, group=self.group)
            return norm
        norm = norm**norm_type
        dist.all_reduce(norm, group=self.group)
        return norm ** (1 / norm_type)

    def _arguments(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(v.to(self.device) for v in inputs) if self.is_first else ()

    def _keywords(self, target: Any, losses: list[torch.Tensor]) -> dict[str, Any]:
        return {"target": target.to(self.device), "losses": losses} if self.is_last else {}

    def _loss(self, output: Any, target: Any) -> torch.Tensor:
        assert self._loss_fn is not None
        return self._loss_fn(output, target)

    def _from_last(self, value: torch.Tensor | None) -> torch.Tensor:
        value = torch.zeros((), device=self.device) if value is None else value.float()
        dist.broadcast(value, group=self.group, group_src=self.size - 1)
        return value

    @torch.no_grad()
    def _make_tied(
        self, holders: dict[str, tuple[torch.Tensor, list[int]]]
    ) -> list[tuple[nn.Parameter, dist.ProcessGroup]]:
        """Parameters that several ranks hold, made equal, each with the group of those ranks."""
        tied, seen = [], set()
        for tensor, ranks in holders.values():
            if len(ranks) == 1 or id(tensor) in seen or self.rank not in ranks:
                continue
            seen.add(id(tensor))
            names = [dist.get_global_rank(self.group, rank) for rank in ranks]
            group = dist.new_group(names, use_local_synchronization=True)
            dist.broadcast(tensor.data, src=names[0], group=group)
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                tied.append((tensor, group))
        return tied


def _holders(stages: list[nn.Module], ranks: int) -> dict[str, tuple[torch.Tensor, list[int]]]:
    """By name each tensor and the ranks, ascending in stages, whose stages hold it under any name."""
    by_tensor: dict[torch.Tensor, list[int]] = {}
    names: dict[str, torch.Tensor] = {}
    for index, stage in enumerate(stages):
        for name, tensor in named_tensors(stage).items():
            held = by_tensor.setdefault(tensor, [])
            if index % ranks not in held:
                held.append(index % ranks)
            names[name] = tensor
    return {name: (tensor, by_tensor[tensor]) for name, tensor in names.items()}


def _move(stage: nn.Module, device: torch.device) -> None:
    for inner in stage.modules():
        for parameter in inner.parameters(recurse=False):
            parameter.data = parameter.data.to(device)
        for name, buffer in inner.named_buffers(recurse=False):
            inner._buffers[name] = buffer.to(device)


def chunks_equal(inputs: Any, micro_batches: int) -> None:
    """Raises ValueError unless the batch divides into equal micro-batches, whose shapes ranks agree on once."""
    for value in as_tuple(inputs):
        if len(value) % micro_batches:
            raise ValueError(
                f"a batch of {len(value)} does not divide into {micro_batches} equal micro-batches, as a pipeline over "
                "ranks needs: choose another batch size, or drop_last=True in the DataLoader"
            )
