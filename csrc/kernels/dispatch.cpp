// Which instruction set's kernels run here.

#include <stdexcept>
#include <string>

#include "kernels/kernels.h"

namespace cann::kernels {
namespace {

using sim::CpuCapability;

bool cpu_has(CpuCapability capability) {
#if defined(__x86_64__)
  __builtin_cpu_init();  // also looks whether the system saves the wide registers
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  switch (capability) {
    case CpuCapability::kBaseline:
      return true;
    case CpuCapability::kAvx2:
      return avx2;
    case CpuCapability::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return capability == CpuCapability::kBaseline;
#endif
}

// The instances of every family in one namespace, in the order of the members of Kernels.
#define CANN_KERNEL_FAMILIES(set)                                                                                    \
  &set::activation, &set::attention, &set::cross_entropy, &set::dropout, &set::gradients, &set::normalization,       \
      &set::optimizer, &set::pointwise, &set::recurrent, &set::reduction, &set::rotary, &set::softmax, &set::swiglu, \
      &set::conversion

constexpr Kernels kSets[] = {
#if defined(__x86_64__)
    {CpuCapability::kAvx512, CANN_KERNEL_FAMILIES(avx512)},
    {CpuCapability::kAvx2, CANN_KERNEL_FAMILIES(avx2)},
#endif
    {CpuCapability::kBaseline, CANN_KERNEL_FAMILIES(baseline)},
};

const Kernels& choose() {
  if (const auto asked = sim::Env::get().cpu_capability; asked.has_value()) {
    if (const Kernels* set = kernels_for(*asked)) return *set;
    throw std::invalid_argument(std::string("TORCH_CANN_CPU_CAPABILITY=") + name_of(*asked) +
                                ": this CPU lacks these instructions. Unset it to use the best set the CPU has.");
  }
  for (const Kernels& set : kSets) {
    if (cpu_has(set.capability)) return set;
  }
  return kSets[std::size(kSets) - 1];
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

const Kernels* kernels_for(CpuCapability capability) {
  for (const Kernels& set : kSets) {
    if (set.capability == capability && cpu_has(capability)) return &set;
  }
  return nullptr;
}

const char* name_of(CpuCapability capability) {
  switch (capability) {
    case CpuCapability::kBaseline:
      return "baseline";
    case CpuCapability::kAvx2:
      return "avx2";
    case CpuCapability::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace cann::kernels
