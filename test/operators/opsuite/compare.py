"""What "the same result" means: the same bytes in the same layout, on the device asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .transfer import tensors_of

_COMPRESSED_PARTS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class Mismatch(AssertionError):
    """Two results differ; ``kind`` names the property (device, dtype, shape, stride, value, alias, ...)."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Rule:
    """How strict a comparison is: the device results must be on, whether values count, and the tolerance allowed."""

    device: str
    values: bool = True
    rtol: float = 0.0
    atol: float = 0.0


def _require(kind: str, expected: Any, actual: Any, where: str) -> None:
    if expected != actual:
        raise Mismatch(kind, f"{where} expected {expected}, got {actual}")


def assert_same(expected: Any, actual: Any, rule: Rule) -> None:
    """Raises Mismatch unless the CPU result ``expected`` and the device result ``actual`` agree under ``rule``."""
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    _require("structure", str(expected_spec), str(actual_spec), "result")
    for index, (want, got) in enumerate(zip(expected_leaves, actual_leaves, strict=True)):
        where = f"output {index}"
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
            _same_tensor(want.detach(), got.detach(), rule, where)
        elif isinstance(want, torch.device):
            _require("device", rule.device, getattr(got, "type", got), where)
        else:
            _require("type", type(want), type(got), where)
            both_nan = isinstance(want, float) and math.isnan(want) and math.isnan(got)
            if rule.values and not both_nan:
                _require("value", want, got, where)


def _same_tensor(want: torch.Tensor, got: torch.Tensor, rule: Rule, where: str) -> None:
    _require("device", rule.device, got.device.type, where)
    _require("dtype", want.dtype, got.dtype, where)
    _require("layout", want.layout, got.layout, where)
    _require("nested", want.is_nested, got.is_nested, where)
    if want.is_nested:
        _same_parts(want.unbind(), got.unbind(), rule, where)
        return
    _require("shape", tuple(want.shape), tuple(got.shape), where)
    if want.layout is torch.sparse_coo:
        _require("coalesced", want.is_coalesced(), got.is_coalesced(), where)
        _same_parts((want._indices(), want._values()), (got._indices(), got._values()), rule, where)
    elif want.layout in _COMPRESSED_PARTS:
        names = _COMPRESSED_PARTS[want.layout]
        _same_parts([getattr(want, name)() for name in names], [getattr(got, name)() for name in names], rule, where)
    elif want.layout is torch.strided:
        _same_strided(want, got, rule, where)
    elif rule.values:
        _same_values(want, got.cpu(), rule, where)


def _same_parts(want: Any, got: Any, rule: Rule, where: str) -> None:
    _require("structure", len(want), len(got), where)
    for want_part, got_part in zip(want, got, strict=True):
        _same_tensor(want_part, got_part, rule, where)


def _same_strided(want: torch.Tensor, got: torch.Tensor, rule: Rule, where: str) -> None:
    _require("stride", want.stride(), got.stride(), where)
    _require("storage_offset", want.storage_offset(), got.storage_offset(), where)
    _require("conj", want.is_conj(), got.is_conj(), where)
    _require("neg", want.is_neg(), got.is_neg(), where)
    if not rule.values:
        return
    if want.is_quantized:
        _require("quantizer", str(want.qscheme()), str(got.qscheme()), where)
        want, got = want.int_repr(), got.int_repr()
    _same_values(want, got.cpu(), rule, where)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # clone: a tensor of one element may count as contiguous and still have strides that a view of bytes refuses
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8)


def _same_values(want: torch.Tensor, got: torch.Tensor, rule: Rule, where: str) -> None:
    if want.layout is torch.strided and torch.equal(_bits(want), _bits(got)):
        return
    if want.is_floating_point() or want.is_complex():
        # Only NaNs may differ in their bits, and zeros must keep their sign.
        signs_agree = want.is_complex() or torch.equal(
            torch.signbit(want) & (want == 0), torch.signbit(got) & (got == 0)
        )
    else:
        signs_agree = True
    try:
        torch.testing.assert_close(got, want, rtol=rule.rtol, atol=rule.atol, equal_nan=True)
    except AssertionError as error:
        raise Mismatch("value", f"{where}: {' '.join(str(error).split())}"[:400]) from None
    if not signs_agree and rule.rtol == rule.atol == 0:
        raise Mismatch("value", f"{where}: zeros differ in sign")


def assert_no_worse(expected: Any, actual: Any, exact: Any, rule: Rule) -> None:
    """Raises Mismatch unless the device's numbers are as near to ``exact`` as the CPU's, and all else is the same.

    ``exact`` is the result of the same computation in float64. Per tensor, no number of the device may be off by more
    than the CPU's worst one and a unit in the last place of the largest; where the exact number is no finite one of the dtype, the
    device's must be what the CPU's is, or the exact one.
    """
    assert_same(expected, actual, replace(rule, values=False))
    leaves = (pytree.tree_leaves(tree) for tree in (expected, actual, exact))
    for index, (want, got, truth) in enumerate(zip(*leaves, strict=True)):
        where = f"output {index}"
        if not isinstance(want, torch.Tensor):
            _require("value", want, got, where)
        elif want.is_floating_point():
            _no_worse(want.detach(), got.detach().cpu(), truth.detach(), where)
        else:
            _same_values(want, got.cpu(), rule, where)


def _no_worse(want: torch.Tensor, got: torch.Tensor, truth: torch.Tensor, where: str) -> None:
    limits = torch.finfo(want.dtype)
    finite = truth.abs() <= limits.max
    same = (got == want) | (got.isnan() & want.isnan()) | (got == truth.to(want.dtype))
    if not bool((finite | same).all()):
        raise Mismatch("value", f"{where}: not the CPU's where the exact value is not finite")
    if not bool(finite.any()):
        return
    largest = truth[finite].abs().max().clamp(min=limits.smallest_normal)
    error, of_cpu = ((result[finite].double() - truth[finite]).abs() for result in (got, want))
    error, allowed = error.nan_to_num(float("inf")), of_cpu.nan_to_num(0).max() + limits.eps * largest
    worst = int(error.argmax())
    if error[worst] > allowed:
        detail = f"{error[worst]:.3g} off the exact {truth[finite][worst]:.9g}, where the CPU allows {allowed:.3g}"
        raise Mismatch("value", f"{where}: {detail}")


def alias_pattern(outputs: Any, inputs: Any) -> list[list[int]]:
    """For each output tensor the positions of the input tensors it shares memory with."""
    sources = tensors_of(inputs)
    return [
        [index for index, source in enumerate(sources) if _shares_memory(output, source)]
        for output in tensors_of(outputs)
    ]


def _shares_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left is right:
        return True
    if left.layout is not torch.strided or right.layout is not torch.strided or left.is_nested or right.is_nested:
        return False
    return torch._C._is_alias_of(left, right)


def assert_same_aliasing(expected: Any, expected_inputs: Any, actual: Any, actual_inputs: Any) -> None:
    """Raises Mismatch unless outputs share memory with the same inputs on both devices."""
    want, got = alias_pattern(expected, expected_inputs), alias_pattern(actual, actual_inputs)
    if want != got:
        raise Mismatch("alias", f"outputs share memory with inputs {want} on the CPU, with {got} on the device")
