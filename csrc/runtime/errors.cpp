#include "runtime/errors.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "runtime/device.h"
#include "sim/env.h"

namespace cann {
namespace {

std::string_view name_of(ErrModule module) {
  constexpr std::array<std::string_view, 5> kNames = {"PTA", "OPS", "DIST", "GRAPH", "PROF"};
  const auto index = static_cast<size_t>(module);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

std::string_view text_of(ErrCode code) {
  switch (code) {
    case ErrCode::PARAM:
      return "invalid parameter";
    case ErrCode::TYPE:
      return "invalid type";
    case ErrCode::VALUE:
      return "invalid value";
    case ErrCode::PTR:
      return "invalid pointer";
    case ErrCode::INTERNAL:
      return "internal error";
    case ErrCode::MEMORY:
      return "memory error";
    case ErrCode::NOT_SUPPORT:
      return "feature not supported";
    case ErrCode::NOT_FOUND:
      return "resource not found";
    case ErrCode::UNAVAIL:
      return "resource unavailable";
    case ErrCode::SYSCALL:
      return "system call failed";
    case ErrCode::TIMEOUT:
      return "timeout error";
    case ErrCode::PERMISSION:
      return "permission error";
    case ErrCode::ACL:
      return "call acl api failed";
    case ErrCode::HCCL:
      return "call hccl api failed";
    case ErrCode::GE:
      return "call ge api failed";
    case ErrCode::EXCEPT:
      return "applicaiton exception";  // spelled so by torch_npu
  }
  return "unknown error";
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  localtime_r(&now, &fields);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H:%M:%S", &fields);
  return text.data();
}

}  // namespace

std::string error_suffix(ErrModule module, ErrCode code) noexcept {
  try {
    if (sim::Env::get().compact_errors) return {};
    return fmt::format("\n[ERROR] {} (PID:{}, Device:{}, RankID:{}) ERR{:02}{:03} {} {}", local_time(), getpid(),
                       is_initialized() ? current_device() : -1, sim::Env::rank(), static_cast<int>(module),
                       static_cast<int>(code), name_of(module), text_of(code));
  } catch (...) {
    // The error that is being reported matters more than its suffix (a malformed variable would raise here).
    return {};
  }
}

}  // namespace cann
