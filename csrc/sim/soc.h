#pragma once
// The table of Ascend chips: what a card of each kind is. Figures and their sources are in soc.toml, which is embedded
// in the library; TORCH_CANN_SOC_FILE names files that change or add chips.
//
// Read once, at first use, then immutable; references returned here live for the whole process. Thread-safe.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cann::sim {

// Keys, units and sources: see soc.toml. gbps is 1e9 bytes/s as reached in practice unless said otherwise.
struct Soc {
  std::string name;  // as torch.npu.get_device_name() prints it, for example "Ascend910B2"
  int version = 0;   // torch_npu's soc_version enum (torch_npu.npu.utils.get_soc_version())
  int cube_cores = 0;
  int vector_cores = 0;
  double cube_freq_mhz = 0;
  double peak_fp16_tflops = 0;  // dense fp16
  double fp32_ratio = 0, int8_ratio = 0;
  bool bf16_cube = false;
  size_t l2_bytes = 0;
  size_t hbm_bytes = 0;         // on the package
  size_t usable_hbm_bytes = 0;  // what torch.npu.mem_get_info() calls total
  double hbm_gbps = 0;          // published
  double hbm_efficiency = 0;
  double matmul_peak = 0, matmul_k_half = 0, matmul_cap = 0;
  double attention_forward = 0, attention_backward = 0;
  int mesh_size = 1;
  double mesh_link_gbps = 0, mesh_pair_gbps = 0;
  bool mesh_switched = false;
  double sio_gbps = 0, nic_gbps = 0, h2d_gbps = 0, d2h_gbps = 0;
  double cube_us = 0, vector_us = 0, collective_us = 0, host_us = 0;
};

// The embedded table and the files of Env::soc_files, ordered by version; names are unique. Throws
// std::invalid_argument naming file and line when a file is malformed.
std::span<const Soc> soc_table();

// Throws std::invalid_argument listing the known names when there is no such chip.
const Soc& find_soc(std::string_view name);

// Adds the chips of `text` to `table`, or changes those of the same name. Throws std::invalid_argument
// "<origin>:<line>: ..." for an unknown key, an unknown base or a figure that is missing or not positive.
void read_soc_table(std::string_view text, const std::string& origin, std::vector<Soc>& table);

}  // namespace cann::sim
