"""NPU graphs: operators recorded once, run again on the same memory by replay().

Kernels run at once, so what a graph holds is the list of operators that were called while capturing, with their tensors.
Replaying calls them in order and puts each result where it was the first time. As on hardware, inputs are changed in
place (``static_input.copy_(new)``), Python code between operators is not run again, and random numbers go on. A replay
saves the Python code of the model, not the calls of its operators, so it is no measure of the speed on hardware.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_cann._refused import not_implemented, refused
from torch_cann.npu import streams
from torch_cann.npu._device import synchronize

__all__ = [
    "NPUGraph",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
]

globals().update(refused(__name__))

_capturing = threading.local()
_pool_ids: Iterator[int] = iter(range(1, 2**63))
# The host would act on a number, or on a shape, that stays what it was while capturing.
_READS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def is_current_stream_capturing() -> bool:
    """Whether this thread is recording a graph."""
    return getattr(_capturing, "mode", None) is not None


def graph_pool_handle() -> tuple[int, int]:
    """A memory pool's id, which NPUGraph accepts. A graph keeps its own tensors, so pools change nothing."""
    return 0, next(_pool_ids)


def super_kernel_scope_begin(scope_name: str | None = None) -> None:
    """Start of operators to be fused while capturing. Nothing is fused here."""


def super_kernel_scope_end(scope_name: str | None = None) -> None:
    """End of the same."""


def _aliases_an_argument(result: torch.Tensor, arguments: list[Any]) -> bool:
    storage = result.untyped_storage()._cdata
    return any(isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == storage for a in arguments)


class _Step:
    """An operator of a graph. ``results`` are the tensors that a replay must fill anew, None for all others."""

    def __init__(self, operator: Callable, args: tuple, kwargs: dict[str, Any], outcome: Any) -> None:
        self.operator, self.args, self.kwargs = operator, args, kwargs
        arguments = pytree.tree_leaves((args, kwargs))
        self.results = [
            leaf if isinstance(leaf, torch.Tensor) and not _aliases_an_argument(leaf, arguments) else None
            for leaf in pytree.tree_leaves(outcome)
        ]

    def replay(self) -> None:
        outcome = self.operator(*self.args, **self.kwargs)
        for result, new in zip(self.results, pytree.tree_leaves(outcome), strict=True):
            if result is not None:
                result.copy_(new)


class _Recorder(TorchDispatchMode):
    """Runs operators and notes them. Views need no note: they look at the same memory in every replay."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[_Step] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if _READS_VALUES & set(operator.tags):
            raise RuntimeError(
                f"{operator} is not permitted while a NPU graph is captured: the host would use the value or shape of "
                "this one run in every replay. Keep the value on the device, or call it outside the graph."
            )
        outcome = operator(*args, **kwargs)
        if not operator.is_view:
            self.steps.append(_Step(operator, args, kwargs, outcome))
        return outcome


class NPUGraph:
    """Operators recorded between capture_begin() and capture_end(), or inside ``with torch.npu.graph(g)``."""

    def __init__(self) -> None:
        self._recorder: _Recorder | None = None
        self._steps: list[_Step] | None = None
        self._pool: tuple[int, int] | None = None

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        """Starts recording in this thread.

        Raises RuntimeError while a graph is being captured, or when this one holds a capture already (reset() it).
        """
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(
                f"capture_error_mode must be 'global', 'thread_local' or 'relaxed', but is {capture_error_mode!r}"
            )
        if is_current_stream_capturing():
            raise RuntimeError("a NPU graph is being captured in this thread already: call capture_end() first")
        if self._steps is not None:
            raise RuntimeError("this NPUGraph holds a capture already: call reset() first, or make another")
        self._pool = pool or graph_pool_handle()
        self._recorder = _capturing.mode = _Recorder()
        self._recorder.__enter__()

    def capture_end(self) -> None:
        """Ends recording. Raises RuntimeError without a capture_begin() of this graph in this thread."""
        if self._recorder is None or _capturing.mode is not self._recorder:
            raise RuntimeError("capture_end() without capture_begin() of this NPUGraph in this thread")
        self._recorder.__exit__(None, None, None)
        self._steps, self._recorder, _capturing.mode = self._recorder.steps, None, None

    def replay(self) -> None:
        """Runs the recorded operators again. Raises RuntimeError when nothing was captured."""
        if self._steps is None:
            raise RuntimeError("NPUGraph.replay() called before a capture has ended")
        with torch.no_grad():
            for step in self._steps:
                step.replay()

    def reset(self) -> None:
        """Forgets the capture and frees the memory that only it uses."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        if self._pool is None:
            raise RuntimeError("NPUGraph.pool() called before a capture has begun")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Accepted: debug_dump() always works."""

    def debug_dump(self, debug_path: str) -> None:
        """Writes the recorded operators to a file, one a line."""
        with open(debug_path, "w", encoding="utf-8") as file:
            file.writelines(f"{step.operator}\n" for step in self._steps or ())

    def update(self, cpu_update_input: Any) -> None:
        raise not_implemented("NPUGraph.update()", "capture the graph again with the new parameters")


class graph:
    """Context manager: what is called inside becomes ``npu_graph``, on ``stream`` or a stream of its own.

    ``auto_dispatch_capture`` is accepted; it prepares NPUGraph.update(), which raises NotImplementedError.
    """

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.Stream | None = None,
        auto_dispatch_capture: bool = False,
        capture_error_mode: str = "global",
    ) -> None:
        self.npu_graph, self.pool, self.capture_error_mode = npu_graph, pool, capture_error_mode
        self.capture_stream = stream or streams.Stream()
        self._stream_context = streams.StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        synchronize()
        self._stream_context.__enter__()
        try:
            self.npu_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._stream_context.__exit__()
            raise

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self.npu_graph.capture_end()
        if exc_type is not None:
            self.npu_graph.reset()
        self._stream_context.__exit__(exc_type, exc, traceback)


# --- operators whose parameters change between replays ----------------------------------------------------------------


class NpuGraphOpHandler:
    """Base of classes that change an operator's parameters for NPUGraph.update(), which raises NotImplementedError."""


