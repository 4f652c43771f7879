"""One rank of an unmodified script, run dry in this process."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import runpy
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_cann import _C
from torch_cann.plan import failures, initialisation, output, values
from torch_cann.plan.errors import PlanError
from torch_cann.plan.exchange import Courier
from torch_cann.plan.saving import Checkpoints

_sim = _C._sim


@dataclass
class Job:
    """What to run: the command line of torchrun, and what only a dry run needs."""

    script: str
    arguments: list[str]
    nnodes: int = 1
    nproc_per_node: int = 1
    steps: int = 3
    assume: list[str] = field(default_factory=list)
    module: bool = False

    @property
    def world_size(self) -> int:
        return self.nnodes * self.nproc_per_node


@dataclass
class Memory:
    """Bytes of one card. Parts are by what the optimizer knows at the end of a step."""

    capacity: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    outside: int = 0  # context, communicator buffers and workspaces, not in the allocator
    workspace: int = 0  # of these, what kernels work in, and the range of that estimate
    workspace_range: tuple[int, int] = (0, 0)
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0

    @property
    def peak(self) -> int:
        return self.peak_reserved + self.outside

    @property
    def activations(self) -> int:
        return max(0, self.peak_allocated - self.parameters - self.gradients - self.optimizer)


@dataclass
class Schedule:
    """A schedule of torch.distributed.pipelining: ``chunks`` stages on each of ``ranks``."""

    name: str
    ranks: int
    chunks: int
    micro_batches: int


@dataclass
class Trace:
    """What one rank did. Made in the process that ran it; plain data, so that it can be sent to another."""

    rank: int
    actions: bytes = b""
    rows: list[tuple[str, str, bool, float, float, float]] = field(default_factory=list)
    groups: list[tuple[str, list[int]]] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    gradient_curve: list[tuple[int, int]] = field(default_factory=list)  # action, bytes
    assumptions: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the report
    steps: int = 0
    seconds: float = 0.0
    schedule: Schedule | None = None
    failure: str | None = None  # one sentence
    out_of_memory: str | None = None  # where


class _Enough(BaseException):
    """Ends a script after the wanted number of steps."""


def environment(job: Job, rank: int) -> dict[str, str]:
    """What torchrun sets."""
    local = rank % job.nproc_per_node
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(job.world_size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(job.nproc_per_node),
        "GROUP_RANK": str(rank // job.nproc_per_node),
        "GROUP_WORLD_SIZE": str(job.nnodes),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(job.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "npu-plan",
    }


# ---- what stands in for the other ranks ------------------------------------------------------------


class _Store(dist.Store):
    """The key-value store of a job whose other ranks are not there: what they would have written is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        return self._values.get(key, b"")

    def add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def wait(self, *_: Any) -> None:
        """Nobody is late."""

    def check(self, keys: list[str]) -> bool:
        return True


def _rendezvous(rank: int, world_size: int) -> Any:
    def handler(url: str, *_: Any, **__: Any) -> Iterator[tuple[Any, int, int]]:
        yield _Store(), rank, world_size

    return handler


class _DryGlooType(type):
    def __instancecheck__(cls, instance: Any) -> bool:  # which torch.distributed asks of what it made
        return isinstance(instance, _C._distributed_c10d.DryProcessGroup)


class _DryGloo(metaclass=_DryGlooType):
    """In place of ProcessGroupGloo, for groups that also carry CPU tensors."""

    def __new__(cls, store: Any, rank: int, size: int, *_: Any, **__: Any) -> Any:
        return _C._distributed_c10d.DryProcessGroup(rank, size, "gloo", [])


def _install_peers(job: Job, rank: int) -> None:
    from torch.distributed import distributed_c10d

    # torch.distributed.rendezvous names the function, not the module it is in.
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    for scheme in ("env", "tcp", "file"):
        handlers[scheme] = _rendezvous(rank, job.world_size)
    distributed_c10d.ProcessGroupGloo = _DryGloo


# ---- watching the optimizer -----------------------------------------------------------------------------------------


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


_PLAIN = (torch.Tensor, torch.nn.Parameter)  # most tensors are, and asking each for to_local is slow


