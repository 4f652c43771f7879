#pragma once
// Zero-copy aliasing of tensors that are not dense and strided: sparse COO, sparse compressed (CSR, CSC, BSR, BSC),
// strided nested and quantized. A composite tensor is aliased by building one of the other device over aliased members.

#include <ATen/core/Tensor.h>

namespace cann::layouts {

// The CPU form of an npu tensor. Raises NotImplementedError naming the layout when there is none (mkldnn, symbolic
// sizes).
at::Tensor alias_on_host(const at::Tensor& npu);

// The npu form of a CPU kernel's result.
at::Tensor wrap_host_result(const at::Tensor& host, c10::Device device);

// Brings members that a kernel replaced in `alias` (indices, values, coalesced flag, sizes) back into `npu`.
void write_back(const at::Tensor& alias, const at::Tensor& npu);

}  // namespace cann::layouts
