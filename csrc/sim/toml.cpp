#include "sim/toml.h"

#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace cann::sim::toml {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Without the comment; a # inside a string is kept.
std::string_view without_comment(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted) return trim(line.substr(0, i));
  }
  return trim(line);
}

std::string_view unquote(std::string_view text) {
  return text.size() >= 2 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                       : std::string_view();
}

class Reader {
 public:
  explicit Reader(const std::string& origin) : origin_(origin) {}

  void read(std::string_view line) {
    ++line_;
    line = without_comment(line);
    if (line.empty()) return;
    line.front() == '[' ? read_header(line) : read_entry(line);
  }
  std::vector<Table> take() { return std::move(tables_); }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(fmt::format("{}:{}: {}", origin_, line_, why));
  }

  void read_header(std::string_view line) {
    if (line.back() != ']' || line.size() < 3 || line[1] == '[') refuse("expected a table such as [Ascend910B2]");
    const std::string_view name = trim(line.substr(1, line.size() - 2));
    const std::string_view quoted = unquote(name);
    tables_.push_back({std::string(quoted.empty() ? name : quoted), line_, {}});
  }

  void read_entry(std::string_view line) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) refuse(fmt::format("expected key = value, but got \"{}\"", line));
    if (tables_.empty()) refuse("a key must be inside a table such as [Ascend910B2]");
    const std::string_view key = trim(line.substr(0, equals));
    for (const Entry& entry : tables_.back().entries) {
      if (entry.key == key) refuse(fmt::format("{} is set twice", key));
    }
    tables_.back().entries.push_back({std::string(key), value_of(key, trim(line.substr(equals + 1))), line_});
  }

  Value value_of(std::string_view key, std::string_view text) const {
    if (const std::string_view inner = unquote(text); !inner.empty()) return std::string(inner);
    double number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || stop != text.data() + text.size()) {
      refuse(fmt::format("{} = {} is neither a number nor a string in quotes", key, text));
    }
    return number;
  }

  const std::string& origin_;
  int line_ = 0;
  std::vector<Table> tables_;
};

}  // namespace

std::vector<Table> parse(std::string_view text, const std::string& origin) {
  Reader reader(origin);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    reader.read(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return reader.take();
}

}  // namespace cann::sim::toml
