// PyTorch's hooks for the backend (at::PrivateUse1HooksInterface) and the registrations made once at library load.

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "runtime/allocation_redirect.h"
#include "runtime/caching_allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/generator.h"
#include "runtime/pinned_allocator.h"
#include "runtime/storage.h"
#include "sim/server.h"

namespace cann {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return cann::device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return is_initialized(); }
  void init() const override { lazy_init(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<NPUGeneratorImpl>(checked_index(device));
  }

  at::Device getDeviceFromPtr(void* data) const override {
    auto& hbm = sim::Server::get().hbm();
    TORCH_CHECK(hbm.contains(data), "the pointer is not in the memory of any NPU",
                error_suffix(ErrModule::PTA, ErrCode::PTR));
    return at::Device(kNPU, static_cast<c10::DeviceIndex>(hbm.card_of(data)));
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned_ptr(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }

  c10::DeviceIndex deviceCount() const override { return cann::device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = current_device();
    if (device >= 0) set_device(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    auto* npu = dynamic_cast<NPUStorageImpl*>(storage.unsafeGetStorageImpl());
    TORCH_CHECK(npu != nullptr, "cannot resize an npu storage over memory that this process does not own",
                error_suffix(ErrModule::PTA, ErrCode::NOT_SUPPORT));
    npu->resize_bytes(nbytes);
  }
};

[[maybe_unused]] const bool g_installed = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // torch keeps it for the life of the process
  install_allocation_redirect();
  install_pinned_allocator();
  install_storage();
  caching_allocator::install_settings_hook();
  return true;
}();

}  // namespace
}  // namespace cann
