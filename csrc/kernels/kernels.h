#pragma once
// Vectorised kernels for the host's CPU: plain loops over ranges of memory, free of torch.
//
// Each family of kernels is one source file that is compiled once per instruction set into a namespace of its own
// (kernels::baseline, ::avx2, ::avx512), and kernels() picks one set when it is first called: the best that the CPU
// has, or what TORCH_CANN_CPU_CAPABILITY says. A new family is a header with a struct of function pointers declared
// through CANN_DECLARE_KERNELS, a source file in the list of CMakeLists.txt, and a member of Kernels.
//
// Conventions: a kernel works on the calling thread, on the range it is given, and allocates nothing; callers split the
// work. Pointers need no alignment beyond the element's. Results do not depend on the number of threads unless the
// family says so; between instruction sets they may differ in the last bits (a fused multiply-add rounds once).

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/conversion.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/gradients.h"
#include "kernels/normalization.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/recurrent.h"
#include "kernels/reduction.h"
#include "kernels/rotary.h"
#include "kernels/softmax.h"
#include "kernels/swiglu.h"
#include "sim/env.h"

namespace cann::kernels {

// One instruction set's kernels.
struct Kernels {
  sim::CpuCapability capability;
  const ActivationKernels* activation;
  const AttentionKernels* attention;
  const CrossEntropyKernels* cross_entropy;
  const DropoutKernels* dropout;
  const GradientKernels* gradients;
  const NormalizationKernels* normalization;
  const OptimizerKernels* optimizer;
  const PointwiseKernels* pointwise;
  const RecurrentKernels* recurrent;
  const ReductionKernels* reduction;
  const RotaryKernels* rotary;
  const SoftmaxKernels* softmax;
  const SwigluKernels* swiglu;
  const ConversionKernels* conversion;
};

// The set in use. Raises std::invalid_argument when TORCH_CANN_CPU_CAPABILITY asks for what this CPU does not have.
// Thread-safe; one load after the first call.
const Kernels& kernels();

// The kernels of one instruction set, nullptr if this CPU (or the build's architecture) lacks it. For tests.
const Kernels* kernels_for(sim::CpuCapability capability);

// "baseline", "avx2", "avx512".
const char* name_of(sim::CpuCapability capability);

}  // namespace cann::kernels
