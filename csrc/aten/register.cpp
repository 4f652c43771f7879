#include "aten/register.h"

#include <memory>
#include <vector>

#include "sim/env.h"

namespace cann::aten {
namespace {

// Registrations live as long as their Library; the process never undoes them.
torch::Library& library(const char* ns, c10::DispatchKey key) {
  static auto& all = *new std::vector<std::unique_ptr<torch::Library>>;
  all.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, ns, key, __FILE__, __LINE__));
  return *all.back();
}

}  // namespace

void register_operators() {
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  register_factories(aten);
  register_views(aten);
  register_storage_operators(aten);
  register_copy(aten);
  library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library("aten", c10::DispatchKey::AutocastPrivateUse1));
  if (sim::Env::get().dry_run) {
    register_dry(aten, library("_", c10::DispatchKey::PrivateUse1));
    return;
  }
  register_random(aten);
  register_recurrent(aten);
  register_low_precision(aten);

  if (sim::Env::get().direct_ops) {
    register_direct_pointwise(aten);
    register_direct_reduction(aten);
    register_direct_indexing(aten);
    register_direct_linalg(aten);
    register_direct_nn(aten);
    register_direct_foreach(aten);
  }

  register_sparse(library("aten", c10::DispatchKey::SparsePrivateUse1));
  register_sparse_compressed(library("aten", c10::DispatchKey::SparseCsrPrivateUse1));
  register_nested(library("aten", c10::DispatchKey::NestedTensorPrivateUse1));
  register_quantized(library("aten", c10::DispatchKey::QuantizedPrivateUse1));
  register_boxed();
}

}  // namespace cann::aten
