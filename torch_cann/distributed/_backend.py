"""Registration of backend "hccl", and the making of its process groups."""

import atexit
import copy

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from torch_cann import _C
from torch_cann._C import _distributed_c10d
from torch_cann.utils._error_code import ErrCode, dist_error

ProcessGroupHCCL = _distributed_c10d.ProcessGroupHCCL


def register() -> None:
    dist.Backend.register_backend("hccl", _create, extended_api=True, devices=["npu"])
    _make_default_of_mixed_groups()
    # Threads of groups that nobody destroyed must not meet an interpreter that is going.
    atexit.register(_distributed_c10d._close_all)


def _make_default_of_mixed_groups() -> None:
    """Lets "cpu:gloo,npu:hccl" have a default backend, which torch.distributed needs for names, numbers and hooks.

    For a string of several backends PyTorch 2.13 looks the first registered plugin up among the backends named, but
    plugins are registered in upper case ("HCCL") and named in lower case, so that no plugin is ever found. A second
    entry in lower case, in first place, is found.
    """
    plugins = dist.Backend._plugins
    others = {name: plugin for name, plugin in plugins.items() if name != "hccl"}
    plugins.clear()
    plugins["hccl"] = others["HCCL"]
    plugins.update(others)


def _create(common, options):
    """Creator for torch.distributed. `common`: _DistributedBackendOptions; `options`: what the user gave, or None."""
    if _C._sim.is_dry():
        ranks = list(common.global_ranks_in_group)
        return _distributed_c10d.DryProcessGroup(common.group_rank, common.group_size, common.group_id, ranks)
    if options is None:
        options = ProcessGroupHCCL.Options()
    elif isinstance(options, ProcessGroupHCCL.Options):
        options = copy.copy(options)  # one object may serve several groups
    else:
        raise TypeError(
            f'backend "hccl" takes ProcessGroupHCCL.Options as pg_options, but got {type(options).__name__}'
            + dist_error(ErrCode.TYPE)
        )
    options._timeout = common.timeout
    options.is_high_priority_stream = False
    options.global_ranks_in_group = common.global_ranks_in_group
    options.group_id = common.group_id
    options.group_name = common.group_id
    return ProcessGroupHCCL(common.store, common.group_rank, common.group_size, options)


def _hccl_of(group):
    try:
        backend = group._get_backend(torch.device("npu"))
    except RuntimeError as error:
        raise RuntimeError(
            f"process group {group.group_name!r} has no backend for npu tensors" + dist_error(ErrCode.NOT_FOUND)
        ) from error
    while not isinstance(backend, ProcessGroupHCCL) and hasattr(backend, "wrapped_pg"):
        backend = backend.wrapped_pg  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not isinstance(backend, ProcessGroupHCCL):
        raise RuntimeError(
            f"process group {group.group_name!r} uses {backend.name()!r} for npu tensors, but this needs 'hccl'"
            + dist_error(ErrCode.NOT_SUPPORT)
        )
    return backend


def reinit(group, rebuild_link: bool):
    backend = _hccl_of(group)
    if not rebuild_link:
        if backend._get_error() != ErrorType.SUCCESS:
            raise RuntimeError(
                f"the connections of process group {group.group_name!r} are lost: call reinit_process_group() with "
                "rebuild_link=True on all its ranks" + dist_error(ErrCode.UNAVAIL)
            )
        return None
    backend.abort_hccl_comm("reinit_process_group() was called")
    # The new addresses must not be mistaken for those of an earlier time.
    store = dist.PrefixStore(f"rebuild_{backend._rebuilds}", group.get_group_store())
    backend._rebuild(store)
    return group
