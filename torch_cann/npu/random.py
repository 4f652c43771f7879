"""Random numbers of the cards: one generator each, whose state is 16 bytes on the CPU, 8 of seed and 8 of offset.

Seeding and reading state need no initialised device. Without a card, seeding does nothing, as in torch.cuda.
"""

from collections.abc import Iterable

import torch

from torch_cann import _C
from torch_cann.npu._utils import checked_device_index

__all__ = [
    "get_default_generator",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def get_default_generator(device_index: int) -> torch.Generator:
    return _C._npu_default_generator(checked_device_index(device_index))


# The name by which torch.compile asks for the generator of a device.
_get_generator = get_default_generator


def _default_generators() -> tuple[torch.Generator, ...]:
    return tuple(_C._npu_default_generator(i) for i in range(_C._npu_getDeviceCount()))


def _current_generators() -> tuple[torch.Generator, ...]:
    """The current card's, as a tuple: empty without a card."""
    return _default_generators()[_C._npu_getDevice() :][:1]


def get_rng_state(device: int | str | torch.device = "npu") -> torch.Tensor:
    return get_default_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in _default_generators()]


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = "npu") -> None:
    get_default_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current card."""
    for generator in _current_generators():
        generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in _default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current card with a non-deterministic number."""
    for generator in _current_generators():
        generator.seed()


def seed_all() -> None:
    """Seeds all cards with the same non-deterministic number."""
    generators = _default_generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    return get_default_generator(_C._npu_getDevice()).initial_seed()
