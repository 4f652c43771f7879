"""torch.optim's Adam and AdamW run fused on npu where the script leaves the choice of implementation to them.

By default they run as a chain of list operators (``foreach``), which makes 20 passes over parameters and state. The fused
kernel makes seven and gives the same numbers to the bit for float32 parameters, the only ones it is chosen for. Two of
torch.optim's global hooks ask for it for the length of a step; afterwards the optimizer is as it was, so checkpoints and
``param_groups`` show nothing of it. ``foreach=True``, ``fused=False`` and what the fused kernel cannot do stay as they
are, and so does everything while the device's clock runs, which predicts the operators that hardware would run.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torch_cann import _C

_KINDS = (Adam, AdamW)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass
class _Seen:
    """What is known of an optimizer."""

    # Whether the fused kernel can take a list of parameters, by the list's identity and length.
    fusible: dict[tuple[int, int], bool] = field(default_factory=dict)
    # The groups that were told to run fused in the present step.
    chosen: list[dict[str, Any]] = field(default_factory=list)

    def undo(self) -> None:
        for group in self.chosen:
            group["fused"] = None
        self.chosen.clear()


_seen: weakref.WeakKeyDictionary[Optimizer, _Seen] = weakref.WeakKeyDictionary()


def _can_be_fused(parameters: list[torch.Tensor]) -> bool:
    return bool(parameters) and all(
        type(parameter) in _PLAIN and parameter.device.type == "npu" and parameter.dtype == torch.float32
        for parameter in parameters
    )


def _leaves_the_choice(group: dict[str, Any]) -> bool:
    return (
        group["fused"] is None
        and group["foreach"] is None
        and not (group["capturable"] or group["differentiable"])
        and not any(isinstance(value, torch.Tensor) for value in (group["lr"], *group["betas"]))
    )


def _before_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if type(optimizer) not in _KINDS or torch.compiler.is_compiling() or _C._sim.is_on() or _C._sim.is_dry():
        return
    seen = _seen.setdefault(optimizer, _Seen())
    seen.undo()  # left over if the last step raised
    for group in optimizer.param_groups:
        parameters = group["params"]
        key = (id(parameters), len(parameters))
        if key not in seen.fusible:
            seen.fusible[key] = _can_be_fused(parameters)
        if seen.fusible[key] and _leaves_the_choice(group):
            group["fused"] = True
            seen.chosen.append(group)


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if type(optimizer) in _KINDS and (seen := _seen.get(optimizer)) is not None:
        seen.undo()


def install() -> None:
    """Registers the hooks; once per process."""
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
