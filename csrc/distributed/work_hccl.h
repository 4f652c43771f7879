#pragma once
// The handle of one operation of ProcessGroupHCCL.
//
// A lane of the process group runs the operation and then finishes the work exactly once, with success or an exception;
// everything that belongs to the result (division of AVG, unpacking) has happened by then, so wait(), is_completed(),
// result() and the future always agree. Kernels of the simulated card run on the calling thread when they are issued,
// so making "the current stream wait" can only mean that the host waits: wait() and synchronize() block until the data
// is there. Shared by the process group, lanes and users through intrusive_ptr; all functions are thread-safe.

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "distributed/engine.h"
#include "distributed/lanes.h"
#include "distributed/unseen_errors.h"
#include "runtime/stream_order.h"

namespace cann::hccl {

class WorkHCCL final : public c10d::Work {
 public:
  // What identifies the operation in messages and profiles.
  struct Info {
    c10d::OpType op = c10d::OpType::UNKNOWN;
    const char* title = nullptr;  // "hccl:all_reduce", for the profiler
    int rank = -1;
    std::string group;
    uint64_t sequence = 0;
    std::chrono::milliseconds timeout{0};
    std::shared_ptr<UnseenErrors> unseen;  // of the process group
    std::string measured_as = "";          // the group's unique name in the WaitLog; empty: not measured
  };

  // `outputs` is what result() and the future give; `device` the card they are on.
  WorkHCCL(Info info, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs, c10::Device device);

  // Runs `body` and finishes the work with its outcome; EngineError becomes DistBackendError naming the operation.
  // Never throws. `body` returns the rank a receive was served by, or -1.
  void run(const std::function<int()>& body) noexcept;

  // Finishes this work when all of `parts` have, with the first exception among them.
  void finish_after(const std::vector<c10::intrusive_ptr<WorkHCCL>>& parts);

  // For the stream sanitizer: the operation runs on `stream` and is done by `order`. Called before the work is run.
  void runs_on(c10::Stream stream, StreamOrder::Clock order);

  // For the device's clock: `stream` stands for the one that the operation runs on. Called before the work is run.
  void runs_on(c10::Stream stream) { stream_ = stream; }
  // And this, in microseconds, is when it ends. Called while the work is run.
  void ends_at(double end) { end_ = end; }

  // Whoever waits for this work may run it so (Lanes::post_deferred). Called before anybody else has the work.
  void helped_by(Lanes::Helper helper) { helper_ = std::move(helper); }

  // Calls `callback` once this work is finished, at once if it is. Must not throw.
  void on_finished(std::function<void(WorkHCCL&)> callback);

  // Blocks until finished or the user interrupts (the operation then goes on), without the GIL if the caller has
  // released it. Raises the operation's exception, or DistBackendError if `timeout` (0: none beyond the operation's
  // own) passes first. Returns true.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  bool isCompleted() override;
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::vector<at::Tensor> result() override;
  int sourceRank() const override { return source_.load(); }
  // Who has the future is told of a failure by it.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    watched_ = true;
    start_now();
    return future_;
  }
  // Completes with a WorkResult when the work finishes; never holds an exception.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds from the start of the operation to its end. Raises before the end.
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return info_.sequence; }

  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // What the operation failed with, "" if it did not. Valid once finished.
  std::string failure();
  // For completion hooks. Valid once finished.
  std::shared_ptr<c10d::WorkInfo> info() const;

 private:
  // Runs `body`, and notes in the WaitLog how long it waited for other ranks.
  int measured(const std::function<int()>& body) const;
  // Runs the operation on this thread if nobody does yet, or has it run by a thread of the lanes.
  void help() const;
  void start_now() const;
  void succeed();
  void fail(std::exception_ptr error, c10d::WorkResult result);
  void set_result(c10d::WorkResult result);
  std::exception_ptr to_backend_error(const EngineError& error) const;
  std::string describe() const;

  const Info info_;
  const std::vector<at::Tensor> outputs_;
  const c10::Device device_;
  std::optional<c10::Stream> stream_;
  StreamOrder::Clock order_;
  std::optional<double> end_;
  Lanes::Helper helper_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_result_;  // made for who asks. Guarded, as the next, by mutex_
  std::optional<c10d::WorkResult> work_result_;
  std::atomic<bool> watched_{false};
  std::atomic<int> source_{-1};
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point finished_;
};

}  // namespace cann::hccl
