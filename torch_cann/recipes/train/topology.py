"""Which link a collective uses, in which order collectives start, and reductions in two levels.

A node is a server whose cards reach each other directly; between nodes data passes a network that is an order of
magnitude slower. A rail joins the cards with the same place in their nodes, so that every card uses its own port.
"""

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

SELF, INTRA_NODE, INTER_NODE = "self", "intra_node", "inter_node"

# The steps of an exchange: each collective is yielded when it has started, and what follows needs its result.
Steps = Generator[dist.Work, None, None]


class Exchange:
    """Collectives that need each other's results. The first has started when this is made; ``wait`` does the rest.

    Not thread-safe. Every rank must start and wait for its exchanges in the same order.
    """

    def __init__(self, steps: Steps):
        self._steps = steps
        self.work: dist.Work | None = next(steps, None)

    def wait(self) -> None:
        """Returns when the results are there for the current stream; a second call returns at once."""
        while self.work is not None:
            self.work.wait()
            self.work = next(self._steps, None)


class Channel:
    """A process group together with its link; counts what this rank sends. Collectives sum and are asynchronous.

    The counts are those of the bandwidth-optimal algorithms: ``(n - 1) / n`` of the larger tensor for reduce_scatter,
    all_gather and all_to_all, twice that for all_reduce (Thakur, Rabenseifner and Gropp, 2005).
    """

    def __init__(self, group: dist.ProcessGroup | None, size: int, rank: int, link: str, traffic: dict[str, float]):
        self.group, self.size, self.rank, self.link = group, size, rank, link
        self._traffic = traffic

    def _count(self, tensor: torch.Tensor, times: int = 1) -> None:
        share = (self.size - 1) / self.size
        self._traffic[self.link] = self._traffic.get(self.link, 0) + times * share * tensor.nbytes

    def all_reduce(self, tensor: torch.Tensor, op: Any = None) -> dist.Work:
        self._count(tensor, 2)
        return dist.all_reduce(tensor, op or dist.ReduceOp.SUM, group=self.group, async_op=True)

    def reduce_scatter(self, shard: torch.Tensor, whole: torch.Tensor) -> dist.Work:
        self._count(whole)
        return dist.reduce_scatter_single(shard, whole, group=self.group, async_op=True)

    def all_gather(self, whole: torch.Tensor, shard: torch.Tensor) -> dist.Work:
        self._count(whole)
        return dist.all_gather_single(whole, shard, group=self.group, async_op=True)

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> dist.Work:
        self._count(sent)
        return dist.all_to_all_single(received, sent, group=self.group, async_op=True)


@dataclass
class Layout:
    """The ranks of a process group and where they are; ``node`` and ``rail`` only if there are several whole nodes."""

    everyone: Channel
    node: Channel | None = None
    rail: Channel | None = None

    @property
    def size(self) -> int:
        return self.everyone.size

    @property
    def slice_index(self) -> int:
        """Which of ``size`` equal slices this rank has after a reduce_scatter: of the node first, then of the rail."""
        if self.node is None or self.rail is None:
            return self.everyone.rank
        return self.node.rank * self.rail.size + self.rail.rank


@dataclass
class Ticket:
    """A collective given to ``TopologyAwareScheduler.submit``."""

    start: Callable[[], Exchange]
    link: str
    flush: Callable[[], None]
    exchange: Exchange | None = field(default=None, repr=False)

    @property
    def started(self) -> bool:
        return self.exchange is not None

    def wait(self) -> None:
        """Starts the collective, with all that wait before it, if that has not happened, and waits for its result."""
        if self.exchange is None:
            self.flush()
        assert self.exchange is not None
        self.exchange.wait()


