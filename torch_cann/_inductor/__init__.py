"""torch.compile on npu: tells TorchDynamo, AOTAutograd and Inductor about the device, each when it is loaded.

An npu tensor's memory is the host's, so the C++ that Inductor generates for the CPU takes npu tensors as they are: they
are allocated from HBM, and only their addresses cross. What Inductor does not generate (products, convolutions,
attention, random seeds, ...) it calls on the npu tensors, and reaches the operators of the device.

    device.py    what Dynamo and Inductor ask about the device
    shapes.py    shape functions that differ from those of other devices
    codegen.py   the generated code: loops as for the CPU, memory of the card
    partition.py what the backward pass is given, and what it computes again
    kernels.py   what generated code does when it runs: the virtual clock and dry runs
"""

import functools
import importlib

from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type

from torch_cann._import_hooks import when_imported

# Module of PyTorch that holds a registry, or completes one -> our module whose register() adds npu to it.
_REGISTRIES = {
    "torch._dynamo.device_interface": "torch_cann._inductor.device",
    "torch._dynamo.backends.registry": "torch_cann.dynamo",
    "torch._subclasses.fake_impls": "torch_cann._inductor.shapes",
    # The last one that has to be there before init_backend_registration() looks for backends of other devices.
    "torch._inductor.codegen.cpp": "torch_cann._inductor.codegen",
}


def _register(name: str) -> None:
    importlib.import_module(name).register()


def install() -> None:
    """Registers what is cheap, and leaves the rest for when the registry it belongs to is loaded."""
    register_graphsafe_rng_device_type("npu")
    for registry, ours in _REGISTRIES.items():
        when_imported(registry, functools.partial(_register, ours))
