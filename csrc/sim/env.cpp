#include "sim/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The parts of `text` that are not empty.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (const std::string_view part = trim(text.substr(0, end)); !part.empty()) parts.emplace_back(part);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

std::optional<int64_t> to_integer(std::string_view text) {
  text = trim(text);
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Nothing when unset or blank.
std::optional<int64_t> optional_integer(const Env::Lookup& lookup, const char* name, int64_t low, int64_t high) {
  const char* text = lookup(name);
  if (text == nullptr || trim(text).empty()) return std::nullopt;
  const auto value = to_integer(text);
  if (!value || *value < low || *value > high) {
    throw std::invalid_argument(
        fmt::format("{}=\"{}\" is not valid: expected an integer from {} to {}. Unset it to use the default.", name,
                    text, low, high));
  }
  return value;
}

int64_t integer_variable(const Env::Lookup& lookup, const char* name, int64_t fallback, int64_t low, int64_t high) {
  return optional_integer(lookup, name, low, high).value_or(fallback);
}

bool flag_variable(const Env::Lookup& lookup, const char* name, bool fallback) {
  return integer_variable(lookup, name, fallback ? 1 : 0, 0, 1) != 0;
}

// One of several words; unset and blank mean the first of them.
template <class T>
T choice_variable(const Env::Lookup& lookup, const char* name,
                  std::initializer_list<std::pair<std::string_view, T>> choices) {
  const char* text = lookup(name);
  const std::string_view value = text == nullptr ? std::string_view() : trim(text);
  if (value.empty()) return choices.begin()->second;
  std::string allowed;
  for (const auto& [word, meaning] : choices) {
    if (value == word) return meaning;
    allowed.append(allowed.empty() ? "" : ", ").append(word);
  }
  throw std::invalid_argument(fmt::format("{}=\"{}\" is not valid: expected one of {}.", name, value, allowed));
}

std::string runtime_folder(const Env::Lookup& lookup) {
  if (const char* given = lookup("TORCH_CANN_RUNTIME_DIR"); given != nullptr && !trim(given).empty()) {
    return std::string(trim(given));
  }
  const char* base = lookup("XDG_RUNTIME_DIR");
  if (base != nullptr && *base != '\0') return std::string(base) + "/torch_cann";
  return fmt::format("/tmp/torch_cann-{}", ::getuid());
}

}  // namespace

Env::Env(const Lookup& lookup) {
  const char* soc_name = lookup("TORCH_CANN_SOC");
  soc = soc_name == nullptr || trim(soc_name).empty() ? "Ascend910B2" : std::string(trim(soc_name));

  if (const char* files = lookup("TORCH_CANN_SOC_FILE"); files != nullptr) soc_files = split(files, ':');
  simulate = flag_variable(lookup, "TORCH_CANN_SIMULATE", simulate);
  dry_run = flag_variable(lookup, "TORCH_CANN_DRY_RUN", dry_run);

  device_count =
      static_cast<int>(integer_variable(lookup, "TORCH_CANN_DEVICE_COUNT", device_count, 1, kMaxDeviceCount));
  // The lower bound leaves room for the driver's own share (Server::kContextBytes).
  if (const auto mib = optional_integer(lookup, "TORCH_CANN_HBM_MB", 128, 1 << 20)) {
    hbm_bytes = static_cast<size_t>(*mib) * kMiB;
  }
  host_margin_bytes =
      static_cast<size_t>(integer_variable(lookup, "TORCH_CANN_HOST_MARGIN_MB", 256, 0, 1 << 20)) * kMiB;
  runtime_dir = runtime_folder(lookup);
  huge_pages = flag_variable(lookup, "TORCH_CANN_HUGE_PAGES", huge_pages);
  shared_hbm = flag_variable(lookup, "TORCH_CANN_SHARED_HBM", shared_hbm);
  direct_ops = flag_variable(lookup, "TORCH_CANN_DIRECT_OPS", direct_ops);
  low_precision = choice_variable<LowPrecision>(
      lookup, "TORCH_CANN_LOW_PRECISION",
      {{"auto", LowPrecision::kAuto}, {"native", LowPrecision::kNative}, {"float32", LowPrecision::kFloat32}});
  cpu_capability = choice_variable<std::optional<CpuCapability>>(lookup, "TORCH_CANN_CPU_CAPABILITY",
                                                                 {{"auto", std::nullopt},
                                                                  {"baseline", CpuCapability::kBaseline},
                                                                  {"avx2", CpuCapability::kAvx2},
                                                                  {"avx512", CpuCapability::kAvx512}});
  compact_errors = flag_variable(lookup, "TORCH_NPU_COMPACT_ERROR_OUTPUT", compact_errors);
  memory_caching = !flag_variable(lookup, "PYTORCH_NO_NPU_MEMORY_CACHING", false);
  if (const char* text = lookup("STREAMS_PER_DEVICE"); text != nullptr && !trim(text).empty()) {
    const auto streams = to_integer(text);
    if (streams == 8) streams_per_device = 8;
    if (streams != 8 && streams != 32) {
      warnings.push_back(fmt::format("STREAMS_PER_DEVICE=\"{}\" is neither 8 nor 32; 32 is used.", text));
    }
  }

  for (const char* name : {"PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (const char* text = lookup(name); text != nullptr) {
      alloc_conf = text;
      break;
    }
  }
}

const Env& Env::get() {
  static const Env env([](const char* name) -> const char* { return std::getenv(name); });
  return env;
}

std::optional<std::vector<int>> Env::visible_devices(int device_count) {
  const char* text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (text == nullptr) return std::nullopt;
  std::vector<int> ids;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const auto id = to_integer(rest.substr(0, comma));
    if (!id || *id < 0 || *id >= device_count) break;
    if (std::find(ids.begin(), ids.end(), static_cast<int>(*id)) != ids.end()) break;
    ids.push_back(static_cast<int>(*id));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return ids;
}

int Env::local_world_size() {
  const char* text = std::getenv("LOCAL_WORLD_SIZE");
  return text == nullptr ? 1 : static_cast<int>(to_integer(text).value_or(1));
}

int Env::rank() {
  const char* text = std::getenv("RANK");
  if (text == nullptr) return -1;
  return static_cast<int>(to_integer(text).value_or(-1));
}

}  // namespace cann::sim
