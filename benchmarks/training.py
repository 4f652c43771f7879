"""One training step (forward, backward, AdamW) of a GPT, a convolutional network and a tiny MLP, device against CPU.

Both sides start from the same weights, see the same batch and use the same optimizer; the last losses are printed,
since a step is only worth timing if it computes the same thing.
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

    def __init__(self, model: str, device: str, precision: str, optimizer: str) -> None:
        torch.manual_seed(0)
        module, inputs, targets = MODELS[model]()
        self._module = module.to(device)
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


def main() -> int:
    """Measures every combination asked for; the number returned is the exit status."""
    parser = harness.argument_parser(__doc__, rounds=9)
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precision", nargs="+", choices=list(_PRECISIONS), default=["fp32", "bf16"])
    parser.add_argument("--optimizer", nargs="+", choices=list(_OPTIMIZERS), default=list(_OPTIMIZERS))
    options = parser.parse_args()
    harness.prepare(options)
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    for model, precision, optimizer in itertools.product(options.model, options.precision, options.optimizer):
        ours, theirs = (Step(model, device, precision, optimizer) for device in (options.device, harness.BASELINE))
        timing = harness.interleave(ours, theirs, options.device, options.rounds, _BATCH_SECONDS)
        results[f"{model} {precision} {optimizer}"] = {
            **timing.to_json(),
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
                f"{theirs.loss:.5f}",
                f"{ours.loss:.5f}",
            ]
        )
    name = options.device
    columns = ["model", "precision", "AdamW", "cpu ms", f"{name} ms", "speed-up", "best", "cpu loss", f"{name} loss"]
    harness.report(options, columns, rows, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
