"""torch.nn.SyncBatchNorm over two cards is BatchNorm over the whole batch of one."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import device
from torch import nn

CHANNELS = 5


def _modules(affine: bool, momentum: float | None) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(CHANNELS, affine=affine, momentum=momentum)
    if affine:
        nn.init.normal_(plain.weight)
        nn.init.normal_(plain.bias)
    synchronised = nn.BatchNorm2d(CHANNELS, affine=affine, momentum=momentum)
    synchronised.load_state_dict(plain.state_dict())
    return plain, nn.SyncBatchNorm.convert_sync_batchnorm(synchronised).to(device())


def compare(rows: list[int], affine: bool, momentum: float | None, channels_last: bool) -> None:
    plain, synchronised = _modules(affine, momentum)
    generator = torch.Generator().manual_seed(1)
    first = sum(rows[: dist.get_rank()])
    mine = slice(first, first + rows[dist.get_rank()])
    for _ in range(2):
        batch = torch.randn(sum(rows), CHANNELS, 4, 3, generator=generator) * 3 + 7
        slope = torch.randn(batch.shape, generator=generator)
        x = batch.clone().requires_grad_()
        y = batch[mine].to(device())
        if channels_last:
            y = y.contiguous(memory_format=torch.channels_last)
        y.requires_grad_()
        expected, found = plain(x), synchronised(y)
        (expected * slope).sum().backward()
        (found * slope[mine].to(device())).sum().backward()
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(found.detach().cpu(), expected.detach()[mine], **tolerance)
        torch.testing.assert_close(y.grad.cpu(), x.grad[mine], **tolerance)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(synchronised.state_dict()[name].cpu(), value, rtol=1e-4, atol=1e-4)
    if affine:
        for ours, theirs in zip(synchronised.parameters(), plain.parameters(), strict=True):
            dist.all_reduce(ours.grad)
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "affine", "momentum", "channels_last"),
    [([4, 4], True, 0.1, False), ([1, 6], True, None, True), ([3, 2], False, 0.3, False)],
)
def test_it_is_batch_norm_of_the_whole_batch(two_ranks, rows, affine, momentum, channels_last) -> None:
    two_ranks.run(compare, rows, affine, momentum, channels_last)


def sixteen_bit() -> None:
    layer = nn.SyncBatchNorm(CHANNELS).to(device())
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(6, CHANNELS, 4, generator=generator)
    x = batch.chunk(2)[dist.get_rank()].to(device(), torch.bfloat16).requires_grad_()
    out = layer(x)
    out.float().square().sum().backward()
    assert out.dtype == x.grad.dtype == torch.bfloat16 and layer.weight.grad.dtype == torch.float32
    expected = nn.BatchNorm1d(CHANNELS)(batch.bfloat16().float()).chunk(2)[dist.get_rank()]
    torch.testing.assert_close(out.detach().float().cpu(), expected.detach(), rtol=1e-2, atol=1e-2)


def test_sixteen_bit_inputs_with_float32_parameters(two_ranks) -> None:
    two_ranks.run(sixteen_bit)
