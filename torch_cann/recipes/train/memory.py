"""MemoryOptimizer: the ways to make training need less of the card's memory, behind one set of switches."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from torch_cann.recipes.train import _checks
from torch_cann.recipes.train.checkpointing import apply_checkpointing
from torch_cann.recipes.train.optimizer_states import FORMS, CompactOptimizerState
from torch_cann.recipes.train.precision_levels import sensitive_modules
from torch_cann.recipes.train.saved_activations import COMPRESSIONS, SavedActivations
from torch_cann.recipes.train.zero import STAGES, shard_model, shard_optimizer


class MemoryOptimizer:
    """Trades arithmetic, precision, host memory or communication for the card's memory.

        memory = MemoryOptimizer(checkpointing=0.5, optimizer_state="bfloat16")
        model, optimizer = memory.prepare(model, optimizer)
        with memory.activations():
            loss = loss_fn(model(inputs), targets)
        loss.backward()

    Args:
        checkpointing: share of the layers that are computed again in backward; True is all. See apply_checkpointing.
        layers: what counts as a layer for it.
        activation_compression: how saved activations are kept: "bfloat16" or "int8" (SavedActivations says how exact);
            True is "int8", since after mixed precision there is nothing to gain from 16 bits; False leaves them.
        activation_offload: saved activations go to pinned host memory until backward.
        zero_stage: 0 none; with ranks 1 spreads optimizer state, 2 gradients too, 3 parameters too.
        gather_dtype: at stages 2 and 3 parameters are gathered and computed with in this dtype, "float16" or
            "bfloat16"; the shards stay what they are, and gradients are summed in float32. None gathers the shards'
            own dtype.
        keep_fp32: with gather_dtype, types of modules or patterns of their names that are gathered as they are, beside
            the norms.
        optimizer_state: "float32", "bfloat16" or "host" between steps.
        min_bytes: smaller activations are left as they are.

    Raises:
        TypeError, ValueError: for an argument out of its range.
    """

    def __init__(
        self,
        checkpointing: bool | float = False,
        activation_compression: bool | str = False,
        *,
        layers: type | str | Iterable[type | str] | None = None,
        activation_offload: bool = False,
        zero_stage: int = 0,
        gather_dtype: torch.dtype | str | None = None,
        keep_fp32: Iterable[type | str] = (),
        optimizer_state: str = "float32",
        min_bytes: int = 4096,
    ) -> None:
        if isinstance(activation_compression, bool):
            activation_compression = "int8" if activation_compression else ""
        self.checkpointing = _checks.number("checkpointing", float(checkpointing), 0, 1)
        self.layers = layers
        self.compression = _checks.one_of("activation_compression", activation_compression, ("", *COMPRESSIONS)) or None
        self.offload = bool(activation_offload)
        self.zero_stage = _checks.one_of("zero_stage", zero_stage, STAGES)
        self.gather_dtype = None
        if gather_dtype is not None:
            self.gather_dtype = _checks.float_dtype("gather_dtype", gather_dtype, (torch.float16, torch.bfloat16))
        self.keep_fp32 = [keep_fp32] if isinstance(keep_fp32, (str, type)) else list(keep_fp32)
        self.optimizer_state = _checks.one_of("optimizer_state", optimizer_state, FORMS)
        self._min_bytes = _checks.whole("min_bytes", min_bytes, 0)
        self._saved: SavedActivations | None = None
        self._compact: CompactOptimizerState | None = None

    def prepare(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        device: torch.device | None = None,
    ) -> tuple[nn.Module, torch.optim.Optimizer | None]:
        """Applies the switches. ``model`` is changed in place; the optimizer is another one at zero_stage 1.

        ``model`` is on its device already; with ``device`` stages 2 and 3 bring it there, layer by layer. Ranks are
        those of the default process group.
        """
        if self.checkpointing:
            apply_checkpointing(model, self.checkpointing, layers=self.layers)
        if self.zero_stage >= 2:
            kept = sensitive_modules(model, "O2", self.keep_fp32) if self.gather_dtype else {}
            shard_model(
                model, optimizer, self.zero_stage, gather_dtype=self.gather_dtype, kept=kept.values(), device=device
            )
        elif self.zero_stage == 1 and optimizer is not None:
            optimizer = shard_optimizer(optimizer)
        self.watch(model, optimizer)
        return model, optimizer

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """The part of prepare() that concerns activations and optimizer state only."""
        if self.compression or self.offload:
            self._saved = SavedActivations(model, self.compression, self.offload, self._min_bytes)
        if optimizer is not None and self.optimizer_state != "float32":
            inner = getattr(optimizer, "optim", optimizer)  # of ZeroRedundancyOptimizer
            self._compact = CompactOptimizerState(inner, self.optimizer_state)

    def activations(self) -> AbstractContextManager[Any]:
        """The context for forward passes."""
        return self._saved.context() if self._saved else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer_state": self._compact.state_dict() if self._compact else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._compact:
            self._compact.load_state_dict(state["optimizer_state"])
