"""What Ascend software leaves in the process environment and in torch.version, for libraries that look for it.

DeepSpeed, for example, reads ASCEND_HOME_PATH unguarded and looks below it for ascend_*_install.info. A value set by
the user is never touched.
"""

import importlib
import os
import warnings
from pathlib import Path

import torch

from torch_cann import version

HOME = Path(__file__).parent / "_home"


def fill_in() -> None:
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        os.environ.setdefault(name, str(HOME))
    torch.version.cann = version.CANN


def warn_of_unknown() -> None:
    """Warns of variables that look like ours and are not: nobody reads them."""
    ours = {name for name in os.environ if name.startswith("TORCH_CANN_")}
    if not ours:
        return
    from torch_cann import _variables

    known = set(_variables.names_read())
    unknown = sorted(ours - known)
    if unknown:
        import difflib
    for name in unknown:
        (close, *_) = [*difflib.get_close_matches(name, known, 1), ""]
        meant = f", did you mean {close}?" if close else ""
        warnings.warn(f"the environment variable {name} is not known and has no effect{meant}", stacklevel=2)


def sanitize_if_asked() -> None:
    """Switches the stream sanitizer on as TORCH_CANN_SANITIZER says. Raises ValueError unless it is 0, 1 or warn."""
    value = os.environ.get("TORCH_CANN_SANITIZER", "0")
    if value not in ("0", "1", "warn"):
        raise ValueError(f"TORCH_CANN_SANITIZER must be 0, 1 or warn, but is {value!r}")
    if value != "0":
        sanitizer = importlib.import_module("torch_cann.sanitizer")
        sanitizer.StreamSanitizer("raise" if value == "1" else "warn").enable()


def transfer_if_asked() -> None:
    """Redirects CUDA scripts if TORCH_TRANSFER_TO_NPU is 1. Raises ValueError unless it is 0, 1 or unset."""
    value = os.environ.get("TORCH_TRANSFER_TO_NPU", "0")
    if value not in ("0", "1"):
        raise ValueError(f"TORCH_TRANSFER_TO_NPU must be 0 or 1, but is {value!r}")
    if value == "1":
        importlib.import_module("torch_cann.contrib.transfer_to_npu")
