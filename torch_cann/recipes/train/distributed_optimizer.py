"""An optimizer for data parallel training: averages gradients while backward runs, shards its state (ZeRO 1 and 2)."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train._gradient_reducer import GradientReducer, make_buckets
from torch_cann.recipes.train._sharded_state import Shard, gather_state, shard_state
from torch_cann.recipes.train.compression import CompressedCommunicator
from torch_cann.recipes.train.topology import Exchange, TopologyAwareScheduler

# Optimizers whose update of a number depends on that number's own gradient and state only, so that a slice of a
# parameter can be updated alone.
ELEMENTWISE = frozenset(
    getattr(torch.optim, name) for name in "Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()
)
_IN_FLIGHT = 4  # buckets of parameters that are collected at a time


class DistributedOptimizer(torch.optim.Optimizer):
    """Averages gradients over the ranks, overlapped with backward, and steps an ordinary optimizer on shards of them.

    The model is used as it is, without DistributedDataParallel (or with it, and ``reduce_gradients=False``). Parameters
    are made equal on all ranks when this is made: those of the group's first rank count. When ``backward`` returns,
    ``p.grad`` is the average over the ranks, so that clipping, a GradScaler and learning rate schedulers work as ever.
    Without an initialised process group, or alone in it, this is the ordinary optimizer.

    Stage 0 shards nothing; every rank makes the whole update. Stage 1 shards the optimizer's state: every rank updates
    its slice of the parameters and the slices are then collected (Rajbhandari et al. 2020). Stage 2 shards gradients
    too, which also sends a third less than stage 1: then ``p.grad`` is None after backward, ``param_groups`` hold the
    slices, and **gradients must be clipped with ``clip_grad_norm_`` of this object**: torch's own would find none.

    Args:
        params: parameters or parameter groups, on their card already.
        lr: learning rate.
        compression: of gradients, as of CompressedCommunicator.
        optimizer_class: the ordinary optimizer; for stages 1 and 2 one of ELEMENTWISE.
        zero_stage: 0, 1 or 2.
        bucket_size: bytes, or a text such as "25MB".
        overlap: start averaging a bucket as soon as backward has its gradients; False: all when backward is over.
        reduce_gradients: False: somebody else averages them (DDP); stages 0 and 1 only.
        scheduler: two-level exchange, and how much of it overlaps.
        process_group: the ranks; default all, or those of ``scheduler``.
        **defaults: of optimizer_class, such as weight_decay.

    Raises:
        TypeError, ValueError: an argument is wrong.
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
        _check_stage(zero_stage, optimizer_class, reduce_gradients)
        self.communicator = CompressedCommunicator(
            compression, bucket_size, scheduler=scheduler, process_group=process_group
        )
        whole = optimizer_class(params, lr=lr, **defaults)
        self._ranks = self.communicator.layout.size
        self._sharded = zero_stage > 0 and self._ranks > 1
        self._sharded_gradients = zero_stage == 2 and self._ranks > 1
        self._params: list[nn.Parameter] = [p for group in whole.param_groups for p in group["params"]]
        self._frozen = [p for p in self._params if not p.requires_grad]
        self._group_lengths = [len(group["params"]) for group in whole.param_groups]
        self._buckets = (
            make_buckets(self._params, self.communicator.bucket_size, self._ranks) if self._ranks > 1 else []
        )
        self._make_equal()
        self._reducer: GradientReducer | None = None
        if self._buckets and reduce_gradients:
            self._reducer = GradientReducer(
                self._buckets, self.communicator, overlap, self._sharded_gradients, self._take_gradients
            )
        self._shards = self._make_shards() if self._sharded else []
        self._inner = whole
        if self._sharded:
            self._inner = optimizer_class(self._piece_groups(whole.param_groups), lr=lr, **defaults)
        super().__init__((self._inner if self._sharded_gradients else whole).param_groups, whole.defaults)
        self._sealed = True
        self._adopt_inner()

    @property
    def zero_stage(self) -> int:
        """The stage that is at work: 0 with a single rank."""
        return self._sharded + self._sharded_gradients

    def no_sync(self) -> AbstractContextManager[None]:
        """Context in which backward only adds up local gradients; for all micro-steps but the last."""
        return nullcontext() if self._reducer is None else self._reducer.disabled()

    def reduce_gradients(self) -> None:
        """Averages gradients that were set without backward. ``step`` does it if backward has not; all ranks call."""
        if self._reducer is not None:
            self._reducer.reduce()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters on all ranks; every rank must call. Returns what ``closure`` returned, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._average_if_needed()
        if self._sharded:
            self._step_shards()
        else:
            self._inner.step()
        if self._reducer is not None:
            self._reducer.synced = False
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of torch.optim.Optimizer; slices of gradients go with their parameters'."""
        for param in self._params:
            if param.grad is not None and set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_().zero_()
        for shard in self._shards:
            for piece in shard.pieces:
                piece.data.grad = None
        if self._reducer is not None:
            self._reducer.forget()

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ over all parameters, for every stage; every rank must call.

        Returns the norm before clipping, a 0-dim tensor, the same on every rank.
        """
        self._average_if_needed()
        if not self._sharded_gradients:
            return nn.utils.clip_grad_norm_(self._params, max_norm, norm_type)
        pieces = [piece.data for shard in self._shards for piece in shard.pieces]
        grads = [piece.grad for piece in pieces if piece.grad is not None]
        device = self._params[0].device
        norm = nn.utils.get_total_norm(grads, norm_type).to(device) if grads else torch.zeros((), device=device)
        everyone = self.communicator.layout.everyone
        if norm_type == float("inf"):
            everyone.all_reduce(norm, dist.ReduceOp.MAX).wait()
        else:
            norm = norm**norm_type
            everyone.all_reduce(norm).wait()
            norm = norm ** (1 / norm_type)
        nn.utils.clip_grads_with_norm_(pieces, max_norm, norm)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """That of the ordinary optimizer over the whole parameters, whatever the stage and the number of ranks.

        If state is sharded every rank must call, and gets all of it, on the host. What error feedback holds back is
        not in it: see ``communicator.state_dict()``.
        """
        if not self._sharded:
            return self._inner.state_dict()
        groups, first = [], 0
        for group, length in zip(self.param_groups, self._group_lengths, strict=True):
            groups.append({**group, "params": list(range(first, first + length))})
            first += length
        return {"state": gather_state(self._shards, self._inner, self.communicator), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what ``state_dict`` gave, of any stage and number of ranks, or of the ordinary optimizer.

        Raises ValueError if groups or numbers of parameters differ.
        """
        lengths = [len(group["params"]) for group in state_dict["param_groups"]]
        if lengths != self._group_lengths:
            raise ValueError(
                f"the state is of groups of {lengths} parameters, but this optimizer has groups of "
                f"{self._group_lengths}"
            )
        if self._sharded:
            state_dict = shard_state(self._shards, self._inner, state_dict)
        self._inner.load_state_dict(state_dict)
        self._adopt_inner()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while this is made."""
        if getattr(self, "_sealed", False):
            raise NotImplementedError(
                "parameters are assigned to ranks when the optimizer is made: make a new DistributedOptimizer with all "
                "groups"
            )
        super().add_param_group(param_group)

    @torch.no_grad()
    def _make_equal(self) -> None:
        group = self.communicator.scheduler.process_group
        for bucket in self._buckets:
            flat = bucket.zeros()
            for slot in bucket.slots:
                slot.of(flat).copy_(slot.param)
            dist.broadcast(flat, group=group, group_src=0)
            for slot in bucket.slots:
                slot.param.copy_(slot.of(flat))

    def _make_shards(self) -> list[Shard]:
        layout = self.communicator.layout
        shards = [Shard(bucket, layout.slice_index, layout.size) for bucket in self._buckets]
        for shard in shards:
            shard.load_values()
        return shards

    def _piece_groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The groups with this rank's pieces in the place of the parameters."""
        pieces = {piece.slot.param: piece.data for shard in self._shards for piece in shard.pieces}
        return [{**group, "params": [pieces[p] for p in group["params"] if p in pieces]} for group in groups]

    def _adopt_inner(self) -> None:
        """Hyperparameters are the inner optimizer's; so are parameters and state unless it steps hidden slices."""
        if self._sharded and not self._sharded_gradients:
            for mine, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
                mine.update({name: value for name, value in inner.items() if name != "params"})
        else:
            self.param_groups, self.state = self._inner.param_groups, self._inner.state

    def _average_if_needed(self) -> None:
        if self.communicator.layout.size != self._ranks:
            raise RuntimeError(
                f"the optimizer was made for {self._ranks} ranks, but there are {self.communicator.layout.size} now: "
                "make it after init_process_group()"
            )
        if any(param.grad is not None for param in self._frozen):
            raise RuntimeError(
                "a parameter that had requires_grad=False when the optimizer was made has a gradient now, which is "
                "not averaged: make a new DistributedOptimizer when what is trained changes"
            )
        if self._reducer is not None and not self._reducer.synced:
            self._reducer.reduce()

    def _take_gradients(self) -> None:
        if self._reducer is not None and self._sharded_gradients:
            for shard in self._shards:
                shard.take_gradients(self._reducer.has_grad)

    def _step_shards(self) -> None:
        for shard in self._shards:
            shard.load_values()
            if not self._sharded_gradients:
                shard.load_gradients()
        if not self._sharded_gradients:
            for mine, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
                inner.update({name: value for name, value in mine.items() if name != "params"})
        self._inner.step()
        for piece in (piece for shard in self._shards for piece in shard.pieces if not self._sharded_gradients):
            piece.data.grad = None  # a view of the parameter's, which zero_grad() must be able to free
        in_flight: deque[tuple[Shard, torch.Tensor, Exchange]] = deque()
        for shard in self._shards:
            whole = shard.flat.new_empty(shard.bucket.numel)
            in_flight.append((shard, whole, self.communicator.start_all_gather(whole, shard.flat)))
            if len(in_flight) == _IN_FLIGHT:
                _store(*in_flight.popleft())
        while in_flight:
            _store(*in_flight.popleft())


def _store(shard: Shard, whole: torch.Tensor, exchange: Exchange) -> None:
    exchange.wait()
    for slot in shard.bucket.slots:
        slot.param.copy_(slot.of(whole))


def _check_stage(zero_stage: int, optimizer_class: type[torch.optim.Optimizer], reduce_gradients: bool) -> None:
    if zero_stage not in (0, 1, 2) or isinstance(zero_stage, bool):
        raise ValueError(
            f"zero_stage must be 0, 1 or 2, but is {zero_stage!r}; for stage 3 use torch.distributed.fsdp.fully_shard"
        )
    if zero_stage and optimizer_class not in ELEMENTWISE:
        names = ", ".join(sorted(known.__name__ for known in ELEMENTWISE))
        raise ValueError(
            f"zero_stage {zero_stage} updates slices of parameters, which is right for {names}; "
            f"{optimizer_class.__name__} may need whole ones: use zero_stage=0"
        )
    if zero_stage == 2 and not reduce_gradients:
        raise ValueError("zero_stage 2 shards gradients while it averages them: it needs reduce_gradients=True")
