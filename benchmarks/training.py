"""One training step (forward, backward, AdamW) of small models of each common kind, device against CPU.

Both sides start from the same weights, see the same batch and use the same optimizer; the last losses are printed,
since a step is only worth timing if it computes the same thing. The peak is of the device's memory over all steps,
parameters and optimizer states included. ``--compiled`` also times the device against the CPU with torch.compile.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import harness
import torch
import torch.nn.functional as F
from models import MODELS

_PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_OPTIMIZERS: dict[str, dict[str, Any]] = {"default": {}, "fused": {"fused": True}}
# Short steps are timed in batches, or the clock and the scheduler are what is measured.
_BATCH_SECONDS = 0.05


class Step:
    """A model on a device with its optimizer; calling it does one step and keeps the loss."""

    def __init__(self, model: str, device: str, precision: str, optimizer: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        module, inputs, targets = MODELS[model]()
        self._module = torch.compile(module.to(device)) if compiled else module.to(device)
        self._inputs, self._targets = inputs.to(device), targets.to(device)
        self._optimizer = torch.optim.AdamW(self._module.parameters(), lr=1e-4, **_OPTIMIZERS[optimizer])
        self._device_type, self._dtype = torch.device(device).type, _PRECISIONS[precision]
        self._loss = torch.zeros(())

    def __call__(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device_type, dtype=self._dtype, enabled=self._dtype is not None):
            self._loss = F.cross_entropy(self._module(self._inputs), self._targets)
        self._loss.backward()
        self._optimizer.step()

    @property
    def loss(self) -> float:
        """The loss of the last step."""
        return self._loss.item()


def _reset_peak(device: str) -> None:
    if device != harness.BASELINE:
        torch.get_device_module(device).empty_cache()
        torch.get_device_module(device).reset_peak_memory_stats()


def _peak_megabytes(device: str) -> float:
    """The most memory the device had allocated since the last reset; 0 for the CPU, which does not count."""
    return 0.0 if device == harness.BASELINE else torch.get_device_module(device).max_memory_allocated() / 1e6


def main() -> int:
    """Measures every combination asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=9)
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precision", nargs="+", choices=list(_PRECISIONS), default=["fp32", "bf16"])
    parser.add_argument("--optimizer", nargs="+", choices=list(_OPTIMIZERS), default=list(_OPTIMIZERS))
    parser.add_argument("--compiled", action="store_true", help="also against torch.compile on the CPU")
    options = parser.parse_args()
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    for model, precision, optimizer in itertools.product(options.model, options.precision, options.optimizer):
        _reset_peak(options.device)
        ours, theirs = (Step(model, device, precision, optimizer) for device in (options.device, harness.BASELINE))
        timing = harness.interleave(ours, theirs, options.device, options.rounds, _BATCH_SECONDS)
        peak = _peak_megabytes(options.device)
        against_compiled = None
        if options.compiled:
            compiled = Step(model, harness.BASELINE, precision, optimizer, compiled=True)
            against_compiled = harness.interleave(ours, compiled, options.device, options.rounds, _BATCH_SECONDS)
        results[f"{model} {precision} {optimizer}"] = {
            **timing.to_json(),
            "peak_megabytes": peak,
            "compiled": against_compiled.to_json() if against_compiled else None,
            "device_loss": ours.loss,
            "baseline_loss": theirs.loss,
        }
        rows.append(
            [
                model,
                precision,
                optimizer,
                f"{timing.baseline_median * 1e3:.2f}",
                f"{timing.device_median * 1e3:.2f}",
                f"{1 / timing.ratio:.2f}x",
                f"{1 / timing.best_ratio:.2f}x",
                f"{1 / against_compiled.ratio:.2f}x" if against_compiled else "-",
                f"{peak:.0f}",
                f"{theirs.loss:.5f}",
                f"{ours.loss:.5f}",
            ]
        )
    name = options.device
    columns = [
        "model", "precision", "AdamW", "cpu ms", f"{name} ms", "speed-up", "best", "compiled", "peak MB",
        "cpu loss", f"{name} loss",
    ]  # fmt: skip
    harness.report(options, columns, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
