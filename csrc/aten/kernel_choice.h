#pragma once
// Which kernel served the last operator that has more than one: what benchmarks print and tests assert. Relaxed stores,
// of interest to a program that runs operators on one thread.

#include <atomic>

namespace cann::aten {

enum class KernelChoice {
  kNone,     // no operator with a choice ran since take_kernel_choice()
  kOwn,      // a kernel of csrc/kernels
  kAten,     // ATen's kernel, since the arguments are not what ours takes
  kFloat32,  // ATen's float32 kernel on converted 16-bit arguments
  kNative,   // ATen's 16-bit kernel
};

namespace detail {
inline std::atomic<KernelChoice> g_kernel_choice = KernelChoice::kNone;
}  // namespace detail

inline void note_kernel_choice(KernelChoice choice) {
  detail::g_kernel_choice.store(choice, std::memory_order_relaxed);
}

// The last choice; forgets it.
inline KernelChoice take_kernel_choice() {
  return detail::g_kernel_choice.exchange(KernelChoice::kNone, std::memory_order_relaxed);
}

// "baseline", "avx2" or "avx512": the instruction set of our own kernels. Raises std::invalid_argument as
// kernels::kernels() does.
const char* kernel_set_name();

}  // namespace cann::aten
