"""What saves the card's memory saves it, and changes numbers as far as is written down and no further."""

import copy

import pytest
import torch
import torch.nn.functional as F
from cann.recipes.train import DynamicMemoryAllocator, MemoryOptimizer, apply_checkpointing
from small import WIDTH, Block, classifier, points
from torch import nn

from torch_cann.recipes.train.checkpointing import is_checkpointed
from torch_cann.recipes.train.optimizer_states import round_stochastically


def data(samples: int = 64):
    return (t.npu() for t in points(samples).tensors)


def gradients(model: nn.Module, memory: MemoryOptimizer | None = None, samples: int = 64) -> list[torch.Tensor]:
    x, y = data(samples)
    torch.npu.manual_seed(3)
    if memory is None:
        loss = F.cross_entropy(model(x), y)
    else:
        with memory.activations():
            loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [p.grad for p in model.parameters()]


def peak_of_step(model: nn.Module, memory: MemoryOptimizer | None, samples: int = 2048) -> int:
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    gradients(model, memory, samples)
    return torch.npu.max_memory_allocated() - before


@pytest.mark.parametrize(("ratio", "layers"), [(0.0, ""), (0.1, "2"), (0.5, "13"), (0.75, "023"), (1.0, "0123")])
def test_checkpointing_is_exact_and_spread(ratio: float, layers: str) -> None:
    plain, ours = (classifier(dropout=0.3).npu() for _ in range(2))
    names = list(ours.state_dict())
    assert apply_checkpointing(ours, checkpoint_ratio=ratio) is ours
    assert "".join(str(i) for i in range(4) if is_checkpointed(ours[i + 1])) == layers
    assert list(ours.state_dict()) == names == [n for n, _ in ours.named_parameters()]
    for expected, got in zip(gradients(plain), gradients(ours), strict=True):
        assert torch.equal(expected, got)


def test_checkpointing_finds_layers_or_takes_those_named() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
            self.layers = nn.ModuleList(Block() for _ in range(3))

    net = apply_checkpointing(Net())
    assert [is_checkpointed(layer) for layer in net.layers] == [True] * 3 and not is_checkpointed(net.stem)
    net = apply_checkpointing(Net(), layers=["stem", "layers.1"])
    assert is_checkpointed(net.stem) and is_checkpointed(net.layers[1]) and not is_checkpointed(net.layers[0])
    assert is_checkpointed(apply_checkpointing(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="checkpointed already"):
        apply_checkpointing(net, layers=Block)
    with pytest.raises(ValueError, match="match no module of Net"):
        apply_checkpointing(Net(), layers="blocks.*")
    with pytest.raises(ValueError, match="checkpoint_ratio must be at least 0 and at most 1, but is 1.5"):
        apply_checkpointing(Net(), 1.5)


def test_each_switch_lowers_the_peak() -> None:
    plain = peak_of_step(classifier().npu(), None)
    for share, switches in (
        (0.6, {"checkpointing": True}),
        (0.85, {"activation_compression": "bfloat16"}),
        (0.7, {"activation_compression": True}),
        (0.6, {"activation_offload": True}),
    ):
        memory = MemoryOptimizer(**switches)
        model, _ = memory.prepare(classifier().npu())
        peak = peak_of_step(model, memory)
        assert peak < share * plain, f"{switches}: {peak / plain:.2f} of the peak without"


@pytest.mark.parametrize(
    ("switches", "tolerance"),
    [
        ({"activation_offload": True}, 0.0),
        ({"activation_offload": True, "checkpointing": 0.5}, 0.0),
        ({"activation_compression": "bfloat16"}, 2**-7),  # each tensor is rounded by 2**-9 at most; four blocks add up
        ({"activation_compression": "int8"}, 0.02),
        ({"activation_compression": "int8", "activation_offload": True, "checkpointing": True}, 0.02),
    ],
)
def test_gradients_with_saved_activations_elsewhere(switches, tolerance: float) -> None:
    memory = MemoryOptimizer(**switches, min_bytes=0)
    model, _ = memory.prepare(classifier(dropout=0.2).npu())
    for expected, got in zip(gradients(classifier(dropout=0.2).npu()), gradients(model, memory), strict=True):
        assert (expected - got).norm() <= tolerance * expected.norm()


def test_a_tensor_that_several_layers_save_is_packed_once() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))

        def forward(self, x):
            x = x * 2
            return self.q(x) + self.k(x) + self.v(x)

    memory = MemoryOptimizer(activation_compression="bfloat16")
    model, _ = memory.prepare(Attention().npu())
    x = torch.randn(1024, 64, device="npu", requires_grad=True)
    before = torch.npu.memory_allocated()
    with memory.activations():
        out = model(x)
    kept = torch.npu.memory_allocated() - before - out.numel() * 4
    assert kept == 1024 * 64 * 2, "one bfloat16 copy of x"


