"""Averages lists of gradients over the ranks, in buckets, compressed on the wire."""

import re
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from torch_cann.recipes.train._codecs import Residual, make_codec
from torch_cann.recipes.train.topology import (
    Exchange,
    Layout,
    Steps,
    TopologyAwareScheduler,
    gather_steps,
    no_steps,
    pad,
    reduce_scatter_steps,
    reduce_steps,
)

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_IN_FLIGHT = 4  # buckets at a time, which bounds the memory for copies


def parse_size(size: int | str, name: str = "bucket_size") -> int:
    """Bytes of ``25 * 2**20``, "25MB", "512 KB", "1GB" (powers of two, as DDP's bucket_cap_mb).

    Raises ValueError, naming the argument ``name``, for anything else.
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B)\s*", size, re.IGNORECASE) if isinstance(size, str) else None
    nbytes = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if nbytes < 1:
        raise ValueError(f"{name} must be a number of bytes above 0 or a text such as '25MB', but is {size!r}")
    return nbytes


class CompressedCommunicator:
    """Averages gradients over the ranks, in buckets, compressed on the wire.

    Own use, after backward: ``comm.all_reduce([p.grad for p in model.parameters()])``. With DistributedDataParallel:
    ``comm.attach(model)``. Without an initialised process group, or alone in it, gradients stay exactly as they are.

    Every rank ends with the same bits. "fp16" and "bf16" halve float32's bytes and round what is sent and its sums;
    numbers above 65504 overflow in "fp16" and are then inf, for a loss scaler to see. "int8" sends a quarter, "topk"
    the largest numbers only; both keep what they leave out and add it to the next call (error feedback), so that the
    lists must be the same ones every time. With a loss scale kept residuals are scaled too: for one step after the
    scale changed they count by the factor of the change.

    Args:
        compression: None or "none", "fp16", "bf16", "int8" or "topk".
        bucket_size: bytes, or a text such as "25MB".
        error_feedback: keep what compression lost; default: for "int8" and "topk". Costs a float32 copy of gradients.
        top_k_ratio: share of the elements that "topk" sends, above 0, at most 1.
        average: divide the sum by the number of ranks, before it is sent.
        scheduler: with ``intra_node_priority`` and several nodes, sums inside nodes are exact and only what travels
            between nodes is compressed. Default: flat, everything is compressed.
        process_group: the ranks; default all, or those of ``scheduler``.

    Raises:
        TypeError, ValueError: an argument is wrong.
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
        if not 0 < top_k_ratio <= 1:
            raise ValueError(f"top_k_ratio must be above 0 and at most 1, but is {top_k_ratio}")
        if scheduler is not None and not isinstance(scheduler, TopologyAwareScheduler):
            raise TypeError(f"scheduler must be a TopologyAwareScheduler, but is a {type(scheduler).__name__}")
        if scheduler is not None and process_group is not None and scheduler.process_group is not process_group:
            raise ValueError("scheduler and process_group name different ranks: give the group to the scheduler only")
        self._codec = make_codec(compression, top_k_ratio)
        self.compression = compression or "none"
        self.bucket_size = parse_size(bucket_size)
        self.average = average
        self.scheduler = scheduler or TopologyAwareScheduler(False, 1.0, process_group=process_group)
        feedback = self._codec.feedback if error_feedback is None else error_feedback
        self._residuals: dict[Hashable, torch.Tensor] | None = {} if feedback else None
        self._ddp_steps = 0

    @property
    def layout(self) -> Layout:
        """The ranks; see TopologyAwareScheduler.layout."""
        return self.scheduler.layout()

    @property
    def sent_bytes(self) -> dict[str, float]:
        """Bytes this rank has sent so far, by link ("intra_node", "inter_node")."""
        return dict(self.scheduler.traffic)

    def all_reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each tensor (any shape, floating point) by its average over the ranks, in place.

        Every rank must give tensors of the same shapes and dtypes in the same order.

        Raises TypeError for anything but dense floating-point tensors, before anything is sent.
        """
        tensors = list(tensors)
        for i, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(
                    f"all_reduce(): element {i} is {type(tensor).__name__}, not a tensor; leave out parameters that "
                    "have no gradient, on every rank"
                )
            if tensor.layout != torch.strided or not tensor.is_floating_point():
                raise TypeError(
                    f"all_reduce(): element {i} is a {tensor.layout} tensor of {tensor.dtype}; only dense tensors of "
                    "floating-point numbers can be averaged"
                )
        if self.layout.size == 1:
            return
        in_flight: deque[tuple[list[torch.Tensor], torch.Tensor, Exchange]] = deque()
        for index, bucket in enumerate(self._buckets(tensors)):
            flat = pad(torch.cat([tensor.detach().reshape(-1) for tensor in bucket]), self.layout.size)
            in_flight.append((bucket, flat, self.start(flat, ("list", index))))
            if len(in_flight) == _IN_FLIGHT:
                _finish(*in_flight.popleft())
        while in_flight:
            _finish(*in_flight.popleft())

    def start(self, flat: torch.Tensor, key: Hashable) -> Exchange:
        """Begins to average a one-dimensional tensor in place; its length must be a multiple of the number of ranks.

        Args:
            flat: overwritten, not to be touched before ``wait()`` of what is returned.
            key: what the tensor is, the same in every step and on every rank; names its residual.
        """
        layout = self.layout
        if layout.size == 1:
            return Exchange(no_steps())
        if self.average:
            flat /= layout.size
        residual = Residual(self._residuals, key)
        return Exchange(reduce_steps(layout, flat, lambda part, over: self._codec.reduce(part, over, residual)))

    def start_reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, key: Hashable) -> Exchange:
        """As ``start``, but only slice ``layout.slice_index`` arrives, in ``shard``; ``flat`` is used up."""
        layout = self.layout
        if self.average:
            flat /= layout.size
        residual = Residual(self._residuals, key)
        return Exchange(
            reduce_scatter_steps(
                layout, flat, shard, lambda part, out, over: self._codec.reduce_scatter(part, out, over, residual)
            )
        )

    def start_all_gather(self, flat: torch.Tensor, shard: torch.Tensor) -> Exchange:
        """Collects every rank's ``shard`` into its slice of ``flat``, uncompressed."""
        return Exchange(gather_steps(self.layout, flat, shard))

    def attach(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        """Makes this the communication hook of a DDP model, which then averages its gradients compressed.

        With error feedback the first step goes uncompressed: DDP makes its final buckets only after it. "int8" and
        two-level exchanges are several collectives that need each other, which a hook must finish at once, so they do
        not overlap with backward; DistributedOptimizer overlaps them.
        """
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise TypeError(f"attach() needs a DistributedDataParallel model, but got a {type(model).__name__}")
        if not self.average:
            raise ValueError("DDP averages gradients: make the communicator with average=True")
        model.register_comm_hook(self, CompressedCommunicator._ddp_hook)

    @staticmethod
    def _ddp_hook(self: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        flat = pad(buffer, self.layout.size)
        if self._residuals is not None and self._ddp_steps == 0:
            exchange = Exchange(_exact(self.layout, flat))
        else:
            exchange = self.start(flat, ("ddp", bucket.index()))
        self._ddp_steps += bucket.is_last()

        def result(_: Any = None) -> torch.Tensor:
            exchange.wait()
            return flat[: buffer.numel()]

        if exchange.work is not None and self._codec.collectives == 1 and self.layout.node is None:
            return exchange.work.get_future().then(result)
        done = torch.futures.Future(devices=[buffer.device] if buffer.device.type != "cpu" else None)
        done.set_result(result())
        return done

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals, on their device. They differ between ranks: save them with the rank's other state."""
        return {"ranks": self.layout.size, "compression": self.compression, "residuals": dict(self._residuals or {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what ``state_dict`` gave on the same rank.

        Raises ValueError if it is of another compression or number of ranks; go on without it then, which costs what
        the residuals held: the small part of the last gradients that was not sent yet.
        """
        mine = self.layout.size, self.compression
        theirs = state["ranks"], state["compression"]
        if mine != theirs:
            raise ValueError(
                f"these residuals are of {theirs[0]} ranks and compression {theirs[1]!r}, but this is {mine[0]} ranks "
                f"and {mine[1]!r}"
            )
        if self._residuals is not None:
            self._residuals = {key: value.clone() for key, value in state["residuals"].items()}

    def _buckets(self, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The tensors in their order, cut where the dtype or card changes or ``bucket_size`` is exceeded."""
        buckets: list[list[torch.Tensor]] = []
        kind, size = None, 0
        for tensor in tensors:
            if (tensor.dtype, tensor.device) != kind or size + tensor.nbytes > self.bucket_size:
                buckets.append([])
                kind, size = (tensor.dtype, tensor.device), 0
            buckets[-1].append(tensor)
            size += tensor.nbytes
        return buckets


def _exact(layout: Layout, flat: torch.Tensor) -> Steps:
    flat /= layout.size
    yield layout.everyone.all_reduce(flat)


@torch.no_grad()
def _finish(bucket: list[torch.Tensor], flat: torch.Tensor, exchange: Exchange) -> None:
    exchange.wait()
    start = 0
    for tensor in bucket:
        tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
