"""What a batch is to a model, and what the loss of its output is, where the script does not say."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

LossFunction = Callable[[Any, Any], torch.Tensor]


def default_loss(output: Any, target: Any) -> torch.Tensor:
    """Cross entropy for classes (int64, the output has one dimension more, the last), mean squared error for numbers.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor):
        if target.dtype == torch.int64 and output.dim() == target.dim() + 1 and output.shape[:-1] == target.shape:
            return F.cross_entropy(output.flatten(0, -2).float(), target.flatten())
        if target.is_floating_point() and output.shape == target.shape:
            return F.mse_loss(output.float(), target.float())
    raise TypeError(
        f"no default loss for an output of {_describe(output)} and a target of {_describe(target)}: give loss_fn"
    )


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def inputs_and_target(batch: Any) -> tuple[tuple, Any]:
    """(a, b, target) -> ((a, b), target). Raises TypeError for a batch of another form."""
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return tuple(batch[:-1]), batch[-1]
    raise TypeError(f"a batch must be (inputs..., target) or a dictionary of arguments, but is {type(batch).__name__}")


def loss_of(model: nn.Module, batch: Any, loss_fn: LossFunction) -> torch.Tensor:
    """The scalar loss of one batch.

    A dictionary is the model's keyword arguments, and the output's ``loss`` is taken, as transformers' models have it;
    of a tuple or list the last is the target and the rest are the model's arguments.
    """
    if isinstance(batch, Mapping):
        output = model(**batch)
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if loss is None:
            raise TypeError(f"{type(model).__name__} gave a {_describe(output)} without a loss for a dictionary batch")
        return loss
    inputs, target = inputs_and_target(batch)
    return loss_fn(model(*inputs), target)
