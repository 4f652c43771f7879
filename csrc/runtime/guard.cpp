// c10's device guard: how generic PyTorch code switches the card, its streams and its events.
// Events remember a time of the host's steady clock, or of the device's virtual clock while the simulator is on; since
// kernels are complete when their call returns, every query is true and nothing ever waits.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "runtime/caching_allocator.h"
#include "runtime/errors.h"
#include "runtime/sanitizer.h"
#include "runtime/simulator.h"
#include "runtime/stream.h"

namespace cann {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const EventRecord& recorded(void* event) {
  TORCH_CHECK(event != nullptr, "the event was never recorded; call record() on it first",
              error_suffix(ErrModule::PTA, ErrCode::PARAM));
  return *static_cast<EventRecord*>(event);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kNPU; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return c10::Device(kNPU, current_device()); }
  void setDevice(c10::Device device) const override {
    TORCH_INTERNAL_ASSERT(device.type() == kNPU);
    if (device.has_index() && device.index() != current_device()) set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) unchecked_set_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability all;
    all.capability_data.capability_bits = ~uint64_t{0};
    return all;
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_from_pool(device.index(), high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    if (sanitizer::on()) sanitizer::host_wait(stream);  // the host knows now
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (sanitizer::on()) sanitizer::host_wait(stream);
    if (simulator::on()) simulator::timeline().host_sync();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    checked_index(device);
    if (sanitizer::on()) sanitizer::host_wait_all();
    if (simulator::on()) simulator::timeline().host_sync();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    caching_allocator::record_stream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "event of npu:", static_cast<int>(device),
                " cannot be recorded on ", stream, "; record it on a stream of its own device",
                error_suffix(ErrModule::PTA, ErrCode::PARAM));
    if (*event == nullptr) *event = new EventRecord;
    EventRecord& record = *static_cast<EventRecord*>(*event);
    record = {.stream = stream.id(), .device = stream.device_index()};
    if (sanitizer::on()) record.order = sanitizer::recorded(stream);
    if (simulator::on()) {
      record.device_event = simulator::timeline().record(simulator::stream_index(stream));
      record.time_ns = static_cast<int64_t>(simulator::timeline().time_of(record.device_event) * 1e3);
    } else {
      record.time_ns = now_ns();
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    if (sanitizer::on()) sanitizer::wait(stream, static_cast<EventRecord*>(event)->order);
    if (!simulator::on()) return;
    const uint32_t device_event = static_cast<EventRecord*>(event)->device_event;
    if (device_event != 0) simulator::timeline().wait(simulator::stream_index(stream), device_event);
  }
  bool queryEvent(void* event) const override {
    if (sanitizer::on() && event != nullptr) sanitizer::host_wait(static_cast<EventRecord*>(event)->order);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (sanitizer::on() && event != nullptr) sanitizer::host_wait(static_cast<EventRecord*>(event)->order);
    if (simulator::on() && event != nullptr) {
      simulator::timeline().host_wait(static_cast<EventRecord*>(event)->device_event);
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventRecord*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    constexpr double kNsPerMs = 1e6;
    return static_cast<double>(recorded(end).time_ns - recorded(start).time_ns) / kNsPerMs;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace cann
