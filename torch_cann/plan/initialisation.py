"""Random initial values of large tensors on the host, which a dry run need not draw: all it takes of them to the device is
their size. Memory that nobody writes is none, so that a model of any size can be built on the host as scripts do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Smaller ones are drawn, so that what scripts check of a tensor by hand is there.
_LARGE = 1 << 20


class Undrawn:
    """How much was not drawn: ``bytes``."""

    def __init__(self) -> None:
        self.bytes = 0

    def skips(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` keeps the contents of its memory; counts it if so."""
        if tensor.device.type != "cpu" or not tensor.is_floating_point() or tensor.nbytes < _LARGE:
            return False
        self.bytes += tensor.nbytes
        return True

    def note(self) -> str | None:
        if self.bytes == 0:
            return None
        return (
            f"Random initial values of {self.bytes / 2**30:.2f} GiB on the host were not drawn: what the script computes "
            "of them on the host has no meaning."
        )


def install() -> Undrawn:
    """Has the methods that draw, and initialisers of torch.nn.init that do more than call one, leave large tensors on the
    host as they are. Once per process, before the script starts."""
    undrawn = Undrawn()

    def unless_large(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def draw(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return tensor if undrawn.skips(tensor) else real(tensor, *args, **kwargs)

        return draw

    for owner, names in ((torch.Tensor, ("uniform_", "normal_")), (torch.nn.init, ("trunc_normal_", "orthogonal_"))):
        for name in names:
            setattr(owner, name, unless_large(getattr(owner, name)))
    return undrawn
