"""The process groups of a profile, as MindStudio's tools know them: by the name of the communicator, or a number of it.

Files in text form and analysis.db have the number, tables of ascend_pytorch_profiler.db the name; parallel_group_info, in the
metadata, says which ranks a name stands for.
"""

import os
from typing import Any

import torch
import torch.distributed as dist


def _hash(name: str, factor: int) -> int:
    value = 0
    for character in name:
        value = (value * factor + ord(character)) % 2**32
    return value


def number_of(communicator: str) -> str:
    """The number that stands for a communicator's name: two hashes of 32 bits, as msprof-analyze computes them."""
    return str(_hash(communicator, 29) << 32 | _hash(communicator, 131))


def _group_of(unique_name: str) -> dist.ProcessGroup | None:
    known = dist.distributed_c10d._world.pg_names.items()
    return next((group for group, name in known if name == unique_name), None)


def communicator_of(unique_name: str) -> str:
    """Name of the communicator of the group that PyTorch knows by ``unique_name``; the same on all its ranks."""
    group = _group_of(unique_name)
    backend = None
    if group is not None and torch.device("npu") in group._device_types:
        backend = group._get_backend(torch.device("npu"))
    # The backend is asked about its own card, with which it agrees that the rank is on it.
    name = "" if backend is None else backend.get_hccl_comm_name(torch.npu.current_device(), init_comm=False)
    return name or f"hccl_{unique_name}"


def groups() -> dict[str, dict[str, Any]]:
    """parallel_group_info: the process groups of this process, by the names of their communicators."""
    if not (dist.is_available() and dist.is_initialized()):
        return {}
    return {
        communicator_of(name): {
            "group_name": "default_group" if group is dist.group.WORLD else name,
            "group_rank": dist.get_rank(group),
            "global_ranks": dist.get_process_group_ranks(group),
        }
        for group, name in dist.distributed_c10d._world.pg_names.items()
        if dist.get_rank(group) >= 0
    }


def global_rank() -> int:
    """This process's rank, or the one that its launcher gave it; -1 for a process on its own."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "-1"))
