"""The import name acl: the calls of CANN's runtime interface for Python that programs make beside PyTorch.

As in CANN, functions do not raise: they return an error code, or a tuple that ends with one; 0 is success. Models,
operators and media (acl.mdl, acl.op, acl.media) are not there.
"""

from torch_cann import _C
from torch_cann.acl import rt, util
from torch_cann.acl._codes import SUCCESS

__all__ = ["finalize", "get_soc_name", "get_version", "init", "rt", "util"]


def init(config: str | None = None) -> int:
    """Prepares the runtime. A configuration file is accepted and not read."""
    return SUCCESS


def finalize() -> int:
    return SUCCESS


def get_soc_name() -> str:
    """The chip, for example "Ascend910B2". Initialises nothing."""
    return _C._npu_getSocName()


def get_version() -> tuple[int, int, int, int]:
    """Version of the interface: major, minor, patch, and the error code."""
    return 1, 0, 0, SUCCESS


def __getattr__(name: str):
    if name in ("mdl", "op", "media", "prof", "himpi", "tdt"):
        raise AttributeError(f"acl.{name} is not provided by torch_cann, the simulated NPU: acl has rt and util only")
    raise AttributeError(f"module 'acl' has no attribute '{name}'")
