"""The checks of one case. Each runs an operator on the CPU and on the device with the same inputs and compares.

A sample the CPU itself refuses says nothing about the device and is left out; a check none of whose samples the CPU
accepts is *not applicable*. The first difference ends a check.
"""

from __future__ import annotations

import functools
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import autocast_rules, cases, compare
from .cases import Case
from .compare import Mismatch, Rule, assert_no_worse, assert_same
from .exceptions import has_own_kernel, tolerance_of
from .transfer import Transfer, tensors_of

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "n/a"
_SEED = 20240229

# Lazy negation and conjugation are resolved before a kernel runs, and sparse layouts are handled around it, whatever
# the dtype: a few dtypes stand for all.
_SPARSE_DTYPES = ("float32", "complex64", "int64")
_DTYPES_OF_CHECK = {
    "neg_view": ("float32", "complex64"),
    "conj_view": ("complex64", "complex128"),
    "sparse_coo": _SPARSE_DTYPES,
    "sparse_csr": _SPARSE_DTYPES,
    "autocast": ("float32", "bfloat16", "float16"),
}


@dataclass(frozen=True)
class Outcome:
    """The verdict of one check and what it cost; ``kind`` and ``detail`` are empty unless it failed."""

    check: str
    status: str
    kind: str = ""
    detail: str = ""
    samples: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Arguments:
    """One sample's arguments, copied to one device for one call."""

    def __init__(self, sample: Any, device: str) -> None:
        transfer = Transfer(device)
        self.input, self.args, self.kwargs = transfer((sample.input, tuple(sample.args), dict(sample.kwargs)))
        # Where nothing in the sample says which device, as in torch.arange(3), the default device does.
        self._default_device = nullcontext() if transfer.found_device else torch.device(device)

    @property
    def tree(self) -> Any:
        return (self.input, self.args, self.kwargs)

    def call(self, function: Callable[..., Any]) -> Any:
        with self._default_device:
            return function(self.input, *self.args, **self.kwargs)

    @property
    def differentiable(self) -> list[torch.Tensor]:
        return [tensor for tensor in tensors_of(self.tree) if tensor.requires_grad]


def _seed(device: str) -> None:
    # not torch.manual_seed, which queues a call with a stack trace for every kind of accelerator torch knows
    torch.default_generator.manual_seed(_SEED)
    if device != "cpu":
        torch.get_device_module(device).manual_seed_all(_SEED)


# What a check does with arguments on a device: returns the tree of results to compare.
Action = Callable[[_Arguments], Any]


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _reference(action: Action, sample: Any) -> tuple[Any, _Arguments, bool] | None:
    """The CPU's result, its arguments, and whether it drew random numbers; None where the CPU refuses the sample."""
    arguments = _Arguments(sample, "cpu")
    _seed("cpu")
    before = torch.get_rng_state()
    try:
        result = action(arguments)
    except Exception:  # noqa: BLE001 - whatever the CPU refuses is no requirement on the device
        return None
    drew = not torch.equal(before, torch.get_rng_state())
    drew = drew or any(isinstance(leaf, torch.Generator) for leaf in pytree.tree_leaves(arguments.tree))
    return result, arguments, drew


def _on_device(action: Action, sample: Any, device: str) -> tuple[Any, _Arguments]:
    arguments = _Arguments(sample, device)
    _seed(device)
    try:
        return action(arguments), arguments
    except Exception as error:  # noqa: BLE001 - reported as the verdict
        raise Mismatch("error", _error_text(error)) from error


