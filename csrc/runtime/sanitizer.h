#pragma once
// The stream sanitizer: finds accesses to a card's memory that nothing orders.
//
// Kernels run here at once and in program order, so a missing wait_stream() or record_stream() never spoils a result;
// on hardware it does, now and then. While the sanitizer is on, operators, copies and collectives report what they read
// and write on which stream; events, waits and synchronisations say what is ordered (StreamOrder); the allocator says
// what is freed. A *race* is an access to bytes that another stream wrote, or a write to bytes that another stream
// read, without an order between the two; also when the bytes were freed in between and are now another tensor's.
//
// Off by default, and then one relaxed load per operator, event and free. Thread-safe.

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/simulator.h"
#include "runtime/stream_order.h"

namespace cann::sanitizer {

inline bool on() noexcept {
  return C10_UNLIKELY((simulator::detail::g_watchers.load(std::memory_order_relaxed) & simulator::kSanitizer) != 0);
}

using Stack = std::shared_ptr<c10::GatheredContext>;

// One side of a race.
struct Access {
  std::string op;  // as the dispatcher or the process group knows it
  c10::Stream stream;
  bool write;
  Stack stack;
};

struct Race {
  Access now, before;
  bool reused;           // the memory was freed in between
  uintptr_t begin, end;  // of the bytes that both touch
};

using StackProvider = Stack (*)();
// Told of each race, without a lock, on the thread of `race.now`. A text that is not empty is raised there as
// RuntimeError.
using Reporter = std::string (*)(const Race& race);

// Starts without memory of what was before.
void enable(StackProvider stacks, Reporter reporter);
void disable();

// What is done when the stream has done all it was given.
StreamOrder::Clock recorded(c10::Stream stream);
void wait(c10::Stream stream, const StreamOrder::Clock& event);
void host_wait(const StreamOrder::Clock& event);
void host_wait(c10::Stream stream);
void host_wait_all();
// Both wait for each other.
void join(c10::Stream a, c10::Stream b);

// `tensor.record_stream(stream)` for memory at `ptr`, and its opposite.
void record_stream(const void* ptr, c10::Stream stream);
void erase_stream(const void* ptr, c10::Stream stream);
// Before a block is freed into the pool of stream `pool`, and after one was taken from it.
void freed(const void* ptr, size_t bytes, int64_t pool) noexcept;
void allocated(const void* ptr, size_t bytes, int64_t pool);

// An operator on a stream.
class Launch {
 public:
  // `op` must live as long as this. `stashed`: whoever launches it keeps the tensors until it is done.
  Launch(const char* op, c10::Stream stream, bool stashed = false) : op_(op), stream_(stream), stashed_(stashed) {}
  // Dense tensors; those of other devices and without memory are ignored.
  void access(const c10::TensorImpl& tensor, bool write);
  // Compares with earlier accesses and remembers these. Raises what the reporter says.
  void check();

  // The bytes of a tensor. Rows of `width` bytes every `period` bytes; `period` is 0 for one piece.
  struct Bytes {
    uintptr_t begin, end;
    uintptr_t storage_begin, storage_end;
    uintptr_t period, width;
    bool write;
  };

 private:
  const char* op_;
  c10::Stream stream_;
  bool stashed_;
  c10::SmallVector<Bytes, 8> bytes_;
};

}  // namespace cann::sanitizer
