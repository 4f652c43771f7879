"""AutoMixedPrecision: 16-bit arithmetic where it is safe, with loss scaling, clipping and a watch over both."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train import _checks, gradients, precision_levels
from torch_cann.recipes.train._device import resolve_device
from torch_cann.recipes.train.loss_scaling import GradScaler, GroupGradScaler
from torch_cann.recipes.train.master_weights import MasterWeights
from torch_cann.recipes.train.range_probe import observe_ranges
from torch_cann.recipes.train.training_monitor import StepReport, TrainingMonitor, UpdateMeter


class AutoMixedPrecision:
    """Mixed precision for a training loop.

        amp = AutoMixedPrecision(opt_level="O2")
        model = amp.prepare(model, optimizer)
        for inputs, targets in loader:
            with amp.autocast():
                loss = loss_fn(model(inputs), targets)
            amp.backward(loss)
            amp.step(optimizer)
            optimizer.zero_grad()

    Levels: O0 float32; O1 autocast over float32 weights; O2 16-bit weights with float32 masters in the optimizer, and
    autocast; O3 16 bits throughout. Up to O2, norms, softmax modules and losses compute in float32, and so do, at all
    levels, the modules of ``keep_fp32`` and those that probe() found unsafe.

    Args:
        init_scale, growth_factor, backoff_factor, growth_interval: of torch.amp.GradScaler, which scales the loss of
            float16 at O1 and O2. bfloat16 has float32's range and is not scaled.
        enabled: False makes everything here plain float32, as O0.
        opt_level: "O0" to "O3".
        dtype: "float16" or "bfloat16".
        device: whose autocast; None is the accelerator.
        keep_fp32: types of modules, or patterns of their names such as "*.head".
        clip_norm: largest 2-norm of all gradients together, applied after unscaling; None does not clip.
        monitor_interval: steps between measurements of the update's size; 0 never measures it.
        process_group: ranks that hold other parameters of the same model, as the stages of a pipeline do: an overflow
            or the norm on one counts for all.

    Raises:
        TypeError, ValueError: for an argument out of its range.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        enabled: bool = True,
        opt_level: str = "O1",
        dtype: torch.dtype | str = torch.float16,
        device: torch.device | str | None = None,
        keep_fp32: Iterable[type | str] = (),
        clip_norm: float | None = None,
        monitor_interval: int = 10,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        _checks.number("init_scale", init_scale, 0, open_low=True)
        _checks.number("growth_factor", growth_factor, 1, open_low=True)
        if _checks.number("backoff_factor", backoff_factor, 0, open_low=True) >= 1:
            raise ValueError(f"backoff_factor must be below 1, but is {backoff_factor!r}")
        _checks.whole("growth_interval", growth_interval, 1)
        self.opt_level = _checks.one_of("opt_level", opt_level, precision_levels.LEVELS) if enabled else "O0"
        self.dtype = _checks.float_dtype("dtype", dtype, (torch.float16, torch.bfloat16))
        self.device = resolve_device(device)
        self.keep_fp32 = [keep_fp32] if isinstance(keep_fp32, (str, type)) else list(keep_fp32)
        self.clip_norm = None if clip_norm is None else _checks.number("clip_norm", clip_norm, 0, open_low=True)
        self.monitor = TrainingMonitor(clip_norm=clip_norm)
        self._monitor_interval = _checks.whole("monitor_interval", monitor_interval, 0)
        self._steps = 0
        self._init_scale = init_scale
        self._masters: MasterWeights | None = None
        self._counted: set[nn.Parameter] | None = None
        self._prepared = False
        self._group = process_group
        kind = GradScaler
        if process_group is not None:
            kind = functools.partial(GroupGradScaler, process_group=process_group)
        self._scaler = kind(
            self.device.type,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=self.dtype == torch.float16 and self.opt_level in ("O1", "O2"),
        )

    # --- before training ----------------------------------------------------------------------------------------------

    def probe(self, model: nn.Module, run: Callable[[], Any]) -> dict[str, str]:
        """Finds modules that ``dtype`` cannot hold, and keeps them in float32 from prepare() on.

        Args:
            run: runs ``model``, still in float32, on typical data; it may return the loss, whose gradients are then
                looked at too. It is called once and leaves model and random states as they were.

        Returns:
            The innermost modules by name: "safe", or why not.
        """
        self._must_be_unprepared("probe")
        scale = self._init_scale if self._scaler.is_enabled() else 1.0
        verdicts = {r.name: r.verdict(self.dtype, scale) for r in observe_ranges(model, run, self.dtype, scale)}
        self.keep_fp32 += [name for name, verdict in verdicts.items() if verdict != "safe" and name]
        return verdicts

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> nn.Module:
        """Makes ``model`` that of the level, in place, and returns it. Before DDP, and once.

        Parameters remain the same objects. At O2 ``optimizer``, needed there, holds float32 masters in their place.
        """
        self._must_be_unprepared("prepare")
        self._prepared = True
        if self.opt_level == "O0":
            return model
        kept = precision_levels.sensitive_modules(model, self.opt_level, self.keep_fp32)
        for module in kept.values():
            precision_levels.compute_in_float32(
                module, self.device.type, self.dtype if self.opt_level == "O3" else None
            )
        if self.opt_level == "O1":
            return model
        to_cast = precision_levels.parameters_to_cast(model, kept.values())
        precision_levels.cast_buffers(model, kept.values(), self.dtype)
        if self.opt_level == "O2":
            if optimizer is None:
                raise ValueError("level O2 keeps float32 masters in the optimizer: prepare(model, optimizer) needs it")
            self._masters = MasterWeights(to_cast, optimizer, self.dtype)
        else:
            for parameter in to_cast:
                parameter.data = parameter.data.to(self.dtype)
            precision_levels.compute_in_16_bits(model, self.dtype)
        return model

    def count_only(self, parameters: Iterable[nn.Parameter]) -> None:
        """Across the ranks of process_group: the parameters whose gradients this rank counts in the norm of all."""
        self._counted = set(parameters)

    def _counted_among(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._counted is None:
            return parameters
        counted = {self.masters.get(p, p) for p in self._counted}
        return [p for p in parameters if p in counted]

    def _must_be_unprepared(self, what: str) -> None:
        if self._prepared:
            raise RuntimeError(f"{what}() comes before prepare(), and prepare() is called once for a model")

    @property
    def masters(self) -> dict[nn.Parameter, nn.Parameter]:
        """The float32 master of each 16-bit parameter; empty but at O2."""
        return self._masters.master_of if self._masters else {}

    def write_back(self) -> None:
        """Rounds the masters into the model's parameters, for instance after a checkpoint was loaded into them."""
        if self._masters:
            self._masters.write_back()

    # --- in a step ----------------------------------------------------------------------------------------------------

    def autocast(self) -> torch.autocast:
        """The context for the forward pass and the loss."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.opt_level in ("O1", "O2"))

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """``loss`` times the loss scale."""
        return self._scaler.scale(loss)

    @property
    def loss_scale(self) -> float:
        return self._scaler.get_scale()

    def backward(self, loss: torch.Tensor) -> None:
        """Backward of the scaled loss."""
        self.scale(loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> StepReport:
        """Unscales and clips the gradients, steps unless they overflowed, and adapts the loss scale."""
        if self._masters:
            self._masters.take_gradients()
        scaling = self._scaler.is_enabled()
        scale = self.loss_scale if scaling else 1.0
        if scaling:
            self._scaler.unscale_(optimizer)
        parameters = gradients.with_gradient(optimizer)
        norm = gradients.total_norm(self._counted_among(parameters), self._group)
        if self.clip_norm is not None:
            gradients.clip(parameters, self.clip_norm, norm)
        self._steps += 1
        meter = UpdateMeter(optimizer) if self._monitor_interval and self._steps % self._monitor_interval == 0 else None
        self._scaler.step(optimizer)
        self._scaler.update()
        skipped = scaling and self.loss_scale < scale
        if self._masters and not skipped:
            self._masters.write_back()
        report = StepReport(skipped, scale, norm.detach(), meter.ratio() if meter else None)
        self.monitor.add(report)
        return report

    def advice(self) -> list[str]:
        """What the monitor says of the last steps; empty while all is well."""
        return self.monitor.advice()

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Loss scale and monitor. Masters are not in it: the optimizer has them, and the trainer's checkpoints."""
        return {"scaler": self._scaler.state_dict(), "monitor": self.monitor.state_dict(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(state["scaler"])
        self.monitor.load_state_dict(state["monitor"])
        self._steps = state["steps"]
