"""What kernels are called, and which unit of the chip runs them, as far as the name of their operator says."""

from torch_cann.profiler._records import Event

_CUBE = ("mm", "matmul", "linear", "conv", "attention", "einsum")


def type_of(event: Event) -> str:
    """The operator's name as kernels are called: aten::addmm -> Addmm."""
    return "".join(part.capitalize() for part in event.name.rpartition("::")[2].split("_"))


def core_of(event: Event) -> str:
    """The unit that runs such a kernel on hardware: matrix products on cube cores, the rest on vector cores."""
    return "AI_CORE" if any(word in event.name for word in _CUBE) else "AI_VECTOR_CORE"
