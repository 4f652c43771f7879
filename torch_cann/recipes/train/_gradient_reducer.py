"""Averages gradients bucket by bucket while backward still runs, as DistributedDataParallel does, without wrapping.

Buckets start in a fixed order, last parameters first, each when all before it have started: the order in which ranks
call collectives must not depend on which gradient happens to be ready first.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train.compression import CompressedCommunicator
from torch_cann.recipes.train.topology import Exchange, Ticket

_IN_FLIGHT = 4  # started buckets at a time, which bounds the memory for their copies


@dataclass
class Slot:
    """A parameter's place in its bucket. ``number`` counts all parameters of the optimizer, ``index`` the trained."""

    index: int
    number: int
    param: nn.Parameter
    offset: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[self.offset : self.offset + self.param.numel()].view(self.param.shape)


@dataclass
class Bucket:
    """Parameters of one dtype and card whose gradients travel together; ``numel`` is a multiple of the ranks."""

    index: int
    slots: list[Slot]
    numel: int
    grad_shard: torch.Tensor | None = None  # this rank's slice of the averaged gradients, if they are sharded
    unready: set[int] = field(default_factory=set)

    @property
    def dtype(self) -> torch.dtype:
        return self.slots[0].param.dtype

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def zeros(self, numel: int | None = None) -> torch.Tensor:
        param = self.slots[0].param
        return torch.zeros(self.numel if numel is None else numel, dtype=param.dtype, device=param.device)


def make_buckets(params: Sequence[nn.Parameter], bucket_size: int, ranks: int) -> list[Bucket]:
    """Buckets of at most ``bucket_size`` bytes (or one parameter), in the order in which backward fills them.

    Parameters that are not trained (``requires_grad`` False) are in none.
    """
    buckets: list[Bucket] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], Bucket] = {}
    trained = [(number, param) for number, param in enumerate(params) if param.requires_grad]
    for index, (number, param) in reversed(list(enumerate(trained))):
        kind = (param.dtype, param.device)
        bucket = open_buckets.get(kind)
        if bucket is None or (bucket.numel + param.numel()) * param.element_size() > bucket_size:
            bucket = open_buckets[kind] = Bucket(len(buckets), [], 0)
            buckets.append(bucket)
        bucket.slots.append(Slot(index, number, param, bucket.numel))
        bucket.numel += param.numel()
    for bucket in buckets:
        bucket.numel += -bucket.numel % ranks
    return buckets


