#pragma once
// Everything that gets registered with PyTorch's dispatcher for the npu, in order; see register.cpp.

#include <torch/library.h>

namespace cann::aten {

// Registers all operators. Called once, when the Python extension is imported, after libtorch has registered its own.
void register_operators();

// Hand-written kernels ("aten", PrivateUse1).
void register_factories(torch::Library& aten);
void register_views(torch::Library& aten);
void register_storage_operators(torch::Library& aten);
void register_copy(torch::Library& aten);
void register_random(torch::Library& aten);
void register_sync_batch_norm(torch::Library& aten);
void register_low_precision(torch::Library& aten);

// Tables of direct kernels ("aten", PrivateUse1).
void register_direct_pointwise(torch::Library& aten);
void register_direct_reduction(torch::Library& aten);
void register_direct_indexing(torch::Library& aten);
void register_direct_linalg(torch::Library& aten);
void register_direct_nn(torch::Library& aten);
void register_direct_foreach(torch::Library& aten);

// Kernels that replace several operators or passes over memory by one (fused/): used where they are faster, else they
// call the direct kernel ("aten", PrivateUse1).
void register_fused_foreach(torch::Library& aten);
void register_fused_gradients(torch::Library& aten);
void register_fused_normalizations(torch::Library& aten);
void register_fused_optimizers(torch::Library& aten);
void register_fused_recurrent(torch::Library& aten);
void register_fused_softmax(torch::Library& aten);

// Layers of an LSTM, composed of operators that have derivatives ("aten", PrivateUse1 and AutogradPrivateUse1).
void register_fused_lstm(torch::Library& library);

// RMS norm, which is differentiated as a whole ("aten", AutogradPrivateUse1).
void register_fused_rms_norm(torch::Library& autograd);

// Metadata operators of other layouts ("aten", SparsePrivateUse1, SparseCsrPrivateUse1, NestedTensorPrivateUse1).
void register_sparse(torch::Library& sparse);
void register_sparse_compressed(torch::Library& compressed);
void register_nested(torch::Library& nested);
// Copies and storages of quantized tensors ("aten", QuantizedPrivateUse1); in copy.cpp and storage_operators.cpp.
void register_quantized_copy(torch::Library& quantized);
void register_quantized_storage(torch::Library& quantized);

// A dry run's kernel for every operator that has a CPU kernel ("aten", PrivateUse1), and as a fallback of `all` for
// operators of other libraries.
void register_dry(torch::Library& aten, torch::Library& all);

// Autocast lists ("aten", AutocastPrivateUse1).
void register_autocast(torch::Library& aten);

// The boxed path for every operator with a CPU kernel and none of the above, in all layouts, and as a fallback for
// operators of other libraries.
void register_boxed();

}  // namespace cann::aten
