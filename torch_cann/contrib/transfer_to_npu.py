"""``from torch_npu.contrib import transfer_to_npu``: a script written for CUDA runs on the NPU.

Importing this module, and nothing else in the package, replaces functions of PyTorch: torch.cuda's by torch.npu's of
the same name, and those that take a device or a backend by ones that read "cuda" as "npu" and "nccl" as "hccl".
``torch.device("cuda")`` itself stays what it is, so that ``if device.type == "cuda"`` keeps its meaning in the script.
TORCH_TRANSFER_TO_NPU=1 in the environment does the same when torch_npu is imported.
"""

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.cuda.amp
import torch.distributed
import torch.profiler
import torch.utils.data
from torch.utils._device import _device_constructors

npu = torch.npu


def to_npu(value: Any) -> Any:
    """``value`` with CUDA in it read as NPU, if it is a device or the name of one, or a dict or list of such."""
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "npu" + value.removeprefix("cuda")
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu") if value.index is None else torch.device("npu", value.index)
    if isinstance(value, dict):
        return {to_npu(k): to_npu(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, (str, torch.device)) for v in value):
        return type(value)(to_npu(v) for v in value)
    return value


def _positional(value: Any) -> Any:
    """``to_npu`` for an argument whose name is unknown: a dict may be anything."""
    return value if isinstance(value, dict) else to_npu(value)


def _to_hccl(backend: Any) -> Any:
    """From "nccl" makes "hccl", from "cpu:gloo,cuda:nccl" "cpu:gloo,npu:hccl"."""
    if not isinstance(backend, str):
        return backend
    return ",".join(part.replace("cuda:", "npu:").replace("nccl", "hccl") for part in backend.split(","))


def _reading_devices(function: Callable) -> Callable:
    """``function`` with devices among its arguments read as NPUs. Arguments of other kinds pass as they are."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_positional, args))
        for name in _DEVICE_KEYWORDS & kwargs.keys():
            kwargs[name] = to_npu(kwargs[name])
        return function(*args, **kwargs)

    return wrapped


def _reading_backends(function: Callable) -> Callable:
    wrapped = _reading_devices(function)

    @functools.wraps(function)
    def with_backend(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_to_hccl, args))
        if "backend" in kwargs:
            kwargs["backend"] = _to_hccl(kwargs["backend"])
        return wrapped(*args, **kwargs)

    return with_backend


_DEVICE_KEYWORDS = {"device", "devices", "device_id", "device_type", "map_location", "pin_memory_device"}


def _wrap(owner: Any, names: Iterable[str], wrapper: Callable[[Callable], Callable] = _reading_devices) -> None:
    for name in names:
        setattr(owner, name, wrapper(getattr(owner, name)))


def _replace_names(target: types.ModuleType, source: types.ModuleType) -> None:
    """Each function, class and value of ``target`` that ``source`` has too becomes that of ``source``.

    Functions read "cuda" as "npu". They are also objects of their own, since torch.compile keeps a table of functions of
    torch.cuda and of torch.npu, in which none may stand twice.
    """
    for name in vars(target).keys() & vars(source).keys():
        value = getattr(source, name)
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        setattr(target, name, _reading_devices(value) if isinstance(value, types.FunctionType) else value)


class _StandIn(type):
    """The type of a class that stands for another one: makes its objects, for devices read as NPUs, and knows them."""

    _real: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _reading_devices(cls._real)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._real, name)


def _stand_in(real: type) -> type:
    return _StandIn(real.__name__, (), {"_real": real, "__module__": real.__module__, "__doc__": real.__doc__})


def _get_device_capability(device: Any = None) -> tuple[int, int]:
    """torch.cuda's, which is always a pair, as PyTorch itself relies on: (0, 0), older than any, where npu has none."""
    return npu.get_device_capability(to_npu(device)) or (0, 0)


