#include "runtime/host_alias.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include <typeinfo>

#include "runtime/allocation_redirect.h"
#include "runtime/caching_allocator.h"
#include "runtime/errors.h"
#include "runtime/layouts.h"
#include "runtime/reach.h"
#include "runtime/tensor_impl_access.h"
#include "runtime/thread_cache.h"
#include "runtime/thread_local.h"
#include "sim/server.h"

namespace cann {
namespace {

using c10::intrusive_ptr;
using c10::StorageImpl;
using c10::TensorImpl;
using detail::HostAliasImpl;

// Aliases are reused so that an operator costs no allocation for them. The cache owns one reference of each.
void free_alias(void* alias) { c10::raw::intrusive_ptr::decref(static_cast<TensorImpl*>(alias)); }
CANN_FAST_THREAD_LOCAL ThreadCache<free_alias, 64> t_aliases;

at::Tensor take_alias() {
  if (void* alias = t_aliases.take()) {
    return at::Tensor(intrusive_ptr<TensorImpl>::reclaim(static_cast<TensorImpl*>(alias)));
  }
  return at::detail::make_tensor<HostAliasImpl>();
}

void give_alias(at::Tensor&& alias) {
  if (t_aliases.give(alias.unsafeGetTensorImpl())) (void)alias.unsafeReleaseTensorImpl();
}

HostAliasImpl* impl_of(const at::Tensor& alias) { return static_cast<HostAliasImpl*>(alias.unsafeGetTensorImpl()); }

bool is_plain(const TensorImpl& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Dense) && !tensor.has_symbolic_sizes_strides();
}

intrusive_ptr<StorageImpl> share(const c10::Storage& storage) {
  return intrusive_ptr<StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl());
}

// The kernel allocated outside the redirect (a worker thread, or memory it was handed): the bytes must move to HBM.
at::Tensor copy_into_hbm(const at::Tensor& host, c10::DeviceIndex device) {
  AllocationRedirect redirect(device);
  at::Tensor copy = at::empty_strided(host.sizes(), host.strides(), host.options());
  copy.copy_(host);
  return copy;
}

// A CPU kernel would use memory of others, or address 0. Efficient zero tensors have no memory by design.
void check_within_storage(const TensorImpl& tensor) {
  if (C10_LIKELY(within_storage(tensor)) || tensor.key_set().has(c10::DispatchKey::ZeroTensor)) return;
  const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                         static_cast<size_t>(tensor.storage_offset()));
  TORCH_CHECK(false, "an operator got a tensor of shape ", tensor.sizes(), " on ", tensor.device(),
              " whose storage has ", tensor.unsafe_storage().nbytes(), " bytes where it needs ", needed,
              ": the storage was resized, as FSDP does to parameters between their uses. Resize it "
              "(untyped_storage().resize_()) or gather the parameter first",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
}

bool in_hbm(const StorageImpl& storage) {
  const void* data = const_cast<StorageImpl&>(storage)._mutable_data_ptr_no_checks().get();
  static const sim::Hbm& hbm = sim::Server::get().hbm();
  return data == nullptr || hbm.contains(data);
}

}  // namespace

at::Tensor host_alias(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kNPU) return tensor;
  TORCH_CHECK_TYPE(is_plain(*tensor.unsafeGetTensorImpl()), "expected a dense strided npu tensor, but got layout ",
                   tensor.layout());
  check_within_storage(*tensor.unsafeGetTensorImpl());
  auto alias = c10::make_intrusive<HostAliasImpl>();
  alias->assign(*tensor.unsafeGetTensorImpl(), host_storage_of(tensor.storage()));
  return at::Tensor(std::move(alias));
}

at::Tensor npu_view_of_host(at::Tensor host, c10::Device device) {
  AliasScope scope;
  scope.set_device(device);
  return scope.wrap(std::move(host));
}

AliasScope::~AliasScope() {
  for (Entry& entry : entries_) {
    if (C10_UNLIKELY(entry.host_storage == nullptr)) continue;
    if (C10_UNLIKELY(entry.alias.use_count() > 1)) {
      // The kernel kept it: it stays a valid CPU tensor of its own.
      if (entry.borrows_storage) c10::raw::intrusive_ptr::incref(entry.host_storage);
      continue;
    }
    entry.borrows_storage ? impl_of(entry.alias)->forget_storage() : impl_of(entry.alias)->clear();
    give_alias(std::move(entry.alias));
  }
}

const at::Tensor& AliasScope::entry_for(const at::Tensor& tensor, bool written) {
  TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) return tensor;
  const c10::Device device = impl->device();
  if (C10_UNLIKELY(device.type() != kNPU)) {
    if (impl->dim() > 0 && device.type() == c10::kCPU) mixed_ = true, other_ = device;
    return tensor;
  }
  if (device_ < 0) {
    device_ = device.index();
  } else if (C10_UNLIKELY(device_ != device.index())) {
    mixed_ = true, other_ = device;
  }
  if (entries_.size() <= 8) {
    for (Entry& entry : entries_) {
      if (entry.original->unsafeGetTensorImpl() != impl) continue;
      if (C10_UNLIKELY(written && !entry.written)) {  // read before, as in torch.add(x, y, out=x)
        entry.written = true;
        if (entry.borrows_storage) c10::raw::intrusive_ptr::incref(entry.host_storage);
        entry.borrows_storage = false;
      }
      return entry.alias;
    }
  }
  if (C10_LIKELY(is_plain(*impl))) return add_dense(tensor, written);
  entries_.push_back({.alias = layouts::alias_on_host(tensor),
                      .original = &tensor,
                      .host_storage = nullptr,
                      .borrows_storage = false,
                      .written = written});
  return entries_.back().alias;
}

