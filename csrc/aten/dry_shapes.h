#pragma once
// Shape functions of a dry process in C++. PyTorch registers many of its Meta kernels a second time, written in Python
// over its decompositions; these hide the ones of the library, take 100 to 1,600 us a call instead of a few, and import
// torch._dynamo and sympy at the first one, which takes longer than most dry runs.

#include <torch/library.h>

namespace cann::aten {

// Puts the library's own shape functions, and a few of ours where it has none, in front of the Python ones of the
// operators that training uses ("aten", Meta). For a dry process only, after torch is imported; not thread-safe.
// Results have the sizes, strides and dtypes of the CPU's kernels, but statistics of norms in float32 as on the device.
void register_dry_shapes(torch::Library& meta);

}  // namespace cann::aten
