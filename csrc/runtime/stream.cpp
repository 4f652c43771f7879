#include "runtime/stream.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>

#include "runtime/errors.h"
#include "runtime/thread_local.h"
#include "sim/env.h"

namespace cann {
namespace {

// Stream ids: 0 is the default stream; the pools follow, normal priority first.
constexpr int kMaxCards = sim::Env::kMaxDeviceCount;

int pool_size() { return sim::Env::get().streams_per_device; }

// Ids fit a byte: two pools of at most 32 and the default stream.
CANN_FAST_THREAD_LOCAL uint8_t t_current[kMaxCards] = {};
std::array<std::array<std::atomic<uint32_t>, 2>, kMaxCards> g_next{};

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNPU, device), id);
}

}  // namespace

c10::Stream default_stream(c10::DeviceIndex device) { return make_stream(checked_index(device), 0); }

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto index = checked_index(device);
  return make_stream(index, t_current[index]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  TORCH_CHECK_VALUE(stream.device_type() == kNPU, "expected an npu stream, but got one of ", stream.device(),
                    error_suffix(ErrModule::PTA, ErrCode::VALUE));
  const auto index = checked_index(stream.device_index());
  TORCH_CHECK_VALUE(stream.id() >= 0 && stream.id() <= 2 * pool_size(), "npu:", static_cast<int>(index),
                    " has no stream with id ", stream.id(), "; make streams with torch.npu.Stream()",
                    error_suffix(ErrModule::PTA, ErrCode::VALUE));
  const c10::Stream previous = make_stream(index, t_current[index]);
  t_current[index] = static_cast<uint8_t>(stream.id());
  return previous;
}

c10::Stream stream_from_pool(c10::DeviceIndex device, int priority) {
  const auto index = checked_index(device);
  const bool high = priority < 0;
  const uint32_t turn = g_next[index][high].fetch_add(1, std::memory_order_relaxed) % pool_size();
  return make_stream(index, 1 + turn + (high ? pool_size() : 0));
}

int stream_priority(c10::Stream stream) { return stream.id() > pool_size() ? -1 : 0; }

}  // namespace cann
