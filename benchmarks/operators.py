"""Operators at the sizes of training, forward and backward, device against CPU, in float32 and bfloat16.

The column *kernel* says what served the device's last call that had a choice: ``own`` (a vectorised kernel of this
project, for the instruction set named above the table), ``aten`` (ATen's kernel on the same memory), or of products of
16-bit numbers ``native`` (by the CPU's units) or ``float32``. Operators of torch_npu are compared with the operators of
PyTorch that compute the same on the CPU.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

import harness
import torch
import torch.nn.functional as F

_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_Case = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]


def _by_device(ours: str, theirs: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch_npu's operator of that name (its first result) on the device, a function of PyTorch on the CPU."""

    def call(first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        if first.device.type == harness.BASELINE:
            return theirs(first, *rest)
        result = getattr(torch.ops.npu, ours)(first, *rest)
        return result if isinstance(result, torch.Tensor) else result[0]

    return call


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


@functools.cache
def _causal(device: torch.device) -> torch.Tensor:
    """The compressed causal mask."""
    return torch.ones(2048, 2048, dtype=torch.bool, device=device).triu(1)


def _fusion_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if q.device.type == harness.BASELINE:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.ops.npu.npu_fusion_attention(
        q, k, v, q.size(1), "BNSD", scale=q.size(-1) ** -0.5, atten_mask=_causal(q.device), sparse_mode=2
    )[0]


# Name to a function of tensors and their shapes. T tokens 512, D width 768, as in a small GPT.
_OPERATORS: dict[str, _Case] = {
    "linear 512x768x3072": (F.linear, ((512, 768), (3072, 768), (3072,))),
    "linear 8x1024x1024": (F.linear, ((8, 1024), (1024, 1024), (1024,))),
    "bmm 12x256x64x256": (torch.bmm, ((12, 256, 64), (12, 64, 256))),
    "conv 16x64x32x32": (lambda x, w: F.conv2d(x, w, padding=1), ((16, 64, 32, 32), (64, 64, 3, 3))),
    "attention causal 8x256x64": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((1, 8, 256, 64),) * 3,
    ),
    "layer_norm 512x768": (lambda x, w, b: F.layer_norm(x, (768,), w, b), ((512, 768), (768,), (768,))),
    "layer_norm 2048x768": (lambda x, w, b: F.layer_norm(x, (768,), w, b), ((2048, 768), (768,), (768,))),
    "rms_norm 512x768": (lambda x, w: F.rms_norm(x, (768,), w), ((512, 768), (768,))),
    "batch_norm 16x64x32x32": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), ((16, 64, 32, 32), (64,), (64,)),
    ),
    "gelu 512x3072": (F.gelu, ((512, 3072),)),
    "silu 512x3072": (F.silu, ((512, 3072),)),
    "softmax 8x256x256": (lambda x: F.softmax(x, -1), ((8, 256, 256),)),
    "softmax 64x256x256": (lambda x: F.softmax(x, -1), ((64, 256, 256),)),
    "log_softmax 1024x4096": (lambda x: F.log_softmax(x, -1), ((1024, 4096),)),
    "embedding 2048 of 32000x768": (
        lambda table: F.embedding(torch.arange(2048, device=table.device), table), ((32000, 768),),
    ),
    "cross_entropy 512x8192": (
        lambda x: F.cross_entropy(x, torch.arange(512, device=x.device)), ((512, 8192),),
    ),
    "dropout 512x3072": (lambda x: F.dropout(x, 0.1), ((512, 3072),)),
    "npu_fusion_attention causal 8x256x64": (_fusion_attention, ((1, 8, 256, 64),) * 3),
    "npu_rms_norm 512x768": (
        _by_device("npu_rms_norm", lambda x, w: F.rms_norm(x, (768,), w)), ((512, 768), (768,)),
    ),
    "npu_swiglu 512x4096": (_by_device("npu_swiglu", _swiglu), ((512, 4096),)),
    "npu_rotary_mul 2x256x8x64": (
        _by_device("npu_rotary_mul", _rotary), ((2, 256, 8, 64), (1, 256, 1, 64), (1, 256, 1, 64)),
    ),
    "add 512x3072": (torch.add, ((512, 3072), (512, 3072))),
}  # fmt: skip
_PARAMETERS = [(768, 768), (768,), (3072, 768), (3072,), (768, 3072)]


