"""AdvancedTrainer: a training run by configuration, from one card to ranks, that can be stopped and gone on with."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train import _checks, run_checkpoint
from torch_cann.recipes.train._device import device_module, resolve_device
from torch_cann.recipes.train.assembly import assemble
from torch_cann.recipes.train.checkpoint_files import CheckpointFiles, rank
from torch_cann.recipes.train.config import AmpConfig, MemoryConfig, ParallelConfig, check_together
from torch_cann.recipes.train.data_loader import map_tensors, tensors_of
from torch_cann.recipes.train.hooks import Hooks
from torch_cann.recipes.train.loader_position import LoaderPosition, shared_loader
from torch_cann.recipes.train.losses import LossFunction, default_loss
from torch_cann.recipes.train.run_log import RunLog
from torch_cann.recipes.train.schedules import SCHEDULES, Schedule
from torch_cann.recipes.train.shutdown import GracefulShutdown, StopVote
from torch_cann.recipes.train.training_monitor import StepReport


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        step, epoch: optimizer steps taken, and whole epochs done, since the run's first start.
        loss: mean training loss of the last record; NaN if there was none.
        val_loss: of the last validation, None without one.
        interrupted: a signal ended it; train() of a new trainer goes on from the checkpoint.
    """

    step: int
    epoch: int
    loss: float
    val_loss: float | None
    interrupted: bool