def _compare_sample(case: Case, check: str, action: Action, sample: Any, device: str) -> bool:
    """Runs one sample on both sides; False if the CPU refuses it; raises Mismatch if the sides differ."""
    reference = _reference(action, sample)
    if reference is None:
        return False
    want, want_arguments, drew_random = reference
    got, got_arguments = _on_device(action, sample, device)
    rtol, atol = tolerance_of(case, check)
    defined = not cases.has_undefined_values(case.info)
    rule = Rule(device, values=defined and not drew_random, rtol=rtol, atol=atol)
    try:
        assert_same(want, got, rule)
    except Mismatch as mismatch:
        if mismatch.kind != "value":
            raise
        if has_own_kernel(case):
            assert_no_worse(want, got, _in_float64(action, sample), rule)
        else:
            drew_random = _is_random(action, sample)
            # A few CPU kernels leave parts of a result unwritten: what the CPU does not repeat cannot be compared.
            if not drew_random and _repeats_on_cpu(action, sample, want):
                raise
            assert_same(want, got, Rule(device, values=False))
    compare.assert_same_aliasing(want, want_arguments.tree, got, got_arguments.tree)
    if drew_random and defined:
        # Streams of random numbers differ between devices, but one seed gives one result.
        _repeats(got, _on_device(action, sample, device)[0], device)
    return True


