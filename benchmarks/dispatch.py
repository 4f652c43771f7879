"""Time of one call on tiny tensors, device against CPU: what the device's dispatch adds to an operator.

The column *tier* says which kernels of the device a call reaches: ``boxed`` (at least one goes through the general
fallback), ``direct`` (unboxed kernels of the operators' own), or ``composite`` (no kernel of the device's own).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import harness
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

_BATCH_SECONDS = 0.002


def _subjects(device: str) -> dict[str, Callable[[], Any]]:
    """The hot set of training: name to call, each on 8x8 tensors or images of 4x4 pixels."""
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator).to(device)

    a, b, c, out = (rand(8, 8) for _ in range(4))
    vector, mask, index = rand(8), rand(8, 8) > 0.5, torch.arange(8, device=device)
    batch, image, kernel = rand(2, 8, 8), rand(2, 4, 4, 4), rand(4, 4, 3, 3)
    heads, half = rand(1, 2, 8, 8), rand(8, 8).bfloat16()
    many, gradients = [rand(8, 8) for _ in range(16)], [rand(8, 8) for _ in range(16)]
    return {
        "add": lambda: a + b,
        "add scalar": lambda: a + 1.0,
        "add_": lambda: a.add_(b, alpha=1e-12),
        "add out=": lambda: torch.add(a, b, out=out),
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mul_": lambda: a.mul_(1.0),
        "div": lambda: a / b,
        "pow": lambda: a**2,
        "sqrt": lambda: torch.sqrt(a),
        "exp": lambda: torch.exp(a),
        "tanh": lambda: torch.tanh(a),
        "sigmoid": lambda: torch.sigmoid(a),
        "relu": lambda: torch.relu(a),
        "gelu": lambda: F.gelu(a),
        "silu": lambda: F.silu(a),
        "clamp": lambda: a.clamp(0.0, 1.0),
        "eq": lambda: a == b,
        "where": lambda: torch.where(mask, a, b),
        "masked_fill": lambda: a.masked_fill(mask, 0.0),
        "addcmul": lambda: torch.addcmul(a, b, c),
        "lerp": lambda: torch.lerp(a, b, 0.5),
        "mm": lambda: torch.mm(a, b),
        "bmm": lambda: torch.bmm(batch, batch),
        "addmm": lambda: torch.addmm(vector, a, b),
        "linear": lambda: F.linear(a, b, vector),
        "matmul 3d": lambda: torch.matmul(batch, a),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        "conv2d": lambda: F.conv2d(image, kernel, padding=1),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "batch_norm": lambda: F.batch_norm(image, vector[:4], vector[:4], training=False),
        "layer_norm": lambda: F.layer_norm(a, (8,), vector, vector),
        "rms_norm": lambda: F.rms_norm(a, (8,), vector),
        "softmax": lambda: torch.softmax(a, -1),
        "log_softmax": lambda: torch.log_softmax(a, -1),
        "cross_entropy": lambda: F.cross_entropy(a, index),
        "mse_loss": lambda: F.mse_loss(a, b),
        "embedding": lambda: F.embedding(index, a),
        "dropout": lambda: F.dropout(a, 0.1),
        "sum": lambda: a.sum(),
        "mean dim": lambda: a.mean(-1),
        "max dim": lambda: a.max(-1),
        "argmax": lambda: a.argmax(-1),
        "norm": lambda: torch.linalg.vector_norm(a),
        "cumsum": lambda: a.cumsum(-1),
        "topk": lambda: a.topk(2),
        "sort": lambda: torch.sort(a, 1),
        "cat": lambda: torch.cat((a, b, c)),
        "stack": lambda: torch.stack((a, b)),
        "index_select": lambda: a.index_select(0, index),
        "gather": lambda: torch.gather(a, 0, index.expand(1, 8)),
        "index": lambda: a[index],
        "view": lambda: a.view(64),
        "transpose": lambda: a.t(),
        "slice": lambda: a[1:3],
        "contiguous": lambda: a.t().contiguous(),
        "clone": lambda: a.clone(),
        "copy_": lambda: out.copy_(a),
        "to bf16": lambda: a.to(torch.bfloat16),
        "bf16 add": lambda: half + half,
        "empty": lambda: torch.empty(8, 8, device=device),
        "zeros": lambda: torch.zeros(8, 8, device=device),
        "zero_": lambda: out.zero_(),
        "item": lambda: vector[0].item(),
        "foreach_add_ 16": lambda: torch._foreach_add_(many, gradients, alpha=1e-12),
        "foreach_sqrt 16": lambda: torch._foreach_sqrt(many),
    }


class _Recorder(TorchDispatchMode):
    """Collects the qualified names of the operators that reach a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        self.names.add(f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name)
        return func(*args, **(kwargs or {}))


def _tier(call: Callable[[], Any], device: str) -> str:
    """``direct``, ``boxed`` or ``composite``: read from the dispatcher's own dump of the operators a call reaches."""
    if device == harness.BASELINE:
        return "direct"
    recorder = _Recorder()
    with recorder:
        call()
    tiers = set()
    for name in recorder.names:
        # The dump gives the C++ signature of a kernel of the operator's own, and (none) for a boxed one.
        kernel = re.search(r"^PrivateUse1: registered at .* :: (\(none\))?", torch._C._dispatch_dump(name), re.MULTILINE)
        tiers.add("composite" if kernel is None else "boxed" if kernel[1] else "direct")
    return next(tier for tier in ("boxed", "direct", "composite") if tier in tiers)


def main() -> int:
    """Measures the hot set; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=31)
    parser.add_argument("--only", nargs="+", help="names from the first column")
    options = parser.parse_args()
    options.threads = options.threads or 1
    harness.prepare(options)
    ours, theirs = _subjects(options.device), _subjects(harness.BASELINE)
    unknown = set(options.only or []) - set(ours)
    if unknown:
        raise SystemExit(f"--only: unknown {sorted(unknown)}; known are {', '.join(ours)}")
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    with torch.no_grad():
        for name in options.only or ours:
            timing = harness.interleave(ours[name], theirs[name], options.device, options.rounds, _BATCH_SECONDS)
            tier = _tier(ours[name], options.device)
            results[name] = {**timing.to_json(), "tier": tier}
            added = (timing.device_median - timing.baseline_median) * 1e9
            microseconds = [f"{seconds * 1e6:.2f}" for seconds in (timing.baseline_median, timing.device_median)]
            ratios = [f"{ratio:.2f}" for ratio in (timing.ratio, timing.best_ratio)]
            rows.append([name, *microseconds, f"{added:+.0f}", *ratios, tier])
    means = {
        key: harness.geometric_mean([entry[key] for entry in results.values()]) for key in ("ratio", "best_ratio")
    }
    rows.append(["geometric mean", "", "", "", *(f"{mean:.3f}" for mean in means.values()), ""])
    results["geometric mean"] = means
    columns = ["call", "cpu us", f"{options.device} us", "added ns", "ratio", "best", "tier"]
    harness.report(options, columns, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
