#pragma once
// The suffix that torch_npu puts after an error message, for example
//   [ERROR] 2026-01-31-12:00:00 (PID:4242, Device:0, RankID:-1) ERR00006 PTA memory error
// Empty when TORCH_NPU_COMPACT_ERROR_OUTPUT=1. Format and codes: torch_npu's public error documentation.

#include <string>

namespace cann {

enum class ErrModule { PTA = 0, OPS = 1, DIST = 2, GRAPH = 3, PROF = 4, UNKNOWN = 99 };
enum class ErrCode {
  PARAM = 1,
  TYPE = 2,
  VALUE = 3,
  PTR = 4,
  INTERNAL = 5,
  MEMORY = 6,
  NOT_SUPPORT = 7,
  NOT_FOUND = 8,
  UNAVAIL = 9,
  SYSCALL = 10,
  TIMEOUT = 11,
  PERMISSION = 12,
  ACL = 100,
  HCCL = 200,
  GE = 300,
  EXCEPT = 999,
};

// Begins with a newline. Device is the calling thread's current card, -1 before initialisation. Never throws.
std::string error_suffix(ErrModule module, ErrCode code) noexcept;

}  // namespace cann
