#pragma once
// The table of Ascend chips: what a card of each kind is. Rows and their sources are in soc_table.cpp.
// Immutable; references returned here live for the whole process. Thread-safe.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace cann::sim {

struct Soc {
  std::string_view name;  // as torch.npu.get_device_name() prints it, for example "Ascend910B2"
  int version;            // torch_npu's soc_version enum (torch_npu.npu.utils.get_soc_version())
  int cube_cores;         // matrix cores
  int vector_cores;       // vector cores
  double cube_freq_mhz;
  double peak_fp16_tflops;  // dense fp16, clock * cores * tile
  size_t l2_bytes;
  size_t hbm_bytes;         // on the package
  size_t usable_hbm_bytes;  // what torch.npu.mem_get_info() calls total
  double hbm_gbps;          // 1e9 bytes/s, published
};

// Ordered by version; names are unique.
std::span<const Soc> soc_table();

// Throws std::invalid_argument listing the known names when there is no such chip.
const Soc& find_soc(std::string_view name);

}  // namespace cann::sim
