"""Names of torch_npu that the simulated device does not provide: importable, they raise NotImplementedError on use."""

from collections.abc import Callable
from typing import Any, NoReturn

from torch_cann.npu._utils import not_implemented


def refused_function(name: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise not_implemented(f"torch.npu.{name}()", reason)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raises NotImplementedError: {reason}."
    return refuse


def refused_class(name: str, reason: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_implemented(f"torch.npu.{name}", reason)

    doc = f"Raises NotImplementedError when made: {reason}."
    return type(name, (), {"__new__": refuse, "__doc__": doc, "__module__": "torch_npu.npu"})
