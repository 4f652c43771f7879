"""Distributed training on npu tensors: the backend "hccl" of torch.distributed, and what torch_npu.distributed adds."""

import torch.distributed

from torch_cann.distributed import _backend
from torch_cann.distributed.uneven import all_gather_into_tensor_uneven, all_to_all_vc, reduce_scatter_tensor_uneven
from torch_cann.utils._error_code import ErrCode, dist_error

__all__ = [
    "all_gather_into_tensor_uneven",
    "all_to_all_vc",
    "is_available",
    "is_hccl_available",
    "reduce_scatter_tensor_uneven",
    "register",
    "reinit_process_group",
]


def is_available() -> bool:
    return torch.distributed.is_available()


def is_hccl_available() -> bool:
    return "hccl" in torch.distributed.Backend.backend_list


def reinit_process_group(group=None, rebuild_link: bool = True):
    """Makes a process group usable again after an operation of it has failed or timed out. All its ranks must call.

    Args:
        group: the process group; the default one if None.
        rebuild_link: True makes new connections and gives the group back. False keeps them, which is only possible
            while nothing has failed, and gives None.

    Raises:
        RuntimeError: the group has no backend "hccl", or its connections are lost and `rebuild_link` is False.
    """
    group = group or torch.distributed.group.WORLD
    if group is None:
        raise ValueError(
            "the default process group is not initialized: call init_process_group() first"
            + dist_error(ErrCode.INTERNAL)
        )
    return _backend.reinit(group, rebuild_link)


def register() -> None:
    """Tells torch.distributed about "hccl". Called once, when torch_cann is imported."""
    _backend.register()
    for function in (is_hccl_available, reinit_process_group):
        if not hasattr(torch.distributed, function.__name__):
            setattr(torch.distributed, function.__name__, function)
