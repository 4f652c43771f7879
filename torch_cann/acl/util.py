"""acl.util: addresses of Python's bytes, and bytes at an address."""

import ctypes

__all__ = ["bytes_to_ptr", "ptr_to_bytes"]


def bytes_to_ptr(data: bytes) -> int:
    """The address of ``data``, valid while the object lives; not to be written to."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of ``size`` bytes at ``ptr``, memory of the host or of a card. The caller vouches for the range."""
    return ctypes.string_at(ptr, size)
