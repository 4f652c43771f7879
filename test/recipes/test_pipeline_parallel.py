"""PipelineParallel against the whole model: gradients, shared weights, schedules' order and memory, refusals."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

from gpt.model import GPT, GPTConfig  # noqa: E402

from torch_cann.recipes.train import DistributedOptimizer, PipelineParallel  # noqa: E402
from torch_cann.recipes.train._pipeline_order import Action, order  # noqa: E402
from torch_cann.recipes.train._pipeline_split import split_model  # noqa: E402
from torch_cann.sanitizer import StreamSanitizer  # noqa: E402

CONFIG = GPTConfig(vocab_size=50, n_layer=6, n_head=2, width=16)
# Gradients below 1 in float32, summed over micro-batches in another order than over the batch.
SAME = 2e-7

SCHEDULES = {
    "GPipe": {},
    "1F1B": {},
    "1F1B with checkpointing": {"checkpointing": True},
    "interleaved": {"virtual_stages": 2},
    "zero-bubble": {},
}


def loss_fn(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _models() -> tuple[GPT, GPT]:
    torch.manual_seed(0)
    model, reference = GPT(CONFIG), GPT(CONFIG)
    reference.load_state_dict(model.state_dict())
    return model, reference.npu()


def _batch(size: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    window = torch.randint(50, (size, 13), generator=torch.Generator().manual_seed(seed))
    return window[:, :-1], window[:, 1:]


def _largest_difference(parameters, reference: nn.Module) -> float:
    expected = dict(reference.named_parameters())
    return max((p.grad.cpu() - expected[name].grad.cpu()).abs().max().item() for name, p in parameters)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_gradients_over_cards(kind):
    model, reference = _models()
    parameters = list(model.parameters())
    stages = 2 if kind == "interleaved" else 4
    pipeline = PipelineParallel(model, stages, 4, kind.split()[0], loss_fn=loss_fn, **SCHEDULES[kind])
    for step in range(2):  # gradients of two batches add up
        ids, targets = _batch(seed=step)
        loss = pipeline.train_step(ids, targets)
        expected = loss_fn(reference(ids.npu()), targets.npu())
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
        assert not loss.requires_grad
    assert _largest_difference(model.named_parameters(), reference) < SAME
    # The Parameter objects are those of before, on the cards of their stages.
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert {p.device.index for p in parameters} == set(range(stages))
    assert model.head.weight is model.tokens.weight
    assert pipeline.eval_step(ids, targets).item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.equal(pipeline.eval_step(ids).cpu(), reference(ids.npu()).cpu())
    assert model.training


def test_training_with_tied_weights_on_two_cards_follows_the_whole_model():
    model, reference = _models()
    optimizers = [torch.optim.AdamW(module.parameters(), lr=1e-2) for module in (model, reference)]
    pipeline = PipelineParallel(model, 3, 2, loss_fn=loss_fn)
    for step in range(4):
        ids, targets = _batch(seed=step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        pipeline.train_step(ids, targets)
        loss_fn(reference(ids.npu()), targets.npu()).backward()
        for optimizer in optimizers:
            optimizer.step()
    ids, targets = _batch(seed=9)
    expected = loss_fn(reference(ids.npu()), targets.npu()).item()
    assert pipeline.eval_step(ids, targets).item() == pytest.approx(expected, rel=1e-5)
    # A checkpoint is the model's, so the whole model reads it.
    whole = GPT(CONFIG)
    whole.load_state_dict({name: tensor.cpu() for name, tensor in pipeline.state_dict().items()})
    assert loss_fn(whole(ids), targets).item() == pytest.approx(expected, rel=1e-5)


def test_micro_batches_of_unequal_size_count_by_their_samples():
    model, reference = _models()
    pipeline = PipelineParallel(model, 2, 3, loss_fn=loss_fn)
    ids, targets = _batch(7)
    pipeline.train_step(ids, targets)
    loss_fn(reference(ids.npu()), targets.npu()).backward()
    assert _largest_difference(model.named_parameters(), reference) < SAME


def test_scaled_gradients():
    model, reference = _models()
    pipeline = PipelineParallel(model, 2, 2, loss_fn=loss_fn)
    ids, targets = _batch()
    scale = torch.tensor(8.0, device="npu")
    loss = pipeline.train_step(ids, targets, grad_scale=scale)
    expected = loss_fn(reference(ids.npu()), targets.npu())
    (expected * 8).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert _largest_difference(model.named_parameters(), reference) < 8 * SAME


class Skips(nn.Module):
    """A value that two later blocks use, a block that runs twice, a parameter and a buffer of its own, two inputs."""

    def __init__(self):
        super().__init__()
        self.offset = nn.Parameter(torch.randn(6))
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 1, 0, 1]))
        self.into = nn.Linear(6, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3))
        self.out = nn.Linear(6, 2)

    def forward(self, x, y, scale=2.0, mask=None):
        start = self.into(x) + self.offset
        z = start
        for block in self.blocks:
            z = block(z) * self.mask + start
        return self.out(self.blocks[0](z) * scale + y + self.offset)


@pytest.mark.parametrize("kind", ["1F1B", "zero-bubble"])
def test_values_and_modules_that_several_stages_use(kind):
    torch.manual_seed(0)
    model, reference = Skips(), Skips()
    reference.load_state_dict(model.state_dict())
    pipeline = PipelineParallel(model, 3, 2, kind, loss_fn=F.mse_loss, split=["blocks.1", "blocks.2"])
    x, y, target = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 2)
    loss = pipeline.train_step((x, y), target)
    expected = F.mse_loss(reference(x, y), target)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert _largest_difference(model.named_parameters(), reference) < 1e-6


def test_peak_of_memory_shows_the_schedule():
    """A card of 1F1B holds what the schedule says; GPipe holds all micro-batches, checkpointing only their inputs."""
    held = {}
    for kind, checkpointing in (("GPipe", False), ("1F1B", False), ("1F1B", True)):
        layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())]
        pipeline = PipelineParallel(layers, 2, 8, kind, loss_fn=F.mse_loss, split=[8, 8], checkpointing=checkpointing)
        torch.npu.reset_peak_memory_stats(1)
        before = torch.npu.memory_allocated(1)
        pipeline.train_step(torch.randn(8 * 512, 64), torch.randn(8 * 512, 64))
        held[kind, checkpointing] = torch.npu.max_memory_allocated(1) - before
    assert held["1F1B", False] < 0.4 * held["GPipe", False]
    assert held["1F1B", True] < held["1F1B", False]


def _check_order(actions: list[Action], stages: int, micro_batches: int, split: bool) -> None:
    place = {action: i for i, action in enumerate(actions)}
    assert len(place) == len(actions) == micro_batches * (3 * stages - 1 if split else 2 * stages)
    back = "I" if split else "B"
    for m in range(micro_batches):
        forwards = [Action("F", s, m) for s in range(stages)]
        backwards = [Action(back if s else "B", s, m) for s in reversed(range(stages))]
        chain = forwards + backwards
        assert all(place[a] < place[b] for a, b in pairwise(chain))
        if split:
            assert all(place[Action("I", s, m)] < place[Action("W", s, m)] for s in range(1, stages))


@pytest.mark.parametrize("micro_batches", [4, 8])
@pytest.mark.parametrize(("kind", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3), ("zero-bubble", 1)])
def test_order(kind, chunks, micro_batches):
    _check_order(order(kind, 4, chunks, micro_batches), 4 * chunks, micro_batches, kind == "zero-bubble")


def _peak(actions: list[Action], stage: int, freed_by: str) -> int:
    held = peak = 0
    for kind, at, _ in actions:
        held += (at == stage) * ((kind == "F") - (kind == freed_by))
        peak = max(peak, held)
    return peak


def test_micro_batches_held():
    assert [_peak(order("gpipe", 4, 1, 8), s, "B") for s in range(4)] == [8] * 4
    assert [_peak(order("1f1b", 4, 1, 8), s, "B") for s in range(4)] == [4, 3, 2, 1]
    assert max(_peak(order("zero-bubble", 4, 1, 8), s, "W" if s else "B") for s in range(4)) == 4


def _ticks(actions: list[Action], cards: int) -> int:
    """Time from start to end if forwards and half backwards take 1."""
    free, done = [0] * cards, {}
    for action in actions:
        kind, stage, m = action
        backwards = [Action(back, stage + 1, m) for back in "BI"]
        needed = {"F": [Action("F", stage - 1, m)], "W": [Action("I", stage, m)]}
        needed = needed.get(kind, [Action("F", stage, m), *backwards])
        begin = max([free[stage % cards], *(done[a] for a in needed if a in done)])
        free[stage % cards] = done[action] = begin + (2 if kind == "B" else 1)
    return max(free)


def test_bubbles():
    """4 cards, 8 micro-batches of 3 ticks: 24 ticks of work, and 4 - 1 bubbles of 3 ticks, or 1 for zero-bubble."""
    assert _ticks(order("1f1b", 4, 1, 8), 4) == 24 + 9
    assert _ticks(order("gpipe", 4, 1, 8), 4) == 24 + 9
    assert _ticks(order("interleaved", 4, 2, 8), 4) == 2 * 24 + 9  # chunks of half the size: half the bubble
    assert _ticks(order("zero-bubble", 4, 1, 8), 4) == 24 + 3


@pytest.mark.parametrize("kind", SCHEDULES)
def test_cards_wait_for_what_is_sent_to_them(kind):
    """The copies run on streams of their own; no access to what they carry is left to luck."""
    model, _ = _models()
    stages = 2 if kind == "interleaved" else 4
    pipeline = PipelineParallel(model, stages, 4, kind.split()[0], loss_fn=loss_fn, **SCHEDULES[kind])
    with StreamSanitizer() as sanitizer:
        for step in range(2):
            pipeline.train_step(*_batch(seed=step))
        pipeline.eval_step(*_batch())
    assert not sanitizer.races


def _names(split=None, stages=3) -> list[list[str]]:
    parts = split_model(GPT(CONFIG), stages, split)
    return [[node.target for node in part.graph.nodes if node.op == "call_module"] for part in parts]


def test_split_by_cost_and_by_hand():
    assert _names() == [
        ["tokens", "blocks.0", "blocks.1"],
        ["blocks.2", "blocks.3"],
        ["blocks.4", "blocks.5", "norm", "head"],
    ]
    assert _names(["blocks.0", "norm"]) == [["tokens"], [f"blocks.{i}" for i in range(6)], ["norm", "head"]]
    assert [len(part) for part in _names([2, 3, 4])] == [2, 3, 4]


def test_of_the_best_splits_the_most_even_one_is_taken():
    """The head alone costs more than three blocks, so [3, 3, 1, 1, 1] would be no worse than this by its costliest stage."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(8)))
            self.head = nn.Linear(2, 8, bias=False)

        def forward(self, x):
            return self.head(self.blocks(x))

    parts = split_model(Deep(), 5, None)
    blocks = [sum(node.op == "call_module" for node in part.graph.nodes) for part in parts]
    assert blocks == [2, 2, 2, 2, 1]


