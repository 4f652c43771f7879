"""The code Inductor generates for npu: the CPU's C++ loops, over memory of the card."""

import contextlib
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._inductor import config
from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.virtualized import V

from torch_cann import _C
from torch_cann._inductor import kernels
from torch_cann._inductor.partition import NPUPartitioner
from torch_cann._refused import not_implemented

_CPU = torch.device("cpu")
# What Inductor does for a device named "cpu" whatever these settings say, so they change nothing there: its C++ loops
# are nested in a form that cannot be reordered once nodes are fused, and longer expressions pay.
_AS_FOR_THE_CPU = {
    "loop_ordering_after_fusion": False,
    "loop_reindexing_after_fusion": False,
    "loop_index_inversion_in_fusion": False,
    "realize_opcount_threshold": config.realize_cpu_opcount_threshold,
    "realize_acc_reads_threshold": config.realize_cpu_acc_reads_threshold,
    # One loop over all inputs of a cat() asks at every element whose it is, and is not vectorised.
    "max_complex_pointwise_cat_inputs": 0,
    "max_pointwise_cat_inputs": 0,
}


def _as_cpu() -> contextlib.AbstractContextManager[None]:
    """Inductor chooses between C++ and Triton by the device it generates code for at the moment."""
    return V.graph.set_current_device(_CPU)


def _check_compiler() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise RuntimeError(
            "torch.compile on npu generates C++, but there is no compiler for it. Install one (apt-get install g++), "
            "name it in the environment variable CXX, or use torch.compile(backend='aot_eager'), which needs none."
        ) from error


# Bytes read and written from which on a call of its own costs a loop next to nothing.
_LARGE_LOOP_BYTES = 512 * 1024


class NPUScheduling(CppScheduling):
    """Loops as for the CPU, in functions that end where memory can be given back.

    All loops up to the next operator would be one function, and what the first of them reads be kept until the last is
    through: the 16-bit gradients of every weight, where all of them are cast at the end.
    """

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        if not _C._sim.is_dry():
            _check_compiler()

    def codegen_node(self, node: Any) -> None:
        with _as_cpu():
            super().codegen_node(node)
        if node.get_read_write_buffers_sizes() >= _LARGE_LOOP_BYTES:
            # The scheduler then ends the function, and frees what no later node reads.
            self._set_flush_status(True)

    def codegen_template(self, *args: Any, **kwargs: Any) -> Any:
        with _as_cpu():
            return super().codegen_template(*args, **kwargs)

    def flush(self) -> None:
        with _as_cpu():
            super().flush()


class _OnTheCard:
    """What differs from the wrappers of other devices, in whole graphs and in branches of control flow."""

    def define_kernel(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        body = kernel_body.replace("async_compile.cpp_pybinding(", f"async_compile.npu_kernel({kernel_name!r}, ", 1)
        super().define_kernel(kernel_name, body, *args, **kwargs)

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        line = super().make_allocation(name, device, *args, **kwargs)
        # The card by its number: the current one may be another.
        return line.replace(f"device='{device.type}'", f"device='{device}'") if device.type == "npu" else line


class _NPUSubgraphWrapperCodegen(_OnTheCard, SubgraphPythonWrapperCodegen):
    pass


class NPUWrapperCodegen(_OnTheCard, PythonWrapperCodegen):
    """The Python that calls the loops and the operators, with memory of the card the graph was compiled for."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            return _NPUSubgraphWrapperCodegen(subgraph_name, parent_wrapper, partition_signatures)
        return NPUWrapperCodegen()

    def write_header(self) -> None:
        super().write_header()
        self.header.writeline(f"from {kernels.__name__} import AsyncCompile")
        self.header.writeline("async_compile = AsyncCompile()")


class _NoCppWrapperCodegen:
    """Stands where other devices have a wrapper in C++."""

    supports_caching = False

    @staticmethod
    def create(*args: Any) -> NoReturn:
        raise not_implemented("cpp_wrapper, which AOTInductor needs too,", "use torch.compile without it")


class _CacheKey(CustomGraphModulePass):
    """Changes no graph: makes this folder's sources part of the key under which Inductor caches generated code."""

    def __call__(self, module: torch.fx.GraphModule) -> None:
        pass

    def uuid(self) -> bytes:
        return get_hash_for_files(tuple(str(path) for path in sorted(Path(__file__).parent.glob("*.py"))))


def register() -> None:
    register_backend_for_device(
        "npu", NPUScheduling, NPUWrapperCodegen, _NoCppWrapperCodegen, device_custom_pass=_CacheKey()
    )
    register_device_op_overrides("npu", CpuDeviceOpOverrides())
    if config.custom_partitioner_fn is None:
        config.custom_partitioner_fn = NPUPartitioner()
    for setting, value in _AS_FOR_THE_CPU.items():
        setattr(config, setting, value)
