"""What TorchDynamo and Inductor ask about the device: a DeviceInterface over torch.npu."""

from typing import Any

import torch
from torch._dynamo.device_interface import CpuDeviceProperties, DeviceInterface, register_interface_for_device

from torch_cann import npu


class NPUInterface(DeviceInterface):
    """As documented by its base. Generated code runs on the host's cores, which is what its properties are."""

    device = npu.device
    Event = npu.Event
    Stream = npu.Stream

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            npu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return npu.current_device()

        @staticmethod
        def get_device_properties(device: Any = None) -> CpuDeviceProperties:
            return CpuDeviceProperties(torch.get_num_threads())

    current_device = staticmethod(npu.current_device)
    set_device = staticmethod(npu.set_device)
    maybe_exchange_device = staticmethod(npu._maybe_exchange_device)
    exchange_device = staticmethod(npu._exchange_device)
    device_count = staticmethod(npu.device_count)
    is_available = staticmethod(npu.is_available)
    stream = staticmethod(npu.stream)
    current_stream = staticmethod(npu.current_stream)
    set_stream = staticmethod(npu.set_stream)
    synchronize = staticmethod(npu.synchronize)
    memory_allocated = staticmethod(npu.memory_allocated)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return npu.current_stream(device_idx).npu_stream

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True


def register() -> None:
    register_interface_for_device("npu", NPUInterface)
    for index in range(npu.device_count()):
        register_interface_for_device(f"npu:{index}", NPUInterface)
