"""A training step under torch.compile: compiled on the device, eager on the device, compiled on the CPU, and peak HBM.

The optimizer is eager and fused on all sides. Subjects take turns; ratios are those of the other subject's time over
the compiled device's, so above 1 the compiled device is faster. Losses of the first step are printed, since a step is
only worth timing if it computes the same thing. Compilation takes a minute per model the first time.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import harness
import torch
import torch.nn.functional as F
from models import MODELS

_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}


class Step:
    """A model on a device with its optimizer; calling it does one step and keeps the loss."""

    def __init__(self, model: str, device: str, precision: str, compiled: bool) -> None:
        torch.manual_seed(0)
        module, inputs, targets = MODELS[model]()
        self._module = module.to(device)
        self._inputs, self._targets = inputs.to(device), targets.to(device)
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

    def peak_bytes(self) -> int:
        """Device memory that one step needs beyond what it keeps."""
        memory = torch.get_device_module(self._device)
        self._optimizer.zero_grad(set_to_none=True)
        before = memory.memory_allocated()
        memory.reset_peak_memory_stats()
        self()
        return memory.max_memory_allocated() - before


def _measure(options: Any, model: str, precision: str) -> dict[str, Any]:
    """Times and memory of one model."""
    compiled = Step(model, options.device, precision, compiled=True)
    eager = Step(model, options.device, precision, compiled=False)
    host = Step(model, harness.BASELINE, precision, compiled=True)
    for step in (compiled, eager, host):
        step()
    result: dict[str, Any] = {"losses": {"compiled": compiled.loss, "cpu_compiled": host.loss}}
    for name, other in (("eager", eager), ("cpu_compiled", host)):
        result[name] = harness.interleave(compiled, other, options.device, options.rounds, batch_seconds=0.05).to_json()
    if options.device != harness.BASELINE:
        result["peak_bytes"] = {"compiled": compiled.peak_bytes(), "eager": eager.peak_bytes()}
    return result


def main() -> int:
    """Measures every combination asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=9)
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=["gpt", "convnet", "mlp"])
    parser.add_argument("--precision", nargs="+", choices=list(_PRECISIONS), default=["fp32", "bf16"])
    options = parser.parse_args()
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    for model, precision in itertools.product(options.model, options.precision):
        result = results[f"{model} {precision}"] = _measure(options, model, precision)
        peaks = result.get("peak_bytes")
        rows.append(
            [
                model,
                precision,
                f"{result['eager']['device_seconds'] * 1e3:.2f}",
                f"{1 / result['eager']['ratio']:.2f}x",
                f"{1 / result['cpu_compiled']['ratio']:.2f}x",
                f"{peaks['compiled'] / peaks['eager']:.2f}" if peaks else "-",
                f"{result['losses']['compiled']:.5f}",
                f"{result['losses']['cpu_compiled']:.5f}",
            ]
        )
        torch.compiler.reset()
    columns = ["model", "precision", "compiled ms", "against eager", "against cpu compiled", "peak HBM / eager's"]
    harness.report(options, [*columns, "loss", "cpu loss"], rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