class _Pass:
    """A call of an operator; with ``backward`` its gradients too."""

    def __init__(self, case: _Case, device: str, dtype: torch.dtype, backward: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        function, shapes = case
        self._function, self._backward = function, backward
        self._inputs = [
            torch.randn(shape, generator=generator).to(device, dtype).requires_grad_(backward) for shape in shapes
        ]
        self._gradient = torch.ones_like(function(*self._inputs).detach())

    def __call__(self) -> None:
        output = self._function(*self._inputs)
        if self._backward:
            torch.autograd.grad(output, self._inputs, self._gradient)


class _ParameterList:
    """A step of an optimizer, or the clipping of gradients, on the parameters of a block."""

    def __init__(self, what: str, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        self._parameters = [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in _PARAMETERS]
        for parameter in self._parameters:
            parameter.grad = torch.ones_like(parameter)
        self._optimizer = {
            "AdamW default": lambda: torch.optim.AdamW(self._parameters),
            "AdamW foreach": lambda: torch.optim.AdamW(self._parameters, foreach=True),
            "AdamW fused": lambda: torch.optim.AdamW(self._parameters, fused=True),
            "SGD momentum default": lambda: torch.optim.SGD(self._parameters, momentum=0.9),
            "clip_grad_norm_": lambda: None,
        }[what]()

    def __call__(self) -> None:
        if self._optimizer is None:
            torch.nn.utils.clip_grad_norm_(self._parameters, 1e9)
        else:
            self._optimizer.step()


_LISTS = ("AdamW default", "AdamW foreach", "AdamW fused", "SGD momentum default", "clip_grad_norm_")


def _subjects(
    options: Any,
) -> list[tuple[str, str, str, Callable[[str], Callable[[], None]]]]:
    """(operator, precision, pass, constructor by device) of everything asked for."""
    chosen = [
        (name, precision, "forward+backward" if backward else "forward",
         lambda device, name=name, precision=precision, backward=backward:
             _Pass(_OPERATORS[name], device, _PRECISIONS[precision], backward))
        for name, precision, backward in itertools.product(_OPERATORS, options.precision, (False, True))
    ] + [
        (name, "fp32", "step", lambda device, name=name: _ParameterList(name, device)) for name in _LISTS
    ]  # fmt: skip
    return [subject for subject in chosen if not options.only or subject[0].split()[0] in options.only]


def _kernel_of(call: Callable[[], None], device: str) -> str:
    if device == harness.BASELINE:
        return "aten"
    from torch_cann import _C

    _C._kernel_choice()
    call()
    return _C._kernel_choice() or "aten"


def main() -> int:
    """Measures every operator asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=15)
    parser.add_argument("--precision", nargs="+", choices=list(_PRECISIONS), default=list(_PRECISIONS))
    parser.add_argument("--only", nargs="+", help="first words of the names, such as linear softmax AdamW")
    options = parser.parse_args()
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    for name, precision, which, make in _subjects(options):
        ours, theirs = make(options.device), make(harness.BASELINE)
        timing = harness.interleave(ours, theirs, options.device, options.rounds, batch_seconds=0.01)
        kernel = _kernel_of(ours, options.device)
        results[f"{name} {precision} {which}"] = {**timing.to_json(), "kernel": kernel}
        milliseconds = [f"{seconds * 1e3:.3f}" for seconds in (timing.baseline_median, timing.device_median)]
        speed_ups = [f"{1 / ratio:.2f}x" for ratio in (timing.ratio, timing.best_ratio)]
        rows.append([name, precision, which, *milliseconds, *speed_ups, kernel])
    columns = ["operator", "precision", "pass", "cpu ms", f"{options.device} ms", "speed-up", "best", "kernel"]
    harness.report(options, columns, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
