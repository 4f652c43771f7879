"""What ended a script, in one sentence with the line of its own code."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

from torch_cann import _C
from torch_cann.plan.errors import UnknownValueError
from torch_cann.plan.unknown import last_refusal


def site_of(error: BaseException, script: str) -> str:
    """The line of the script's own code that the error came through last."""
    site = script
    traceback = error.__traceback__
    internal = internal_files()
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(("<", *internal)):
            site = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return site


def sentence(error: BaseException, script: str) -> str | None:
    """One sentence about what ended a script, or None if it ended well."""
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        how = f"with exit code {error.code}" if isinstance(error.code, int) else f"saying: {error.code}"
        return f"{site_of(error, script)}: the script ended itself {how}"
    if isinstance(error, (UnknownValueError, TypeError)) and (refusal := last_refusal()):
        return str(refusal)
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    if isinstance(error, torch.OutOfMemoryError):
        return f"{site_of(error, script)}: {lines[0]}"
    return f"{site_of(error, script)}: the script raised {type(error).__name__}" + (f": {lines[0]}" if lines[0] else "")


def internal_files() -> tuple[str, ...]:
    return (
        str(Path(torch.__file__).parent),
        str(Path(_C.__file__).parent),
        str(Path(runpy.__file__).parent),
    )
