"""Matrix products fused with a collective, against the product and the collective one after the other."""

from __future__ import annotations

import torch
import torch.distributed as dist
from ranks import device, refusal


def communicator() -> str:
    return dist.group.WORLD._get_backend(device()).get_hccl_comm_name(dist.get_rank())


def operands(*shapes: tuple[int, ...]) -> list[list[torch.Tensor]]:
    """For each rank its tensors, on the CPU and the same in every process."""
    generator = torch.Generator().manual_seed(5)
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(dist.get_world_size())]


def check_products() -> None:
    import torch_npu

    rank, size, name = dist.get_rank(), dist.get_world_size(), communicator()
    ranks = operands((4, 3), (3, 5), (5,))
    x, w, bias = (t.npu() for t in ranks[rank])

    y, gathered = torch_npu.npu_all_gather_base_mm(x, w, name, size, bias=bias)
    rows = torch.cat([tensors[0] for tensors in ranks])
    torch.testing.assert_close(gathered.cpu(), rows)
    torch.testing.assert_close(y.cpu(), rows @ ranks[rank][1] + ranks[rank][2])
    assert torch_npu.npu_all_gather_base_mm(x, w, name, size, gather_output=False)[1].numel() == 0

    total = sum(tensors[0] @ tensors[1] + tensors[2] for tensors in ranks)
    part = torch_npu.npu_mm_reduce_scatter_base(x, w, name, size, bias=bias)
    torch.testing.assert_close(part.cpu(), total.chunk(size)[rank])
    torch.testing.assert_close(torch_npu.npu_mm_all_reduce_base(x, w, name, bias=bias).cpu(), total)
    many = torch_npu.npu_mm_all_reduce_base(x.reshape(2, 2, 3), w, name, reduce_op="sum")
    assert many.shape == (2, 2, 5)


def test_products(two_ranks) -> None:
    two_ranks.run(check_products)


def check_refusals() -> None:
    import torch_npu

    name, size = communicator(), dist.get_world_size()
    x, w = torch.ones(3, 4, device=device()), torch.ones(4, 2, device=device())
    assert "nowhere" in refusal(lambda: torch_npu.npu_mm_all_reduce_base(x, w, "nowhere"), ValueError)
    assert "(3, 4) by (3, 4)" in refusal(lambda: torch_npu.npu_mm_all_reduce_base(x, x, name))
    assert "world_size is 7" in refusal(lambda: torch_npu.npu_all_gather_base_mm(x, w, name, 7))
    assert "3 rows" in refusal(lambda: torch_npu.npu_mm_reduce_scatter_base(x, w, name, size))
    scale = torch.ones(1, device=device())
    text = refusal(lambda: torch_npu.npu_mm_all_reduce_base(x, w, name, dequant_scale=scale), NotImplementedError)
    assert "dequant_scale" in text


def test_product_refusals(two_ranks) -> None:
    two_ranks.run(check_refusals)
