"""What torch.npu.npurt() returns: registration of host memory and streams by address, which answer with codes of acl."""

import ctypes

from torch_cann.acl import rt
from torch_cann.acl._codes import INVALID_HANDLE, INVALID_PARAM, SUCCESS

__all__ = ["npuHostRegister", "npuHostUnregister", "npuStreamCreate", "npuStreamDestroy"]

_MAPPED, _PINNED = 0x2, 0x10000000  # ACL_HOST_REG_MAPPED and _PINNED of aclrtHostRegisterV2
_PAGE = 4096  # what mapped ranges must begin at
_registered: dict[int, int] = {}  # address -> bytes


def npuHostRegister(ptr: int, size: int, flags: int) -> int:
    """Registers ``size`` bytes of the host at ``ptr``: cards reach all of the host's memory, so it is only noted.

    Returns 0, or 107000 for what hardware refuses: no memory, unknown ``flags`` (mapped 2, pinned 0x10000000), a mapped
    range that does not begin at a page of 4 KiB, or one that overlaps another.
    """
    if ptr <= 0 or size <= 0 or flags & ~(_MAPPED | _PINNED) or not flags:
        return INVALID_PARAM
    if flags & _MAPPED and ptr % _PAGE:
        return INVALID_PARAM
    if any(ptr < start + length and start < ptr + size for start, length in _registered.items()):
        return INVALID_PARAM
    _registered[ptr] = size
    return SUCCESS


def npuHostUnregister(ptr: int) -> int:
    """Ends a registration. Returns 107000 if none begins at ``ptr``."""
    return INVALID_PARAM if _registered.pop(ptr, None) is None else SUCCESS


def npuStreamCreate(ptr: int) -> int:
    """Makes a stream of the current card and writes its handle, eight bytes, to the address ``ptr``."""
    if ptr <= 0:
        return INVALID_PARAM
    stream, code = rt.create_stream()
    ctypes.c_void_p.from_address(ptr).value = stream
    return code


def npuStreamDestroy(stream: int) -> int:
    """Returns 107003 for what is no handle of a stream."""
    return rt.destroy_stream(stream) if stream else INVALID_HANDLE
