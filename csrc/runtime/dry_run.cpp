#include "runtime/dry_run.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "runtime/device.h"
#include "runtime/storage.h"

namespace cann {
namespace {

std::atomic<UnknownHandler> g_handler{nullptr};

NPUStorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  return dynamic_cast<NPUStorageImpl*>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

}  // namespace

bool values_known(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  if (tensor.device().type() != kNPU) return true;
  const NPUStorageImpl* storage = storage_of(tensor);
  return storage != nullptr && storage->values_known();
}

bool can_become_known(const at::Tensor& tensor) {
  const NPUStorageImpl* storage = storage_of(tensor);
  if (storage == nullptr || storage->nbytes() > kKnownBytes) return false;
  return storage->values_known() || tensor.nbytes() == storage->nbytes();
}

void set_values_known(const at::Tensor& tensor, bool known) {
  if (NPUStorageImpl* storage = storage_of(tensor))
    storage->set_values_known(known && storage->nbytes() <= kKnownBytes);
}

void set_unknown_handler(UnknownHandler handler) { g_handler.store(handler); }

std::optional<double> ask_unknown(const UnknownRead& read) {
  if (const UnknownHandler handler = g_handler.load()) return handler(read);
  TORCH_CHECK(read.kind == UnknownRead::kCopy || read.kind == UnknownRead::kAssume, "dry run: ", read.op,
              " needs values of an npu tensor of ", read.tensor.sizes(),
              ", which nobody computed. Run the script with npu-plan, which can be told an answer.");
  return std::nullopt;
}

}  // namespace cann
