"""Every collective against the same computation on the CPU, over dtypes, operations and sizes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import device

# Below, at and above the size up to which a message carries its contents itself (8 KiB), and not divisible by 2 or 3.
SIZES = (0, 1, 7, 2048, 2049, 100_003)
REDUCED = ("float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8")
MOVED = (*REDUCED, "float64", "bool", "complex64", "float8_e4m3fn")
OPERATIONS = ("SUM", "MIN", "MAX", "PRODUCT", "AVG")


def values(rank: int, size: int, dtype: str) -> torch.Tensor:
    """Rank `rank`'s contribution, on the CPU: small whole numbers, exact in every dtype even when multiplied."""
    generator = torch.Generator().manual_seed(1000 * rank + size)
    return torch.randint(0, 4, (size,), generator=generator).to(getattr(torch, dtype))


def all_values(size: int, dtype: str) -> list[torch.Tensor]:
    return [values(rank, size, dtype) for rank in range(dist.get_world_size())]


def reduced(parts: list[torch.Tensor], operation: str) -> torch.Tensor:
    """The reduction on the CPU, in the dtype HCCL computes in."""
    dtype = parts[0].dtype
    wide = torch.stack([part.float() if dtype.is_floating_point else part.long() for part in parts])
    if operation == "SUM":
        return wide.sum(0).to(dtype)
    if operation == "AVG":
        total = wide.sum(0)
        mean = total / len(parts) if dtype.is_floating_point else total // len(parts)
        return mean.to(dtype)
    return {"MIN": wide.amin, "MAX": wide.amax, "PRODUCT": wide.prod}[operation](0).to(dtype)


def check_all_reduce(dtype: str) -> None:
    for size in SIZES:
        for operation in OPERATIONS:
            tensor = values(dist.get_rank(), size, dtype).to(device())
            dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
            assert torch.equal(tensor.cpu(), reduced(all_values(size, dtype), operation)), (size, operation)


def check_reduce(dtype: str) -> None:
    for size in SIZES:
        for root in range(dist.get_world_size()):
            tensor = values(dist.get_rank(), size, dtype).to(device())
            dist.reduce(tensor, root, dist.ReduceOp.SUM)
            mine = values(dist.get_rank(), size, dtype)
            expected = reduced(all_values(size, dtype), "SUM") if dist.get_rank() == root else mine
            assert torch.equal(tensor.cpu(), expected), (size, root)


def check_reduce_scatter(dtype: str) -> None:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for size in SIZES:
        for operation in OPERATIONS:
            op = getattr(dist.ReduceOp, operation)
            whole = values(rank, size * ranks, dtype).to(device())
            expected = reduced(all_values(size * ranks, dtype), operation)[rank * size : (rank + 1) * size]
            output = torch.empty(size, dtype=whole.dtype, device=device())
            dist.reduce_scatter_tensor(output, whole, op)
            assert torch.equal(output.cpu(), expected), (size, operation)
            assert torch.equal(whole.cpu(), values(rank, size * ranks, dtype))
            output = torch.empty_like(output)
            dist.reduce_scatter(output, list(whole.clone().split(size)) if size else [whole.clone()] * ranks, op)
            assert torch.equal(output.cpu(), expected), (size, operation)
            in_place = whole[rank * size : (rank + 1) * size]
            dist.reduce_scatter_tensor(in_place, whole, op)
            assert torch.equal(in_place.cpu(), expected), (size, operation)


@pytest.mark.parametrize("check", [check_all_reduce, check_reduce, check_reduce_scatter])
def test_reductions(three_ranks, check) -> None:
    for dtype in REDUCED:
        three_ranks.run(check, dtype)


def check_bool_reductions() -> None:
    for size in SIZES:
        parts = [part.bool() for part in all_values(size, "int32")]
        for operation, expected in {
            "SUM": torch.stack(parts).any(0),
            "MAX": torch.stack(parts).any(0),
            "MIN": torch.stack(parts).all(0),
            "PRODUCT": torch.stack(parts).all(0),
        }.items():
            tensor = parts[dist.get_rank()].to(device())
            dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
            assert torch.equal(tensor.cpu(), expected), (size, operation)


def test_bool_sum_is_or(two_ranks) -> None:
    two_ranks.run(check_bool_reductions)


