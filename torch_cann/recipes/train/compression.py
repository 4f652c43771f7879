"""Reduces lists of gradients in buckets, compressed on the wire."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from torch_cann.recipes.train.topology import TopologyAwareScheduler


class CompressedCommunicator:
    """Averages gradients over the ranks, in buckets, compressed on the wire.

    Own use: ``comm.all_reduce([p.grad for p in model.parameters()])`` after backward. With DistributedDataParallel:
    ``comm.attach(ddp_model)``.

    Args:
        compression: None or "none", "fp16", "bf16", "int8" or "topk".
        bucket_size: bytes, or a text such as "25MB".
        error_feedback: keep what compression lost and add it to the next step's gradient; default for int8 and topk.
        top_k_ratio: share of the elements that "topk" sends.
        average: divide the sum by the number of ranks.
        scheduler: two-level exchange; only what travels between nodes is then compressed.
        process_group: the ranks; default all.
    """

    def __init__(
        self,
        compression: str | None = "fp16",
        bucket_size: int | str = "25MB",
        *,
        error_feedback: bool | None = None,
        top_k_ratio: float = 0.01,
        average: bool = True,
        scheduler: TopologyAwareScheduler | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        raise NotImplementedError("CompressedCommunicator is being written")

    def all_reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each tensor by its average (or sum) over the ranks, in place."""
        raise NotImplementedError

    def attach(self, ddp: torch.nn.parallel.DistributedDataParallel) -> None:
        """Registers this as the communication hook of a DDP model."""
        raise NotImplementedError
