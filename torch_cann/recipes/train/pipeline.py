"""Pipeline parallel training of an ordinary model: over the cards of one process, or over ranks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train._pipeline_local import LocalPipeline
from torch_cann.recipes.train._pipeline_order import SCHEDULES
from torch_cann.recipes.train._pipeline_ranks import RankPipeline, chunks_equal
from torch_cann.recipes.train._pipeline_split import as_tuple, split_model


class PipelineParallel:
    """Splits a model into stages and trains it by micro-batches.

    Loss and gradients are those of the whole model and batch, up to the order of sums, if ``loss_fn`` is a mean over
    samples. What looks at a whole batch (BatchNorm) sees micro-batches. Weights that several stages share stay one:
    their gradients are added up. With a DistributedOptimizer call ``train_step`` within its ``no_sync()``: backward
    runs once per stage and micro-batch, and its step() averages the sum. Not thread-safe.

    In one process the stages are on cards of this process, and kernels are queued in the order of the schedule. Across
    ranks every rank makes the same model and keeps its own stages on its card, run by torch.distributed.pipelining;
    all ranks call every method together, the first rank's inputs and the last rank's targets count, and batches must
    divide into equal micro-batches. Parameters of other ranks' stages stay on the host and get no gradients.

    Args:
        model: any module that torch.fx can trace around its blocks (children of the module, or of its Sequentials and
            ModuleLists), or a list of modules. Its Parameter objects stay and are moved, so an optimizer that was made
            before stays right. Arguments of ``forward`` with a default keep it.
        stages: number of cards in the pipeline.
        micro_batches: parts of a batch.
        schedule: "gpipe", "1F1B", "interleaved" or "zero-bubble", in any case.
        devices: one process: a device for each stage, default npu:0 and following.
        loss_fn: (output, target) -> mean loss of the micro-batch, 0-dim; needed with targets.
        split: None: the costliest stage costs least, by weights that are multiplied with; or for each stage after the
            first the name of the block it begins with; or for every stage its number of blocks.
        checkpointing: run a stage's forward again in backward instead of holding its activations.
        virtual_stages: for "interleaved" how many chunks of the model a card has; default 2.
        process_group: the ranks, as many as ``stages``. Default: all ranks if there are exactly ``stages`` > 1 of them
            and ``devices`` is None; else one process.

    Raises:
        TypeError, ValueError: an argument is wrong, or the model cannot be split that way.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        stages: int,
        micro_batches: int,
        schedule: str = "1F1B",
        devices: Sequence[Any] | None = None,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
        split: Sequence[str] | Sequence[int] | None = None,
        checkpointing: bool = False,
        *,
        virtual_stages: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        self.schedule = _check(stages, micro_batches, schedule, checkpointing, virtual_stages)
        self.model = model if isinstance(model, nn.Module) else nn.Sequential(*model)
        self.micro_batches, self.loss_fn = micro_batches, loss_fn
        chunks = (virtual_stages or 2) if self.schedule == "interleaved" else 1
        parts = split_model(self.model, stages * chunks, split)
        group = _ranks(stages, devices, process_group)
        self._local: LocalPipeline | None = None
        self._across: RankPipeline | None = None
        if group is None:
            cards = _cards(stages, devices)
            self._local = LocalPipeline(parts, cards, self.schedule, micro_batches, checkpointing)
        else:
            if self.schedule != "gpipe" and micro_batches < stages:
                raise ValueError(
                    f"schedule {schedule!r} over {stages} ranks needs at least as many micro-batches, but "
                    f"micro_batches is {micro_batches}"
                )
            card = torch.device("npu", torch.npu.current_device())
            self._across = RankPipeline(parts, group, card, self.schedule, micro_batches, checkpointing)

    def train_step(self, inputs: Any, targets: Any, grad_scale: float | torch.Tensor | None = None) -> torch.Tensor:
        """Forward and backward of one batch; gradients are added to ``p.grad``.

        Args:
            inputs: a tensor whose first dimension is the batch, or a tuple of them for several arguments.
            targets: a tensor whose first dimension is the batch.
            grad_scale: multiplies what is differentiated, not what is returned: a GradScaler's scale.

        Returns:
            The mean loss of the batch, a 0-dim tensor without gradient; across ranks the same on all.
        """
        loss_fn = self._needed_loss_fn()
        if self._across is not None:
            chunks_equal(inputs, self.micro_batches)
            share = 1.0 / self.micro_batches
            scale = share if grad_scale is None else share * grad_scale
            loss = self._across.train_step(as_tuple(inputs), targets, lambda out, target: loss_fn(out, target) * scale)
            return loss if grad_scale is None else loss / grad_scale
        shares, parts, targets = self._micro_batches(inputs, targets)

        def weighted(output: Any, target: Any, m: int) -> tuple[torch.Tensor, torch.Tensor]:
            loss = loss_fn(output, target) * shares[m]
            return (loss if grad_scale is None else loss * _on(grad_scale, loss)), loss

        return self._local.train_step(parts, targets, weighted)

    @torch.no_grad()
    def eval_step(self, inputs: Any, targets: Any = None) -> Any:
        """Without gradients, in the model's evaluation mode: the mean loss, or the whole output without ``targets``.

        The output is on the last stage's card; across ranks it is None on all but the last rank.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            return self._evaluate(inputs, targets)
        finally:
            self.model.train(was_training)

    def _evaluate(self, inputs: Any, targets: Any) -> Any:
        loss_fn = None if targets is None else self._needed_loss_fn()
        if self._across is not None:
            chunks_equal(inputs, self.micro_batches)
            if loss_fn is None:
                return self._across.outputs(as_tuple(inputs))
            share = 1.0 / self.micro_batches
            return self._across.eval_loss(as_tuple(inputs), targets, lambda out, target: loss_fn(out, target) * share)
        if loss_fn is None:
            return torch.cat(self._local.outputs(self._micro_batches(inputs, None)[1]))
        shares, parts, targets = self._micro_batches(inputs, targets)
        outputs = self._local.outputs(parts)
        device = self._local.stages[-1].device
        losses = [loss_fn(o, t.to(device)) * share for o, t, share in zip(outputs, targets, shares, strict=True)]
        return torch.stack(losses).sum()

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters this process trains, each once: all, or across ranks those of its stages."""
        for _, parameter in self.named_parameters():
            yield parameter

    def stage_modules(self) -> list[nn.Module]:
        """The stages that this process runs, as modules, for instance to register hooks on."""
        if self._across is not None:
            return list(self._across.mine.values())
        return [stage.module for stage in self._local.stages]

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """As ``parameters``, with the model's names."""
        if self._across is None:
            yield from self.model.named_parameters()
            return
        held = {id(p) for stage in self._across.mine.values() for p in stage.parameters()}
        yield from ((name, p) for name, p in self.model.named_parameters() if id(p) in held)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ over the whole model, also across ranks; returns the norm before."""
        if self._across is None:
            return nn.utils.clip_grad_norm_(self.model.parameters(), max_norm, norm_type)
        norm = self._across.total_norm(norm_type)
        nn.utils.clip_grads_with_norm_(list(self.parameters()), max_norm, norm)
        return norm

    def counted_parameters(self) -> list[nn.Parameter]:
        """As ``parameters``, but a weight that several ranks share is on one of them only, as norms need it."""
        if self._across is None:
            return list(self.model.parameters())
        return [p for name, p in self.named_parameters() if self._across.owners.get(name, 0) == self._across.rank]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The model's own, under its own names; across ranks on the host, and every rank must call and gets all."""
        state = self.model.state_dict()
        return state if self._across is None else self._across.gather(state)

    def load_state_dict(self, state: dict[str, torch.Tensor], strict: bool = True) -> None:
        """Takes what state_dict() gave, of any number of stages and ranks or of the whole model."""
        self.model.load_state_dict(state, strict=strict)

    def _needed_loss_fn(self) -> Callable[[Any, Any], torch.Tensor]:
        if self.loss_fn is None:
            raise ValueError("PipelineParallel was made without loss_fn, which says what is to be minimised")
        return self.loss_fn

    def _micro_batches(self, inputs: Any, targets: Any) -> tuple[list[float], list[tuple[Any, ...]], list[Any]]:
        """Shares of the batch, inputs and targets of the micro-batches, whose sizes differ by at most one sample."""
        inputs = as_tuple(inputs)
        sizes = {len(value) for value in inputs} | (set() if targets is None else {len(targets)})
        if len(sizes) != 1 or min(sizes) < self.micro_batches:
            raise ValueError(
                f"inputs and targets have first dimensions {sorted(sizes)}; they must be one batch of at least "
                f"{self.micro_batches} samples, the number of micro-batches"
            )
        cut = [value.tensor_split(self.micro_batches) for value in inputs]
        parts = list(zip(*cut, strict=True))
        size = sizes.pop()
        shares = [len(part[0]) / size for part in parts]
        return shares, parts, [None] * len(parts) if targets is None else list(targets.tensor_split(len(parts)))