def test_what_is_not_finite_stays_so_through_int8() -> None:
    memory = MemoryOptimizer(activation_compression="int8", min_bytes=0)
    model, _ = memory.prepare(nn.Linear(WIDTH, 2).npu())
    x = torch.randn(64, WIDTH, device="npu")
    x[3, 5] = torch.inf
    with memory.activations():
        out = model(x * 1)
    out.nan_to_num(0, 0, 0).sum().backward()
    assert not model.weight.grad.isfinite().all()


@pytest.mark.parametrize("form", ["host", "bfloat16"])
def test_optimizer_state_between_steps(form: str) -> None:
    def train(form: str):
        torch.manual_seed(0)
        memory = MemoryOptimizer(optimizer_state=form)
        model = classifier().npu()
        model, optimizer = memory.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
        for _ in range(10):
            optimizer.zero_grad()
            gradients(model, memory)
            optimizer.step()
        return model, optimizer, memory

    plain, _, _ = train("float32")
    model, optimizer, memory = train(form)
    states = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    if form == "host":
        assert {v.device.type for v in states} == {"cpu"}
    else:
        assert {v.dtype for v in states} == {torch.bfloat16}
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        if form == "host":
            assert torch.equal(p, q)
        else:  # ten steps of 1e-2, each off by up to two roundings of 2**-8
            torch.testing.assert_close(p, q, rtol=0, atol=10 * 1e-2 * 2**-7 * 2, msg=name)

    again, memory2 = copy.deepcopy(model), MemoryOptimizer(optimizer_state=form)
    optimizer2 = torch.optim.AdamW(again.parameters(), lr=1e-2)
    again, optimizer2 = memory2.prepare(again, optimizer2)
    optimizer2.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    memory2.load_state_dict(memory.state_dict())
    for net, opt in ((model, optimizer), (again, optimizer2)):
        opt.zero_grad()
        gradients(net)
        opt.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_stochastic_rounding_keeps_the_mean() -> None:
    generator = torch.Generator("npu").manual_seed(1)
    x = torch.full((100_000,), 1 + 2**-10, device="npu")
    rounded = round_stochastically(x, generator)
    assert set(rounded.unique().tolist()) == {1.0, 1 + 2**-7}
    assert rounded.float().mean().item() == pytest.approx(1 + 2**-10, abs=1e-4)
    odd = torch.tensor([float("inf"), float("nan"), -0.0, 3.0], device="npu")
    torch.testing.assert_close(round_stochastically(odd, generator).float(), odd, equal_nan=True, rtol=0, atol=0)


@pytest.fixture
def card_3():
    """A card that no other test limits."""
    yield torch.device("npu", 3)
    torch.npu.empty_cache()
    torch.npu.set_per_process_memory_fraction(1.0, 3)