def check_half_width_accumulation(dtype_name: str) -> None:
    dtype = getattr(torch, dtype_name)
    # 256 + 1 rounds back to 256 in bfloat16, and 2048 + 1 to 2048 in float16: summed in fp32 the ones survive.
    big = {"bfloat16": 256.0, "float16": 2048.0}[dtype_name]
    mine = big if dist.get_rank() == 0 else 1.0
    for size in (3, 10_000):
        tensor = torch.full((size,), mine, dtype=dtype, device=device())
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [big + 2.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_width_sums_are_rounded_once(three_ranks, dtype) -> None:
    three_ranks.run(check_half_width_accumulation, dtype)


def all_reduce_of_random_numbers() -> list[bytes]:
    results = []
    for size in (100, 50_000):
        generator = torch.Generator().manual_seed(dist.get_rank())
        tensor = torch.randn(size, generator=generator).to(device())
        dist.all_reduce(tensor)
        results.append(tensor.cpu().numpy().tobytes())
    return results


def test_results_are_bitwise_equal_on_all_ranks_and_runs(three_ranks) -> None:
    results = three_ranks.run(all_reduce_of_random_numbers) + three_ranks.run(all_reduce_of_random_numbers)
    assert all(result == results[0] for result in results)


def check_premultiplied_sum() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16):
        for factor in (0.5, torch.tensor([0.25], device=device())):
            scale = float(factor)
            whole = torch.full((4 * ranks,), float(rank + 1), dtype=dtype, device=device())
            expected = scale * ranks * (ranks + 1) / 2
            tensor = whole.clone()
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            assert tensor.unique().tolist() == [expected]
            output = torch.empty(4, dtype=dtype, device=device())
            dist.reduce_scatter_tensor(output, whole, dist._make_nccl_premul_sum(factor))
            assert output.unique().tolist() == [expected]
            assert whole.unique().tolist() == [rank + 1]


def test_premultiplied_sum_leaves_the_input_alone(two_ranks) -> None:
    two_ranks.run(check_premultiplied_sum)


def check_moves(dtype: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in SIZES:
        everything = all_values(size, dtype)
        mine = everything[rank].to(device())
        for root in range(ranks):
            tensor = mine.clone()
            dist.broadcast(tensor, root)
            assert same(tensor, everything[root]), (size, root)

            gathered = [torch.empty_like(mine) for _ in range(ranks)] if rank == root else None
            dist.gather(mine, gathered, root)
            assert gathered is None or all(map(same, gathered, everything))

            tensor = torch.empty_like(mine)
            dist.scatter(tensor, [part.to(device()) for part in everything] if rank == root else None, root)
            assert same(tensor, everything[rank])

        gathered = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(gathered, mine)
        assert all(map(same, gathered, everything))

        output = torch.empty(size * ranks, dtype=mine.dtype, device=device())
        dist.all_gather_into_tensor(output, mine)
        assert same(output, torch.cat(everything))
        in_place = output[rank * size : (rank + 1) * size]
        dist.all_gather_into_tensor(output, in_place)
        assert same(output, torch.cat(everything))

        swapped = torch.empty_like(output)
        dist.all_to_all_single(swapped, output)
        assert same(swapped, torch.cat([everything[rank]] * ranks))


def same(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    assert tensor.device == device()
    return torch.equal(tensor.cpu().view(torch.uint8), expected.view(torch.uint8))


def test_moves(three_ranks) -> None:
    for dtype in MOVED:
        three_ranks.run(check_moves, dtype)


def check_shapes_by_element_count() -> None:
    ranks = dist.get_world_size()
    scalar = torch.tensor(float(dist.get_rank()), device=device())
    output = torch.empty(ranks, 1, device=device())
    dist.all_gather_into_tensor(output, scalar)
    assert output.flatten().tolist() == [float(rank) for rank in range(ranks)]
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(ranks))

    pair = torch.full((2,), float(dist.get_rank()), device=device())
    stacked = torch.empty(ranks, 2, device=device())
    dist.all_gather_into_tensor(stacked, pair)
    assert stacked.tolist() == [[float(rank)] * 2 for rank in range(ranks)]
    reduced_pair = torch.empty(1, 2, 1, device=device())
    dist.reduce_scatter_tensor(reduced_pair, stacked)
    assert reduced_pair.flatten().tolist() == [float(ranks * dist.get_rank())] * 2


def test_shapes_may_differ_when_counts_agree(two_ranks) -> None:
    two_ranks.run(check_shapes_by_element_count)


def check_channels_last() -> None:
    image = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)
    mine = image if dist.get_rank() == 0 else torch.zeros_like(image)
    tensor = mine.to(device()).contiguous(memory_format=torch.channels_last)
    dist.broadcast(tensor, 0)
    assert torch.equal(tensor.cpu(), image)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), image * dist.get_world_size())


def test_channels_last(two_ranks) -> None:
    two_ranks.run(check_channels_last)


