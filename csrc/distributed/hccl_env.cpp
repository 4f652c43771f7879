#include "distributed/hccl_env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace cann::hccl {
namespace {

// Reads one environment into an HcclEnv.
class Reader {
 public:
  explicit Reader(const HcclEnv::Lookup& lookup) : lookup_(lookup) {}

  // The value of a variable; an empty one counts as unset.
  std::optional<std::string> text(const char* name) const {
    const char* value = lookup_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  std::optional<int64_t> integer(const char* name, int64_t lowest, int64_t highest = INT64_MAX) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error == std::errc() && end == value->data() + value->size() && number >= lowest && number <= highest) {
      return number;
    }
    const std::string allowed = highest == INT64_MAX ? fmt::format("an integer of at least {}", lowest)
                                                     : fmt::format("an integer from {} to {}", lowest, highest);
    refuse(name, *value, allowed);
  }

  // integer() of a variable that has been renamed.
  std::optional<int64_t> renamed(const char* name, const char* older, int64_t highest) {
    const auto value = integer(name, 0, highest);
    const auto old_value = integer(older, 0, highest);
    if (old_value) warn(fmt::format("{} is the older name of {}: please use that.", older, name));
    return value ? value : old_value;
  }

  void one_of(const char* name, std::initializer_list<std::string_view> allowed) const {
    const auto value = text(name);
    if (!value) return;
    std::string list;
    for (const std::string_view one : allowed) {
      if (*value == one) return;
      list += (list.empty() ? "" : ", ") + std::string(one);
    }
    refuse(name, *value, "one of " + list);
  }

  // Calls `parse` with the value of `name`, if it has one; what it refuses is refused with the name.
  template <typename Parse>
  void parsed(const char* name, Parse&& parse) const {
    const auto value = text(name);
    if (!value) return;
    try {
      parse(*value);
    } catch (const std::invalid_argument& error) {
      refuse(name, *value, error.what());
    }
  }

  void warn(std::string warning) { warnings.push_back(std::move(warning)); }

  std::vector<std::string> warnings;

 private:
  [[noreturn]] static void refuse(const char* name, const std::string& value, const std::string& allowed) {
    throw std::invalid_argument(
        fmt::format("{}=\"{}\" is not valid: expected {}. Unset it to use the default.", name, value, allowed));
  }

  const HcclEnv::Lookup& lookup_;
};

void check_those_without_effect(Reader& reader) {
  reader.renamed("TORCH_HCCL_BLOCKING_WAIT", "HCCL_BLOCKING_WAIT", 1);
  reader.renamed("TORCH_HCCL_DESYNC_DEBUG", "HCCL_DESYNC_DEBUG", 1);
  for (const char* name : {"TORCH_HCCL_ENABLE_MONITORING", "TORCH_HCCL_DUMP_ON_TIMEOUT", "TORCH_HCCL_HIGH_PRIORITY",
                           "TORCH_HCCL_ZERO_COPY"}) {
    reader.integer(name, 0, 1);
  }
  for (const char* name : {"HCCL_EVENT_TIMEOUT", "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC",
                           "TORCH_HCCL_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_HCCL_COORD_CHECK_MILSEC"}) {
    reader.integer(name, 0);
  }
  reader.one_of("HCCL_DETERMINISTIC", {"true", "false", "strict"});
  if (reader.integer("TORCH_HCCL_STATUS_SAVE_ENABLE", 0, 1) == 1) {
    reader.warn("TORCH_HCCL_STATUS_SAVE_ENABLE=1 is not simulated: no status of process groups is written.");
  }
}

void read_interface(Reader& reader, HcclEnv& env) {
  auto name = reader.text("HCCL_SOCKET_IFNAME");
  if (!name) return;
  if (name->front() == '^' || name->front() == '!') {
    reader.warn(
        fmt::format("HCCL_SOCKET_IFNAME=\"{}\" excludes interfaces, which is not simulated: name the one to "
                    "use.",
                    *name));
    return;
  }
  if (name->front() == '=') name->erase(0, 1);
  env.interface = name->substr(0, name->find(','));
}

void read_timeouts(Reader& reader, HcclEnv& env) {
  if (const auto value = reader.integer("HCCL_CONNECT_TIMEOUT", 1)) env.connect_timeout = std::chrono::seconds(*value);
  const auto limit = reader.integer("HCCL_EXEC_TIMEOUT", INT64_MIN);
  if (limit && *limit < 0) {
    reader.warn(fmt::format("HCCL_EXEC_TIMEOUT={} is negative and is not used; the default applies.", *limit));
  } else if (limit) {
    env.exec_timeout = std::chrono::seconds(*limit);
  }
}

}  // namespace

HcclEnv HcclEnv::from(const Lookup& lookup) {
  HcclEnv env;
  Reader reader(lookup);
  if (const auto value = reader.integer("HCCL_BUFFSIZE", 1)) env.buffer_megabytes = static_cast<size_t>(*value);
  if (const auto value = reader.integer("P2P_HCCL_BUFFSIZE", 0)) env.p2p_buffer_megabytes = static_cast<size_t>(*value);
  read_timeouts(reader, env);
  const auto handling = reader.renamed("TORCH_HCCL_ASYNC_ERROR_HANDLING", "HCCL_ASYNC_ERROR_HANDLING", 3);
  if (handling && *handling % 2 == 1) env.error_handling = ErrorHandling::kTearDown;
  reader.parsed("HCCL_ALGO", [&](const std::string& text) {
    env.algorithms = AlgorithmChoice::parse(text);
    for (const std::string& warning : env.algorithms.warnings()) reader.warn("HCCL_ALGO: " + warning);
  });
  reader.parsed("TORCH_CANN_HCCL_WIRE", [&](const std::string& text) { env.wire = WireFormat::parse(text); });
  env.host_address = reader.text("HCCL_IF_IP").value_or("");
  read_interface(reader, env);
  if (const auto value = reader.integer("TORCH_HCCL_TRACE_BUFFER_SIZE", 0)) {
    env.trace_entries = static_cast<size_t>(*value);
  }
  env.trace_file = reader.text("TORCH_HCCL_DEBUG_INFO_TEMP_FILE").value_or(env.trace_file);
  check_those_without_effect(reader);
  env.warnings = std::move(reader.warnings);
  return env;
}

const HcclEnv& HcclEnv::get() {
  static const HcclEnv env = from(std::getenv);
  return env;
}

}  // namespace cann::hccl
