"""The simulated Ascend NPU as a PyTorch device: importing this package makes device "npu" and backend "hccl" work.

The import registers what PyTorch has registries for (device module, Tensor and Module methods, process group, pickling
of storages between processes) and replaces no function of PyTorch.
"""


def _autoload() -> None:
    """Entry point "torch.backends": runs inside ``import torch``. Importing this package has done all there is to do.

    It must be defined before the ``import torch`` below: when this package is imported first, PyTorch calls it then.
    """


import torch  # noqa: E402

from torch_cann import _preflight  # noqa: E402

_preflight.check()

from torch_cann import _C, _aliases, _environment, _unhandled  # noqa: E402

_preflight.check_extension(_C._torch_version)

from torch_cann.version import __version__ as __version__  # noqa: E402


def _register() -> None:
    """Tells PyTorch about the device. Once per process, in this order: names before what uses them."""
    torch.utils.rename_privateuse1_backend("npu")

    from torch_cann import npu

    torch._register_device_module("npu", npu)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    # So that modules whose parameters have no shape yet can be moved, as by .cuda().
    torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.npu)

    from torch_cann import multiprocessing
    from torch_cann.npu import _optimizers

    multiprocessing.register()
    _optimizers.install()
    if torch.distributed.is_available():
        from torch_cann import distributed

        distributed.register()

    from torch_cann import _inductor, ops

    ops.register()
    _inductor.install()


_environment.fill_in()
_environment.warn_of_unknown()
_register()
_aliases.install()
_unhandled.install()
_environment.transfer_if_asked()
_environment.sanitize_if_asked()
