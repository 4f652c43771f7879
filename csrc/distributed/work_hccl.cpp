#include "distributed/work_hccl.h"

#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "distributed/interrupt.h"
#include "distributed/virtual_time.h"
#include "distributed/wait_log.h"
#include "distributed/wait_meter.h"
#include "runtime/errors.h"
#include "runtime/sanitizer.h"
#include "runtime/stream.h"

namespace cann::hccl {
namespace {

// How long a wait does not look for Ctrl-C.
constexpr std::chrono::milliseconds kInterruptible(100);

std::vector<c10::Device> devices_of(c10::Device device) {
  return device.is_cpu() ? std::vector<c10::Device>{} : std::vector<c10::Device>{device};
}

}  // namespace

WorkHCCL::WorkHCCL(Info info, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs, c10::Device device)
    : Work(info.rank, info.op, info.title, std::move(inputs)),
      info_(std::move(info)),
      outputs_(std::move(outputs)),
      device_(device),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), devices_of(device))),
      started_(std::chrono::steady_clock::now()) {
  // Added first, so run first: a user's callback on the future finds the work finished, and whoever wakes up from
  // wait() finds the future completed.
  future_->addCallback(
      [this](c10::ivalue::Future& future) { finish(future.hasError() ? future.exception_ptr() : nullptr); },
      /*uses_future=*/false);
}

void WorkHCCL::runs_on(c10::Stream stream, StreamOrder::Clock order) {
  stream_ = stream;
  order_ = std::move(order);
}

void WorkHCCL::help() const {
  if (helper_) helper_([this] { return future_->completed(); });
}

void WorkHCCL::start_now() const {
  if (helper_ && !future_->completed()) helper_([] { return true; });
}

bool WorkHCCL::isCompleted() {
  const bool completed = future_->completed();
  if (!completed) start_now();
  if (completed && sanitizer::on()) sanitizer::host_wait(order_);
  return completed;
}

std::string WorkHCCL::describe() const {
  return fmt::format("WorkHCCL(Group={}, SeqNum={}, OpType={}, Timeout(ms)={})", info_.group, info_.sequence,
                     c10d::opTypeToString(info_.op), info_.timeout.count());
}

std::exception_ptr WorkHCCL::to_backend_error(const EngineError& error) const {
  const auto ran = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started_);
  std::string text;
  ErrCode code = ErrCode::HCCL;
  switch (error.kind) {
    case EngineError::Kind::kTimeout:
      text =
          fmt::format("Watchdog caught collective operation timeout: {} ran for {} milliseconds before timing out: {}.",
                      describe(), ran.count(), error.what());
      code = ErrCode::TIMEOUT;
      break;
    case EngineError::Kind::kMismatch:
      text = fmt::format("{} failed: the ranks do not agree: {}.", describe(), error.what());
      code = ErrCode::PARAM;
      break;
    case EngineError::Kind::kRemote:
      text = fmt::format("{} failed: {}. It has ended, or given up on an earlier operation: see that rank's output.",
                         describe(), error.what());
      break;
    case EngineError::Kind::kAborted:
      text = fmt::format("{} failed: the communicator is no longer usable: {}.", describe(), error.what());
      code = ErrCode::UNAVAIL;
      break;
  }
  text = fmt::format("[Rank {}] {}{}", info_.rank, text, error_suffix(ErrModule::DIST, code));
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

int WorkHCCL::measured(const std::function<int()>& body) const {
  WaitMeter meter;
  const int source = body();
  WaitLog::get().add({.group = info_.measured_as,
                      .p2p = c10d::isP2POp(info_.op),
                      .sequence = info_.sequence,
                      .ran = std::chrono::steady_clock::now() - started_,
                      .waited = meter.waited(),
                      .synchronization = meter.synchronization()});
  return source;
}

void WorkHCCL::run(const std::function<int()>& body) noexcept {
  started_ = std::chrono::steady_clock::now();
  try {
    source_ = info_.measured_as.empty() ? body() : measured(body);
  } catch (const EngineError& error) {
    const bool late = error.kind == EngineError::Kind::kTimeout;
    fail(to_backend_error(error), late ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR);
    return;
  } catch (...) {
    fail(std::current_exception(), c10d::WorkResult::UNKNOWN);
    return;
  }
  succeed();
}

void WorkHCCL::succeed() {
  finished_ = std::chrono::steady_clock::now();
  try {
    // Callbacks run in here, on this thread, and start with the card of the operation as the current one.
    const c10::OptionalDeviceGuard guard(device_.is_cpu() ? std::nullopt : std::make_optional(device_));
    const c10::OptionalStreamGuard stream_guard(stream_);  // on which the future's events are recorded
    if (end_ && stream_) wait_until(*end_, *stream_, *stream_, /*host_too=*/false);
    future_->markCompleted(outputs_);
    set_result(c10d::WorkResult::SUCCESS);
  } catch (const std::exception& error) {
    TORCH_WARN("a callback on the future of ", describe(), " failed: ", error.what());
  }
}

