// The clock of DistributedDataParallel's statistics for models on a card. Kernels of the simulated card have run when
// their launch returns, so the host's clock is right; without a registered timer DDP warns and reports no times.

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "runtime/device.h"

namespace cann::hccl {
namespace {

class NpuTimer final : public c10d::Timer {
 public:
  explicit NpuTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimestamp(start);
    const auto to = getTimestamp(end);
    // A backward pass without communication leaves the end of an earlier one in place.
    if (!from || !to || *to < *from) return std::nullopt;
    return *to - *from;
  }
};

// What C10_REGISTER_TYPED_CLASS makes; the macro only works inside of namespace c10d.
const c10d::RegistererTimerRegistry kRegistered(kNPU, c10d::TimerRegistry(),
                                                &c10d::RegistererTimerRegistry::DefaultCreator<NpuTimer>);

}  // namespace
}  // namespace cann::hccl
