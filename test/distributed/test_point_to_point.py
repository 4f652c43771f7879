"""send, recv, isend, irecv and batches, posted in any order."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import device

SMALL, LARGE = 4, 1 << 18  # a message that carries its contents, and one whose contents follow


def filled(value: float, size: int = SMALL) -> torch.Tensor:
    return torch.full((size,), float(value), device=device())


def check_send_and_recv() -> None:
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    for size in (0, SMALL, LARGE):
        received = filled(-1, size)
        if rank == 0:
            dist.send(filled(5, size), peer)
            dist.recv(received, peer)
        else:
            dist.recv(received, peer)
            dist.send(received + 1, peer)
        assert torch.equal(received.cpu(), torch.full((size,), 5.0 + (rank == 0)))


def test_send_and_recv(two_ranks) -> None:
    two_ranks.run(check_send_and_recv)


def check_opposite_orders() -> None:
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    for size in (SMALL, LARGE):
        # Both send first, which blocking sends could not finish.
        received = filled(-1, size)
        works = [dist.isend(filled(rank, size), peer), dist.irecv(received, peer)]
        for work in works if rank == 0 else reversed(works):
            work.wait()
        assert received.unique().tolist() == [peer]

        received = filled(-1, size)
        operations = [dist.P2POp(dist.isend, filled(rank, size), peer), dist.P2POp(dist.irecv, received, peer)]
        for work in dist.batch_isend_irecv(operations if rank == 0 else operations[::-1]):
            work.wait()
        assert received.unique().tolist() == [peer]


def test_opposite_orders_do_not_block(two_ranks) -> None:
    two_ranks.run(check_opposite_orders)


def check_many_in_flight() -> None:
    count = 40
    if dist.get_rank() == 0:
        works = [dist.isend(filled(number, SMALL if number % 2 else LARGE // 8), 1) for number in range(count)]
        for work in reversed(works):
            work.wait()
    else:
        buffers = [filled(-1, SMALL if number % 2 else LARGE // 8) for number in range(count)]
        works = [dist.irecv(buffer, 0) for buffer in buffers]
        for work in reversed(works):
            work.wait()
        assert [buffer.unique().tolist() for buffer in buffers] == [[number] for number in range(count)]


def test_many_in_flight_keep_their_order(two_ranks) -> None:
    two_ranks.run(check_many_in_flight)


def check_tags() -> None:
    if dist.get_rank() == 0:
        works = [dist.isend(filled(tag), 1, tag=tag) for tag in (1, 2)]
    else:
        first, second = filled(-1), filled(-1)
        works = [dist.irecv(first, 0, tag=2), dist.irecv(second, 0, tag=1)]
    for work in works:
        work.wait()
    if dist.get_rank() == 1:
        assert (first[0].item(), second[0].item()) == (2, 1)


def test_tags(two_ranks) -> None:
    two_ranks.run(check_tags)


def check_any_source() -> list[int]:
    ranks = dist.get_world_size()
    if dist.get_rank() != 0:
        dist.send(filled(dist.get_rank(), SMALL if dist.get_rank() == 1 else LARGE), 0, tag=dist.get_rank())
        return []
    sources = []
    for tag in range(1, ranks):
        received = filled(-1, SMALL if tag == 1 else LARGE)
        sources.append(dist.recv(received, tag=tag))
        assert received.unique().tolist() == [sources[-1]]
    return sources


def test_receive_from_any_source(three_ranks) -> None:
    assert three_ranks.run(check_any_source)[0] == [1, 2]


def check_between_collectives() -> None:
    """Transfers and collectives of one group do not wait for each other."""
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    received = filled(-1)
    pending = dist.irecv(received, peer)
    total = filled(1)
    dist.all_reduce(total)
    assert total[0].item() == 2
    assert not pending.is_completed()
    dist.barrier()
    dist.send(filled(rank), peer)
    pending.wait()
    assert received[0].item() == peer


def test_collectives_pass_a_pending_receive(two_ranks) -> None:
    two_ranks.run(check_between_collectives)


def check_dropped_handles() -> None:
    peer = 1 - dist.get_rank()
    received = filled(-1, LARGE)
    dist.isend(filled(7, LARGE), peer)  # nobody keeps or waits for it
    dist.irecv(received, peer).wait()
    assert received.unique().tolist() == [7]


def test_a_send_needs_no_handle(two_ranks) -> None:
    two_ranks.run(check_dropped_handles)


def check_native_batch() -> None:
    backend = dist.group.WORLD._get_backend(device())
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    received = filled(-1)
    backend.batch_isend_irecv(["isend", "irecv"], [filled(rank), received], [peer, peer]).wait()
    assert received[0].item() == peer


def test_batch_of_the_backend(two_ranks) -> None:
    two_ranks.run(check_native_batch)
