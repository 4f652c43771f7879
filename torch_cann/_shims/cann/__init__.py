"""The import name cann: the version of the toolkit that the simulated device stands for."""

from torch_cann.version import CANN as __version__

__all__ = ["__version__"]
