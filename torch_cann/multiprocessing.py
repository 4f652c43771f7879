"""npu tensors in queues, pipes and process arguments of torch.multiprocessing: sender and receiver share the memory.

PyTorch pickles a tensor for another process as its storage plus geometry, and knows how to send CPU storages: it moves
them into shared memory. The memory of a simulated card is host memory, so the same serves npu storages: the CPU storage
behind them is moved and sent, and the receiver puts an npu storage on top of what it gets. The sending process counts
the memory as the host's from then on, no longer as its card's.
"""

from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing.reductions import reduce_storage

from torch_cann import _C
from torch_cann._refused import refused

globals().update(refused(__name__))


def rebuild_npu_storage(host: torch.UntypedStorage, device: int) -> torch.UntypedStorage:
    return _C._npu_wrap_host_storage(host, device)


def _reduce_storage(storage: torch.UntypedStorage):
    if storage.device.type != "npu":
        return reduce_storage(storage)
    host = _C._npu_host_storage(storage)
    if host.size() > 0:
        host.share_memory_()
        _C._npu_sync_storage(storage)
    return rebuild_npu_storage, (host, storage.device.index)


def register() -> None:
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
