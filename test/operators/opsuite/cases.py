"""The cases of the operator suite: one per operator variant and dtype, in the order of PyTorch's OpInfo database."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.testing._internal import common_methods_invocations as database

from .transfer import OnHost

# Samples drawn from the database per check. The exceptions table was made with these numbers, so a case gives the same
# verdict in the full sweep and in the rotating sample.
SAMPLES_PER_CHECK = 8
SAMPLE_WINDOW = 64
_SEED = 1234

# Operators whose arguments after the first are read by the host: split points, on every device a tensor on the CPU.
_HOST_ARGUMENTS = frozenset({"tensor_split"})

# Where OpInfo does not say it: these return memory nobody has written.
_UNINITIALIZED = frozenset({"resize_", "resize_as_"})


@dataclass(frozen=True, order=True)
class Case:
    """One operator variant with one dtype; ``str(case)`` is its name on the command line and in reports."""

    op: str
    variant: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op}|{self.variant}|{self.dtype}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """The inverse of ``str``."""
        parts = text.split("|")
        if len(parts) != 3:
            raise ValueError(f"a case is written op|variant|dtype, not {text!r}")
        return cls(*parts)

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def info(self) -> Any:
        """The OpInfo of this case; KeyError if the installed torch has none of that name."""
        return _infos()[self.op, self.variant]

    @property
    def is_first_of_op(self) -> bool:
        """Whether this is the case that also runs the checks that do not depend on the dtype."""
        return self.dtype == _dtypes(self.info)[0]


@functools.cache
def _infos() -> dict[tuple[str, str], Any]:
    foreach = itertools.chain(
        database.foreach_unary_op_db,
        database.foreach_binary_op_db,
        database.foreach_pointwise_op_db,
        database.foreach_reduce_op_db,
        database.foreach_other_op_db,
    )
    return {(info.name, info.variant_test_name): info for info in itertools.chain(database.op_db, foreach)}


def _dtypes(info: Any) -> list[str]:
    """The dtypes the operator has on the CPU, float32 first where it is one of them."""
    names = (str(dtype).removeprefix("torch.") for dtype in info.supported_dtypes("cpu"))
    return sorted(names, key=lambda name: (name != "float32", name))


def all_cases() -> list[Case]:
    """Every case, in database order."""
    return [Case(*key, dtype) for key, info in _infos().items() for dtype in _dtypes(info)]


def is_foreach(info: Any) -> bool:
    """Whether ``info`` describes a ``_foreach_*`` operator, which takes lists of tensors."""
    return info.name.startswith("_foreach_")


def has_undefined_values(info: Any) -> bool:
    """Whether the values of the operator's result are undefined, so that only its metadata can be compared."""
    return info.has_nondeterministic_output or info.name in _UNINITIALIZED


def _spread(samples: Iterable[Any], count: int) -> Iterator[Any]:
    """``count`` of the first ``SAMPLE_WINDOW`` samples at even distances, so that not only the simplest are tried.

    All of them are made before the first is used, from one seed.
    """
    random.seed(_SEED)
    numpy.random.seed(_SEED)
    torch.default_generator.manual_seed(_SEED)
    window = list(itertools.islice(samples, SAMPLE_WINDOW))
    if len(window) <= count:
        yield from window
        return
    for index in range(count):
        yield window[round(index * (len(window) - 1) / (count - 1))]


def samples(case: Case, requires_grad: bool = False) -> Iterator[Any]:
    """The CPU samples of a case."""
    info = case.info
    # Foreach databases take the list lengths to try; a short one keeps the samples small.
    extra = {"num_input_tensors": [3]} if is_foreach(info) else {}
    made = info.sample_inputs("cpu", case.torch_dtype, requires_grad, set_seed=False, **extra)
    for sample in _spread(made, SAMPLES_PER_CHECK):
        if info.name in _HOST_ARGUMENTS:
            sample.args = tuple(OnHost(argument) for argument in sample.args)
        yield sample


def sparse_samples(case: Case, layout: torch.layout) -> Iterator[Any]:
    """The CPU samples of a case whose input has the given sparse layout; none if the operator takes no such input."""
    info = case.info
    if is_foreach(info) or not info.supports_sparse_layout(layout):
        return
    try:
        chosen = list(_spread(info.sample_inputs_sparse(layout, "cpu", case.torch_dtype), SAMPLES_PER_CHECK))
    except NotImplementedError:  # the database says "sparse too", but leaves the samples to its user
        chosen = [_with_sparse_input(sample, layout) for sample in samples(case) if _can_be_sparse(sample, layout)]
    yield from chosen


def _can_be_sparse(sample: Any, layout: torch.layout) -> bool:
    dims = sample.input.dim() if isinstance(sample.input, torch.Tensor) else 0
    return dims >= 1 if layout is torch.sparse_coo else dims == 2


def _with_sparse_input(sample: Any, layout: torch.layout) -> Any:
    sparse = sample.input.to_sparse(layout=layout)
    return type(sample)(sparse, args=tuple(sample.args), kwargs=dict(sample.kwargs))


def error_samples(case: Case) -> Iterator[Any]:
    """The CPU samples the operator must refuse."""
    info = case.info
    if info.error_inputs_func is not None:
        for error in _spread(info.error_inputs("cpu", set_seed=False), SAMPLE_WINDOW):
            yield error.sample_input
