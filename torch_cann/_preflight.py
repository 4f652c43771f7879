"""Refuses, with one clear sentence, to be imported where it cannot work."""

import importlib.util
from pathlib import Path

import torch

from torch_cann import version

# The file that marks an installed torch_npu package as ours.
SHIM_MARK = "_provided_by_torch_cann.py"


def check() -> None:
    """Raises ImportError for a PyTorch of another release, or when a real torch_npu is installed beside us."""
    if not torch.__version__.startswith(version.TORCH + "."):
        raise ImportError(
            f"torch_cann {version.__version__} works with PyTorch {version.TORCH}.x, but PyTorch {torch.__version__} "
            f"is installed: install torch=={version.TORCH}.0, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0."
        )
    spec = importlib.util.find_spec("torch_npu")
    if spec is not None and spec.origin and not (Path(spec.origin).parent / SHIM_MARK).exists():
        raise ImportError(
            f"the real torch_npu is installed in {Path(spec.origin).parent}, and torch_cann provides a simulated "
            "device under the same name: uninstall one (pip uninstall torch-cann, or pip uninstall torch_npu)."
        )


def check_extension(built_for: str) -> None:
    """Raises ImportError when the extension was compiled for another PyTorch than the one running."""
    running = torch.__version__.split("+")[0]
    if running != built_for:
        raise ImportError(
            f"torch_cann was compiled for PyTorch {built_for}, but PyTorch {running} is running: build torch_cann "
            "again (pip install --no-build-isolation .)."
        )