_handlers: dict[str, type[NpuGraphOpHandler]] = {}


def register_npu_graph_handler(op_names: str | list[str]) -> Callable[[type], type]:
    """Decorator: the class handles the operators with these names."""

    def register(handler: type) -> type:
        for name in [op_names] if isinstance(op_names, str) else op_names:
            _handlers[name] = handler
        return handler

    return register


# --- graphed callables ------------------------------------------------------------------------------------------------


class _Graphed:
    """The forward and backward graphs of one callable, over static inputs, outputs and gradients."""

    def __init__(self, function: Callable, sample_args: tuple, parameters: tuple, warmups: int, unused: bool) -> None:
        self.inputs = (*sample_args, *parameters)
        self.number_of_arguments = len(sample_args)
        for _ in range(warmups):
            function(*sample_args)
        self.forward_graph, self.backward_graph = NPUGraph(), NPUGraph()
        with torch.enable_grad(), graph(self.forward_graph):
            outputs, self.structure = pytree.tree_flatten(function(*sample_args))
        self.outputs = tuple(outputs)
        differentiable = tuple(o for o in self.outputs if o.requires_grad)
        self.grad_outputs = tuple(torch.empty_like(o) if o.requires_grad else None for o in self.outputs)
        wanted = tuple(i for i in self.inputs if i.requires_grad)
        with graph(self.backward_graph):
            gradients = iter(
                torch.autograd.grad(
                    differentiable, wanted, [g for g in self.grad_outputs if g is not None], allow_unused=unused
                )
                if differentiable and wanted
                else ()
            )
        self.grad_inputs = tuple(next(gradients, None) if i.requires_grad else None for i in self.inputs)

    def call(self, *arguments: torch.Tensor) -> Any:
        results = _GraphedFunction.apply(self, *arguments, *self.inputs[self.number_of_arguments :])
        return pytree.tree_unflatten(list(results), self.structure)


class _GraphedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graphed: _Graphed, *inputs: torch.Tensor):
        ctx.graphed = graphed
        for static, given in zip(graphed.inputs[: graphed.number_of_arguments], inputs, strict=False):
            if static.data_ptr() != given.data_ptr():
                static.copy_(given)
        graphed.forward_graph.replay()
        return tuple(output.detach() for output in graphed.outputs)

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor):
        graphed = ctx.graphed
        for static, given in zip(graphed.grad_outputs, gradients, strict=True):
            if static is not None:
                static.copy_(given)
        graphed.backward_graph.replay()
        return None, *(None if g is None else g.detach() for g in graphed.grad_inputs)


def make_graphed_callables(
    callables: Callable | tuple[Callable, ...],
    sample_args: tuple,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Functions or modules with forward and backward captured as graphs; as torch.cuda.make_graphed_callables.

    Args:
        callables: one, or a tuple. A module is returned with its forward replaced while it is in the same mode
            (training or not) as now.
        sample_args: a tuple of npu tensors for one callable, a tuple of such tuples for several; they become the
            memory that calls are copied into.
    """
    if torch.is_autocast_enabled("npu") and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not work with the autocast cache: set cache_enabled=False")
    single = not isinstance(callables, tuple)
    pairs = ((callables, sample_args),) if single else tuple(zip(callables, sample_args, strict=True))
    results = []
    for function, arguments in pairs:
        if not all(isinstance(a, torch.Tensor) for a in arguments):
            raise TypeError("make_graphed_callables: sample_args must be tensors only")
        is_module = isinstance(function, torch.nn.Module)
        parameters = tuple(function.parameters()) if is_module else ()
        graphed = _Graphed(function, tuple(arguments), parameters, num_warmup_iters, allow_unused_input)
        results.append(_with_graphed_forward(function, graphed) if is_module else graphed.call)
    return results[0] if single else tuple(results)


def _with_graphed_forward(module: torch.nn.Module, graphed: _Graphed) -> torch.nn.Module:
    captured_training, eager = module.training, module.forward

    def forward(*arguments: torch.Tensor) -> Any:
        return graphed.call(*arguments) if module.training == captured_training else eager(*arguments)

    module.forward = forward
    return module
