"""TopologyAwareScheduler: what starts when, and sums in two levels."""

from __future__ import annotations

import pytest
import torch

from torch_cann.recipes.train import TopologyAwareScheduler
from torch_cann.recipes.train.topology import INTER_NODE, INTRA_NODE, SELF, Exchange, no_steps


def _links_of_ranks() -> list[str]:
    import torch.distributed as dist

    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    scheduler = TopologyAwareScheduler(ranks_per_node=2)
    mine = [group for group in groups if dist.get_rank() in dist.get_process_group_ranks(group)]
    return [scheduler.link(), *(scheduler.link(group) for group in mine)]


def test_link_is_the_slowest_that_a_group_uses(four_ranks):
    assert four_ranks.run(_links_of_ranks) == [[INTER_NODE, INTRA_NODE, INTER_NODE]] * 4


def _sum_in_two_levels(shape: tuple[int, ...]) -> tuple[list, dict, dict, int]:
    import torch.distributed as dist

    rank = dist.get_rank()
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) * (rank + 1)
    two, flat = TopologyAwareScheduler(ranks_per_node=2), TopologyAwareScheduler(False, ranks_per_node=2)
    results = []
    for scheduler in (two, flat):
        # A transposed tensor is not contiguous: the sum must still arrive in it.
        tensor = values.npu().t().contiguous().t() if len(shape) == 2 else values.npu()
        scheduler.all_reduce(tensor).wait()
        results.append(tensor.tolist())
    assert results[0] == results[1] == (values / (rank + 1) * 10).tolist()
    return results[0], two.traffic, flat.traffic, two.layout().slice_index


def test_two_levels_sum_exactly_and_send_less_between_nodes(four_ranks):
    for shape in [(64,), (7,), (5, 3)]:
        answers = four_ranks.run(_sum_in_two_levels, shape)
        padded = -(-torch.Size(shape).numel() // 4) * 4 * 4  # bytes
        for _, two, flat, _ in answers:
            # Half of the numbers, reduced between the two ranks of a rail, against all of them among four ranks.
            assert two[INTER_NODE] == padded / 2
            assert flat == {INTER_NODE: 1.5 * padded}
        assert [index for *_, index in answers] == [0, 2, 1, 3]


def _unequal_nodes() -> bool:
    scheduler = TopologyAwareScheduler(ranks_per_node=3)
    tensor = torch.ones(5).npu()
    scheduler.all_reduce(tensor).wait()
    return scheduler.layout().node is None and tensor.tolist() == [4.0] * 5


def test_nodes_with_unequal_numbers_of_ranks_stay_flat(four_ranks):
    assert four_ranks.run(_unequal_nodes) == [True] * 4


class _Recorded(TopologyAwareScheduler):
    """A group is its link's name, and what starts is written down."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.started: list[str] = []

    def link(self, group=None):
        return group or SELF

    def add(self, name: str, nbytes: int, link: str = INTER_NODE):
        def start() -> Exchange:
            self.started.append(name)
            return Exchange(no_steps())

        return self.submit(start, nbytes, link)


def test_share_of_a_step_overlaps_and_the_rest_waits():
    scheduler = _Recorded(True, 0.5)
    scheduler.begin_step(100)
    scheduler.add("a", 30)
    scheduler.add("b", 20)
    scheduler.add("c", 30)
    last = scheduler.add("d", 1)
    assert scheduler.started == ["a", "b"]
    last.wait()
    assert scheduler.started == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("priority", "expected"), [(True, "bdac"), (False, "abcd")])
def test_inside_a_node_first(priority, expected):
    scheduler = _Recorded(priority, 0.0)
    scheduler.begin_step(4)
    for name, link in zip("abcd", (INTER_NODE, INTRA_NODE) * 2, strict=True):
        assert not scheduler.add(name, 1, link).started
    scheduler.flush()
    assert "".join(scheduler.started) == expected


def test_alone_without_a_process_group():
    scheduler = TopologyAwareScheduler(intra_node_priority=True, overlap_factor=0.8)
    tensor = torch.arange(3.0, device="npu")
    scheduler.all_reduce(tensor).wait()
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert scheduler.link() == SELF
    assert scheduler.traffic == {}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"overlap_factor": 1.5}, ValueError, "overlap_factor must be from 0 to 1, but is 1.5"),
        ({"overlap_factor": "half"}, TypeError, "overlap_factor must be a number from 0 to 1, but is 'half'"),
        ({"intra_node_priority": 1}, TypeError, "intra_node_priority must be True or False, but is 1"),
        ({"ranks_per_node": 0}, ValueError, "ranks_per_node must be a positive whole number, but is 0"),
    ],
)
def test_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        TopologyAwareScheduler(**arguments)
