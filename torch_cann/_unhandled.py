"""The line that torch_npu writes when a script ends with an error that is not the device's own.

    [ERROR] 2026-01-31-12:00:00 (PID:4242, Device:0, RankID:-1) ERR99999 UNKNOWN applicaiton exception

Tools that read logs of a cluster look for such lines. Here only processes that use the device write it.
"""

import re
import sys
from types import TracebackType

from torch_cann import _C
from torch_cann.utils._error_code import _UNKNOWN, ErrCode

_HAS_CODE = re.compile(r"\bERR\d{5}\b")


def _report(kind: type[BaseException], value: BaseException) -> None:
    if _C._npu_isInitialized() and issubclass(kind, Exception) and not _HAS_CODE.search(str(value)):
        if line := _C._error_suffix(_UNKNOWN, ErrCode.EXCEPT.code).lstrip("\n"):
            print(line, file=sys.stderr)


def install() -> None:
    """Adds the line to what ``sys.excepthook`` prints; a hook that a script sets later replaces it."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        previous(kind, value, traceback)
        _report(kind, value)

    sys.excepthook = hook
