#include "distributed/hccl_env.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace cann::hccl {
namespace {

std::optional<int64_t> integer(const char* name, int64_t lowest) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view view(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == view.data() + view.size() && value >= lowest, name, "=\"", text,
                    "\" is not valid: expected an integer of at least ", lowest, ". Unset it to use the default.");
  return value;
}

HcclEnv read() {
  HcclEnv env;
  if (const auto value = integer("HCCL_BUFFSIZE", 1)) env.buffer_megabytes = static_cast<size_t>(*value);
  if (const auto value = integer("P2P_HCCL_BUFFSIZE", 0)) env.p2p_buffer_megabytes = static_cast<size_t>(*value);
  if (const auto value = integer("HCCL_CONNECT_TIMEOUT", 1)) env.connect_timeout = std::chrono::seconds(*value);
  if (const auto value = integer("TORCH_HCCL_TRACE_BUFFER_SIZE", 0)) env.trace_entries = static_cast<size_t>(*value);
  if (const char* file = std::getenv("TORCH_HCCL_DEBUG_INFO_TEMP_FILE")) env.trace_file = file;
  if (const auto value = integer("HCCL_EXEC_TIMEOUT", INT64_MIN)) {
    if (*value >= 0) {
      env.exec_timeout = std::chrono::seconds(*value);
    } else {
      TORCH_WARN("HCCL_EXEC_TIMEOUT=", *value, " is negative and is not used; the default applies.");
    }
  }
  return env;
}

}  // namespace

const HcclEnv& HcclEnv::get() {
  static const HcclEnv env = read();
  return env;
}

}  // namespace cann::hccl