def _across_ranks(kind: str) -> tuple[float, float, float, float | None, bool]:
    import torch.distributed as dist

    torch.manual_seed(dist.get_rank())  # ranks start with different tied weights; those of the first stage count
    model, _ = _models()
    settings = SCHEDULES[kind]
    pipeline = PipelineParallel(model, 2, 4, kind.split()[0], loss_fn=loss_fn, **settings)
    _, reference = _models()
    for step in range(2):
        ids, targets = _batch(seed=step)
        loss = pipeline.train_step(ids, targets)
        expected = loss_fn(reference(ids.npu()), targets.npu())
        expected.backward()
    difference = _largest_difference(pipeline.named_parameters(), reference)
    norms = [pipeline.clip_grad_norm_(0.1).item(), nn.utils.clip_grad_norm_(reference.parameters(), 0.1).item()]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert pipeline.eval_step(ids, targets).item() == pytest.approx(expected.item(), rel=1e-6)
    output = pipeline.eval_step(ids)
    assert (output is None) == (dist.get_rank() == 0)
    state = pipeline.state_dict()
    same = list(state) == list(reference.state_dict()) and all(
        torch.equal(state[name], tensor.cpu()) for name, tensor in reference.state_dict().items()
    )
    return loss.item(), expected.item(), difference, same


