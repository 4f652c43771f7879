"""Watches loss scale, gradient norm and size of updates, and says what to do when training drifts."""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

import torch
from torch.distributed.tensor import DTensor

_SAMPLE = 4096  # elements looked at in each parameter


class StepReport:
    """What one optimizer step did. Scalars on a card stay there until they are asked for, so a step waits for none.

    Attributes:
        skipped: gradients were not finite, so the loss scale was lowered instead.
        loss_scale: the gradients' scale in this step; 1 without scaling.
    """

    def __init__(
        self,
        skipped: bool,
        loss_scale: float,
        gradient_norm: float | torch.Tensor,
        update_ratio: float | torch.Tensor | None = None,
    ) -> None:
        self.skipped, self.loss_scale = skipped, loss_scale
        self._values = {"gradient_norm": gradient_norm, "update_ratio": update_ratio}

    @property
    def gradient_norm(self) -> float:
        """2-norm of all gradients, unscaled, before clipping."""
        self.read([self])
        return self._values["gradient_norm"]

    @property
    def update_ratio(self) -> float | None:
        """Norm of the update over norm of the parameters, estimated from up to 4096 evenly spaced elements of each.

        None in steps where it was not looked at.
        """
        self.read([self])
        return self._values["update_ratio"]

    @staticmethod
    def read(reports: Iterable["StepReport"]) -> None:
        """Brings what is on cards to the host, with one copy for each card."""
        waiting: dict[torch.device, list[tuple[StepReport, str, torch.Tensor]]] = {}
        for report in reports:
            for name, value in report._values.items():
                if isinstance(value, torch.Tensor):
                    waiting.setdefault(value.device, []).append((report, name, value))
        for places in waiting.values():
            numbers = torch.stack([value.float() for _, _, value in places]).tolist()
            for (report, name, _), number in zip(places, numbers, strict=True):
                report._values[name] = number

    def state_dict(self) -> dict[str, float | None]:
        """The constructor's arguments."""
        return {
            "skipped": self.skipped,
            "loss_scale": self.loss_scale,
            "gradient_norm": self.gradient_norm,
            "update_ratio": self.update_ratio,
        }


def _sample(parameter: torch.Tensor) -> torch.Tensor:
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    flat = local.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)].float().clone()


class UpdateMeter:
    """Measures one optimizer step: made before it, asked after it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._before = [_sample(p) for p in self._parameters]

    def ratio(self) -> torch.Tensor:
        """|update| / |parameters| over the sampled elements of this rank, a scalar on the first parameter's device."""
        if not self._before:
            return torch.zeros(())
        home = self._before[0].device
        pairs = [
            torch.stack(((_sample(parameter) - old).square().sum(), old.square().sum())).to(home)
            for parameter, old in zip(self._parameters, self._before, strict=True)
        ]
        update, weight = torch.stack(pairs).sum(0)
        return torch.where(weight > 0, update / weight, 0.0).sqrt()


class TrainingMonitor:
    """Keeps the last ``window`` steps and judges them.

    Args:
        window: steps remembered.
        clip_norm: what gradients are clipped to, for advice about it.
    """

    def __init__(self, window: int = 200, clip_norm: float | None = None) -> None:
        self.reports: deque[StepReport] = deque(maxlen=window)
        self.losses: deque[float] = deque(maxlen=window)
        self.clip_norm = clip_norm

    def add(self, report: StepReport) -> None:
        self.reports.append(report)

    def add_loss(self, loss: float) -> None:
        self.losses.append(loss)

    def advice(self) -> list[str]:
        """What is wrong and what to try, worst first; empty while all is well."""
        StepReport.read(self.reports)
        return [text for rule in (self._loss, self._scale, self._norm, self._clipping, self._update) for text in rule()]

    def _loss(self) -> list[str]:
        losses = list(self.losses)
        if losses and not math.isfinite(losses[-1]):
            return [f"the loss is {losses[-1]}: go back to a checkpoint, lower the learning rate, or use bfloat16"]
        quarter = len(losses) // 4
        if quarter >= 5:
            first, last = median(losses[:quarter]), median(losses[-quarter:])
            if last > first + 0.1 * abs(first):
                return [
                    f"the loss rose from {first:.4g} to {last:.4g} within {len(losses)} steps: lower the learning rate "
                    "or lengthen the warm-up"
                ]
        return []

    def _scale(self) -> list[str]:
        skipped = sum(r.skipped for r in self.reports)
        if self.reports and self.reports[-1].loss_scale < 1:
            return [
                f"the loss scale fell to {self.reports[-1].loss_scale:g}: gradients overflow by themselves; find the "
                "layers with probe() and keep them in float32, or use bfloat16"
            ]
        if len(self.reports) >= 20 and skipped > len(self.reports) // 10:
            steps = len(self.reports)
            return [f"{skipped} of {steps} steps overflowed: start with a lower init_scale, or use bfloat16"]
        return []

    def _norms(self) -> list[float]:
        return [r.gradient_norm for r in self.reports if math.isfinite(r.gradient_norm)]

    def _norm(self) -> list[str]:
        norms = self._norms()
        if len(norms) >= 20 and norms[-1] > 10 * (usual := median(norms)):
            return [
                f"the gradient norm is {norms[-1]:.3g}, usually {usual:.3g}: clip to about {2 * usual:.2g} and look at "
                "this step's data"
            ]
        return []

    def _clipping(self) -> list[str]:
        norms = self._norms()
        if self.clip_norm is None or len(norms) < 20:
            return []
        clipped = sum(norm > self.clip_norm for norm in norms)
        if clipped <= len(norms) // 2:
            return []
        return [
            f"{clipped} of {len(norms)} steps were clipped to {self.clip_norm:g}: raise it to about "
            f"{median(norms):.2g}, or lower the learning rate"
        ]

    def _update(self) -> list[str]:
        ratios = [r.update_ratio for r in self.reports if r.update_ratio is not None and not r.skipped]
        if len(ratios) < 3:
            return []
        usual = median(ratios)
        if usual > 0.03:
            return [f"a step changes the parameters by {usual:.1%}: lower the learning rate or lengthen the warm-up"]
        if usual < 1e-7:
            return [f"a step changes the parameters by {usual:.1e}: the learning rate is too low to learn"]
        return []

    def state_dict(self) -> dict[str, list]:
        StepReport.read(self.reports)
        return {"reports": [r.state_dict() for r in self.reports], "losses": list(self.losses)}

    def load_state_dict(self, state: dict[str, list]) -> None:
        self.reports.clear()
        self.reports.extend(StepReport(**r) for r in state["reports"])
        self.losses.clear()
        self.losses.extend(state["losses"])
