// The rows of the SoC table, each figure with its source.
//
// Sources:
//   H1   platform_config/<SoC>.ini of the CANN 8.1.RC1 toolkit (a public mirror of its data files)
//   H2   Ascend/msmodeling, tensor_cast/device.py (Huawei's planning profiles)
//   H3   Ascend/pytorch, torch_npu/csrc/npu/Module.cpp and NpuVariables.h
//   H6   arXiv 2506.12708, CloudMatrix384
//   H8   Hot Chips and trade-press notes on the Ascend 910 (2019), secondary
//   H14  GitHub issues that quote torch.npu.get_device_properties() or OOM messages
//   MEM  recalled from product material, not read again
//
// Common to all rows:
//   version    the SocVersion enum of H3
//   cores, frequency, L2   H1
//   peak fp16  clock * cube cores * (16*16*16 tile, a multiply and an add each), from H1; product material quotes 3-14
//   %
//              more (for example 376 for the 910B2 in H2)
//   usable     62420 of 65536 MiB is what torch_npu reports for a 64 GiB card (H14). Where no such figure is published
//   the
//              same share of the package's HBM is assumed; kAssumed marks those rows.

#include <array>

#include "sim/soc.h"

namespace cann::sim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

// What the ini (H1) gives the 310P, 24e9 bytes, in whole MiB.
constexpr size_t kIni310P = 24'000'000'000 / kMiB * kMiB;

struct Row {
  std::string_view name;
  int version;
  int cube_cores;
  int vector_cores;
  double cube_freq_mhz;
  size_t l2_mib;
  size_t hbm_bytes;
  size_t usable_mib;
  double hbm_gbps;
};

constexpr size_t kAssumed = 0;

constexpr Soc make(const Row& row) {
  // Operations a cube core completes per cycle in fp16.
  constexpr double kTileFlops = 16.0 * 16.0 * 16.0 * 2.0;
  const size_t usable_mib = row.usable_mib != kAssumed ? row.usable_mib : row.hbm_bytes / kMiB * 62420 / 65536;
  return Soc{.name = row.name,
             .version = row.version,
             .cube_cores = row.cube_cores,
             .vector_cores = row.vector_cores,
             .cube_freq_mhz = row.cube_freq_mhz,
             .peak_fp16_tflops = row.cube_cores * row.cube_freq_mhz * kTileFlops / 1e6,
             .l2_bytes = row.l2_mib * kMiB,
             .hbm_bytes = row.hbm_bytes,
             .usable_hbm_bytes = usable_mib * kMiB,
             .hbm_gbps = row.hbm_gbps};
}

// Ascend910PremiumA to 910ProB: one vector unit inside each AI core, hence as many vector as cube cores (H1). HBM 32
// GiB: H8; 1200 GB/s: MEM.
//
// 910B1 to 910B4-1: HBM size H1, H2, H14; bandwidth H2 (printed there as 1.6 and 0.8 TiB/s, taken as 1e12 B/s).
//
// 910_93xx: single dies of the two-die 910C package. HBM size H1; bandwidth H2 and H6 (3.2 TB/s per package).
constexpr std::array kTable = {
    //    name             version cube vec  MHz  L2 MiB  HBM      usable MiB  GB/s
    make({"Ascend910PremiumA", 100, 32, 32, 1220, 32, 32 * kGiB, kAssumed, 1200}),
    make({"Ascend910ProA", 101, 32, 32, 1100, 32, 32 * kGiB, kAssumed, 1200}),
    make({"Ascend910A", 102, 32, 32, 1000, 32, 32 * kGiB, kAssumed, 1200}),
    make({"Ascend910ProB", 103, 30, 30, 1150, 32, 32 * kGiB, kAssumed, 1200}),
    make({"Ascend910B", 104, 30, 30, 900, 32, 32 * kGiB, kAssumed, 1200}),
    // 310P: LPDDR4X. A 310P3 of the Atlas 300I Duo has 48 GiB, of which torch_npu prints 44280.3 MB (H14). 204 GB/s is
    // half
    // of that two-chip card's 408 (product material, secondary); nothing is published for the others, so the same
    // memory
    // is assumed, in the size that the ini gives.
    make({"Ascend310P1", 200, 10, 8, 1060, 16, kIni310P, kAssumed, 204}),
    make({"Ascend310P3", 202, 8, 7, 1060, 16, 48 * kGiB, 44280, 204}),
    make({"Ascend310P5", 204, 8, 7, 800, 16, kIni310P, kAssumed, 204}),
    make({"Ascend310P7", 205, 8, 7, 550, 16, kIni310P, kAssumed, 204}),
    make({"Ascend910B1", 220, 24, 48, 1850, 192, 64 * kGiB, 62420, 1600}),   // usable: OOM texts of 64 GB A2 cards, H14
    make({"Ascend910B2", 221, 24, 48, 1800, 192, 64 * kGiB, 62420, 1600}),   // usable: H3, H14
    make({"Ascend910B2C", 222, 24, 48, 1800, 192, 64 * kGiB, 62432, 1600}),  // usable: H14
    make({"Ascend910B3", 223, 20, 40, 1800, 192, 64 * kGiB, 62420, 1600}),   // usable: OOM texts of 64 GB A2 cards, H14
    make({"Ascend910B4", 224, 20, 40, 1500, 96, 32 * kGiB, kAssumed, 800}),
    // The ini says 32 GiB, but the part is sold with 64 (MEM).
    make({"Ascend910B4-1", 225, 20, 40, 1500, 168, 64 * kGiB, 62420, 1600}),
    make({"Ascend910_9391", 250, 24, 48, 1850, 192, 64 * kGiB, 62420, 1600}),
    make({"Ascend910_9392", 251, 24, 48, 1850, 192, 64 * kGiB, 62420, 1600}),
    make({"Ascend910_9381", 252, 24, 48, 1800, 192, 64 * kGiB, 62420, 1600}),
    make({"Ascend910_9382", 253, 24, 48, 1800, 192, 64 * kGiB, 62420, 1600}),  // usable: H14
    make({"Ascend910_9372", 254, 20, 40, 1800, 192, 64 * kGiB, 62420, 1600}),
    make({"Ascend910_9362", 255, 20, 40, 1500, 168, 64 * kGiB, 62420, 1600}),
    // Called Ascend950 in newer torch_npu. Bandwidth: the 950PR's 1.6 TB/s that goes with 128 GB (MEM).
    make({"Ascend910_95", 260, 32, 64, 1650, 128, 128 * kGiB, kAssumed, 1600}),
};

}  // namespace

std::span<const Soc> soc_table() { return kTable; }

}  // namespace cann::sim
