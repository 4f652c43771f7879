"""Autocast for the npu device."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import deprecated

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast("npu") with torch.cuda.amp.autocast's arguments."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("npu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


@deprecated(
    "torch.npu.amp.custom_fwd(...) is deprecated, use torch.amp.custom_fwd(..., device_type='npu')",
    category=FutureWarning,
)
def custom_fwd(fwd: Callable | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    return functools.partial(torch.amp.custom_fwd, device_type="npu")(fwd=fwd, cast_inputs=cast_inputs)


@deprecated(
    "torch.npu.amp.custom_bwd(...) is deprecated, use torch.amp.custom_bwd(..., device_type='npu')",
    category=FutureWarning,
)
def custom_bwd(bwd: Callable) -> Callable:
    return functools.partial(torch.amp.custom_bwd, device_type="npu")(bwd)
