"""torch.npu.aclnn: the switch of the kernel library, as torch.backends.cudnn is for another."""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType

from torch_cann.npu.npu_config import conv, matmul

__all__ = ["allow_hf32", "version"]


def version() -> None:
    """None: there is no such library underneath."""


def set_flags(_allow_hf32: bool | None = None) -> tuple[bool]:
    """Sets what is not None; returns what was set before."""
    before = matmul.allow_hf32 and conv.allow_hf32
    if _allow_hf32 is not None:
        matmul.allow_hf32 = conv.allow_hf32 = _allow_hf32
    return (before,)


@contextlib.contextmanager
def flags(allow_hf32: bool = True) -> Iterator[None]:
    """Context manager: HF32 is allowed, or not, inside."""
    before = matmul.allow_hf32, conv.allow_hf32
    set_flags(allow_hf32)
    try:
        yield
    finally:
        matmul.allow_hf32, conv.allow_hf32 = before


class AclnnModule(ModuleType):
    """This module, with an attribute that is a setting."""

    @property
    def allow_hf32(self) -> bool:
        """Whether fp32 products and convolutions may round their inputs to HF32; both stay in full fp32 here."""
        return set_flags()[0]

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        set_flags(value)


sys.modules[__name__].__class__ = AclnnModule
