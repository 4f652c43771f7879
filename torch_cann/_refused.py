"""Names of torch_npu that the simulated device does not provide: importable, they raise NotImplementedError on use.

One table for the whole package. A module takes its names with ``globals().update(refused(__name__))``.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from torch_cann.utils._error_code import ErrCode, pta_error

_NO_DUMP = "operator data is not dumped, look at it with hooks"
_ONE_POOL = "all memory comes from the one caching allocator of the card"
_NO_FLAG = "overflow gives inf and nan here and sets no flag, call npu_check_overflow(grad)"
_NO_TASK_GROUPS = "captured work is replayed as it was captured, capture it again with the new parameters"
_NO_GRAPH_COMPILER = "there is no compiler for NPU graphs, use torch.compile()"
_NO_OBFUSCATION = "models are not obfuscated"
_NO_TOOLKIT = "there is no CANN toolkit to find or to compile with"
_MEMORY_SURVIVES = "memory of a simulated card is not lost, restart_device() leaves tensors as they are"

# Module -> reason -> names. A name with a capital letter first is a class, the others are functions.
_TABLE: dict[str, dict[str, str]] = {
    "torch_cann._package": {
        "the dtype exists on hardware only, use torch.float8_e4m3fn": "HiFloat8Tensor HiFloat8Tensor.to_hifloat8 "
        "hifloat8",
        "the dtype exists on hardware only, use torch.float4_e2m1fn_x2 for storage": "float4_e1m2fn_x2",
    },
    "torch_cann.contrib.function": {
        "compute attention with torch.nn.functional.scaled_dot_product_attention": "npu_fused_attention "
        "npu_fused_attention_with_layernorm",
    },
    "torch_cann.contrib.module": {
        "quantised layers come from torch.ao or from the operators torch_npu.npu_quant_matmul and "
        "npu_weight_quant_batchmatmul": "LinearA8W8Quant LinearQuant LinearWeightQuant QuantConv2d",
        "there is no deformable convolution, use torchvision.ops.deform_conv2d on the host": "ModulatedDeformConv "
        "ModulatedDeformConv2dFunction DCNv2",
        "there is no pooling of regions, use torchvision.ops on the host": "PSROIPool ROIAlign",
        "use torch.nn.MultiheadAttention": "MultiheadAttention",
        "use torchvision.transforms.ColorJitter": "FusedColorJitter",
        "use ChannelShuffle": "IndexSelectFullImplementation IndexSelectHalfImplementation "
        "indexselect_full_implementation_forward indexselect_half_implementation_forward",
    },
    "torch_cann.distributed.rpc": {
        "remote calls carry tensors of the host: move them with .cpu()": "NPUTensorPipeRpcBackendOptions",
    },
    "torch_cann.multiprocessing": {
        "npu tensors travel as storages in the host's shared memory": "rebuild_npu_event rebuild_npu_tensor "
        "_rebuild_npu_tensor_original",
    },
    "torch_cann.npu._device": {
        "the simulated card has no utilisation counter": "utilization",
        "there is no BLAS handle behind the simulated kernels": "current_blas_handle",
    },
    "torch_cann.npu._launch": {
        "use torch_npu.profiler.profile": "profile",
    },
    "torch_cann.npu._recovery": {_MEMORY_SURVIVES: "mark_all_npu_tensor_unsafe"},
    "torch_cann.npu.graphs": {
        _NO_TASK_GROUPS: "graph_task_group_begin graph_task_group_end graph_task_update_begin graph_task_update_end",
        _NO_GRAPH_COMPILER: "compile_fx register_replacement",
    },
    "torch_cann.npu.memory": {_ONE_POOL: "MemPool use_mem_pool NPUPluggableAllocator change_current_allocator"},
    "torch_cann.npu.npu_config": {
        _NO_DUMP: "init_dump set_dump finalize_dump",
        "there is no graph to tune": "set_aoe",
    },
    "torch_cann.npu.utils": {
        _NO_FLAG: "get_npu_overflow_flag clear_npu_overflow_flag",
        _NO_OBFUSCATION: "obfuscation_initialize obfuscation_finalize obfuscation_calculate",
    },
    "torch_cann.utils.collect_hccl_info": {
        _NO_TOOLKIT: "get_tool_path get_mpi_install_path is_compiled compile_hccl_test get_exe_hccl_test "
        "execute_hccl_test_single_node",
    },
    "torch_cann.utils.cpp_extension": {_NO_TOOLKIT: "NpuExtension"},
}


def not_implemented(what: str, instead: str = "") -> NotImplementedError:
    """The error for a name of torch_npu that the simulated device does not provide."""
    message = f"{what} is not provided by torch_cann, the simulated NPU"
    return NotImplementedError(message + (f": {instead}" if instead else "") + pta_error(ErrCode.NOT_SUPPORT))


def _address(module: str) -> str:
    """Where users find the names of a module of this package."""
    if module.startswith("torch_cann.npu"):
        return "torch.npu"
    return "torch_npu" + module.removeprefix("torch_cann").removesuffix("._package")


def _function(address: str, name: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise not_implemented(f"{address}.{name}()", reason)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raises NotImplementedError: {reason}."
    refuse.__refused__ = reason
    return refuse


def _class(address: str, name: str, reason: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_implemented(f"{address}.{name}", reason)

    members = {
        "__new__": refuse,
        "__doc__": f"Raises NotImplementedError when made: {reason}.",
        "__module__": address.replace("torch.npu", "torch_npu.npu"),
        "__refused__": reason,
    }
    return type(name, (), members)


def refused(module: str) -> dict[str, Any]:
    """The refused names of ``module``, to be put into it. "Class.method" becomes an attribute of a refused class."""
    address = _address(module)
    found: dict[str, Any] = {}
    for reason, names in _TABLE[module].items():
        for name in names.split():
            owner, _, method = name.partition(".")
            if method:
                setattr(found[owner], method, staticmethod(_function(address, name, reason)))
            else:
                found[name] = (_class if name[0].isupper() else _function)(address, name, reason)
    return found
