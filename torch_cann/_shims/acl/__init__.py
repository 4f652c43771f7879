"""The import name acl, CANN's runtime interface for Python. All of it is torch_cann.acl."""

from torch_cann.acl import __getattr__ as __getattr__
from torch_cann.acl import finalize, get_soc_name, get_version, init, rt, util

__all__ = ["finalize", "get_soc_name", "get_version", "init", "rt", "util"]
