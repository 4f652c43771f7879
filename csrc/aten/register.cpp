#include "aten/register.h"

#include <memory>
#include <vector>

#include "aten/dry_shapes.h"
#include "aten/fused/activation.h"
#include "aten/fused/attention.h"
#include "aten/fused/cross_entropy.h"
#include "aten/fused/embedding.h"
#include "aten/kernel_choice.h"
#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "kernels/kernels.h"
#include "sim/env.h"

namespace cann::aten {
namespace {

// Registrations live as long as their Library; the process never undoes them.
torch::Library& library(torch::Library::Kind kind, const char* ns, std::optional<c10::DispatchKey> key) {
  static auto& all = *new std::vector<std::unique_ptr<torch::Library>>;
  all.push_back(std::make_unique<torch::Library>(kind, ns, key, __FILE__, __LINE__));
  return *all.back();
}
torch::Library& library(const char* ns, c10::DispatchKey key) { return library(torch::Library::IMPL, ns, key); }

// Operators of namespace "npu", which PyTorch does not have: schemas and kernels.
void register_npu_operators() {
  npu::Registry ops({.schemas = library(torch::Library::FRAGMENT, "npu", std::nullopt),
                     .atb_schemas = library(torch::Library::FRAGMENT, "atb", std::nullopt),
                     .npu = sim::Env::get().dry_run ? nullptr : &library("npu", c10::DispatchKey::PrivateUse1),
                     .meta = library("npu", c10::DispatchKey::Meta),
                     .autograd = library("npu", c10::DispatchKey::AutogradPrivateUse1),
                     .autocast = library("npu", c10::DispatchKey::AutocastPrivateUse1)});
  npu::register_activation(ops);
  npu::register_norm(ops);
  npu::register_rotary(ops);
  npu::register_fusion_attention(ops);
  npu::register_attention_parts(ops);
  npu::register_loss(ops);
  npu::register_dropout(ops);
  npu::register_linear(ops);
  npu::register_grouped_matmul(ops);
  npu::register_indexing(ops);
  npu::register_format(ops);
  npu::register_moe_permute(ops);
  npu::register_moe_routing(ops);
  npu::register_optimizer(ops);
  npu::register_status(ops);
  npu::register_quant(ops);
  npu::register_infer_attention(ops);
  npu::register_sparse_attention(ops);
  npu::register_recurrence(ops);
  npu::register_serving(ops);
  npu::register_refused_attention(ops);
  npu::register_refused_experts(ops);
  npu::register_refused_others(ops);
  npu::register_refused_quantised(ops);
}

}  // namespace

const char* kernel_set_name() { return kernels::name_of(kernels::kernels().capability); }

void register_operators() {
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  register_factories(aten);
  register_views(aten);
  register_storage_operators(aten);
  register_copy(aten);
  register_sync_batch_norm(aten);
  library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library("aten", c10::DispatchKey::AutocastPrivateUse1));
  register_npu_operators();
  if (sim::Env::get().dry_run) {
    register_dry(aten, library("_", c10::DispatchKey::PrivateUse1));
    register_dry_shapes(library("aten", c10::DispatchKey::Meta));
    return;
  }
  register_random(aten);
  register_fused_recurrent(aten);
  register_low_precision(aten);

  if (sim::Env::get().direct_ops) {
    register_direct_pointwise(aten);
    register_direct_reduction(aten);
    register_direct_indexing(aten);
    register_direct_linalg(aten);
    register_direct_nn(aten);
    register_direct_foreach(aten);
    register_fused_activations(aten);
    register_fused_attention(aten);
    register_fused_embedding(aten);
    register_fused_foreach(aten);
    register_fused_gradients(aten);
    register_fused_normalizations(aten);
    register_fused_optimizers(aten);
    register_fused_softmax(aten);
    auto& autograd = library("aten", c10::DispatchKey::AutogradPrivateUse1);
    register_fused_cross_entropy(autograd);
    register_fused_rms_norm(autograd);
    register_fused_lstm(aten);
    register_fused_lstm(autograd);
  }

  register_sparse(library("aten", c10::DispatchKey::SparsePrivateUse1));
  register_sparse_compressed(library("aten", c10::DispatchKey::SparseCsrPrivateUse1));
  register_nested(library("aten", c10::DispatchKey::NestedTensorPrivateUse1));
  auto& quantized = library("aten", c10::DispatchKey::QuantizedPrivateUse1);
  register_quantized_copy(quantized);
  register_quantized_storage(quantized);
  register_boxed();
}

}  // namespace cann::aten
