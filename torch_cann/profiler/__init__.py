"""torch_npu.profiler: torch.profiler with the names, the result folder and the tables that Ascend users know.

What is recorded is PyTorch's own: operators on the host's timeline, memory, Python code. Kernels of the simulated card
run inside their operators, so a kernel's time is its operator's, in time of the host.
"""

from torch.profiler import ProfilerAction, ProfilerActivity, supported_activities

from torch_cann.profiler._profile import _KinetoProfile, analyse, profile, tensorboard_trace_handler
from torch_cann.profiler.experimental_config import (
    AiCMetrics,
    ExportType,
    HostSystem,
    ProfilerLevel,
    _ExperimentalConfig,
    supported_ai_core_metrics,
    supported_export_type,
    supported_profiler_level,
)
from torch_cann.profiler.scheduler import Schedule as schedule

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "_KinetoProfile",
    "analyse",
    "profile",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
]
