"""Pipeline parallel training of an ordinary model: over the cards of one process, or over ranks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn


class PipelineParallel:
    """Splits a model into stages and trains it by micro-batches; losses and gradients are those of the whole model.

    Args:
        model: any module that torch.fx can trace around its blocks (the children of its longest Sequential or
            ModuleList), or a list of modules. Its Parameter objects stay, so an optimizer made before stays right.
        stages: number of cards in the pipeline.
        micro_batches: parts of a batch.
        schedule: "gpipe", "1F1B", "interleaved" or "zero-bubble", in any case.
        devices: one process: a device for each stage, default npu:0 ... Ranks: ignored but for its first.
        loss_fn: (output, target) -> mean loss of the micro-batch; needed by train_step.
        split: None: by cost (parameters); or for each stage after the first the name of the block it begins with, or a
            list of the numbers of blocks.
        checkpointing: recompute a stage's forward in backward.
        virtual_stages: model chunks per card for "interleaved".
        process_group: ranks, as many as stages. Default: the default group if it has exactly ``stages`` > 1 ranks and
            ``devices`` is None, else one process.
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
        raise NotImplementedError("PipelineParallel is being written")

    def train_step(self, inputs: Any, targets: Any, grad_scale: float | torch.Tensor | None = None) -> torch.Tensor:
        """Forward and backward of one batch; gradients are added to ``p.grad``. Returns the batch's mean loss (0-dim).

        ``grad_scale`` multiplies what is differentiated, not what is returned: a GradScaler's scale.
        """
        raise NotImplementedError

    def eval_step(self, inputs: Any, targets: Any = None) -> torch.Tensor:
        """Without gradients: the mean loss, or the output of the whole batch if ``targets`` is None."""
        raise NotImplementedError

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters this process trains, each once: all, or across ranks those of its stages."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All tensors of the model under its own names; across ranks every rank must call, and gets all on the host."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, torch.Tensor], strict: bool = True) -> None:
        """Takes what state_dict() gave, of any number of stages or of the whole model."""
        raise NotImplementedError
