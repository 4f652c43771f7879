#pragma once
// The one door to the process environment: every variable the simulator reads, with its default and allowed values.
//
// Values are read once, at the first call of Env::get(), and never again (a caller may clear os.environ at will).
// The exceptions are visible_devices(), local_world_size() and rank(), which read anew at each call: the former is
// asked until the device is initialised, as on the real runtime. Thread-safe. A malformed value raises
// std::invalid_argument naming the variable, its value and what is allowed; the next Env::get() then reads again.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cann::sim {

// How 16-bit matrix products are computed: by the CPU's own units if it has them, always by ATen, always in float32.
enum class LowPrecision { kAuto, kNative, kFloat32 };

// Instruction sets that the kernels of csrc/kernels exist for, in rising order: what the architecture guarantees; AVX2,
// FMA and F16C; AVX-512 F, BW, DQ and VL.
enum class CpuCapability { kBaseline, kAvx2, kAvx512 };

class Env {
 public:
  // Value of a variable, nullptr when unset; what std::getenv is.
  using Lookup = std::function<const char*(const char* name)>;

  static const Env& get();
  // An Env read through `lookup` instead of the process environment.
  static Env from(const Lookup& lookup) { return Env(lookup); }

  // TORCH_CANN_SOC: name of the simulated chip, a row of the SoC table. Default "Ascend910B2".
  std::string soc;
  // TORCH_CANN_SOC_FILE: files with further chips, or other figures of known ones, in the form of soc.toml; separated
  // by colons, later ones win. Default: none.
  std::vector<std::string> soc_files;
  // TORCH_CANN_SIMULATE: 0 or 1, 1 keeps the device's virtual clock from the start of the process. Default 0.
  bool simulate = false;
  // TORCH_CANN_DRY_RUN: 0 or 1, 1 gives npu tensors no memory and operators no arithmetic; set by npu-plan. Default 0.
  bool dry_run = false;
  // TORCH_CANN_DEVICE_COUNT: cards in the server, 1 to kMaxDeviceCount. Default 8.
  static constexpr int kMaxDeviceCount = 64;
  int device_count = 8;
  // TORCH_CANN_HBM_MB: usable HBM per card in MiB, 128 to 1048576. Default: the chip's figure.
  std::optional<size_t> hbm_bytes;
  // TORCH_CANN_HOST_MARGIN_MB: host memory kept free; an allocation or write that would go below raises. Default 256.
  size_t host_margin_bytes = size_t{256} << 20;
  // TORCH_CANN_RUNTIME_DIR: folder of the records that npu-smi reads, one for each process; of this user alone.
  // Default: torch_cann in XDG_RUNTIME_DIR, else /tmp/torch_cann-<user id>.
  std::string runtime_dir;
  // TORCH_CANN_HUGE_PAGES: 0 or 1, ask the kernel for transparent huge pages behind HBM. Default 1.
  bool huge_pages = true;
  // TORCH_CANN_SHARED_HBM: 0 or 1, let processes of the host that form a group of backend "hccl" map each other's HBM.
  // With 0 their collectives copy through the communicator's buffers. Default 1.
  bool shared_hbm = true;
  // TORCH_CANN_DIRECT_OPS: 0 or 1, 0 sends every operator through the boxed path (for tests of that path). Default 1.
  bool direct_ops = true;
  // TORCH_CANN_LOW_PRECISION: auto, native or float32. Default auto.
  LowPrecision low_precision = LowPrecision::kAuto;
  // TORCH_CANN_CPU_CAPABILITY: auto, baseline, avx2 or avx512. Default auto (nullopt): the best the CPU has.
  std::optional<CpuCapability> cpu_capability;
  // TORCH_NPU_COMPACT_ERROR_OUTPUT: 1 drops the "[ERROR] ... ERRxxxxx" suffix of messages. Default 0.
  bool compact_errors = false;
  // PYTORCH_NPU_ALLOC_CONF (falls back to PYTORCH_ALLOC_CONF): caching allocator options, "key:value,key:value".
  std::string alloc_conf;
  // PYTORCH_NO_NPU_MEMORY_CACHING: 1 gives every allocation its own segment, released as soon as it is freed. Default
  // 0.
  bool memory_caching = true;
  // STREAMS_PER_DEVICE: size of the stream pool, 8 or 32; others mean 32 and a warning, as in torch_npu. Default 32.
  int streams_per_device = 32;

  // Values that were replaced by others, in words; shown when the device is initialised.
  std::vector<std::string> warnings;

  // ASCEND_RT_VISIBLE_DEVICES as it is now: nullopt if unset, else the list of physical ids, empty for "".
  // The list ends at the first invalid or repeated entry, as the CUDA runtime does with its own variable.
  static std::optional<std::vector<int>> visible_devices(int device_count);

  // LOCAL_WORLD_SIZE as it is now, which launchers set to the number of ranks on this host, or 1 when unset or not a
  // number.
  static int local_world_size();

  // RANK as it is now, or -1 when unset or not a number; used in error messages only.
  static int rank();

 private:
  explicit Env(const Lookup& lookup);
};

}  // namespace cann::sim
