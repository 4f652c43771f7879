"""Generators of the cards: 16 bytes of state, seeds, and everything that saves and restores them."""

import struct

import pytest
import torch

npu = torch.npu


def test_state_is_seed_and_offset() -> None:
    npu.manual_seed(77)
    assert struct.unpack("<QQ", bytes(npu.get_rng_state().tolist())) == (77, 0)
    torch.rand(10, device="npu")
    seed, offset = struct.unpack("<QQ", bytes(npu.get_rng_state().tolist()))
    assert seed == 77 and offset > 0 and offset % 4 == 0
    state = npu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.numel() == 16


def test_equal_states_give_equal_numbers_on_every_card() -> None:
    npu.manual_seed_all(5)
    first = torch.rand(1000, device="npu:0")
    assert torch.equal(first.cpu(), torch.rand(1000, device="npu:1").cpu())
    second = torch.rand(1000, device="npu:0")
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1000, device="npu:0"), first)


def test_get_and_set_state() -> None:
    state = npu.get_rng_state()
    a = torch.randn(100, device="npu")
    npu.set_rng_state(state)
    assert torch.equal(torch.randn(100, device="npu"), a)
    states = npu.get_rng_state_all()
    assert len(states) == npu.device_count()
    b = torch.randn(100, device="npu:1")
    npu.set_rng_state_all(states)
    assert torch.equal(torch.randn(100, device="npu:1"), b)
    npu.set_rng_state(states[0], "npu:1")
    assert torch.equal(npu.get_rng_state(torch.device("npu:1")), states[0])


def test_wrong_states_are_refused() -> None:
    with pytest.raises(RuntimeError, match="16 bytes"):
        npu.set_rng_state(torch.get_rng_state())
    with pytest.raises((TypeError, RuntimeError)):
        npu.set_rng_state(torch.zeros(16))
    with pytest.raises(AssertionError, match="Invalid device id"):
        npu.get_rng_state(99)


def test_seed_and_initial_seed() -> None:
    npu.manual_seed(11)
    assert npu.initial_seed() == 11
    npu.seed()
    first = npu.initial_seed()
    npu.seed()
    assert npu.initial_seed() != first
    npu.seed_all()
    assert len({generator.initial_seed() for generator in npu.default_generators}) == 1


def test_default_generators() -> None:
    generators = npu.default_generators
    assert isinstance(generators, tuple) and len(generators) == npu.device_count()
    assert generators[1].device == torch.device("npu:1")
    generators[1].manual_seed(9)
    assert npu.random.get_default_generator(1).initial_seed() == 9


def test_a_generator_of_ones_own() -> None:
    generator = torch.Generator(device="npu").manual_seed(3)
    before = npu.get_rng_state()
    a = torch.rand(10, device="npu", generator=generator)
    assert torch.equal(npu.get_rng_state(), before)
    generator.manual_seed(3)
    assert torch.equal(torch.rand(10, device="npu", generator=generator), a)
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(10, device="npu:1", generator=generator)
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(10, device="npu", generator=torch.Generator())


def test_fork_rng_covers_dropout() -> None:
    x = torch.ones(1000, device="npu")
    npu.manual_seed(1)
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        a = torch.nn.functional.dropout(x, 0.5)
    assert torch.equal(torch.nn.functional.dropout(x, 0.5), a)
    assert 300 < int((a == 0).sum()) < 700


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_replays_the_mask(use_reentrant: bool) -> None:
    masks = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x, 0.5)
        masks.append((y.detach() == 0).cpu())
        return y * y  # saves y, so that the recomputation comes this far

    x = torch.ones(64, device="npu", requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=use_reentrant)
    torch.rand(5, device="npu")
    out.sum().backward()
    assert len(masks) == 2 and torch.equal(*masks)


def test_a_refused_state_changes_nothing() -> None:
    generator = torch.Generator("npu").manual_seed(42)
    with pytest.raises(ValueError, match="multiple of 4"):
        generator.set_state(torch.ones(16, dtype=torch.uint8))
    assert generator.initial_seed() == 42


def test_generators_can_share_a_state() -> None:
    first, second = torch.Generator("npu").manual_seed(5), torch.Generator("npu")
    copy, view = first.clone_state(), first.graphsafe_get_state()
    drawn = torch.rand(3, device="npu", generator=first)
    assert torch.equal(view.get_state(), first.get_state()) and not torch.equal(copy.get_state(), first.get_state())
    second.graphsafe_set_state(copy)
    assert torch.equal(torch.rand(3, device="npu", generator=second), drawn)
    assert torch.equal(copy.get_state(), second.get_state())
    with pytest.raises(TypeError, match="can only share the state of another, but got one of cpu"):
        second.graphsafe_set_state(torch.Generator())