def _storage_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of the npu storages behind ``tensors``, each once."""
    return _sim.storage_bytes([tensor if type(tensor) in _PLAIN else _local(tensor) for tensor in tensors])


class _Watcher:
    """Marks the end of each step, ends the script when there were enough, and sorts memory by what it is for."""

    def __init__(self, trace: Trace, steps: int) -> None:
        self.trace = trace
        self.wanted = steps
        self.first: Any = None
        self._gradients = 0  # bytes of what follows
        self._holding: set[int] = set()  # parameters that have a gradient, which micro-batches add to

    def after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self.first is None:
            self.first = optimizer
            for parameter in self._parameters(optimizer):
                if parameter.requires_grad and parameter.is_leaf:
                    size = _local(parameter).nbytes  # of its gradient too, by autograd's rules
                    parameter.register_post_accumulate_grad_hook(functools.partial(self._accumulated, size))
        if optimizer is not self.first:
            return
        self.trace.steps += 1
        self._sort(optimizer)
        _sim.mark(self.trace.steps)
        self.trace.gradient_curve.append((_sim.action_count(), 0))
        self._gradients = 0
        self._holding.clear()
        if self.trace.steps >= self.wanted:
            self.trace.schedule = _schedule_in_use()
            raise _Enough

    @staticmethod
    def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _accumulated(self, size: int, parameter: torch.Tensor) -> None:
        if id(parameter) not in self._holding and parameter.grad is not None:
            self._holding.add(id(parameter))
            self._gradients += size
            self.trace.gradient_curve.append((_sim.action_count(), self._gradients))

    def _sort(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = self._parameters(optimizer)
        memory = self.trace.memory
        memory.parameters = _storage_bytes(parameters)
        memory.gradients = _storage_bytes([p.grad for p in parameters if p.grad is not None])
        states = [
            value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
        ]
        memory.optimizer = _storage_bytes(states)


def _schedule_in_use() -> Schedule | None:
    """Of the pipeline schedules that live, the one made last."""
    module = sys.modules.get("torch.distributed.pipelining.schedules")
    if module is None:
        return None
    schedules = [item for item in gc.get_objects() if issubclass(type(item), module._PipelineSchedule)]
    if not schedules:
        return None
    last = schedules[-1]
    stages = getattr(last, "_stages", None) or [last._stage]
    chunks = len(stages)
    return Schedule(type(last).__name__, stages[0].num_stages // chunks, chunks, last._n_microbatches)


def _sort_what_is_there(memory: Memory) -> None:
    """Parameters and gradients of a script whose optimizer never came to a step, from the objects that live."""
    parameters = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Parameter)]
    memory.parameters = _storage_bytes(parameters)
    memory.gradients = _storage_bytes([item.grad for item in parameters if item.grad is not None])


def _measure(trace: Trace) -> None:
    """Fills in what the device knows once the script has ended."""
    trace.actions = _sim.actions()
    trace.rows = _sim.rows()
    trace.groups = _sim.groups()
    trace.sites = _sim.sites()
    if trace.steps == 0:
        _sort_what_is_there(trace.memory)
    index = torch.npu.current_device()
    free, capacity = torch.npu.mem_get_info(index)
    memory = trace.memory
    memory.capacity = capacity
    memory.peak_allocated = torch.npu.max_memory_allocated(index)
    memory.peak_reserved = torch.npu.max_memory_reserved(index)
    memory.workspace, *held = _sim.workspace(index)
    memory.workspace_range = (held[0], held[1])
    memory.outside = capacity - free - torch.npu.memory_reserved(index)


def _execute(job: Job) -> None:
    sys.argv = [job.script, *job.arguments]
    if job.module:
        runpy.run_module(job.script, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(job.script).resolve().parent))
    runpy.run_path(job.script, run_name="__main__")


def run(job: Job, rank: int, courier: Courier) -> Trace:
    """Runs ``job`` as ``rank`` and returns what it did; a failure of the script is in the trace, not raised. Other ranks
    are reached through ``courier``. Raises BrokenPipeError when nobody reads what the script prints.

    The process must be dry (TORCH_CANN_DRY_RUN=1) and runs one rank only: the script changes it for good.
    """
    if not job.module and not Path(job.script).is_file():
        raise PlanError(f"there is no script {job.script!r}")
    os.environ.update(environment(job, rank))
    trace = Trace(rank)
    assumptions = values.Assumptions.parse(job.assume)
    internal = failures.internal_files()
    _sim.set_internal_files(list(internal))
    values.install(assumptions, internal)
    undrawn = initialisation.install()
    if dist.is_available():
        _sim.set_courier(courier)
        _install_peers(job, rank)
    Checkpoints(assumptions).install()
    watcher = _Watcher(trace, job.steps)
    register_optimizer_step_post_hook(watcher.after_step)
    started = time.perf_counter()
    try:
        torch.npu.init()
        _sim.set_on(True)
        _sim.set_recording(True)
        _execute(job)
    except _Enough:
        pass
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and output.reader_is_gone():
            raise
        trace.failure = failures.sentence(error, job.script)
        if isinstance(error, torch.OutOfMemoryError):
            trace.out_of_memory = failures.site_of(error, job.script)
    trace.seconds = time.perf_counter() - started
    trace.assumptions = assumptions.listed()
    trace.notes = [note for note in (undrawn.note(),) if note]
    if torch.npu.is_initialized():
        _measure(trace)
    return trace