const at::Tensor& AliasScope::add_dense(const at::Tensor& tensor, bool written) {
  const TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  check_within_storage(impl);
  const bool borrows = !written && C10_LIKELY(typeid(*storage) == typeid(NPUStorageImpl));
  auto host = borrows ? intrusive_ptr<StorageImpl>::reclaim(static_cast<NPUStorageImpl*>(storage)->host().get())
                      : host_storage_of(impl.unsafe_storage());
  StorageImpl* host_storage = host.get();
  entries_.push_back({take_alias(), &tensor, host_storage, borrows, written});
  const at::Tensor& alias = entries_.back().alias;
  impl_of(alias)->assign(impl, std::move(host));
  return alias;
}

at::Tensor AliasScope::alias_written(const at::Tensor& tensor) {
  if (C10_UNLIKELY(tensor.defined() && tensor.device().type() != kNPU)) mixed_ = true, other_ = tensor.device();
  return entry_for(tensor, /*written=*/true);
}

at::Tensor AliasScope::alias_temporary(at::Tensor tensor) {
  temporaries_.push_back(std::make_unique<at::Tensor>(std::move(tensor)));
  return alias(*temporaries_.back());
}

const at::Tensor* AliasScope::original_of(const at::Tensor& alias) const {
  for (const Entry& entry : entries_) {
    if (entry.alias.is_same(alias)) return entry.original;
  }
  return nullptr;
}

at::Tensor AliasScope::wrap(at::Tensor&& result) {
  if (!result.defined()) return std::move(result);
  TensorImpl* impl = result.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->device().type() != c10::kCPU)) return std::move(result);
  if (const at::Tensor* original = original_of(result)) return *original;
  const c10::Device device(kNPU, this->device());
  if (C10_UNLIKELY(!impl->key_set().has(c10::DispatchKey::Dense))) return layouts::wrap_host_result(result, device);

  // A tensor that someone else holds too must not change device under them.
  if (C10_UNLIKELY(result.use_count() > 1)) {
    result = at::Tensor(impl->shallow_copy_and_detach(/*version_counter=*/c10::VariableVersion(0),
                                                      /*allow_tensor_metadata_change=*/true));
    impl = result.unsafeGetTensorImpl();
  }
  StorageImpl* host = impl->unsafe_storage().unsafeGetStorageImpl();
  c10::Storage storage = npu_storage_for(host);
  if (!storage) {
    if (C10_UNLIKELY(!in_hbm(*host))) return wrap(copy_into_hbm(result, device.index()));
    host->set_allocator(caching_allocator::host_view_allocator(device.index()));
    const bool shared = c10::raw::intrusive_ptr::use_count(host) > 1;
    storage = c10::Storage(wrap_host_storage(detail::take_storage(impl), device));
    if (C10_UNLIKELY(shared)) wrapped_.emplace_back(host, storage);
  }
  detail::replace_storage(impl, std::move(storage));
  detail::retag(impl, device);
  return std::move(result);
}

c10::Storage AliasScope::npu_storage_for(StorageImpl* host) const {
  for (const Entry& entry : entries_) {
    if (entry.host_storage == host) return entry.original->unsafeGetTensorImpl()->unsafe_storage();
  }
  for (const auto& [wrapped_host, storage] : wrapped_) {
    if (wrapped_host == host) return storage;
  }
  return c10::Storage();
}

void AliasScope::write_back() {
  for (Entry& entry : entries_) {
    if (!entry.written) continue;
    if (C10_UNLIKELY(entry.host_storage == nullptr)) {
      layouts::write_back(entry.alias, *entry.original);
      continue;
    }
    HostAliasImpl* alias = impl_of(entry.alias);
    TensorImpl* original = entry.original->unsafeGetTensorImpl();
    StorageImpl* npu = original->unsafe_storage().unsafeGetStorageImpl();
    StorageImpl* host = alias->unsafe_storage().unsafeGetStorageImpl();
    if (C10_UNLIKELY(host != entry.host_storage)) {  // the kernel gave the alias another storage
      detail::replace_storage(original,
                              c10::Storage(wrap_host_storage(share(alias->unsafe_storage()), original->device())));
    } else if (C10_UNLIKELY(host->data() != npu->data() || host->nbytes() != npu->nbytes())) {
      if (auto* pair = dynamic_cast<NPUStorageImpl*>(npu)) pair->sync();
    }
    if (C10_UNLIKELY(alias->is_conj() != original->is_conj())) original->_set_conj(alias->is_conj());
    if (C10_UNLIKELY(alias->is_neg() != original->is_neg())) original->_set_neg(alias->is_neg());
    if (C10_UNLIKELY(!alias->same_geometry(*original))) {
      original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
      if (alias->dtype() != original->dtype()) {
        original->set_storage_and_dtype(original->unsafe_storage(), alias->dtype());
      }
    }
  }
}

void AliasScope::set_device(c10::Device device) {
  if (device.type() != kNPU) return;
  const c10::DeviceIndex index = checked_index(device.index());
  if (device_ >= 0 && device_ != index) mixed_ = true, other_ = c10::Device(kNPU, index);
  if (device_ < 0) device_ = index;
}

void AliasScope::raise_mixed(const char* op) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kNPU, device()), " and ", other_, "! (when checking arguments of ", op,
              "; move them to one device with .to())");
}

}  // namespace cann
