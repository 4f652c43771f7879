"""An optimizer for data parallel training: averages gradients while backward runs, shards its state (ZeRO 1 and 2)."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from torch_cann.recipes.train.topology import TopologyAwareScheduler


class DistributedOptimizer(torch.optim.Optimizer):
    """Averages gradients over the ranks, overlapped with backward, and steps an ordinary optimizer on shards of them.

    The model is used as it is, without DistributedDataParallel (or with it, and ``reduce_gradients=False``).
    Stage 1 shards the optimizer's state, stage 2 gradients too: then ``p.grad`` is None after backward, and
    ``clip_grad_norm_`` of this object must be used. ``state_dict()`` is that of the unsharded optimizer, whatever the
    stage and number of ranks; every rank must call it.

    Args:
        params: parameters or parameter groups, on their device already.
        lr: learning rate.
        compression: as of CompressedCommunicator.
        optimizer_class: the ordinary optimizer; for stages 1 and 2 one that works element by element.
        zero_stage: 0, 1 or 2.
        bucket_size: bytes, or a text such as "25MB".
        overlap: start reducing a bucket as soon as backward has its gradients; False: all when backward is over.
        reduce_gradients: False: somebody else averages them (DDP); stages 0 and 1 only.
        scheduler: two-level exchange, and how much of it overlaps.
        process_group: the ranks; default all.
        **defaults: of optimizer_class, such as weight_decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        compression: str | None = None,
        *,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.AdamW,
        zero_stage: int = 1,
        bucket_size: int | str = "25MB",
        overlap: bool = True,
        reduce_gradients: bool = True,
        scheduler: TopologyAwareScheduler | None = None,
        process_group: dist.ProcessGroup | None = None,
        **defaults: Any,
    ):
        raise NotImplementedError("DistributedOptimizer is being written")

    def no_sync(self):
        """Context in which backward only accumulates local gradients; for all micro-steps but the last."""
        raise NotImplementedError

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ over all parameters, for every stage; returns the norm before."""
        raise NotImplementedError
