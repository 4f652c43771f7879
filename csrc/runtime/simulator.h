#pragma once
// The device's virtual clock in a running program: every operator, copy and collective on an npu reports here, and
// sim::CostModel says what it takes on the chip chosen.
//
// Off by default; then an operator pays one relaxed load. On, it pays a hash of its shapes and an entry in
// sim::Timeline, about 0.1 us. Streams, events and elapsed_time() then answer in device time. Thread-safe.
//
// The stream sanitizer (runtime/sanitizer.h) sees operators through the same door: they report while any of the two
// watches.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost_model.h"
#include "sim/timeline.h"

namespace cann::simulator {

enum Watcher : uint8_t { kClock = 1, kSanitizer = 2 };

namespace detail {
extern std::atomic<uint8_t> g_watchers;
}

// Whether operators have to report.
inline bool watching() noexcept { return C10_UNLIKELY(detail::g_watchers.load(std::memory_order_relaxed) != 0); }
// Whether the clock runs.
inline bool on() noexcept { return C10_UNLIKELY((detail::g_watchers.load(std::memory_order_relaxed) & kClock) != 0); }
void set_watching(Watcher watcher, bool on);

// Starts or stops the clock; stopping keeps what was recorded. Initialises the device.
void set_on(bool on);

sim::Timeline& timeline();
const sim::CostModel& costs();
const sim::Topology& topology();

// A row per operator and shapes: what a launch refers to.
struct Row {
  std::string name;
  sim::Cost cost;
};
uint32_t add_row(std::string name, const sim::Cost& cost);
Row row(uint32_t index);
size_t row_count();

// Launches row `index` on the current stream of `device`.
void launch(uint32_t index, c10::DeviceIndex device);
// A copy between host and card.
void launch_host_copy(bool to_device, size_t bytes, c10::DeviceIndex device);
// A copy from card to card over their link, on the current stream of `from`. As on hardware it begins when both cards'
// current streams have come to it, and the receiver's stream goes on when it ends.
void launch_card_copy(size_t bytes, c10::DeviceIndex from, c10::DeviceIndex to);

// Index of a stream in the timeline; 0 is the default stream of the first card that was used.
uint16_t stream_index(c10::Stream stream);
uint16_t current_stream_index(c10::DeviceIndex device);

// Fills in who issued `action` and what HBM holds afterwards, if recording.
void annotate(sim::Action& action, c10::DeviceIndex device);
// Says where the program is, as an index of a table of its own; called while recording, without the GIL.
using SiteProvider = uint32_t (*)();
void set_recording(bool recording, SiteProvider sites);

// What an operator reads and writes, gathered before and after it runs; finish() launches it.
class Observation {
 public:
  // `name` is that of the schema, "aten::add_"; it must stay valid. `id` identifies operator and overload. `blocking`:
  // its result tells the host about values, which hardware has to wait for.
  Observation(const char* name, uintptr_t id, bool pointwise, bool blocking = false)
      : name_(name), pointwise_(pointwise), blocking_(blocking), hash_(id) {}

  void read(const at::Tensor& tensor) { add(tensor, false); }
  // Read and written in place.
  void update(const at::Tensor& tensor) { add(tensor, false), add(tensor, true); }
  // Written without being read, as an out= argument is.
  void overwrite(const at::Tensor& tensor) { add(tensor, true); }
  void result(const at::Tensor& tensor);
  // An integer argument on which the cost depends; see sim::OperatorDesc.
  void density(double density) { density_ = density, mix(static_cast<uint64_t>(density * 1e6)); }
  // `layout` must be one of the literals that sim::OperatorDesc names; `heads` into which its last dimension falls.
  void layout(const char* layout) { layout_ = layout, mix(reinterpret_cast<uintptr_t>(layout)); }
  void heads(int64_t heads) { heads_ = heads, mix(static_cast<uint64_t>(heads)); }
  void world(int64_t world) { world_ = static_cast<int>(world), mix(static_cast<uint64_t>(world)); }

  // The cost, computed anew.
  sim::Cost cost() const;
  // Launches the operator on the card of its first npu tensor; nothing when it only made views. May raise what the
  // sanitizer raises.
  void finish();

 private:
  struct Seen {
    const c10::TensorImpl* tensor;
    bool output;
  };
  void add(const at::Tensor& tensor, bool output);
  void report_to_sanitizer() const;
  void mix(uint64_t value) { hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15ull, hash_ ^= hash_ >> 29; }

  const char* name_;
  bool pointwise_;
  bool blocking_;
  bool views_ = false;  // a result shares memory with an argument
  uint64_t hash_;
  double density_ = 1.0;
  int world_ = 1;
  const char* layout_ = "";
  int64_t heads_ = 1;
  c10::DeviceIndex device_ = -1;
  c10::SmallVector<Seen, 8> seen_;
};

}  // namespace cann::simulator
