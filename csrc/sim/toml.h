#pragma once
// A reader for the subset of TOML that the chip tables use: [tables] of keys with numbers or strings, and comments.
// Anything else is refused, naming file and line. Torch-free; no state.

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cann::sim::toml {

using Value = std::variant<double, std::string>;

struct Entry {
  std::string key;
  Value value;
  int line;
};

struct Table {
  std::string name;
  int line;
  std::vector<Entry> entries;  // in the file's order
};

// `origin` names the text in messages. Throws std::invalid_argument "<origin>:<line>: ..." for what is not understood.
std::vector<Table> parse(std::string_view text, const std::string& origin);

}  // namespace cann::sim::toml