class _RandomnessProbe(TorchDispatchMode):
    """Notices operators that draw from a generator, also where the database restores the generator afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _is_random(action: Action, sample: Any) -> bool:
    with _RandomnessProbe() as probe:
        _reference(action, sample)
    return probe.found


def _in_float64(action: Action, sample: Any) -> Any:
    """The CPU's result for the sample with its floating-point tensors as float64."""

    def widened(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    return action(_Arguments(sample.transform(widened), "cpu"))


def _repeats_on_cpu(action: Action, sample: Any, first: Any) -> bool:
    again = _reference(action, sample)
    if again is None:
        return False
    try:
        assert_same(first, again[0], Rule("cpu"))
    except Mismatch:
        return False
    return True


def _repeats(first: Any, second: Any, device: str) -> None:
    to_cpu = functools.partial(pytree.tree_map, lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf)
    try:
        assert_same(to_cpu(first), to_cpu(second), Rule("cpu"))
    except Mismatch as mismatch:
        raise Mismatch("seed", f"two runs on {device} with one seed differ: {mismatch}") from None


def _forward(case: Case) -> Action:
    return lambda arguments: arguments.call(case.info.op)


def _transformed(samples: Iterator[Any], transform: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Any]:
    def leaf(value: Any) -> Any:
        return transform(value) if isinstance(value, torch.Tensor) else value

    for sample in samples:
        yield sample.transform(leaf)


def _noncontiguous(tensor: torch.Tensor) -> torch.Tensor:
    return noncontiguous_like(tensor) if tensor.layout is torch.strided and not tensor.is_quantized else tensor


def _negated_view(tensor: torch.Tensor) -> torch.Tensor:
    lazy = (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout is torch.strided
    return torch._neg_view(tensor.neg()) if lazy else tensor


def _conjugated_view(tensor: torch.Tensor) -> torch.Tensor:
    lazy = tensor.is_complex() and tensor.layout is torch.strided
    return tensor.conj_physical().conj() if lazy else tensor


# --- out= ------------------------------------------------------------------------------------------------------------


def _sentinel(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(1)


def _out_like(result: torch.Tensor) -> torch.Tensor:
    return _sentinel(torch.empty_like(result, memory_format=torch.preserve_format))


def _out_with_gaps(result: torch.Tensor) -> torch.Tensor:
    shape = (*result.shape, 2) if result.dim() else (2,)
    return _sentinel(torch.empty(shape, dtype=result.dtype))[..., 0]


def _out_empty(result: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=result.dtype)


def _out_samples(case: Case, make_out: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Any]:
    """Samples with an ``out`` keyword: tensors of the result's dtypes, made by ``make_out`` from the CPU's result."""
    for sample in cases.samples(case):
        reference = _reference(_forward(case), sample)
        results = tensors_of(reference[0]) if reference is not None else []
        if not results or any(result.layout is not torch.strided for result in results):
            continue
        outs = tuple(make_out(result.resolve_conj().resolve_neg()) for result in results)
        single = isinstance(reference[0], torch.Tensor)
        yield type(sample)(
            sample.input, args=tuple(sample.args), kwargs={**sample.kwargs, "out": outs[0] if single else outs}
        )


def _call_with_out(case: Case) -> Action:
    def action(arguments: _Arguments) -> Any:
        outs = tensors_of(arguments.kwargs["out"])
        addresses = [out.data_ptr() for out in outs]
        returned = tensors_of(arguments.call(case.info.op))
        return {
            "outs": outs,
            "returned_outs": [any(result is out for out in outs) for result in returned],
            "kept_memory": [out.data_ptr() == address for out, address in zip(outs, addresses, strict=True)],
        }

    return action


# --- in place and views ----------------------------------------------------------------------------------------------


def _in_place(case: Case) -> Action:
    def action(arguments: _Arguments) -> Any:
        targets = tensors_of(arguments.input)
        before = [(target.data_ptr(), target._version) for target in targets]
        returned = arguments.call(case.info.get_inplace())
        return {
            "targets": targets,
            "returned_self": returned is arguments.input,
            "kept_memory": [target.data_ptr() == old[0] for target, old in zip(targets, before, strict=True)],
            "version_steps": [target._version - old[1] for target, old in zip(targets, before, strict=True)],
        }

    return action


def _write_through_view(case: Case) -> Action:
    """Writes into every output that is a view of an input; the inputs behind it must show it."""

    def action(arguments: _Arguments) -> Any:
        result = arguments.call(case.info.op)
        inputs = tensors_of(arguments.tree)
        sources = compare.alias_pattern(result, arguments.tree)
        views = [tensor for tensor, indices in zip(tensors_of(result), sources, strict=True) if indices]
        if not views:
            raise LookupError("no output is a view")
        for number, view in enumerate(views):
            view.fill_(number % 2)
        viewed = sorted({index for indices in sources for index in indices})
        return {"inputs": [inputs[index] for index in viewed], "are_views": [view._is_view() for view in views]}

    return action


# --- derivatives -----------------------------------------------------------------------------------------------------


def _pattern_like(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Small numbers without a simple pattern, the same on every device, of the tensor's shape and dtype."""
    numbers = torch.arange(offset, offset + tensor.numel(), dtype=torch.int64)
    values = ((numbers * 7919) % 13 - 6).to(torch.float64) / 4
    if tensor.is_complex():
        values = torch.complex(values, values.flip(0))
    return values.to(tensor.dtype).reshape(tensor.shape).to(tensor.device)


def _differentiable_outputs(sample: Any, result: Any) -> list[torch.Tensor]:
    outputs = tensors_of(sample.output_process_fn_grad(result))
    return [output for output in outputs if output.requires_grad]


def _backward(case: Case, sample: Any, second_order: bool) -> Action:
    def action(arguments: _Arguments) -> Any:
        outputs = _differentiable_outputs(sample, arguments.call(case.info.op))
        inputs = arguments.differentiable
        cotangents = [_pattern_like(output, index) for index, output in enumerate(outputs)]
        first = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True, create_graph=second_order)
        if not second_order:
            return first
        again = [gradient for gradient in first if gradient is not None and gradient.requires_grad]
        cotangents = [_pattern_like(gradient, index + 5) for index, gradient in enumerate(again)]
        return first, torch.autograd.grad(again, inputs, cotangents, allow_unused=True)

    return action


def _forward_mode(case: Case) -> Action:
    def action(arguments: _Arguments) -> Any:
        def dual(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                primal = leaf.detach()
                return forward_ad.make_dual(primal, _pattern_like(primal, 3))
            return leaf

        with forward_ad.dual_level():
            value, args, kwargs = pytree.tree_map(dual, arguments.tree)
            outputs = tensors_of(case.info.op(value, *args, **kwargs))
            return [tuple(forward_ad.unpack_dual(output)) for output in outputs]

    return action


# --- the table -------------------------------------------------------------------------------------------------------


def _run(case: Case, check: str, device: str, samples: Iterator[Any], make_action: Callable[[Any], Action]) -> Outcome:
    compared = 0
    for index, sample in enumerate(samples):
        try:
            compared += _compare_sample(case, check, make_action(sample), sample, device)
        except Mismatch as mismatch:
            return Outcome(check, FAIL, mismatch.kind, f"sample {index}: {mismatch.detail}", compared)
    return Outcome(check, PASS if compared else NOT_APPLICABLE, samples=compared)


def _differentiable(case: Case) -> bool:
    info = case.info
    return info.supports_autograd and case.torch_dtype in info.supported_backward_dtypes("cpu")


def _check_forward(case: Case, device: str) -> Outcome:
    return _run(case, "forward", device, cases.samples(case), lambda _: _forward(case))


def _check_layout(check: str, transform: Callable[[torch.Tensor], torch.Tensor], case: Case, device: str) -> Outcome:
    samples = _transformed(cases.samples(case), transform)
    return _run(case, check, device, samples, lambda _: _forward(case))


def _check_sparse(check: str, layout: torch.layout, case: Case, device: str) -> Outcome:
    return _run(case, check, device, cases.sparse_samples(case, layout), lambda _: _forward(case))


def _check_out(check: str, make_out: Callable[[torch.Tensor], torch.Tensor], case: Case, device: str) -> Outcome:
    if not case.info.supports_out or cases.is_foreach(case.info):
        return Outcome(check, NOT_APPLICABLE)
    return _run(case, check, device, _out_samples(case, make_out), lambda _: _call_with_out(case))


def _check_inplace(case: Case, device: str) -> Outcome:
    if case.info.get_inplace() is None:
        return Outcome("inplace", NOT_APPLICABLE)
    samples = (sample for sample in cases.samples(case) if tensors_of(sample.input))
    return _run(case, "inplace", device, samples, lambda _: _in_place(case))


def _check_view(case: Case, device: str) -> Outcome:
    return _run(case, "view", device, cases.samples(case), lambda _: _write_through_view(case))


def _check_backward(case: Case, device: str) -> Outcome:
    if not _differentiable(case):
        return Outcome("backward", NOT_APPLICABLE)
    samples = cases.samples(case, requires_grad=True)
    return _run(case, "backward", device, samples, lambda sample: _backward(case, sample, second_order=False))


def _check_double_backward(case: Case, device: str) -> Outcome:
    if not _differentiable(case) or not case.info.supports_gradgrad:
        return Outcome("double_backward", NOT_APPLICABLE)
    samples = cases.samples(case, requires_grad=True)
    return _run(case, "double_backward", device, samples, lambda sample: _backward(case, sample, second_order=True))


def _check_forward_mode(case: Case, device: str) -> Outcome:
    if not _differentiable(case) or not case.info.supports_forward_ad:
        return Outcome("forward_mode", NOT_APPLICABLE)
    samples = cases.samples(case, requires_grad=True)
    return _run(case, "forward_mode", device, samples, lambda _: _forward_mode(case))


def _check_autocast(case: Case, device: str) -> Outcome:
    """Under autocast the device runs what the CPU runs under its own, with the dtypes promised for an accelerator."""
    dtypes = (torch.bfloat16, torch.float16) if case.dtype == "float32" else (case.torch_dtype,)
    compared = 0
    for index, sample in enumerate(cases.samples(case)):
        for dtype in dtypes:
            try:
                compared += _compare_autocast(case, sample, dtype, device)
            except Mismatch as mismatch:
                return Outcome("autocast", FAIL, mismatch.kind, f"sample {index}, {dtype}: {mismatch.detail}", compared)
    return Outcome("autocast", PASS if compared else NOT_APPLICABLE, samples=compared)


def _compare_autocast(case: Case, sample: Any, dtype: torch.dtype, device: str) -> bool:
    # The CPU has lists of its own, so only an accelerator is held to the promises.
    accelerator = device != "cpu"
    if accelerator and autocast_rules.is_refused(case):
        return _is_refused_under_autocast(case, sample, dtype, device)
    if _reference(_under_autocast(case, "cpu", dtype), sample) is None:
        return False
    got, _ = _on_device(_under_autocast(case, device, dtype), sample, device)
    promised = autocast_rules.promised_dtype(case, sample, dtype) if accelerator else None
    for tensor in tensors_of(got):
        if tensor.device.type != device:
            raise Mismatch("device", f"an output is on {tensor.device}")
        if promised is not None and tensor.is_floating_point() and tensor.dtype is not promised:
            raise Mismatch("dtype", f"autocast promises {promised}, got {tensor.dtype}")
    return True


def _is_refused_under_autocast(case: Case, sample: Any, dtype: torch.dtype, device: str) -> bool:
    try:
        _on_device(_under_autocast(case, device, dtype), sample, device)
    except Mismatch as refusal:
        if "unsafe to autocast" in refusal.detail:
            return True
        raise
    raise Mismatch("error", "runs under autocast, which must refuse it as unsafe")


def _under_autocast(case: Case, device: str, dtype: torch.dtype) -> Action:
    def action(arguments: _Arguments) -> Any:
        with torch.autocast(device, dtype=dtype):
            return arguments.call(case.info.op)

    return action


def _check_errors(case: Case, device: str) -> Outcome:
    """What the CPU refuses by design the device must refuse with the same type of exception."""
    if not case.is_first_of_op:
        return Outcome("errors", NOT_APPLICABLE)
    compared = 0
    for index, sample in enumerate(cases.error_samples(case)):
        expected = _exception_of(case, sample, "cpu")
        if expected is None:
            continue
        raised = _exception_of(case, sample, device)
        if type(raised) is not type(expected):
            got = "nothing" if raised is None else _error_text(raised)
            detail = f"sample {index}: the CPU raises {_error_text(expected)}; the device raises {got}"
            return Outcome("errors", FAIL, "error", detail[:600], compared)
        compared += 1
    return Outcome("errors", PASS if compared else NOT_APPLICABLE, samples=compared)


def _exception_of(case: Case, sample: Any, device: str) -> Exception | None:
    _seed(device)
    try:
        _Arguments(sample, device).call(case.info.op)
    except Exception as error:  # noqa: BLE001 - the exception is the result
        return error
    return None


def run_check(check: str, case: Case, device: str) -> Outcome:
    """The outcome of one of ``CHECKS``; raises only if the database cannot make the samples."""
    if case.dtype not in _DTYPES_OF_CHECK.get(check, (case.dtype,)):
        return Outcome(check, NOT_APPLICABLE)
    start = time.perf_counter()
    try:
        outcome = CHECKS[check](case, device)
    except unittest.SkipTest:  # the database's way to say that it has no samples
        outcome = Outcome(check, NOT_APPLICABLE)
    return replace(outcome, seconds=round(time.perf_counter() - start, 3))


CHECKS: dict[str, Callable[[Case, str], Outcome]] = {
    "forward": _check_forward,
    "noncontiguous": functools.partial(_check_layout, "noncontiguous", _noncontiguous),
    "neg_view": functools.partial(_check_layout, "neg_view", _negated_view),
    "conj_view": functools.partial(_check_layout, "conj_view", _conjugated_view),
    "sparse_coo": functools.partial(_check_sparse, "sparse_coo", torch.sparse_coo),
    "sparse_csr": functools.partial(_check_sparse, "sparse_csr", torch.sparse_csr),
    "out": functools.partial(_check_out, "out", _out_like),
    "out_strided": functools.partial(_check_out, "out_strided", _out_with_gaps),
    "out_resized": functools.partial(_check_out, "out_resized", _out_empty),
    "inplace": _check_inplace,
    "view": _check_view,
    "backward": _check_backward,
    "double_backward": _check_double_backward,
    "forward_mode": _check_forward_mode,
    "autocast": _check_autocast,
    "errors": _check_errors,
}