class TopologyAwareScheduler:
    """Orders and groups collectives by link. Without an initialised process group the world is one rank.

    Every rank must submit the same collectives in the same order: what starts when follows from that and from sizes
    alone, so the ranks agree without asking each other. Groups are made when first needed, by all ranks together.

    Args:
        intra_node_priority: True: of the collectives that wait, those inside a node start first, and reductions over
            several nodes go in two levels (inside the nodes, along the rails between them, inside the nodes), which
            divides what crosses the network by the cards of a node. False: the order of submission, flat collectives.
        overlap_factor: share of a step's bytes, 0 to 1, that may be sent while backward still computes; the rest is
            sent when backward is over. Below 1 it leaves memory bandwidth to the computation.
        ranks_per_node: cards of a node; default LOCAL_WORLD_SIZE, else all ranks are on one node. Ranks are numbered
            node by node, as torchrun does. Groups whose nodes hold unequal numbers of their ranks stay flat.
        process_group: the ranks; default all.

    Raises:
        TypeError, ValueError: an argument is of another type or out of range.
    """

    def __init__(
        self,
        intra_node_priority: bool = True,
        overlap_factor: float = 0.8,
        *,
        ranks_per_node: int | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        if not isinstance(intra_node_priority, bool):
            raise TypeError(f"intra_node_priority must be True or False, but is {intra_node_priority!r}")
        if isinstance(overlap_factor, bool) or not isinstance(overlap_factor, int | float):
            raise TypeError(f"overlap_factor must be a number from 0 to 1, but is {overlap_factor!r}")
        if not 0 <= overlap_factor <= 1:
            raise ValueError(f"overlap_factor must be from 0 to 1, but is {overlap_factor}")
        if ranks_per_node is not None and (not isinstance(ranks_per_node, int) or ranks_per_node < 1):
            raise ValueError(f"ranks_per_node must be a positive whole number, but is {ranks_per_node!r}")
        self.intra_node_priority = intra_node_priority
        self.overlap_factor = float(overlap_factor)
        self.ranks_per_node = ranks_per_node
        self.process_group = process_group
        self.traffic: dict[str, float] = {}  # bytes sent by this rank, by link
        self._waiting: list[Ticket] = []
        self._budget = 0.0
        self._layout: Layout | None = None
        self._layout_world: Any = None

    def layout(self) -> Layout:
        """The channels of this rank. Collective when called for the first time on several nodes."""
        world = dist.group.WORLD if dist.is_initialized() else None
        if self._layout is None or self._layout_world is not world:
            self._layout, self._layout_world = self._find_layout(), world
        return self._layout

    def link(self, group: dist.ProcessGroup | None = None) -> str:
        """The slowest link a collective of ``group`` (default: all ranks) uses: "self", "intra_node", "inter_node"."""
        ranks = self._ranks(group or self.process_group)
        if len(ranks) == 1:
            return SELF
        return INTRA_NODE if len({self._node(rank) for rank in ranks}) == 1 else INTER_NODE

    def begin_step(self, nbytes: int) -> None:
        """A step begins that will submit ``nbytes``: ``overlap_factor`` of them start as they are submitted."""
        self.flush()
        self._budget = self.overlap_factor * nbytes

    def submit(self, start: Callable[[], Exchange], nbytes: int, group: dist.ProcessGroup | None = None) -> Ticket:
        """Hands over a collective that ``start`` begins.

        It starts at once as far as the share of ``begin_step`` allows, without overtaking an earlier one that waits;
        else with ``flush``.

        Args:
            start: begins the collective and returns it.
            nbytes: its size.
            group: its ranks, which decide the link; default those of the scheduler.
        """
        ticket = Ticket(start, self.link(group), self.flush)
        if not self._waiting and nbytes <= self._budget:
            self._budget -= nbytes
            ticket.exchange = start()
        else:
            self._waiting.append(ticket)
        return ticket

    def flush(self) -> None:
        """Starts all that wait: with ``intra_node_priority`` those inside a node first, else as submitted."""
        waiting, self._waiting = self._waiting, []
        if self.intra_node_priority:
            waiting.sort(key=lambda ticket: ticket.link == INTER_NODE)  # stable: the same order on every rank
        for ticket in waiting:
            ticket.exchange = ticket.start()

    def all_reduce(self, tensor: torch.Tensor) -> Exchange:
        """Sums a tensor of any shape over the ranks, in place, in two levels if there are several nodes."""
        layout = self.layout()
        if layout.size == 1:
            return Exchange(no_steps())
        flat = pad(tensor.reshape(-1), layout.size)
        return Exchange(self._all_reduce_steps(layout, tensor, flat))

    def _all_reduce_steps(self, layout: Layout, tensor: torch.Tensor, flat: torch.Tensor) -> Steps:
        yield from reduce_steps(layout, flat, _sum_steps)
        if flat.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
            tensor.copy_(flat[: tensor.numel()].view(tensor.shape))

    def _ranks(self, group: dist.ProcessGroup | None) -> list[int]:
        if not dist.is_initialized():
            return [0]
        return dist.get_process_group_ranks(group or dist.group.WORLD)

    def _node(self, rank: int) -> int:
        return rank // (self.ranks_per_node or int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or 1 << 31)

    def _find_layout(self) -> Layout:
        ranks = self._ranks(self.process_group)
        me = dist.get_rank() if dist.is_initialized() else 0
        if me not in ranks:
            raise ValueError(f"rank {me} is not in the process group of the scheduler, whose ranks are {ranks}")
        link = self.link(self.process_group)
        everyone = Channel(self.process_group, len(ranks), ranks.index(me), link, self.traffic)
        nodes: dict[int, list[int]] = {}
        for rank in ranks:
            nodes.setdefault(self._node(rank), []).append(rank)
        sizes = {len(members) for members in nodes.values()}
        if not self.intra_node_priority or len(nodes) == 1 or len(sizes) > 1 or sizes == {1}:
            return Layout(everyone)
        mine = nodes[self._node(me)]
        place = mine.index(me)
        rail = [members[place] for members in nodes.values()]
        # Only the members make a group: new_group in its default form hangs unless all ranks make all groups.
        node_group = dist.new_group(mine, use_local_synchronization=True)
        rail_group = dist.new_group(rail, use_local_synchronization=True)
        return Layout(
            everyone,
            Channel(node_group, len(mine), place, INTRA_NODE, self.traffic),
            Channel(rail_group, len(rail), rail.index(me), INTER_NODE, self.traffic),
        )


def no_steps() -> Steps:
    yield from ()


def _sum_steps(flat: torch.Tensor, channel: Channel) -> Steps:
    yield channel.all_reduce(flat)


def pad(flat: torch.Tensor, multiple: int) -> torch.Tensor:
    """A one-dimensional tensor, itself if its length is a multiple of ``multiple``, else a copy with zeros appended."""
    missing = -flat.numel() % multiple
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat


def reduce_steps(layout: Layout, flat: torch.Tensor, reduce: Callable[[torch.Tensor, Channel], Steps]) -> Steps:
    """Sums ``flat`` (one dimension, a multiple of ``layout.size`` long) over all ranks, in place.

    ``reduce(part, channel)`` sums over one channel: the only one, or of two levels the rail.
    """
    if layout.node is None or layout.rail is None:
        yield from reduce(flat, layout.everyone)
        return
    part = flat.new_empty(flat.numel() // layout.node.size)
    yield layout.node.reduce_scatter(part, flat)
    yield from reduce(part, layout.rail)
    yield layout.node.all_gather(flat, part)


def reduce_scatter_steps(
    layout: Layout,
    flat: torch.Tensor,
    shard: torch.Tensor,
    reduce_scatter: Callable[[torch.Tensor, torch.Tensor, Channel], Steps],
) -> Steps:
    """Slice ``layout.slice_index`` of the sum of ``flat`` into ``shard``; ``reduce_scatter`` as ``reduce`` above."""
    if layout.node is None or layout.rail is None:
        yield from reduce_scatter(flat, shard, layout.everyone)
        return
    part = flat.new_empty(flat.numel() // layout.node.size)
    yield layout.node.reduce_scatter(part, flat)
    yield from reduce_scatter(part, shard, layout.rail)


def gather_steps(layout: Layout, flat: torch.Tensor, shard: torch.Tensor) -> Steps:
    """The inverse of ``reduce_scatter_steps``: every rank's slice into ``flat``, which need not be initialised."""
    if layout.node is None or layout.rail is None:
        yield layout.everyone.all_gather(flat, shard)
        return
    part = flat.new_empty(flat.numel() // layout.node.size)
    yield layout.rail.all_gather(part, shard)
    yield layout.node.all_gather(flat, part)