class AdvancedTrainer:
    """Trains ``model``: precision, parallelism and memory by configuration.

    The loss of a batch (inputs..., target) is ``loss_fn(model(*inputs), target)``; a batch that is a dictionary is the
    model's keyword arguments, and its output has the loss. Under torchrun call init_process_group() first.

    Args:
        model: on any device; it is moved, and changed in place. Weights on the meta device are filled on the cards by
            their modules' reset_parameters().
        optimizer: of the model's parameters.
        train_loader: any iterable of batches. Ranks that share the data need an OptimizedDataLoader, which is told its
            share, a DistributedSampler, or an IterableDataset that shares by itself.
        val_loader: the same for validation, or None.
        amp_config: None is float32; else keys of config.AmpConfig.
        parallel_config: None is one card; else keys of config.ParallelConfig.
        memory_config: keys of config.MemoryConfig.
        loss_fn: (output, target) -> mean loss; None is losses.default_loss.
        device: None is the current card.
        schedule: "constant", "linear", "cosine", "inverse_sqrt", or a function of the step (from 0) that gives the
            factor of the optimizer's learning rates.
        warmup_steps: of the schedule, or below 1 a share of all steps.
        min_lr_ratio: the factor that "linear" and "cosine" end at.
        clip_norm: largest norm of all gradients.
        checkpoint_dir: None saves none. With ``resume``, train() goes on from the last checkpoint there; the run is
            then the same to the bit, whatever ended it, on as many ranks; on another number of ranks random numbers
            and the order of sums differ.
        checkpoint_interval: steps; None saves at the end of each epoch. The end of a run and SIGTERM always save.
        keep_checkpoints: how many, the last ones.
        validate_interval: steps; None validates at the end of each epoch.
        metrics_file: JSON lines. tensorboard_dir: needs the package tensorboard.
        console: a line for each record on standard output, and a progress bar on terminals.
        hooks: see hooks.Hooks.

    Raises:
        ConfigError: for an unknown key, or values that do not go together.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        train_loader: Iterable[Any],
        val_loader: Iterable[Any] | None = None,
        amp_config: Mapping[str, Any] | None = None,
        parallel_config: Mapping[str, Any] | None = None,
        memory_config: Mapping[str, Any] | None = None,
        *,
        loss_fn: LossFunction | None = None,
        device: torch.device | str | int | None = None,
        schedule: str | Callable[[int], float] = "constant",
        warmup_steps: float = 0,
        min_lr_ratio: float = 0.0,
        clip_norm: float | None = None,
        checkpoint_dir: str | Path | None = None,
        checkpoint_interval: int | None = None,
        keep_checkpoints: int = 2,
        resume: bool = True,
        validate_interval: int | None = None,
        metrics_file: str | Path | None = None,
        tensorboard_dir: str | Path | None = None,
        console: bool = True,
        hooks: Any = None,
    ) -> None:
        amp = AmpConfig(enabled=False) if amp_config is None else AmpConfig.of("amp_config", amp_config)
        parallel = ParallelConfig.of("parallel_config", parallel_config)
        memory = MemoryConfig.of("memory_config", memory_config)
        check_together(amp, parallel, memory)
        for name, value in (("checkpoint_interval", checkpoint_interval), ("validate_interval", validate_interval)):
            if value is not None:
                _checks.whole(name, value, 1)
        if not callable(schedule):
            _checks.one_of("schedule", schedule, SCHEDULES)
        self.model, self.device = model, resolve_device(device)
        self._schedule_options = (schedule, warmup_steps, min_lr_ratio)
        self._validate_interval, self._checkpoint_interval = validate_interval, checkpoint_interval
        self._resume = resume
        self._files = None
        if checkpoint_dir is not None:
            self._files = CheckpointFiles(Path(checkpoint_dir), _checks.whole("keep_checkpoints", keep_checkpoints, 1))
        self._hooks = Hooks(hooks)
        self.log = RunLog(rank() == 0, console, metrics_file, tensorboard_dir)
        recipes = assemble(model, optimizer, amp, parallel, memory, self.device, loss_fn or default_loss, clip_norm)
        self.strategy, self.amp, self.memory = recipes.strategy, recipes.amp, recipes.memory
        self.optimizer, self.accumulation, self.allocator = recipes.optimizer, recipes.accumulation, recipes.allocator
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        place = self.strategy.data_rank, self.strategy.data_size
        self.train_batches = LoaderPosition(shared_loader(train_loader, "train_loader", *place))
        self._val_loader = None if val_loader is None else shared_loader(val_loader, "val_loader", *place)
        self.step = self.epoch = 0
        self.loss, self.val_loss = math.nan, None
        self._validated = -1  # at which step
        self._started = False

    # --- the run ------------------------------------------------------------------------------------------------------

    def train(self, epochs: int = 1, max_steps: int | None = None, log_interval: int = 100) -> TrainResult:
        """Trains until ``epochs`` epochs or ``max_steps`` steps are done, counted from the run's first start.

        Args:
            log_interval: steps between records.

        Raises:
            ValueError: if a number is out of range, or the loader has no length and max_steps is None.
        """
        _checks.whole("epochs", epochs, 1)
        _checks.whole("log_interval", log_interval, 1)
        total = self._total_steps(epochs, max_steps)
        schedule, warmup, floor = self._schedule_options
        self._factor = schedule if callable(schedule) else Schedule(schedule, total, warmup, floor)
        if not self._started and self._resume and self._files and self._files.steps():
            self.load_checkpoint()
        self._started = True
        self.log.open(total, self.step)
        self._hooks.call("train_start", self, {"step": self.step, "total_steps": total})
        with GracefulShutdown() as shutdown:
            try:
                interrupted = self._epochs(epochs, max_steps, log_interval, shutdown)
                if not interrupted and self._val_loader is not None and self._validated != self.step:
                    self.validate()
                self.save_checkpoint()
            finally:
                self.log.close()
        result = TrainResult(self.step, self.epoch, self.loss, self.val_loss, interrupted)
        self._hooks.call("train_end", self, dataclasses.asdict(result))
        return result

    def _total_steps(self, epochs: int, max_steps: int | None) -> int:
        if max_steps is not None:
            _checks.whole("max_steps", max_steps, 1)
        if not hasattr(self.train_batches.loader, "__len__"):
            if max_steps is None:
                raise ValueError("max_steps is needed: the train_loader has no length")
            return max_steps
        steps = epochs * -(-len(self.train_batches.loader) // self.accumulation.steps)
        return max(1, steps if max_steps is None else min(steps, max_steps))

    def _epochs(self, epochs: int, max_steps: int | None, log_interval: int, shutdown: GracefulShutdown) -> bool:
        """Runs to the end; True if a signal ended it before."""
        self.model.train()
        stopping = StopVote(self.device)
        while self.epoch < epochs and (max_steps is None or self.step < max_steps):
            self._hooks.call("epoch_start", self, {"epoch": self.epoch})
            for group in self.accumulation.groups(self.train_batches.epoch(self.epoch)):
                self._one_step(group, log_interval)
                if stopping(shutdown.requested):
                    self.log.say(f"step {self.step:6d}  stopping, as asked by a signal")
                    return True
                if max_steps is not None and self.step >= max_steps:
                    return False
            self.epoch += 1
            self._end_of_epoch()
        return False

    def _one_step(self, group: list[Any], log_interval: int) -> None:
        group = [map_tensors(lambda t: t.to(self.device, non_blocking=True), batch) for batch in group]
        for settings in self.optimizer.param_groups:
            settings["lr"] = settings["initial_lr"] * self._factor(self.step)
        if self.allocator is not None and not dist.is_initialized():
            loss, report = self.allocator.run(self._update, group)
        else:
            loss, report = self._update(group)
        self.step += 1
        self.log.add(loss, sum(tensors_of(batch)[0].shape[0] for batch in group))
        if self.step % log_interval == 0:
            self._record(report)
        self._hooks.call("step_end", self, {"step": self.step, "loss": loss, "report": report})
        if self._val_loader is not None and self._validate_interval and self.step % self._validate_interval == 0:
            self.validate()
        if self._checkpoint_interval and self.step % self._checkpoint_interval == 0:
            self.save_checkpoint()

    def _update(self, group: list[Any]) -> tuple[torch.Tensor, StepReport]:
        """One optimizer step on the batches of ``group``; may be called again if it raises."""
        self.model.zero_grad()
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for position, (batch, weight) in enumerate(self.accumulation.weighted(group)):
            last = position == len(group) - 1
            total += self.strategy.backward(batch, weight, last, self.amp, self.memory).to(self.device)
        self.strategy.finish_gradients(self.optimizer)
        return total, self.amp.step(self.optimizer)

    def _end_of_epoch(self) -> None:
        if self._val_loader is not None and not self._validate_interval:
            self.validate()
        if not self._checkpoint_interval:
            self.save_checkpoint()

    def _record(self, report: StepReport) -> None:
        mean, rate = self.log.take_mean()
        self.loss = float(self.strategy.mean_over_data(mean))
        self.amp.monitor.add_loss(self.loss)
        values = {
            "epoch": float(self.epoch),
            "loss": self.loss,
            "lr": self.optimizer.param_groups[0]["lr"],
            "gradient_norm": report.gradient_norm,
            "loss_scale": report.loss_scale,
            "update_ratio": report.update_ratio,
            "samples_per_second": rate * self.strategy.data_size,
        }
        if self.device.type != "cpu":
            values["peak_memory_mib"] = device_module(self.device).max_memory_allocated(self.device) / 2**20
        self.log.write(self.step, values)
        self.log.advise(self.step, self.amp.advice())

    def validate(self) -> float:
        """The mean loss over the val_loader, by samples, of all ranks."""
        self.model.eval()
        total = torch.zeros(2, device=self.device)
        for batch in self._val_loader:
            batch = map_tensors(lambda t: t.to(self.device, non_blocking=True), batch)
            samples = tensors_of(batch)[0].shape[0]
            loss = self.strategy.evaluate(batch, self.amp).to(self.device)
            total += torch.stack((loss.float() * samples, torch.full_like(loss, samples, dtype=torch.float32)))
        self.model.train()
        summed = self.strategy.mean_over_data(total)
        self.val_loss, self._validated = float(summed[0] / summed[1]), self.step
        self.log.write(self.step, {"val_loss": self.val_loss})
        self._hooks.call("validation_end", self, {"step": self.step, "val_loss": self.val_loss})
        return self.val_loss

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(self) -> Path | None:
        """Writes a checkpoint of this step, if there is a checkpoint_dir; all ranks call."""
        if self._files is None:
            return None
        path = run_checkpoint.save(self, self._files)
        self._hooks.call("checkpoint_saved", self, {"step": self.step, "path": path})
        return path

    def load_checkpoint(self, step: int | None = None) -> None:
        """Goes to the checkpoint of ``step``, or the last one; all ranks call.

        Raises:
            FileNotFoundError: if there is none.
            RuntimeError: if it is of another model or optimizer.
        """
        steps = self._files.steps() if self._files else []
        if not steps or (step is not None and step not in steps):
            raise FileNotFoundError(f"no checkpoint of step {step}; there are those of {steps}")
        run_checkpoint.load(self, self._files, steps[-1] if step is None else step)
        self.log.say(f"step {self.step:6d}  going on from {self._files.path(self.step)}")