def _take_over_torch_cuda() -> None:
    cuda = torch.cuda
    _replace_names(cuda, npu)
    for name in ("memory", "random", "streams", "graphs"):
        _replace_names(getattr(cuda, name), getattr(npu, name))
    for module in (cuda.amp, cuda.amp.autocast_mode, cuda.amp.grad_scaler):
        _replace_names(module, npu.amp)
    cuda.CUDAGraph = npu.NPUGraph
    for name in ("Stream", "ExternalStream", "device"):
        setattr(cuda, name, _stand_in(getattr(npu, name)))
    cuda.streams.Stream, cuda.streams.ExternalStream = cuda.Stream, cuda.ExternalStream
    cuda.default_generators = npu.default_generators
    cuda.get_device_capability = _get_device_capability
    cuda.nvtx.mark, cuda.nvtx.range_push, cuda.nvtx.range_pop = npu.mstx.mark, npu.mstx.range_push, npu.mstx.range_pop


def _grad_scaler_on_npu(init: Callable) -> Callable:
    """GradScaler's own default is "cuda"."""

    @functools.wraps(init)
    def wrapped(self: Any, device: str = "npu", *args: Any, **kwargs: Any) -> None:
        init(self, to_npu(device), *args, **kwargs)

    return wrapped


def _profiling_npu(init: Callable) -> Callable:
    """torch.profiler's classes, for scripts that ask for activity of CUDA."""

    @functools.wraps(init)
    def wrapped(self: Any, *, activities: Iterable[Any] | None = None, **kwargs: Any) -> None:
        kinds = torch.profiler.ProfilerActivity
        if activities is not None:
            activities = {kinds.PrivateUse1 if kind == kinds.CUDA else kind for kind in activities}
        init(self, activities=activities, **kwargs)

    return wrapped


def _default_type_on_npu(function: Callable) -> Callable:
    """torch.set_default_tensor_type(), which wants a type that PyTorch knows: those of npu are a dtype and a device."""

    @functools.wraps(function)
    def wrapped(t: Any, /) -> None:
        module, _, name = t.rpartition(".") if isinstance(t, str) else ("", "", "")
        kind = getattr(npu, name, t) if module in ("torch.cuda", "torch.npu") else t
        if getattr(kind, "is_npu", False):
            torch.set_default_dtype(kind.dtype)
            torch.set_default_device("npu")
        else:
            function(kind)
            torch.set_default_device(None)

    return wrapped


def _transfer_distributed() -> None:
    from torch.distributed import device_mesh, fsdp

    c10d = torch.distributed.distributed_c10d
    _wrap(c10d, ("init_process_group", "new_group"), _reading_backends)
    _wrap(device_mesh, ("init_device_mesh",), _reading_backends)
    _wrap(device_mesh.DeviceMesh, ("__init__",))
    _wrap(fsdp.FullyShardedDataParallel, ("__init__",))
    for name in ("init_process_group", "new_group"):
        setattr(torch.distributed, name, getattr(c10d, name))
    torch.distributed.init_device_mesh = device_mesh.init_device_mesh
    torch.distributed.is_nccl_available = torch.distributed.is_available


def _transfer() -> None:
    _take_over_torch_cuda()
    factories = {f.__name__ for f in _device_constructors() if getattr(torch, f.__name__, None) is f}
    like = {name for name in vars(torch) if name.endswith("_like") and callable(getattr(torch, name))}
    autocast = {"is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"}
    _wrap(torch, factories | like | autocast | {"load", "get_device_module", "set_default_device"})
    _wrap(torch.Tensor, ("to", "new_tensor", "new_empty", "new_full", "new_ones", "new_zeros", "pin_memory"))
    _wrap(torch.nn.Module, ("to", "to_empty"))
    _wrap(torch.amp, ("custom_fwd", "custom_bwd"))
    _wrap(torch.autocast, ("__init__",))
    _wrap(torch.amp.GradScaler, ("__init__",), _grad_scaler_on_npu)
    _wrap(torch.profiler._KinetoProfile, ("__init__",), _profiling_npu)
    _wrap(torch, ("set_default_tensor_type",), _default_type_on_npu)
    _wrap(torch.utils.data.DataLoader, ("__init__",))
    _wrap(torch.random, ("fork_rng",))
    _wrap(torch.utils._device.DeviceContext, ("__init__",))
    _transfer_distributed()
    for owner in (torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.TypedStorage):
        owner.cuda = owner.npu
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    torch.Generator, torch.Stream = _stand_in(torch.Generator), _stand_in(torch.Stream)


_transfer()
