"""apply_checkpointing: layers that forget their activations and compute them again in backward."""

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed._composable import checkpoint

from torch_cann.recipes.train import _checks


def apply_checkpointing(
    model: nn.Module, checkpoint_ratio: float = 1.0, *, layers: type | str | Iterable[type | str] | None = None
) -> nn.Module:
    """Makes a share of the layers of ``model`` recompute their activations in backward; in place, returns ``model``.

    Numbers do not change, dropout included. Names of modules and parameters, and the state dict, stay as they are:
    PyTorch's composable checkpoint works by hooks.

    Args:
        checkpoint_ratio: share of the layers, 0 to 1, rounded to whole layers but at least one unless it is 0, spread
            evenly from the first to the last.
        layers: what counts as a layer: types of modules, or patterns of their names with * and ?. None takes
            repeated_layers().

    Raises:
        ValueError: if the ratio is out of range, no layer is found, or a layer is checkpointed already.
    """
    _checks.number("checkpoint_ratio", checkpoint_ratio, 0, 1)
    found = repeated_layers(model) if layers is None else _named_layers(model, layers)
    for layer in spread(found, checkpoint_ratio):
        if is_checkpointed(layer):
            raise ValueError(f"a layer of type {type(layer).__name__} is checkpointed already")
        checkpoint(layer)
    return model


def is_checkpointed(module: nn.Module) -> bool:
    """Whether PyTorch's composable checkpoint has been applied to ``module``."""
    return checkpoint.state(module) is not None


def spread(layers: list[nn.Module], ratio: float) -> list[nn.Module]:
    """``ratio`` of the layers, evenly spaced."""
    count = max(1, round(ratio * len(layers))) if ratio else 0
    return [layers[(2 * i + 1) * len(layers) // (2 * count)] for i in range(count)]


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a deep model: the children of one type in the container where most parameters repeat.

    A model without such a container has its children that have parameters as layers, or is itself the only one.
    """
    best: list[nn.Module] = []
    for container in model.modules():
        if isinstance(container, (nn.Sequential, nn.ModuleList)):
            children = [child for child in container if next(child.parameters(), None) is not None]
            kinds = Counter(type(child) for child in children).most_common(1)
            same = [child for child in children if kinds and type(child) is kinds[0][0]]
            if len(same) > 1 and _size(same) > _size(best):
                best = same
    return best or [child for child in model.children() if next(child.parameters(), None) is not None] or [model]


def _size(layers: list[nn.Module]) -> int:
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _named_layers(model: nn.Module, wanted: Any) -> list[nn.Module]:
    wanted = [wanted] if isinstance(wanted, (str, type)) else list(wanted)
    types = tuple(entry for entry in wanted if isinstance(entry, type))
    patterns = [entry for entry in wanted if isinstance(entry, str)]
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in inside or not (isinstance(module, types) or any(fnmatchcase(name, p) for p in patterns)):
            continue
        found.append(module)
        inside.update(module.modules())  # a layer of a layer would be computed a third time
    if not found:
        raise ValueError(f"layers: {wanted!r} match no module of {type(model).__name__}")
    return found
