"""A training step under torch.compile: compiled on the device, eager on the device, compiled on the CPU, and peak HBM.

The optimizer is eager and fused on all sides. Subjects take turns; ratios are those of the other subject's time over
the compiled device's, so above 1 the compiled device is faster. Losses of the first step are printed, since a step is
only worth timing if it computes the same thing. Every model is a line as soon as it is measured.

Compiling a model for both devices takes one to three minutes, timing it a quarter of one. With --cache the generated
code is kept, and a first call with --compile-only leaves only the timing to the second:

    python benchmarks/compile.py --model gpt --cache /tmp/inductor --compile-only
    python benchmarks/compile.py --model gpt --cache /tmp/inductor

Peak HBM depends on what a step does for its parameters: of the GPT's single sequence, activations are a fifth.
--sequences 8 repeats the batch, as a training that fills a card would have it.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import harness
import torch
import torch.nn.functional as F
from models import MODELS

_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}


class Step:
    """A model on a device with its optimizer; calling it does one step and keeps the loss."""

    def __init__(self, model: str, device: str, precision: str, compiled: bool, repeats: int = 1) -> None:
        torch.manual_seed(0)
        module, inputs, targets = MODELS[model]()
        self._module = module.to(device)
        self._inputs = torch.cat([inputs] * repeats).to(device)
        self._targets = torch.cat([targets] * repeats).to(device)
        self._optimizer = torch.optim.AdamW(self._module.parameters(), lr=1e-4, fused=True)
        self._device, self._dtype = torch.device(device), _PRECISIONS[precision]
        self._function = torch.compile(self._loss_of) if compiled else self._loss_of
        self._loss = torch.zeros(())

    def _loss_of(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self._module(inputs), targets)

    def __call__(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, dtype=self._dtype, enabled=self._dtype is not None):
            self._loss = self._function(self._inputs, self._targets)
        self._loss.backward()
        self._optimizer.step()

    @property
    def loss(self) -> float:
        """The loss of the last step."""
        return self._loss.item()

    def peak_bytes(self) -> dict[str, int]:
        """Device memory at its highest during a step: all that the step and what it keeps take, and the step alone."""
        memory = torch.get_device_module(self._device)
        self._optimizer.zero_grad(set_to_none=True)
        before = memory.memory_allocated()
        memory.reset_peak_memory_stats()
        self()
        # Other subjects' parameters are on the card too.
        step = memory.max_memory_allocated() - before
        return {"step": step, "with_parameters": step + self._kept_bytes()}

    def _kept_bytes(self) -> int:
        states = (value for state in self._optimizer.state.values() for value in state.values())
        kept = itertools.chain(self._module.parameters(), self._module.buffers(), states)
        return sum(tensor.nbytes for tensor in kept if isinstance(tensor, torch.Tensor))


def _subjects(options: Any, model: str, precision: str) -> list[Step]:
    """Compiled on the device, eager on it, compiled on the CPU; each has done a step, so all are compiled."""
    sides = [(options.device, True), (options.device, False), (harness.BASELINE, True)]
    steps = [Step(model, device, precision, compiled, options.sequences) for device, compiled in sides]
    for step in steps:
        step()
    return steps


def _measure(options: Any, model: str, precision: str) -> dict[str, Any]:
    """Times and memory of one model."""
    compiled, eager, host = _subjects(options, model, precision)
    result: dict[str, Any] = {"losses": {"compiled": compiled.loss, "cpu_compiled": host.loss}}
    for name, other in (("eager", eager), ("cpu_compiled", host)):
        timing = harness.interleave(compiled, other, options.device, options.rounds, batch_seconds=0.05)
        result[name] = timing.to_json()
    if options.device != harness.BASELINE:
        result["peak_bytes"] = {"compiled": compiled.peak_bytes(), "eager": eager.peak_bytes()}
    return result


def _row(model: str, precision: str, result: dict[str, Any]) -> list[str]:
    """The cells of _COLUMNS."""
    peaks = result.get("peak_bytes")

    def saved(what: str) -> str:
        return f"{peaks['compiled'][what] / peaks['eager'][what]:.2f}" if peaks else "-"

    def times(other: str) -> list[str]:
        return [f"{1 / result[other]['ratio']:.2f}x", f"{1 / result[other]['best_ratio']:.2f}x"]

    compiled_ms = f"{result['eager']['device_seconds'] * 1e3:.1f}"
    losses = [f"{result['losses'][name]:.5f}" for name in ("compiled", "cpu_compiled")]
    peak = [saved("step"), saved("with_parameters")]
    return [model, precision, compiled_ms, *times("eager"), *times("cpu_compiled"), *peak, *losses]


_COLUMNS = [
    "model", "precision", "compiled ms", "against eager", "fastest", "against cpu compiled", "fastest",
    "HBM of step", "HBM in all", "loss", "cpu loss",
]  # fmt: skip


def main() -> int:
    """Measures every combination asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=9)
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=["gpt", "convnet", "mlp"])
    parser.add_argument("--precision", nargs="+", choices=list(_PRECISIONS), default=["fp32", "bf16"])
    parser.add_argument("--sequences", type=int, default=1, metavar="N", help="repeat the model's batch N times")
    parser.add_argument("--cache", type=Path, help="keep generated code in this folder (TORCHINDUCTOR_CACHE_DIR)")
    parser.add_argument("--compile-only", action="store_true", help="compile everything, time nothing")
    options = parser.parse_args()
    if options.cache is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.cache.absolute())
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    for model, precision in itertools.product(options.model, options.precision):
        if options.compile_only:
            _subjects(options, model, precision)
            print(f"{model} {precision}: compiled", flush=True)
        else:
            result = results[f"{model} {precision}"] = _measure(options, model, precision)
            rows.append(_row(model, precision, result))
            print(", ".join(f"{name} {cell}" for name, cell in zip(_COLUMNS, rows[-1], strict=True)), flush=True)
        torch.compiler.reset()
    if rows:
        harness.report(options, _COLUMNS, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
