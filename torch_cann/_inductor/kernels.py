"""The kernels of generated code when it runs: the device's virtual clock sees them, dry runs leave them out.

Generated modules import AsyncCompile from here. Which of their arguments a kernel reads and writes is told by the C++
types Inductor gives them: it writes what is not const.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.async_compile import AsyncCompile as _AsyncCompile
from torch._inductor.codecache import LambdaFuture

from torch_cann import _C


def _observer(name: str, argument_types: list[str]) -> Callable[..., None]:
    """A function of a kernel's arguments that tells the clock what a launch moves."""
    written = [not declaration.startswith("const ") for declaration in argument_types]

    def observe(*arguments: Any) -> None:
        sides: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for writes, argument in zip(written, arguments, strict=True):
            if isinstance(argument, torch.Tensor):
                sides[writes].append(argument)
        _C._sim.launch_kernel(name, *sides)

    return observe


class AsyncCompile(_AsyncCompile):
    """Inductor's compiler of kernels, whose results report their launches."""

    def npu_kernel(self, name: str, argument_types: list[str], source: str) -> Any:
        """Starts to compile a C++ kernel; in a dry run, where tensors have no memory, there is nothing to compile.

        Args:
            name: as shown by the clock and by profiles.
            argument_types: C++ declarations such as ``const float*``, one for each argument.
            source: C++ with one function named ``kernel``.
        """
        observe, is_on = _observer(name, argument_types), _C._sim.is_on

        def reporting(kernel: Callable[..., None]) -> Callable[..., None]:
            def launch(*arguments: Any) -> None:
                if is_on():
                    observe(*arguments)
                kernel(*arguments)

            return launch

        if _C._sim.is_dry():
            return reporting(lambda *arguments: None)
        compiled = self.cpp_pybinding(argument_types, source)
        if isinstance(compiled, LambdaFuture):
            return LambdaFuture(lambda: reporting(compiled.result()))
        return reporting(compiled)
