"""What a bug report needs to know. ``python -m torch_cann.utils.collect_env`` prints it."""

import torch

from torch_cann import _C, version
from torch_cann.version import get_cann_version as get_cann_version


def get_torch_npu_version() -> str:
    return version.TORCH_NPU


def get_pretty_env_info() -> str:
    """PyTorch's own report, and the simulated server's."""
    from torch.utils.collect_env import get_pretty_env_info as torch_report

    return "\n".join(
        (
            torch_report(),
            f"torch_cann version: {version.__version__} (torch_npu {version.TORCH_NPU}, CANN {version.CANN})",
            f"NPU: {_C._npu_getSocName()} (simulated), {torch.npu.device_count()} visible",
        )
    )


if __name__ == "__main__":
    print(get_pretty_env_info())