def test_allocator_releases_its_buffer_and_tries_once_more(card_3) -> None:
    capacity = torch.npu.mem_get_info(card_3)[1]
    share = (256 << 20) / capacity
    allocator = DynamicMemoryAllocator(2 * share, share, device=card_3, calm_runs=2)
    calls: list[torch.Tensor] = []

    def take(mib: int) -> torch.Tensor:
        calls.append(torch.rand(2, device=card_3))
        return torch.empty(mib << 20, dtype=torch.uint8, device=card_3)

    allocator.run(take, 200)
    assert allocator.report()["retries"] == 0 and allocator.buffered
    assert allocator.run(take, 400).numel() == 400 << 20
    assert torch.equal(calls[-1], calls[-2]), "the second call sees the same random numbers"
    report = allocator.report()
    assert report["retries"] == 1 and not report["buffer_held_back"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocator.run(take, 600)
    assert "buffer was in use already" in caught.value.__notes__[0] and allocator.report()["failures"] == 1
    allocator.run(take, 100), allocator.run(take, 100)
    assert allocator.buffered, "two runs fitted without the buffer"
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocator.run(take, 600)
    assert "in vain" in caught.value.__notes__[0]
    allocator.close()
    assert torch.npu.get_per_process_memory_fraction(card_3) == 1.0


def test_other_errors_are_not_tried_again() -> None:
    calls = []
    with pytest.raises(ZeroDivisionError):
        DynamicMemoryAllocator(device=3).run(lambda: calls.append(1 / 0))
    assert not calls
    torch.npu.set_per_process_memory_fraction(1.0, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DynamicMemoryAllocator(1.2), "max_memory_utilization must be above 0 and at most 1"),
        (lambda: DynamicMemoryAllocator(0.5, 0.5), "emergency_buffer must be less than max_memory_utilization 0.5"),
        (lambda: DynamicMemoryAllocator(device="cpu"), "the CPU's memory cannot be limited"),
        (lambda: MemoryOptimizer(activation_compression="fp4"), "one of '', 'bfloat16', 'int8', but is 'fp4'"),
        (lambda: MemoryOptimizer(zero_stage=4), "zero_stage must be one of 0, 1, 2, 3"),
        (lambda: MemoryOptimizer(optimizer_state="disk"), "one of 'float32', 'bfloat16', 'host'"),
        (lambda: MemoryOptimizer(checkpointing=2), "checkpointing must be at least 0 and at most 1"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_needs_ranks(stage: int) -> None:
    model = classifier().npu()
    with pytest.raises(RuntimeError, match="start the script with torchrun"):
        MemoryOptimizer(zero_stage=stage).prepare(model, torch.optim.AdamW(model.parameters()))


def _zero_against_plain(stage: int) -> None:
    """In a rank: four steps of AdamW with the stage against the same in one process."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = (t.npu() for t in points().tensors)

    def train(model, optimizer, x, y, average: bool) -> None:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if average:
                for p in model.parameters():
                    dist.all_reduce(p.grad, dist.ReduceOp.AVG)
            optimizer.step()

    plain, ours = classifier().npu(), classifier().npu()
    train(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2), x, y, False)
    memory = MemoryOptimizer(zero_stage=stage)
    ours, optimizer = memory.prepare(ours, torch.optim.AdamW(ours.parameters(), lr=1e-2))
    train(ours, optimizer, x[rank::world], y[rank::world], stage == 1)
    inner = getattr(optimizer, "optim", optimizer)
    tensors = [v for state in inner.state.values() for v in state.values() if v.dim()]
    held = sum((v.to_local() if isinstance(v, DTensor) else v).numel() for v in tensors)
    total = 2 * sum(p.numel() for p in plain.parameters())
    assert held < 0.7 * total, f"{held} of {total} numbers of state"
    for p, q in zip(ours.parameters(), plain.parameters(), strict=True):
        p = p.full_tensor() if isinstance(p, DTensor) else p
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_stages_train_like_one_process(two_ranks, stage: int) -> None:
    two_ranks.run(_zero_against_plain, stage)
