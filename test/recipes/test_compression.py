"""CompressedCommunicator: averages against exact ones, what errors become, and DDP with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_cann.recipes.train import CompressedCommunicator, TopologyAwareScheduler
from torch_cann.recipes.train.compression import parse_size

SHAPES = [(300, 7), (11,), (), (4096,), (64, 33)]


def _gradients(rank: int, step: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def _exact(size: int, step: int = 0) -> list[torch.Tensor]:
    return [torch.stack(parts).sum(0) / size for parts in zip(*(_gradients(r, step) for r in range(size)), strict=True)]


def _average(compression: str | None, two_levels: bool, steps: int) -> tuple[list[float], str, dict[str, float]]:
    """Largest errors of the running sum of averages after each step, a digest of the bits, and bytes sent."""
    import hashlib

    import torch.distributed as dist

    scheduler = TopologyAwareScheduler(ranks_per_node=2) if two_levels else None
    comm = CompressedCommunicator(compression, "16KB", scheduler=scheduler, top_k_ratio=0.1)
    digest, errors, total, wanted = hashlib.sha256(), [], 0, 0
    for _ in range(steps):
        tensors = [tensor.npu() for tensor in _gradients(dist.get_rank())]
        comm.all_reduce(tensors)
        flat = torch.cat([tensor.cpu().flatten() for tensor in tensors])
        digest.update(flat.numpy().tobytes())
        total = total + flat
        wanted = wanted + torch.cat([tensor.flatten() for tensor in _exact(dist.get_world_size())])
        errors.append((total - wanted).abs().max().item())
    return errors, digest.hexdigest(), comm.sent_bytes


# Largest error of an average of numbers up to 4. float32: the order of sums. 16 bit: rounding of each quarter (up to
# 1, half a unit in the last place: 2**-12, 2**-9) and of three sums. int8: half of 1/127 of the largest quarter, for
# each of four ranks and once more for the sum.
TOLERANCE = {None: 1e-6, "fp16": 4e-3, "bf16": 3e-2, "int8": 5 * 0.5 / 127}


@pytest.mark.parametrize("two_levels", [False, True], ids=["flat", "two levels"])
@pytest.mark.parametrize("compression", TOLERANCE)
def test_average_is_right_and_the_same_on_all_ranks(four_ranks, compression, two_levels):
    answers = four_ranks.run(_average, compression, two_levels, 1)
    assert {digest for _, digest, _ in answers} == {answers[0][1]}
    assert answers[0][0][0] <= TOLERANCE[compression]
    if compression is not None:
        assert answers[0][0][0] > 0


@pytest.mark.parametrize("compression", ["int8", "topk"])
def test_what_is_lost_is_sent_later(four_ranks, compression):
    """The error of the sum of averages stays bounded: what is not sent today is added tomorrow."""
    errors, _, _ = four_ranks.run(_average, compression, False, 24)[0]
    if compression == "int8":
        assert max(errors) <= 2 * TOLERANCE["int8"]
    else:
        # With a tenth sent a step, a number waits until it has grown: the error must settle, not grow with the steps.
        assert max(errors[16:]) < 1.5 * max(errors[8:16])


def _sent(compression: str | None) -> float:
    comm = CompressedCommunicator(compression)
    comm.all_reduce([torch.ones(4 * 256 * 64, device="npu")])
    return sum(comm.sent_bytes.values())


def test_bytes_sent(four_ranks):
    sent = {name: four_ranks.run(_sent, name)[0] for name in (None, "fp16", "bf16", "int8", "topk")}
    assert sent[None] == 2 * 3 / 4 * 4 * 256 * 64 * 4
    assert sent["fp16"] == sent["bf16"] == sent[None] / 2
    assert sent["int8"] == pytest.approx(sent[None] / 4 * (1 + 4 / 256))
    assert sent["topk"] == pytest.approx(3 * 8 * 0.01 * 4 * 256 * 64, rel=1e-2)


def _overflow(compression: str) -> tuple[bool, bool]:
    import torch.distributed as dist

    comm = CompressedCommunicator(compression, error_feedback=True)
    bad, good = torch.ones(1000, device="npu"), torch.ones(1000, device="npu")
    if dist.get_rank() == 1:
        bad[3] = float("inf")
    comm.all_reduce([bad])
    comm.all_reduce([good])
    return bool(bad.isfinite().all()), bool(good.isfinite().all())


@pytest.mark.parametrize("compression", ["fp16", "int8", "topk"])
def test_overflow_is_seen_by_all_ranks_and_forgotten(two_ranks, compression):
    assert two_ranks.run(_overflow, compression) == [(False, True)] * 2


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 3, bias=False))

    def forward(self, x):
        return self.layers(x)


def _train_ddp(compression: str, steps: int = 4) -> tuple[list[float], list[float]]:
    """Parameters after some steps: with the hook, and of one process that sees the whole batch."""
    import torch.distributed as dist

    torch.manual_seed(0)
    net, reference = _Net(), _Net()
    reference.load_state_dict(net.state_dict())
    model = nn.parallel.DistributedDataParallel(net.npu(), device_ids=[dist.get_rank()])
    CompressedCommunicator(compression, top_k_ratio=0.5).attach(model)
    generator = torch.Generator().manual_seed(5)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (model, reference)]
    for _ in range(steps):
        batch = torch.randn(8, 16, generator=generator)
        mine = batch[4 * dist.get_rank() :][:4]
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(mine.npu()).square().mean().backward()
        reference(batch).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    return [torch.cat([p.detach().cpu().flatten() for p in m.parameters()]).tolist() for m in (net, reference)]


# Four updates of 0.1 times gradients below 0.1.
@pytest.mark.parametrize(("compression", "tolerance"), [("none", 1e-6), ("fp16", 2e-5), ("int8", 5e-4), ("topk", 2e-2)])
def test_hook_of_ddp(two_ranks, compression, tolerance):
    answers = two_ranks.run(_train_ddp, compression)
    assert answers[0][0] == answers[1][0]
    assert answers[0][0] == pytest.approx(answers[0][1], abs=tolerance)


def _continue_from_state() -> bool:
    comm = CompressedCommunicator("int8")
    for step in range(2):
        comm.all_reduce([t.npu() for t in _gradients(1, step)])
    again = CompressedCommunicator("int8")
    again.load_state_dict(comm.state_dict())
    results = []
    for communicator in (comm, again):
        tensors = [t.npu() for t in _gradients(2, 2)]
        communicator.all_reduce(tensors)
        results.append(tensors)
    with pytest.raises(ValueError, match="these residuals are of 2 ranks and compression 'int8'"):
        CompressedCommunicator("topk").load_state_dict(comm.state_dict())
    return all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_residuals_are_saved(two_ranks):
    assert two_ranks.run(_continue_from_state) == [True, True]


def test_alone_nothing_changes():
    comm = CompressedCommunicator(compression="int8", bucket_size="25MB")
    tensor = torch.randn(100, device="npu")
    before = tensor.clone()
    comm.all_reduce([tensor])
    assert torch.equal(tensor, before)
    assert comm.sent_bytes == {}


@pytest.mark.parametrize(
    ("size", "expected"), [("25MB", 25 * 2**20), ("1.5 kb", 1536), (7, 7), ("2GB", 2**31), ("8B", 8)]
)
def test_sizes(size, expected):
    assert parse_size(size) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"compression": "zip"}, "compression must be one of none, fp16, bf16, int8, topk or None, but is 'zip'"),
        ({"bucket_size": "25 potatoes"}, "bucket_size must be a number of bytes above 0 or a text such as '25MB'"),
        ({"bucket_size": 0}, "bucket_size must be"),
        ({"bucket_size": True}, "bucket_size must be"),
        ({"top_k_ratio": 0.0}, "top_k_ratio must be above 0"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        CompressedCommunicator(**arguments)


def test_wrong_tensors():
    comm = CompressedCommunicator()
    with pytest.raises(TypeError, match="element 1 is NoneType, not a tensor; leave out parameters that have no grad"):
        comm.all_reduce([torch.ones(2), None])
    with pytest.raises(TypeError, match="only dense tensors of floating-point numbers"):
        comm.all_reduce([torch.ones(2, dtype=torch.int64)])
    with pytest.raises(TypeError, match="needs a DistributedDataParallel model, but got a Linear"):
        comm.attach(nn.Linear(1, 1))
