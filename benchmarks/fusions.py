"""Formulas as models write them against the fused operator called by name: both compiled on npu, forward and backward.

A ratio above 1 is what a pattern that puts the operator in the formula's place could gain; at 1 and below, the loops
that Inductor generates need no pattern. Results of both are compared before they are timed.

    python benchmarks/fusions.py --cache /tmp/inductor
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
import torch
import torch.nn.functional as F

Tensor = torch.Tensor
# A name, the formula, the operator, and the arguments of both; gradients are taken of those that require them.
Case = tuple[str, Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # of the largest value: a few roundings


def _rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * gamma


def _swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _attention_masked_fill(q: Tensor, k: Tensor, v: Tensor, masked: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.masked_fill(masked, -math.inf).softmax(-1) @ v


def _attention_float_softmax(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)) + added
    return F.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


def _cases(dtype: torch.dtype) -> Iterator[Case]:
    import torch_npu

    def leaf(*sizes: int) -> Tensor:
        return torch.randn(sizes, dtype=dtype, device="npu", requires_grad=True)

    rows, sdpa = 1024, F.scaled_dot_product_attention
    yield "rms_norm", _rms_norm, lambda x, g: torch_npu.npu_rms_norm(x, g, 1e-6)[0], (leaf(rows, 512), leaf(512))
    yield "swiglu", _swiglu, torch_npu.npu_swiglu, (leaf(rows, 2816),)
    angles = [torch.randn(1, 256, 1, 64, dtype=dtype, device="npu") for _ in range(2)]
    yield "rotary", _rotary, torch_npu.npu_rotary_mul, (leaf(4, 256, 8, 64), *angles)
    classes = torch.randint(8192, (rows,), device="npu")
    loss = lambda x, t: torch_npu.npu_cross_entropy_loss(x.float(), t)[0].reshape(())
    yield "cross entropy", lambda x, t: F.cross_entropy(x.float(), t), loss, (leaf(rows, 8192), classes)
    q, k, v = (leaf(4, 8, 256, 64) for _ in range(3))
    masked = torch.ones(256, 256, dtype=torch.bool, device="npu").triu(1)
    added = torch.zeros(256, 256, dtype=dtype, device="npu").masked_fill(masked, -1e4)
    yield "attention masked_fill", _attention_masked_fill, lambda q, k, v, m: sdpa(q, k, v, ~m), (q, k, v, masked)
    yield "attention float softmax", _attention_float_softmax, lambda q, k, v, m: sdpa(q, k, v, m), (q, k, v, added)


def _step(function: Callable[..., Tensor], arguments: tuple[Tensor, ...], grad: Tensor) -> Callable[[], Any]:
    compiled, leaves = torch.compile(function, dynamic=False), [t for t in arguments if t.requires_grad]
    return lambda: torch.autograd.grad(compiled(*arguments), leaves, grad)


def _measure(case: Case, precision: str, rounds: int) -> harness.Timing:
    """The operator's time as the device's, the formula's as the baseline's; RuntimeError where gradients differ."""
    name, formula, operator, arguments = case
    grad = torch.randn_like(formula(*arguments))
    ours, theirs = (_step(function, arguments, grad) for function in (operator, formula))
    for got, want in zip(ours(), theirs(), strict=True):
        difference = ((got - want).abs().max() / want.abs().max()).item()
        if difference > _TOLERANCE[precision]:
            raise RuntimeError(f"{name} {precision}: gradients differ by {difference:.1e} of the largest value")
    return harness.interleave(ours, theirs, "npu", rounds, batch_seconds=0.03)


def main() -> int:
    """Measures every formula in every precision asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=9)
    parser.add_argument("--precision", nargs="+", choices=list(_TYPES), default=list(_TYPES))
    parser.add_argument("--cache", type=Path, help="keep generated code in this folder (TORCHINDUCTOR_CACHE_DIR)")
    options = parser.parse_args()
    if options.device != "npu":
        parser.error(f"the operators are those of npu, there are none of {options.device}")
    if options.cache is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.cache.absolute())
    harness.prepare(options)
    rows, results = [], {}
    for precision in options.precision:
        for case in _cases(_TYPES[precision]):
            timing = _measure(case, precision, options.rounds)
            results[f"{case[0]} {precision}"] = timing.to_json()
            times = (f"{1 / timing.ratio:.2f}x", f"{1 / timing.best_ratio:.2f}x", f"{timing.device_median * 1e3:.2f}")
            rows.append([case[0], precision, *times])
            torch.compiler.reset()
    harness.report(options, ["formula", "precision", "against the operator", "fastest", "operator ms"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