def _on(scale: float | torch.Tensor, like: torch.Tensor) -> float | torch.Tensor:
    return scale.to(like.device) if isinstance(scale, torch.Tensor) else scale


def _check(stages: int, micro_batches: int, schedule: str, checkpointing: bool, virtual_stages: int | None) -> str:
    for name, value in (("stages", stages), ("micro_batches", micro_batches), ("virtual_stages", virtual_stages or 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive whole number, but is {value!r}")
    lower = schedule.lower() if isinstance(schedule, str) else schedule
    if lower not in SCHEDULES:
        raise ValueError(f"schedule must be one of gpipe, 1F1B, interleaved, zero-bubble, but is {schedule!r}")
    if virtual_stages is not None and lower != "interleaved":
        raise ValueError(f"virtual_stages={virtual_stages} is for schedule 'interleaved', but schedule is {schedule!r}")
    if lower == "interleaved" and micro_batches % stages:
        raise ValueError(
            f"schedule 'interleaved' needs a multiple of its {stages} stages as micro_batches, which is {micro_batches}"
        )
    if lower == "zero-bubble" and checkpointing:
        raise ValueError(
            "schedule 'zero-bubble' runs backward in two halves, between which activations are needed: it cannot be "
            "combined with checkpointing"
        )
    return lower


def _ranks(
    stages: int, devices: Sequence[Any] | None, process_group: dist.ProcessGroup | None
) -> dist.ProcessGroup | None:
    """The process group to use; None for one process."""
    if process_group is None:
        whole = dist.is_initialized() and devices is None and dist.get_world_size() == stages > 1
        return dist.group.WORLD if whole else None
    if devices is not None:
        raise ValueError("devices are for a pipeline in one process: with process_group each rank uses its own card")
    size = dist.get_world_size(process_group)
    if size != stages:
        raise ValueError(f"process_group has {size} ranks, but there are {stages} stages: there must be one for each")
    return process_group


def _cards(stages: int, devices: Sequence[Any] | None) -> list[torch.device]:
    if devices is None:
        if stages > torch.npu.device_count():
            raise ValueError(
                f"{stages} stages need as many cards, but this process sees {torch.npu.device_count()}: use fewer "
                "stages, or name the devices, which may repeat"
            )
        return [torch.device("npu", i) for i in range(stages)]
    if len(devices) != stages:
        raise ValueError(f"devices must be one for each of the {stages} stages, but there are {len(devices)}")
    cards = [torch.device("npu", d) if isinstance(d, int) else torch.device(d) for d in devices]
    return [
        torch.device("npu", torch.npu.current_device()) if c.type == "npu" and c.index is None else c for c in cards
    ]
