"""Versions that the package answers with. Imports nothing, so that it can be read before PyTorch is there."""

from pathlib import Path

__version__ = (Path(__file__).parent / "version.txt").read_text().strip()

TORCH = "2.13"  # the PyTorch release this package is made for: protected C++ members are used by name
TORCH_NPU = "2.13.0"  # the torch_npu release whose public names are provided
CANN = "8.5.0"  # the toolkit version that torch.version.cann and _home/ascend_toolkit_install.info report


def get_cann_version(module: str = "CANN") -> str:
    """Version of a component of the toolkit; all of them are released together."""
    return CANN
