"""What to collect from the device, and in which form to write it."""

import warnings
from enum import Enum
from typing import Any

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
]


class ProfilerLevel(Enum):
    """How much the tables hold: Level1 and above have the kernels' statistics and the communication."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(Enum):
    """Counters of the AI cores. A simulated core has none: the setting is kept, no column comes from it."""

    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "AiCoreNone"


class ExportType(Enum):
    """Text: JSON and CSV files. Db: SQLite files with the tables of MindStudio."""

    Text = "text"
    Db = "db"


class HostSystem(Enum):
    """What to collect of the host beside the profile. Nothing is collected here."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


def supported_profiler_level() -> set[ProfilerLevel]:
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    return set(ExportType)


def _checked(kind: type[Enum], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}, one of {', '.join(map(str, kind))}, but got {value!r}")
    return value


class _ExperimentalConfig:
    """The options of torch_npu.profiler.profile(experimental_config=...).

    ``profiler_level``, ``export_type`` and ``mstx`` act. The others ask for counters, buses and logs that a simulated
    card does not have; one warning names those that were asked for.
    """

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AiCMetrics = AiCMetrics.AiCoreNone,
        l2_cache: bool = False,
        msprof_tx: bool = False,
        mstx: bool = False,
        data_simplification: bool = True,
        record_op_args: bool = False,
        op_attr: bool = False,
        gc_detect_threshold: float | None = None,
        export_type: ExportType | list[ExportType] = ExportType.Text,
        host_sys: list[HostSystem] | None = None,
        mstx_domain_include: list[str] | None = None,
        mstx_domain_exclude: list[str] | None = None,
        sys_io: bool = False,
        sys_interconnection: bool = False,
    ) -> None:
        self.profiler_level = _checked(ProfilerLevel, profiler_level)
        self.aic_metrics = _checked(AiCMetrics, aic_metrics)
        self.export_type = [
            _checked(ExportType, t) for t in (export_type if isinstance(export_type, list) else [export_type])
        ]
        self.mstx = mstx or msprof_tx
        absent = {
            "l2_cache": l2_cache,
            "record_op_args": record_op_args,
            "op_attr": op_attr,
            "gc_detect_threshold": gc_detect_threshold is not None,
            "host_sys": bool(host_sys),
            "mstx_domain_include": bool(mstx_domain_include),
            "mstx_domain_exclude": bool(mstx_domain_exclude),
            "sys_io": sys_io,
            "sys_interconnection": sys_interconnection,
        }
        asked = [name for name, value in absent.items() if value]
        if asked:
            warnings.warn(f"torch_cann's profiler collects nothing for: {', '.join(asked)}", stacklevel=2)
