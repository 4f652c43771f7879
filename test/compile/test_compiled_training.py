"""Training steps of compiled models compute what eager ones do."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A transformer block over tokens: embedding, causal attention, an MLP, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = (p.unflatten(-1, (4, 8)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(x + self.mlp(x)).flatten(0, 1)


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def step(model, function, inputs, targets, dtype=None) -> torch.Tensor:
    model.zero_grad()
    with torch.autocast("npu", dtype=dtype, enabled=dtype is not None):
        loss = F.cross_entropy(function(inputs), targets)
    loss.backward()
    return loss


def assert_same_training(model, compiled, inputs, targets, dtype=None, **tolerances) -> None:
    """One step of a copy by its compiled form and one eager: loss, gradients and buffers are the same."""
    eager = copy.deepcopy(model)
    got, want = step(model, compiled, inputs, targets, dtype), step(eager, eager, inputs, targets, dtype)
    assert got.device == want.device
    torch.testing.assert_close(got, want, **tolerances)
    for (name, a), b in zip(model.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=lambda m, name=name: f"{name}: {m}", **tolerances)
    for a, b in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(a, b, **tolerances)


def test_transformer_of_any_length() -> None:
    model = Block().npu()
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    counters.clear()
    for length in (5, 16, 33):
        tokens = torch.randint(50, (2, length + 1), device="npu")
        assert_same_training(model, compiled, tokens[:, :-1], tokens[:, 1:].flatten(), rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1


def test_transformer_under_autocast() -> None:
    model = Block().npu()
    tokens = torch.randint(50, (2, 17), device="npu")
    given = tokens[:, :-1], tokens[:, 1:].flatten()
    # Inductor keeps between operators in float32 what eager rounds to bfloat16.
    assert_same_training(model, torch.compile(model), *given, dtype=torch.bfloat16, rtol=5e-2, atol=2e-2)


def test_convnet_on_another_card_than_the_current() -> None:
    model = Convnet().to("npu:1")
    images, labels = torch.randn(4, 3, 8, 8, device="npu:1"), torch.randint(8, (4,), device="npu:1")
    here = torch.npu.memory_allocated(0)
    assert_same_training(model, torch.compile(model), images, labels, rtol=1e-4, atol=1e-5)
    assert torch.npu.memory_allocated(0) == here


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_checkpointed_dropout_repeats_its_mask(backend: str) -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5).sin()

    @torch.compile(backend=backend, fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(dropped, x, use_reentrant=False)

    x = torch.full((1000,), 0.25, device="npu", requires_grad=True)
    first = None
    for _ in range(2):
        y = function(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        kept = y != 0
        assert 400 < kept.sum() < 600
        assert first is None or not torch.equal(kept, first)
        # d sin(2 m x) / dx = 2 m cos(2 m x), with mask m
        torch.testing.assert_close(gradient, kept * 2 * torch.cos(2 * x.detach()))
        first = kept


def test_an_exported_model_computes_the_same() -> None:
    model, images = Convnet().npu().eval(), torch.randn(2, 3, 8, 8, device="npu")
    assert torch.equal(torch.export.export(model, (images,)).module()(images), model(images))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_convnet_of_either_layout(backend: str, memory_format: torch.memory_format) -> None:
    model = Convnet().npu().to(memory_format=memory_format)
    images = torch.randn(4, 3, 8, 8, device="npu").to(memory_format=memory_format)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert_same_training(model, compiled, images, torch.randint(8, (4,), device="npu"), rtol=1e-4, atol=1e-5)


class Mlps(nn.Module):
    """The MLPs of a small GPT, whose activations are most of what a backward pass needs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def peak_of_step(model, x: torch.Tensor, targets: torch.Tensor, dtype=None) -> int:
    """Bytes that a second step allocates at its highest, gradients included."""
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        before = torch.npu.memory_allocated()
        torch.npu.reset_peak_memory_stats()
        step(model, model, x, targets, dtype)
    return torch.npu.max_memory_allocated() - before


def test_a_training_step_needs_less_memory_than_eager() -> None:
    x, targets = torch.randn(2048, 32, device="npu"), torch.randint(32, (2048,), device="npu")
    assert peak_of_step(torch.compile(Mlps().npu()), x, targets) < 0.8 * peak_of_step(Mlps().npu(), x, targets)


def test_16_bit_gradients_are_cast_one_by_one() -> None:
    """With few tokens gradients are the memory: float32 for every weight, bfloat16 for one or two at a time."""
    model = nn.Sequential(*(nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 512)) for _ in range(6))).npu()
    x, targets = torch.randn(4, 512, device="npu"), torch.randint(512, (4,), device="npu")
    gradients = sum(p.nbytes for p in model.parameters())
    with torch._inductor.config.patch(force_disable_caches=True):
        assert peak_of_step(torch.compile(model), x, targets, torch.bfloat16) < 1.35 * gradients
