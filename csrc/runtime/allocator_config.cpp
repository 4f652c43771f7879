#include "runtime/allocator_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <stdexcept>
#include <utility>

namespace cann {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Option {
  std::string_view key, value;
};

[[noreturn]] void reject(const Option& option, std::string_view expected) {
  throw std::invalid_argument(
      fmt::format("Allocator option {}:{} is not valid: expected {}.", option.key, option.value, expected));
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

size_t mebibytes(const Option& option, size_t low) {
  constexpr size_t kHigh = size_t{1} << 24;  // 16 TiB
  const auto value = parse_number<size_t>(option.value);
  if (!value || *value < low || *value > kHigh) {
    reject(option, fmt::format("a number of MiB from {} to {}", low, kHigh));
  }
  return *value * kMiB;
}

bool boolean(const Option& option) {
  if (option.value == "True" || option.value == "true") return true;
  if (option.value == "False" || option.value == "false") return false;
  reject(option, "True or False");
}

uint32_t divisions(const Option& option, std::string_view text) {
  const auto value = parse_number<uint32_t>(text);
  if (!value || (*value != 0 && !std::has_single_bit(*value))) {
    reject(option, "power-of-two (or 0) divisions, such as 4 or [256:1,512:2,>:4] with power-of-two sizes in MiB");
  }
  return *value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// "[256:1,512:2,>:4]": divisions for sizes of 256 MiB and below, of 512 MiB, and above.
void parse_division_list(const Option& option, AllocatorConfig& config) {
  auto& table = config.roundup_power2_divisions;
  table.fill(0);
  size_t next = 0;  // the first interval above those set so far
  for (const std::string_view entry : split(option.value.substr(1, option.value.size() - 2), ',')) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) reject(option, "entries \"size:divisions\"");
    const uint32_t count = divisions(option, entry.substr(colon + 1));
    if (entry.substr(0, colon) == ">") {
      std::fill(table.begin() + static_cast<ptrdiff_t>(next), table.end(), count);
      continue;
    }
    const auto size = parse_number<size_t>(entry.substr(0, colon));
    if (!size || !std::has_single_bit(*size)) reject(option, "power-of-two sizes in MiB, or > for all larger ones");
    const size_t interval = std::min<size_t>(static_cast<size_t>(std::countr_zero(*size)), table.size() - 1);
    if (next == 0) std::fill(table.begin(), table.begin() + static_cast<ptrdiff_t>(interval), count);
    table[interval] = count;
    next = interval + 1;
  }
}

void parse_divisions(const Option& option, AllocatorConfig& config) {
  if (option.value.starts_with('[') && option.value.ends_with(']')) {
    parse_division_list(option, config);
  } else {
    config.roundup_power2_divisions.fill(divisions(option, option.value));
  }
  config.roundup_enabled = std::any_of(config.roundup_power2_divisions.begin(), config.roundup_power2_divisions.end(),
                                       [](uint32_t count) { return count > 1; });
}

void set_large_segment(const Option& option, AllocatorConfig& config) {
  config.large_segment_size = AllocatorConfig::round_to(mebibytes(option, 2), kLargeSegmentRounding);
}

void set_max_split(const Option& option, AllocatorConfig& config) {
  const size_t smallest = config.large_segment_size / kMiB;  // shared segments must stay divisible
  config.max_split_size = mebibytes(option, smallest);
}

void set_gc_threshold(const Option& option, AllocatorConfig& config) {
  const auto value = parse_number<double>(option.value);
  if (!value || !(*value > 0 && *value < 1)) reject(option, "a number between 0 and 1, both excluded");
  config.garbage_collection_threshold = *value;
}

void set_fraction(const Option& option, AllocatorConfig& config) {
  const auto value = parse_number<double>(option.value);
  if (!value || !(*value >= 0 && *value <= 1)) reject(option, "a number from 0 to 1");
  config.memory_fraction = *value;
}

void check_alignment(const Option& option, AllocatorConfig& /*config*/) {
  const auto value = parse_number<size_t>(option.value);
  if (!value || *value > 16) reject(option, "a number of KiB from 0 to 16");
}

void check_page_size(const Option& option, AllocatorConfig& /*config*/) {
  if (option.value != "1g" && option.value != "1G") reject(option, "1g");
}

// An option of PYTORCH_ALLOC_CONF that scripts for several devices set.
void check_backend(const Option& option, AllocatorConfig& /*config*/) {
  if (option.value != "native") reject(option, "native, the only allocator there is");
}

void check_boolean(const Option& option, AllocatorConfig& /*config*/) { boolean(option); }
void check_mebibytes(const Option& option, AllocatorConfig& /*config*/) { mebibytes(option, 0); }

using Setter = void (*)(const Option&, AllocatorConfig&);

// Options with a check_ setter are valid and without effect here: segments are 2 MiB aligned, pages are the host's, and
// there is neither a driver call to release a lock around nor a registration of pinned memory.
constexpr std::pair<std::string_view, Setter> kOptions[] = {
    {"backend", check_backend},
    {"base_addr_aligned_kb", check_alignment},
    {"expandable_segments", [](const Option& o, AllocatorConfig& c) { c.expandable_segments = boolean(o); }},
    {"garbage_collection_threshold", set_gc_threshold},
    {"large_segment_size_mb", set_large_segment},
    {"max_non_split_rounding_mb",
     [](const Option& o, AllocatorConfig& c) { c.max_non_split_rounding = mebibytes(o, 20); }},
    {"max_split_size_mb", set_max_split},
    {"multi_stream_lazy_reclaim", check_boolean},
    {"page_size", check_page_size},
    {"per_process_memory_fraction", set_fraction},
    {"pin_memory_expandable_segments", check_boolean},
    {"pinned_max_cached_size_mb", [](const Option& o, AllocatorConfig& c) { c.pinned_max_cached = mebibytes(o, 0); }},
    {"pinned_max_round_threshold_mb",
     [](const Option& o, AllocatorConfig& c) { c.pinned_max_round = mebibytes(o, 1); }},
    {"pinned_mem_register", check_boolean},
    {"pinned_reserve_segment_size_mb", check_mebibytes},
    {"pinned_use_background_threads", check_boolean},
    {"release_lock_on_npumalloc", check_boolean},
    {"roundup_power2_divisions", parse_divisions},
    {"segment_size_mb", set_large_segment},
    {"throw_on_npumalloc_oom", [](const Option& o, AllocatorConfig& c) { c.reject_beyond_fraction = boolean(o); }},
};

void apply_option(const Option& option, AllocatorConfig& config) {
  for (const auto& [key, set] : kOptions) {
    if (key == option.key) return set(option, config);
  }
  throw std::invalid_argument(fmt::format("Unrecognized allocator option \"{}\". Known: {}.", option.key,
                                          fmt::join(AllocatorConfig::option_names(), ", ")));
}

// Where the option that starts at the beginning of `text` ends: at the first comma outside brackets.
size_t option_length(std::string_view text) {
  bool in_list = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') in_list = true;
    if (text[i] == ']') in_list = false;
    if (text[i] == ',' && !in_list) return i;
  }
  return text.size();
}

}  // namespace

