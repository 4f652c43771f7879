"""Codes that torch_npu puts behind its messages, for example ``[ERROR] ... ERR00001 PTA invalid parameter``."""

from enum import Enum

from torch_cann import _C


class ErrCode(Enum):
    SUCCESS = (0, "success")
    PARAM = (1, "invalid parameter")
    TYPE = (2, "invalid type")
    VALUE = (3, "invalid value")
    PTR = (4, "invalid pointer")
    INTERNAL = (5, "internal error")
    MEMORY = (6, "memory error")
    NOT_SUPPORT = (7, "feature not supported")
    NOT_FOUND = (8, "resource not found")
    UNAVAIL = (9, "resource unavailable")
    SYSCALL = (10, "system call failed")
    TIMEOUT = (11, "timeout error")
    PERMISSION = (12, "permission error")
    ACL = (100, "call acl api failed")
    HCCL = (200, "call hccl api failed")
    GE = (300, "call ge api failed")
    EXCEPT = (999, "applicaiton exception")  # spelled so by torch_npu

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def msg(self) -> str:
        return self.value[1]


# Modules in torch_npu's numbering.
_PTA, _OPS, _DIST, _GRAPH, _PROF = range(5)
_UNKNOWN = 99


def pta_error(error: ErrCode) -> str:
    return _C._error_suffix(_PTA, error.code)


def ops_error(error: ErrCode) -> str:
    return _C._error_suffix(_OPS, error.code)


def dist_error(error: ErrCode) -> str:
    return _C._error_suffix(_DIST, error.code)


def graph_error(error: ErrCode) -> str:
    return _C._error_suffix(_GRAPH, error.code)


def prof_error(error: ErrCode) -> str:
    return _C._error_suffix(_PROF, error.code)
