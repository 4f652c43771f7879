#pragma once
// Streams and events of the cards. Kernels run at once, in program order, on the calling thread; a stream is therefore
// always idle when asked, and what remains of it is its identity, its priority and the order that events record.
// Per-thread current stream per card; stream 0 is the default stream. Thread-safe.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "runtime/device.h"
#include "runtime/stream_order.h"

namespace cann {

c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
// Makes `stream` current on its own device for this thread; returns the previous one. Does not change the device.
c10::Stream exchange_stream(c10::Stream stream);
// Next stream of the card's round-robin pool (Env::streams_per_device long); priority < 0 is the high-priority pool.
c10::Stream stream_from_pool(c10::DeviceIndex device, int priority);
int stream_priority(c10::Stream stream);

// What an event remembers: when (steady clock, or the device's virtual one if the simulator was on; ns), where.
struct EventRecord {
  int64_t time_ns = 0;
  c10::StreamId stream = 0;
  c10::DeviceIndex device = -1;
  uint32_t device_event = 0;  // of simulator::timeline(), 0 if that was off
  StreamOrder::Clock order;   // for the sanitizer, empty if that was off
};

}  // namespace cann