class GradientReducer:
    """Hooks parameters so that backward ends with averaged gradients: in ``p.grad``, or sharded in the buckets.

    A parameter without a gradient counts as zeros where another rank has one; if no rank has, its gradient stays None,
    so that an optimizer skips it as it would on one rank.

    Args:
        buckets: of ``make_buckets``.
        communicator: averages.
        overlap: start a bucket as soon as backward has filled it; else all when backward is over.
        sharded: every rank keeps its slice only, ``bucket.grad_shard``, and ``p.grad`` becomes None. Slices add up
            until ``forget``. An overflow on one rank makes all slices nan, so that all ranks skip the step.
        finished: called when the gradients are averaged.
    """

    def __init__(
        self,
        buckets: list[Bucket],
        communicator: CompressedCommunicator,
        overlap: bool,
        sharded: bool,
        finished: Callable[[], None],
    ):
        self.buckets = buckets
        self.synced = False  # what the gradients hold is averaged
        self.has_grad: list[bool] = [False] * sum(len(bucket.slots) for bucket in buckets)
        self._communicator, self._overlap, self._sharded = communicator, overlap, sharded
        self._finished = finished
        self._enabled = True
        self._running = False
        self._next = 0  # the first bucket that has not been handed over
        self._in_flight: deque[tuple[Bucket, Ticket]] = deque()
        self._received: dict[int, torch.Tensor] = {}  # by bucket: what its exchange fills
        self._bucket_of = {slot.param: bucket for bucket in buckets for slot in bucket.slots}
        self_reference = weakref.ref(self)  # parameters outlive optimizers

        def hook(param: torch.Tensor) -> None:
            reducer = self_reference()
            if reducer is not None:
                reducer._ready(param)

        for param in self._bucket_of:
            param.register_post_accumulate_grad_hook(hook)

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Backward leaves gradients as they are."""
        before, self._enabled = self._enabled, False
        try:
            yield
        finally:
            self._enabled = before

    def reduce(self) -> None:
        """Averages what the gradients hold now. Every rank must call."""
        self._begin()
        self._finish()

    def forget(self) -> None:
        """The gradients are set to zero or used."""
        self.synced = False
        self.has_grad = [False] * len(self.has_grad)
        for bucket in self.buckets:
            bucket.grad_shard = None

    def _ready(self, param: torch.Tensor) -> None:
        self.synced = False
        if not self._enabled:
            return
        if not self._running:
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self._finish)
            except RuntimeError as error:
                raise RuntimeError(
                    "a gradient was added outside backward, as pipeline schedules do: do that within no_sync() of the "
                    "DistributedOptimizer, whose step() then averages"
                ) from error
            self._begin()
        self._bucket_of[param].unready.discard(id(param))
        while self._overlap and self._next < len(self.buckets) and not self.buckets[self._next].unready:
            self._hand_over()

    def _begin(self) -> None:
        self._running, self._next = True, 0
        for bucket in self.buckets:
            bucket.unready = {id(slot.param) for slot in bucket.slots}
        self._communicator.scheduler.begin_step(sum(bucket.nbytes for bucket in self.buckets) if self._overlap else 0)

    def _hand_over(self) -> None:
        bucket = self.buckets[self._next]
        self._next += 1
        ticket = self._communicator.scheduler.submit(lambda: self._start(bucket), bucket.nbytes)
        self._in_flight.append((bucket, ticket))
        while sum(ticket.started for _, ticket in self._in_flight) > _IN_FLIGHT:
            self._take(*self._in_flight.popleft())

    @torch.no_grad()
    def _start(self, bucket: Bucket) -> Exchange:
        flat = bucket.zeros()
        for slot in bucket.slots:
            grad = slot.param.grad
            # Slices add up over several backwards, so a parameter has a gradient if it had one in any of them.
            self.has_grad[slot.index] = grad is not None or (self._sharded and self.has_grad[slot.index])
            if grad is None:
                continue
            _check(slot, grad, flat)
            slot.of(flat).copy_(grad)
            if self._sharded:
                slot.param.grad = None
        if not self._sharded:
            self._received[bucket.index] = flat
            return self._communicator.start(flat, ("bucket", bucket.index))
        shard = self._received[bucket.index] = bucket.zeros(bucket.numel // self._communicator.layout.size)
        return self._communicator.start_reduce_scatter(flat, shard, ("bucket", bucket.index))

    @torch.no_grad()
    def _take(self, bucket: Bucket, ticket: Ticket) -> None:
        ticket.wait()
        if self._sharded:
            shard = self._received.pop(bucket.index)
            bucket.grad_shard = shard if bucket.grad_shard is None else bucket.grad_shard + shard
            return
        received = self._received.pop(bucket.index)
        for slot in bucket.slots:
            if slot.param.grad is not None:
                slot.param.grad.copy_(slot.of(received))
            else:
                self._received[-1 - slot.index] = slot.of(received)  # until it is known whether another rank has one

    def _finish(self) -> None:
        while self._next < len(self.buckets):
            self._hand_over()
        self._communicator.scheduler.flush()
        while self._in_flight:
            self._take(*self._in_flight.popleft())
        self._share_flags()
        self._received.clear()
        self._running, self.synced = False, True
        self._finished()

    @torch.no_grad()
    def _share_flags(self) -> None:
        """One small collective: which parameters have a gradient somewhere, and whether a slice has an overflow."""
        flags = torch.tensor([0.0, *map(float, self.has_grad)], device=self.buckets[0].slots[0].param.device)
        if self._sharded:
            for bucket in self.buckets:
                flags[:1] += (~bucket.grad_shard.isfinite()).any().to(flags.device)
        self._communicator.layout.everyone.all_reduce(flags, dist.ReduceOp.MAX).wait()
        if self._sharded:
            poison = torch.where(flags[0] > 0, torch.nan, 0.0)
            for bucket in self.buckets:
                bucket.grad_shard += poison.to(bucket.grad_shard.device)
        if all(self.has_grad):
            return  # then nothing is to be learnt, and reading a value would make the host wait for the card
        self.has_grad = [flag > 0 for flag in flags[1:].tolist()]
        for bucket in self.buckets:
            for slot in bucket.slots:
                if self.has_grad[slot.index] and -1 - slot.index in self._received:
                    slot.param.grad = self._received[-1 - slot.index].clone()


def _check(slot: Slot, grad: torch.Tensor, flat: torch.Tensor) -> None:
    if grad.layout != torch.strided:
        raise TypeError(
            f"parameter {slot.number} of shape {tuple(slot.param.shape)} has a gradient of {grad.layout}; only dense "
            "gradients are averaged: make embeddings with sparse=False"
        )
    if (slot.param.device, slot.param.dtype) != (flat.device, flat.dtype):
        raise RuntimeError(
            f"parameter {slot.number} is {slot.param.dtype} on {slot.param.device}, but others made with it are "
            f"{flat.dtype} on {flat.device}: move and cast the whole model before making the optimizer"
        )