@pytest.mark.parametrize("kind", SCHEDULES)
def test_across_ranks(two_ranks, kind):
    for loss, expected, difference, same in two_ranks.run(_across_ranks, kind):
        assert loss == pytest.approx(expected, rel=1e-6)
        assert difference < SAME
        assert same


def _data_parallel(kind: str, stage: int) -> tuple[float, str]:
    """A pipeline in each of the ranks, gradients averaged between them; and what happens without no_sync()."""
    import torch.distributed as dist
    from ranks import refusal

    rank = dist.get_rank()
    model, reference = _models()
    pipeline = PipelineParallel(model, 2, 2, kind, devices=[rank, rank], loss_fn=loss_fn)
    optimizer = DistributedOptimizer(model.parameters(), lr=1e-2, zero_stage=stage)
    plain = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    ids, targets = _batch(8)
    with optimizer.no_sync():
        pipeline.train_step(ids[rank * 4 :][:4], targets[rank * 4 :][:4])
    optimizer.step()
    loss_fn(reference(ids.npu()), targets.npu()).backward()
    plain.step()
    optimizer.zero_grad()
    pairs = zip(model.parameters(), reference.parameters(), strict=True)
    difference = max((p - q).abs().max().item() for p, q in pairs)
    text = refusal(lambda: pipeline.train_step(ids, targets)) if kind == "zero-bubble" else ""
    return difference, text