void WorkHCCL::fail(std::exception_ptr error, c10d::WorkResult result) {
  finished_ = std::chrono::steady_clock::now();
  if (watched_) info_.unseen->seen();
  try {
    future_->setError(std::move(error));
    set_result(result);
  } catch (const std::exception& raised) {
    TORCH_WARN("a callback on the future of ", describe(), " failed: ", raised.what());
  }
  info_.unseen->failed(failure());
}

void WorkHCCL::set_result(c10d::WorkResult result) {
  c10::intrusive_ptr<c10::ivalue::Future> asked_for;
  {
    std::lock_guard lock(mutex_);
    work_result_ = result;
    asked_for = future_result_;
  }
  if (asked_for) asked_for->markCompleted(static_cast<int64_t>(result));
}

c10::intrusive_ptr<c10::ivalue::Future> WorkHCCL::getFutureResult() {
  std::lock_guard lock(mutex_);
  if (future_result_) return future_result_;
  future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  if (work_result_) future_result_->markCompleted(static_cast<int64_t>(*work_result_));
  return future_result_;
}

void WorkHCCL::on_finished(std::function<void(WorkHCCL&)> callback) {
  future_->addCallback([this, callback = std::move(callback)](c10::ivalue::Future&) { callback(*this); },
                       /*uses_future=*/false);
}

void WorkHCCL::finish_after(const std::vector<c10::intrusive_ptr<WorkHCCL>>& parts) {
  struct Remaining {
    std::atomic<size_t> count;
    std::mutex mutex;
    std::exception_ptr error;
    std::optional<double> end;
  };
  auto remaining = std::make_shared<Remaining>();
  remaining->count = parts.size() + 1;
  auto self = c10::intrusive_ptr<WorkHCCL>::reclaim_copy(this);
  const auto one_done = [self, remaining](std::exception_ptr error, std::optional<double> end) {
    {
      std::lock_guard lock(remaining->mutex);
      if (error && !remaining->error) remaining->error = std::move(error);
      remaining->end = std::max(remaining->end, end);
    }
    if (--remaining->count > 0) return;
    self->end_ = remaining->end;
    if (remaining->error) {
      self->fail(remaining->error, c10d::WorkResult::COMM_ERROR);
    } else {
      self->succeed();
    }
  };
  for (const auto& part : parts) {
    part->on_finished([one_done](WorkHCCL& work) { one_done(work.exception(), work.end_); });
  }
  helped_by([parts](const std::function<bool()>& done) {
    for (const auto& part : parts) {
      if (done()) {
        part->start_now();
      } else {
        part->help();
      }
    }
  });
  one_done(nullptr, std::nullopt);  // also finishes a work without parts
}

bool WorkHCCL::wait(std::chrono::milliseconds timeout) {
  // An operation keeps to its own timeout, not to that of a wait.
  if (timeout == kNoTimeout) {
    help();
  } else {
    start_now();
  }
  std::unique_lock lock(mutex_);
  const auto finished = [this] { return completed_; };
  const Deadline deadline(timeout);
  while (!cv_.wait_for(lock, std::min(kInterruptible, deadline.remaining()), finished)) {
    if (deadline.expired()) {
      C10_THROW_ERROR(
          DistBackendError,
          fmt::format("[Rank {}] wait() gave up on {} after {} milliseconds; the operation goes on.{}", info_.rank,
                      describe(), timeout.count(), error_suffix(ErrModule::DIST, ErrCode::TIMEOUT)));
    }
    lock.unlock();
    check_interrupt();
    lock.lock();
  }
  if (exception_) {
    info_.unseen->seen();
    std::rethrow_exception(exception_);
  }
  if (end_ && stream_) wait_until(*end_, *stream_, current_stream(device_.index()), info_.op == c10d::OpType::BARRIER);
  if (sanitizer::on() && stream_.has_value()) sanitizer::wait(current_stream(device_.index()), order_);
  return true;
}

std::string WorkHCCL::failure() {
  const std::exception_ptr error = exception();
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& raised) {
    return raised.what();
  } catch (...) {
    return "unknown";
  }
}

std::vector<at::Tensor> WorkHCCL::result() {
  TORCH_CHECK(isCompleted(), describe(), " is not completed yet: call wait() before result().",
              error_suffix(ErrModule::DIST, ErrCode::UNAVAIL));
  return outputs_;
}

float WorkHCCL::getDuration() const {
  TORCH_CHECK(future_->completed(), describe(), " is not completed yet: it has no duration.",
              error_suffix(ErrModule::DIST, ErrCode::UNAVAIL));
  return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

std::shared_ptr<c10d::WorkInfo> WorkHCCL::info() const {
  return std::make_shared<c10d::WorkInfo>(info_.op, info_.sequence, started_, finished_, finished_ - started_);
}

}  // namespace cann::hccl
