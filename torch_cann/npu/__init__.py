"""torch.npu: the device module, with the functions of torch.cuda and the Ascend ones that torch_npu adds."""

# ruff: noqa: F401, F403, F405 (this file gathers the names of the others)

import importlib

import torch

from torch_cann import _C
from torch_cann.npu import (
    _backends,
    _launch,
    _recovery,
    _tensor_types,
    _utils,
    amp,
    autocast_utils,
    deterministic,
    graphs,
    memory,
    npu_config,
    random,
    streams,
    utils,
)
from torch_cann.npu._backends import *
from torch_cann.npu._device import *
from torch_cann.npu._device import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _maybe_exchange_device,
)
from torch_cann.npu._launch import *
from torch_cann.npu._launch import _launch_host_func, _subscribe_report, _unsubscribe_report
from torch_cann.npu._recovery import *
from torch_cann.npu._tensor_types import *
from torch_cann.npu._utils import _get_device_index
from torch_cann.npu.autocast_utils import *
from torch_cann.npu.deterministic import *
from torch_cann.npu.graphs import *
from torch_cann.npu.graphs import NpuGraphOpHandler, register_npu_graph_handler
from torch_cann.npu.memory import *
from torch_cann.npu.mstx import mstx
from torch_cann.npu.npu_config import *
from torch_cann.npu.npu_config import config, conv, matmul
from torch_cann.npu.random import *
from torch_cann.npu.random import _get_generator
from torch_cann.npu.streams import *
from torch_cann.npu.utils import (
    clear_npu_overflow_flag,
    get_npu_overflow_flag,
    get_soc_version,
    obfuscation_calculate,
    obfuscation_finalize,
    obfuscation_initialize,
)

# Loaded when asked for: nothing else needs them.
_LAZY_MODULES = ("aclnn",)
OutOfMemoryError = torch.OutOfMemoryError


def __getattr__(name: str):
    """Names whose value changes: computed when asked for, so that importing initialises nothing."""
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random._default_generators()
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'torch.npu' has no attribute '{name}'")
