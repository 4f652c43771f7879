"""What a bug report needs to know. ``python -m torch_npu.utils.collect_env`` prints it."""

import os
from collections import namedtuple
from pathlib import Path

import torch

from torch_cann import _C, version
from torch_cann.version import get_cann_version as get_cann_version

# torch's report, then ours.
SystemEnv = namedtuple(
    "SystemEnv", ("torch_report", "torch_cann_version", "torch_npu_version", "cann_version", "npus", "variables")
)
_PREFIXES = ("ASCEND_", "TORCH_CANN_", "HCCL_", "PYTORCH_NPU_", "TORCH_NPU_", "TASK_QUEUE_", "STREAMS_PER_DEVICE")


def get_torch_npu_version() -> str:
    return version.TORCH_NPU


def get_torch_npu_install_path() -> str:
    """The folder of the package that torch_npu's names come from."""
    return str(Path(__file__).parents[1])


def check_path_owner_consistent(path: str) -> bool:
    """Whether ``path`` belongs to this user or to root. Raises FileNotFoundError when it is not there."""
    return os.stat(path).st_uid in (os.getuid(), 0)


def check_directory_path_readable(path: str) -> None:
    """Raises NotADirectoryError or PermissionError unless ``path`` is a folder that can be read."""
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is not a folder")
    if not os.access(path, os.R_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be read")


def _npu_lines() -> list[str]:
    count = torch.npu.device_count()
    lines = [f"{_C._npu_getSocName()} (simulated), {count} visible"]
    for index in range(count):
        properties = torch.npu.get_device_properties(index)
        lines.append(
            f"npu:{index}: {properties.total_memory >> 20} MB, {properties.cube_core_num} cube and "
            f"{properties.vector_core_num} vector cores"
        )
    return lines


def get_env_info() -> SystemEnv:
    """What pretty_str() shows, as a named tuple."""
    from torch.utils.collect_env import get_pretty_env_info as torch_report

    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}
    return SystemEnv(torch_report(), version.__version__, version.TORCH_NPU, version.CANN, _npu_lines(), variables)


def pretty_str(envinfo: SystemEnv) -> str:
    return "\n".join(
        (
            envinfo.torch_report,
            "",
            f"torch_cann version: {envinfo.torch_cann_version}",
            f"torch_npu version: {envinfo.torch_npu_version} (the release whose names are provided)",
            f"CANN version: {envinfo.cann_version} (none is installed or needed)",
            *(f"{name}={value}" for name, value in envinfo.variables.items()),
            "NPU: " + "\n     ".join(envinfo.npus),
        )
    )


def get_pretty_env_info() -> str:
    """PyTorch's own report, and the simulated server's."""
    return pretty_str(get_env_info())


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
