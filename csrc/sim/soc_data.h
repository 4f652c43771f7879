#pragma once
// The text of soc.toml, embedded by CMake.

namespace cann::sim {

extern const char* const kSocTable;

}  // namespace cann::sim