@pytest.mark.parametrize(("kind", "stage"), [("1F1B", 1), ("zero-bubble", 2)])
def test_with_data_parallel(two_ranks, kind, stage):
    for difference, text in two_ranks.run(_data_parallel, kind, stage):
        assert difference < 1e-4  # AdamW's first update is the gradient's sign times 0.01, soft where it is near zero
        assert kind != "zero-bubble" or "within no_sync() of the DistributedOptimizer" in text


def _refused_across_ranks() -> list[str]:
    from ranks import refusal

    pipeline = PipelineParallel(_models()[0], 2, 4, loss_fn=loss_fn)
    return [
        refusal(lambda: pipeline.train_step(*_batch(6)), ValueError),
        refusal(lambda: PipelineParallel(_models()[0], 2, 1, loss_fn=loss_fn), ValueError),
    ]


def test_refusals_across_ranks(two_ranks):
    for batch, few in two_ranks.run(_refused_across_ranks):
        assert "a batch of 6 does not divide into 4 equal micro-batches" in batch
        assert "needs at least as many micro-batches, but micro_batches is 1" in few


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

    def forward(self, x):
        return self.blocks[0](x) if x.sum() > 0 else self.blocks[1](x)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"schedule": "2F2B"},
            ValueError,
            "schedule must be one of gpipe, 1F1B, interleaved, zero-bubble, but is '2F2B'",
        ),
        ({"stages": 0}, ValueError, "stages must be a positive whole number, but is 0"),
        ({"micro_batches": 2.0}, ValueError, "micro_batches must be a positive whole number, but is 2.0"),
        ({"stages": 6}, ValueError, r"calls 4 blocks \(0, 1, 2, 3\), too few for 6 stages"),
        ({"stages": 9, "model": nn.Sequential(*(nn.Tanh() for _ in range(9)))}, ValueError, "this process sees 8"),
        ({"devices": [0]}, ValueError, "devices must be one for each of the 2 stages, but there are 1"),
        ({"split": [1, 2]}, ValueError, "that add up to the model's 4 blocks"),
        ({"split": ["7"]}, ValueError, r"must name the block .* out of 0, 1, 2, 3"),
        ({"split": ["0"]}, ValueError, "in the order in which the blocks run, after the first"),
        ({"schedule": "interleaved", "micro_batches": 3}, ValueError, "needs a multiple of its 2 stages"),
        ({"virtual_stages": 2}, ValueError, "is for schedule 'interleaved', but schedule is '1F1B'"),
        ({"schedule": "zero-bubble", "checkpointing": True}, ValueError, "cannot be combined with checkpointing"),
        ({"model": Branches()}, TypeError, "torch.fx cannot trace its forward.* give a list of modules"),
    ],
)
def test_wrong_arguments(arguments, error, words):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    with pytest.raises(error, match=words):
        PipelineParallel(**({"model": model, "stages": 2, "micro_batches": 4} | arguments))


def test_wrong_batches():
    model = [nn.Linear(2, 2), nn.Linear(2, 2)]
    with pytest.raises(ValueError, match="made without loss_fn"):
        PipelineParallel(model, 2, 2).train_step(torch.ones(4, 2), torch.ones(4, 2))
    pipeline = PipelineParallel(model, 2, 2, loss_fn=F.mse_loss)
    with pytest.raises(ValueError, match=r"first dimensions \[3, 4\]; they must be one batch of at least 2 samples"):
        pipeline.train_step(torch.ones(4, 2), torch.ones(3, 2))
