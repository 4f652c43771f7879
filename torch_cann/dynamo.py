"""torch_npu.dynamo: the names that torch.compile's backends have on NPUs.

``torch.compile(model, backend="npu")`` is Inductor here (see torch_cann._inductor); on hardware it is a compiler of NPU
graphs, whose options are not known to Inductor. The backend is registered when TorchDynamo is loaded.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_cann.utils._error_code import ErrCode as ErrCode
from torch_cann.utils._error_code import pta_error as pta_error

__all__: list[str] = []


def _npu(module: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend "npu". Raises what Inductor raises, RuntimeError for an option it does not have."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(module, list(inputs), config_patches=options.get("options"))


def register() -> None:
    """Call when torch._dynamo.backends.registry is loaded."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(_npu, name="npu")
