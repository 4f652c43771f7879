"""What the profiler makes of collectives: bytes of each link, and sets of times."""

import pytest

from torch_cann.profiler import _communication
from torch_cann.profiler._intervals import difference, length, union
from torch_cann.profiler._records import Event, Message, Recording


def _event(title: str, start: int, end: int, message: Message | None) -> Event:
    return Event(f"hccl:{title}", start, end, 1, [], [], False, True, step=3, message=message)


def _message(me: int, ranks: tuple[int, ...], partner: int, sent: int, received: int = 0) -> Message:
    return Message("tp", 7, me, ranks, partner, sent, received)


@pytest.mark.parametrize(
    ("title", "me", "partner", "links"),
    [
        ("all_reduce", 4, -1, {(4, 2): 300, (4, 6): 300, (4, 8): 300}),
        ("_reduce_scatter_base", 4, -1, {(4, 2): 150, (4, 6): 150, (4, 8): 150}),
        ("_all_gather_base", 4, -1, {(4, 2): 600, (4, 6): 600, (4, 8): 600}),
        ("all_to_all", 4, -1, {(4, 2): 150, (4, 6): 150, (4, 8): 150}),
        ("broadcast", 4, 4, {(4, 2): 600, (4, 6): 600, (4, 8): 600}),
        ("broadcast", 4, 2, {}),
        ("gather", 4, 2, {(4, 2): 600}),
        ("gather", 4, 4, {}),
        ("scatter", 4, 4, {(4, 2): 150, (4, 6): 150, (4, 8): 150}),
        ("send", 4, 8, {(4, 8): 600}),
        ("recv", 4, 8, {(8, 4): 40}),
        ("recv_any_source", 4, -1, {}),
        ("barrier", 4, -1, {}),
    ],
)
def test_bytes_of_each_link(title: str, me: int, partner: int, links: dict) -> None:
    event = _event(title, 0, 10, _message(me, (2, 4, 6, 8), partner, 600, 40))
    assert _communication._operation(event, 0).links == links


def test_links_between_hosts_are_rdma(monkeypatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    events = [_event("all_reduce", 0, 2_000_000, _message(0, (0, 1, 2), -1, 3_000_000))]
    step = _communication.communication(Recording(events))["step3"]
    (name,) = (n for n in step["collective"] if n.startswith("hcom_allReduce__"))
    assert step["p2p"] == {} and name.endswith(f"_7_1@{_communication.group_id('tp')}")
    bandwidth = step["collective"][name]["Communication Bandwidth Info"]
    assert bandwidth["HCCS"]["Transit Size(MB)"] == bandwidth["RDMA"]["Transit Size(MB)"] == 2
    assert bandwidth["RDMA"]["Bandwidth(GB/s)"] == 1  # 2 MB in 2 ms
    assert step["collective"]["Total Op Info"]["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] == 2
    matrix = _communication.communication_matrix(Recording(events))["step3"]["collective"]
    links = matrix[f"allreduce-total@{_communication.group_id('tp')}"]
    assert {link: row["Transport Type"] for link, row in links.items()} == {"0-1": "HCCS", "0-2": "RDMA"}


def test_the_matrix_shows_fastest_median_and_slowest_of_a_link() -> None:
    message = _message(0, (0, 1), -1, 1_000_000)
    events = [_event("all_reduce", 0, ms * 1_000_000, message) for ms in (4, 1, 2)]
    matrix = _communication.communication_matrix(Recording(events))["step3"]["collective"]
    speeds = {name.partition("@")[0]: links["0-1"]["Bandwidth(GB/s)"] for name, links in matrix.items()}
    assert speeds == {
        "allreduce-top1": 1, "allreduce-middle": 0.5, "allreduce-bottom1": 0.25, "allreduce-bottom2": 0.5,
        "allreduce-bottom3": 1, "allreduce-total": pytest.approx(3 / 7, abs=1e-4),
    }  # fmt: skip


def test_an_operation_whose_description_is_missing_still_has_its_time() -> None:
    step = _communication.communication(Recording([_event("broadcast", 0, 5_000_000, None)]))["step3"]["collective"]
    (name,) = set(step) - {"Total Op Info"}
    assert name == "hcom_broadcast__000_0_1@0"
    assert step[name]["Communication Time Info"]["Elapse Time(ms)"] == 5


def test_sets_of_times() -> None:
    a = union([(5, 9), (0, 2), (8, 12), (20, 30)])
    assert a == [(0, 2), (5, 12), (20, 30)] and length(a) == 19
    assert difference(a, [(1, 6), (7, 8), (22, 40)]) == [(0, 1), (6, 7), (8, 12), (20, 22)]
    assert difference(a, []) == a and difference(a, a) == [] and difference([], a) == []
    assert difference([(0, 10)], [(2, 3), (9, 20)]) == [(0, 2), (3, 9)]
    assert difference([(0, 4), (6, 10)], [(3, 7)]) == [(0, 3), (7, 10)]
