"""What the profiler makes of collectives: bytes of each link, and sets of times."""

import pytest

from torch_cann.profiler import _communication
from torch_cann.profiler._groups import number_of
from torch_cann.profiler._intervals import difference, length, union
from torch_cann.profiler._records import Event, Message, Recording, Waits


_GROUP = number_of("hccl_tp")


def _event(title: str, start: int, end: int, message: Message | None) -> Event:
    return Event(f"hccl:{title}", start, end, 1, [], [], False, True, step=3, message=message)


def _message(me: int, ranks: tuple[int, ...], partner: int, sent: int, received: int = 0) -> Message:
    return Message("tp", 7, me, ranks, partner, sent, received)


_ME_TO_EACH = [(1, 0), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("title", "me", "partner", "links"),
    [
        ("all_reduce", 4, -1, dict.fromkeys(_ME_TO_EACH, 300)),
        ("_reduce_scatter_base", 4, -1, dict.fromkeys(_ME_TO_EACH, 150)),
        ("_all_gather_base", 4, -1, dict.fromkeys(_ME_TO_EACH, 600)),
        ("all_to_all", 4, -1, dict.fromkeys(_ME_TO_EACH, 150)),
        ("broadcast", 4, 4, {(1, 0): 600, (1, 2): 600, (1, 3): 600}),
        ("broadcast", 4, 2, {}),
        ("gather", 4, 2, {(1, 0): 600}),
        ("gather", 4, 4, {}),
        ("scatter", 4, 4, {(1, 0): 150, (1, 2): 150, (1, 3): 150}),
        ("send", 4, 8, {(1, 3): 600}),
        ("recv", 4, 8, {(3, 1): 40}),
        ("recv_any_source", 4, -1, {}),
        ("barrier", 4, -1, {}),
    ],
)
def test_bytes_of_each_link(title: str, me: int, partner: int, links: dict) -> None:
    event = _event(title, 0, 10, _message(me, (2, 4, 6, 8), partner, 600, 40))
    operation = _communication.operation_of(event, 0)
    assert operation.links == links
    assert operation.sent == {link: size for link, size in links.items() if link[0] == 1 and link != (1, 1)}


def test_links_between_hosts_are_rdma(monkeypatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    events = [_event("all_reduce", 0, 2_000_000, _message(0, (0, 1, 2), -1, 3_000_000))]
    step = _communication.communication(Recording(events))["step3"]
    (name,) = (n for n in step["collective"] if n.startswith("hcom_allReduce__"))
    assert step["p2p"] == {} and name.endswith(f"_7_1@{_GROUP}")
    bandwidth = step["collective"][name]["Communication Bandwidth Info"]
    assert bandwidth["HCCS"]["Transit Size(MB)"] == bandwidth["RDMA"]["Transit Size(MB)"] == 2
    assert bandwidth["RDMA"]["Bandwidth(GB/s)"] == 1  # 2 MB in 2 ms
    assert step["collective"]["Total Op Info"]["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] == 2
    matrix = _communication.communication_matrix(Recording(events))["step3"]["collective"]
    links = matrix[f"allreduce-total@{_GROUP}"]
    assert {link: row["Transport Type"] for link, row in links.items()} == {
        "0-0": "LOCAL",
        "0-1": "HCCS",
        "0-2": "RDMA",
    }


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


def test_waiting_is_told_from_moving() -> None:
    event = _event("all_reduce", 0, 10_000_000, _message(0, (0, 1), -1, 40_000_000))
    event.waits = Waits(ran=9_000_000, waited=5_000_000, synchronization=3_000_000)
    step = _communication.communication(Recording([event]))["step3"]["collective"]
    for what in step.values():
        times = what["Communication Time Info"]
        parts = {key: times[f"{key} Time(ms)"] for key in ("Elapse", "Transit", "Wait", "Synchronization", "Idle")}
        assert parts == {"Elapse": 10, "Transit": 4, "Wait": 5, "Synchronization": 3, "Idle": 1}
        assert times["Wait Time Ratio"] == pytest.approx(5 / 9, abs=1e-4)
        assert times["Synchronization Time Ratio"] == pytest.approx(3 / 7, abs=1e-4)
        assert what["Communication Bandwidth Info"]["HCCS"]["Bandwidth(GB/s)"] == 10  # 40 MB in 4 ms
    event.waits = Waits(ran=12_000_000, waited=12_000_000, synchronization=0)  # its clock is another one
    times = next(iter(_communication.communication(Recording([event]))["step3"]["collective"].values()))
    assert (
        times["Communication Time Info"]["Transit Time(ms)"] == times["Communication Time Info"]["Idle Time(ms)"] == 0
    )


@pytest.mark.parametrize(("megabytes", "inside", "between"), [(0.5, 0, 0), (2, 0, 1), (20, 1, 1)])
def test_packets_that_fill_a_link_are_large(monkeypatch, megabytes: float, inside: float, between: float) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    events = [_event("_all_gather_base", 0, 1_000_000, _message(0, (0, 1, 2), -1, int(megabytes * 1e6)))]
    operation = next(iter(_communication.communication(Recording(events))["step3"]["collective"].values()))
    ratios = {t: band["Large Packet Ratio"] for t, band in operation["Communication Bandwidth Info"].items()}
    assert ratios == {"HCCS": inside, "SDMA": inside, "RDMA": between, "PCIE": 0, "SIO": 0}


def test_numbers_of_groups() -> None:
    assert number_of("a") == str(97 << 32 | 97)
    assert number_of("ab") == str((97 * 29 + 98) << 32 | (97 * 131 + 98))


def test_sets_of_times() -> None:
    a = union([(5, 9), (0, 2), (8, 12), (20, 30)])
    assert a == [(0, 2), (5, 12), (20, 30)] and length(a) == 19
    assert difference(a, [(1, 6), (7, 8), (22, 40)]) == [(0, 1), (6, 7), (8, 12), (20, 22)]
    assert difference(a, []) == a and difference(a, a) == [] and difference([], a) == []
    assert difference([(0, 10)], [(2, 3), (9, 20)]) == [(0, 2), (3, 9)]
    assert difference([(0, 4), (6, 10)], [(3, 7)]) == [(0, 3), (7, 10)]