void AllocatorConfig::apply(std::string_view text) {
  std::string compact(text);
  std::erase_if(compact, [](unsigned char c) { return c == ' ' || c == '\t' || c == '\n'; });
  AllocatorConfig changed = *this;
  for (std::string_view rest = compact; !rest.empty();) {
    const std::string_view item = rest.substr(0, option_length(rest));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos || colon + 1 == item.size()) {
      throw std::invalid_argument(
          fmt::format("Allocator option \"{}\" has no value: write key:value,key:value.", item.substr(0, colon)));
    }
    apply_option({item.substr(0, colon), item.substr(colon + 1)}, changed);
  }
  *this = changed;
}

std::vector<std::string_view> AllocatorConfig::option_names() {
  std::vector<std::string_view> names;
  for (const auto& [key, set] : kOptions) names.push_back(key);
  return names;
}

size_t AllocatorConfig::roundup_size(size_t bytes) const {
  const auto log2_mib = static_cast<ptrdiff_t>(std::bit_width(bytes)) - 1 - 20;
  const auto interval = std::clamp<ptrdiff_t>(log2_mib, 0, static_cast<ptrdiff_t>(kRoundupIntervals) - 1);
  const size_t count = roundup_power2_divisions[static_cast<size_t>(interval)];
  if (count <= 1 || bytes <= kMinBlockSize * count) return round_to(bytes, kMinBlockSize);
  return round_to(bytes, std::bit_floor(bytes) / count);
}

}  // namespace cann
