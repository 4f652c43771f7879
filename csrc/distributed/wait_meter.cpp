#include "distributed/wait_meter.h"

namespace cann::hccl {
namespace {

thread_local constinit WaitMeter* meter_of_thread = nullptr;

}  // namespace

WaitMeter::WaitMeter() { meter_of_thread = this; }

WaitMeter::~WaitMeter() { meter_of_thread = nullptr; }

WaitMeter* WaitMeter::current() { return meter_of_thread; }

}  // namespace cann::hccl
