"""A trainer's whole state to and from checkpoint files: the same run goes on, or the same model on other ranks."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from torch_cann.recipes.train import run_state
from torch_cann.recipes.train.checkpoint_files import CheckpointFiles, rank

if TYPE_CHECKING:
    from torch_cann.recipes.train.trainer import AdvancedTrainer

_PROGRESS = ("step", "epoch", "loss", "val_loss")


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _own_optimizer(trainer: "AdvancedTrainer") -> torch.optim.Optimizer:
    """The optimizer; of a ZeroRedundancyOptimizer the part with this rank's parameters."""
    return getattr(trainer.optimizer, "optim", trainer.optimizer)


def save(trainer: "AdvancedTrainer", files: CheckpointFiles) -> Path:
    """Writes the checkpoint of the trainer's step; all ranks call."""
    names = run_state.names_of(trainer.model, trainer.amp.masters)
    tensors = run_state.model_tensors(trainer.model, trainer.amp.masters, trainer.strategy.owns)
    tensors |= run_state.optimizer_tensors(_own_optimizer(trainer), names)
    run = {
        **{name: getattr(trainer, name) for name in _PROGRESS},
        "groups": run_state.hyperparameters(trainer.optimizer),
        "amp": trainer.amp.state_dict(),
        "loader": trainer.train_batches.state_dict(),
        "log": trainer.log.state_dict(),
        "ranks": _ranks(),
    }
    own = {
        "random": run_state.random_states(run_state.devices_of(trainer.model, trainer.device)),
        "memory": trainer.memory.state_dict(),
        "strategy": trainer.strategy.state_dict(),
    }
    return files.save(trainer.step, tensors, run, own)


def load(trainer: "AdvancedTrainer", files: CheckpointFiles, step: int) -> None:
    """Makes the trainer that of ``step``; all ranks call. Random states are gone on with on equally many ranks only.

    Raises:
        RuntimeError: if the checkpoint is of another model or optimizer.
    """
    optimizer, names = _own_optimizer(trainer), run_state.names_of(trainer.model, trainer.amp.masters)
    tensors = run_state.model_tensors(trainer.model, trainer.amp.masters, trainer.strategy.owns)
    places = run_state.optimizer_places(optimizer, names, files.names(step))
    run, own = files.load(step, {**tensors, **places})
    trainer.amp.write_back()
    run_state.fill_optimizer(optimizer, names, places)
    for group, values in zip(trainer.optimizer.param_groups, run["groups"], strict=True):
        group.update(values)
    for name in _PROGRESS:
        setattr(trainer, name, run[name])
    trainer.amp.load_state_dict(run["amp"])
    trainer.train_batches.load_state_dict(run["loader"])
    trainer.log.load_state_dict(run["log"], trainer.device)
    if own is not None and run["ranks"] == _ranks():
        run_state.set_random_states(own["random"])
        trainer.memory.load_state_dict(own["memory"])
        trainer.strategy.load_state_dict(own["strategy"])
    else:
        torch.manual_seed(step * _ranks() + rank())