def check_uneven() -> None:
    """Rank r has r + 1 rows for itself and sends s + 2 r rows to rank s; rank 1 sends nothing to rank 0."""
    import torch_npu

    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows = [peer + 1 for peer in range(ranks)]
    mine = torch.full((rows[rank], 2), float(rank), device=device())
    gathered = [torch.empty(count, 2, device=device()) for count in rows]
    dist.all_gather(gathered, mine)
    assert [part.unique().tolist() for part in gathered] == [[float(peer)] for peer in range(ranks)]

    def count(source: int, target: int) -> int:
        return 0 if (source, target) == (1, 0) else target + 2 * source

    def label(source: int, target: int) -> float:
        return 10.0 * source + target

    sends, receives = [count(rank, peer) for peer in range(ranks)], [count(peer, rank) for peer in range(ranks)]
    outgoing = [torch.full((sends[peer], 3), label(rank, peer), device=device()) for peer in range(ranks)]
    expected = [torch.full((receives[peer], 3), label(peer, rank)) for peer in range(ranks)]
    whole = torch.empty(sum(receives), 3, device=device())
    dist.all_to_all_single(whole, torch.cat(outgoing), receives, sends)
    assert torch.equal(whole.cpu(), torch.cat(expected))
    matrix = [[count(source, target) for target in range(ranks)] for source in range(ranks)]
    torch_npu.distributed.all_to_all_vc(whole.zero_(), torch.cat(outgoing), matrix)
    assert torch.equal(whole.cpu(), torch.cat(expected))
    with pytest.raises(ValueError, match=f"{ranks} rows and columns"):
        torch_npu.distributed.all_to_all_vc(whole, torch.cat(outgoing), matrix[1:])
    incoming = [torch.empty(receives[peer], 3, device=device()) for peer in range(ranks)]
    dist.all_to_all(incoming, outgoing)
    assert all(torch.equal(got.cpu(), wanted) for got, wanted in zip(incoming, expected))


def test_uneven_all_gather_and_all_to_all(three_ranks) -> None:
    three_ranks.run(check_uneven)


def check_uneven_tensors() -> None:
    import torch_npu

    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows = [0, 1, 3000][:ranks]
    mine = torch.full((rows[rank], 2), float(rank + 1), device=device())
    output = torch.empty(sum(rows), 2, device=device())
    torch_npu.distributed.all_gather_into_tensor_uneven(output, mine, output_split_sizes=rows)
    expected = torch.cat([torch.full((count, 2), float(peer + 1)) for peer, count in enumerate(rows)])
    assert torch.equal(output.cpu(), expected)
    work = torch_npu.distributed.reduce_scatter_tensor_uneven(mine, output, input_split_sizes=rows, async_op=True)
    work.wait()
    assert torch.equal(mine.cpu(), torch.full((rows[rank], 2), float(ranks * (rank + 1))))


def test_uneven_tensors(three_ranks) -> None:
    three_ranks.run(check_uneven_tensors)


def check_coalesced() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total = float(sum(range(1, ranks + 1)))
    tensors = [torch.full((size,), float(rank + 1), device=device()) for size in (1, 5000)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [tensor.unique().tolist() for tensor in tensors] == [[total]] * 2

    outputs = [torch.empty(ranks * tensor.numel(), device=device()) for tensor in tensors]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for output, tensor in zip(outputs, tensors):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    assert [output.unique().tolist() for output in outputs] == [[total]] * 2
    with dist.distributed_c10d._coalescing_manager():
        for output, tensor in zip(outputs, tensors):
            dist.reduce_scatter_tensor(tensor, output)
    assert [tensor.unique().tolist() for tensor in tensors] == [[ranks * total]] * 2

    with dist.distributed_c10d._coalescing_manager(device=device(), async_ops=True) as manager:
        for tensor in tensors:
            dist.broadcast(tensor.fill_(rank), 1)
    manager.wait()
    assert [tensor.unique().tolist() for tensor in tensors] == [[1.0]] * 2


def test_coalesced(two_ranks) -> None:
    two_ranks.run(check_coalesced)


def check_objects() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 10_000)})
    assert gathered == [{"rank": peer, "text": "x" * (peer * 10_000)} for peer in range(ranks)]
    listed = [rank, "text" * rank]
    dist.broadcast_object_list(listed, 1)
    assert listed == [1, "text"]
    collected = [None] * ranks if rank == 0 else None
    dist.gather_object(rank, collected, 0)
    assert collected in (None, list(range(ranks)))
    received = [None]
    dist.scatter_object_list(received, [f"to {peer}" for peer in range(ranks)] if rank == 0 else [None] * ranks, 0)
    assert received == [f"to {rank}"]


def test_object_collectives(three_ranks) -> None:
    three_ranks.run(check_objects)


def check_barrier() -> list[float]:
    import time

    if dist.get_rank() == 0:
        time.sleep(0.3)
    arrived = time.time()
    dist.barrier()
    left = time.time()
    dist.barrier(device_ids=[device().index])
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()
    return [arrived, left]


def test_nobody_passes_a_barrier_before_the_last_one_came(three_ranks) -> None:
    times = three_ranks.run(check_barrier)
    assert min(left for _, left in times) >= max(arrived for arrived, _ in times)
