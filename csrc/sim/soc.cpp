#include "sim/soc.h"

#include <stdexcept>

#include <fmt/format.h>

namespace cann::sim {

const Soc& find_soc(std::string_view name) {
  std::string known;
  for (const Soc& soc : soc_table()) {
    if (soc.name == name) return soc;
    if (!known.empty()) known += ", ";
    known += soc.name;
  }
  throw std::invalid_argument(fmt::format("There is no chip \"{}\" in the SoC table. Known: {}.", name, known));
}

}  // namespace cann::sim
