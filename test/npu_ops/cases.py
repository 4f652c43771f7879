"""What a case of an operator is, and how a result is compared with its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map

ALL_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def rand(*sizes: int) -> torch.Tensor:
    """Standard normal float64; a case's arguments are made of these and then rounded to the type under test."""
    return torch.randn(*sizes, dtype=torch.float64)


def positive(*sizes: int) -> torch.Tensor:
    return torch.rand(*sizes, dtype=torch.float64) + 0.5


@dataclass
class Case:
    """One call of an operator and its definition in plain PyTorch float64.

    ``make`` gives (args, kwargs) on the CPU, ``reference`` takes them and gives one tensor or a tuple, in which None
    stands for a result that is not compared. ``grad`` lists the positions of arguments whose gradients are checked,
    ``outputs`` the results that have gradients.
    """

    op: str
    make: Callable[[], tuple[tuple, dict]]
    reference: Callable[..., Any]
    grad: tuple[int, ...] = ()
    outputs: tuple[int, ...] = (0,)
    dtypes: tuple[torch.dtype, ...] = ALL_FLOATS
    name: str = ""
    fake: bool = True  # whether shapes can be known without values
    factor: float = 1  # of the tolerance, for sums of many rounded terms

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}" if self.name else self.op

    @property
    def call(self) -> Callable[..., Any]:
        namespace = torch.ops.npu
        for part in self.op.split("."):
            namespace = getattr(namespace, part)
        return namespace


@dataclass
class Table:
    cases: list[Case] = field(default_factory=list)

    def add(self, op: str, make, reference, **options) -> None:
        self.cases.append(Case(op, make, reference, **options))


def args(*positional, **keyword):
    return positional, keyword


def cast(tree, dtype: torch.dtype):
    """Floating tensors as ``dtype``, the rest as it is."""
    return tree_map(lambda t: t.to(dtype) if torch.is_tensor(t) and t.is_floating_point() else t, tree)


def to_npu(tree):
    return tree_map(lambda t: t.npu() if torch.is_tensor(t) else t, tree)


def as_tuple(result) -> tuple:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def assert_matches(actual: torch.Tensor, expected: torch.Tensor, factor: float = 1) -> None:
    """Within the rounding of ``actual``'s type of a float64 reference; integers and bools are equal."""
    assert actual.device.type == "npu"
    actual = actual.cpu()
    assert actual.shape == expected.shape
    if not actual.is_floating_point():
        assert torch.equal(actual, expected.to(actual.dtype))
        return
    rtol = {torch.float64: 1e-9, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[actual.dtype]
    largest = expected.double().abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=factor * rtol, atol=factor * max(rtol * largest, 1e-7), equal_nan=True
    )
