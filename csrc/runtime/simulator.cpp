#include "runtime/simulator.h"

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "runtime/device.h"
#include "runtime/device_heaps.h"
#include "runtime/dry_run.h"
#include "runtime/sanitizer.h"
#include "runtime/stream.h"
#include "runtime/workspaces.h"
#include "sim/env.h"
#include "sim/server.h"

namespace cann::simulator {

namespace detail {
constinit std::atomic<uint8_t> g_watchers{0};
}

namespace {

// Streams of a card: the default one and two pools of at most 32.
constexpr unsigned kStreamsPerCard = 128;

// An operator with its shapes, as first seen; lives as long as the process.
struct Known {
  uint64_t hash = 0;
  uint32_t row = 0;
  float us = 0;
  sim::Engine engine = sim::Engine::kNone;
};

constexpr size_t kRecent = 4096;  // slots, a power of two

struct State {
  State()
      : topology(sim::Server::get().soc(), sim::Env::get().device_count),
        costs(sim::Server::get().soc(), topology),
        host_us(static_cast<float>(sim::Server::get().soc().host_us)) {}
  sim::Topology topology;
  sim::CostModel costs;
  float host_us;  // of issuing an operator
  sim::Timeline timeline;
  std::mutex mutex;  // guards rows and known
  std::vector<Row> rows;
  std::unordered_map<uint64_t, Known> known;  // by hash of operator and shapes; its nodes never move
  // The operators met last, by the low bits of their hash: a repeated operator takes no lock on the way to its cost.
  std::array<std::atomic<const Known*>, kRecent> recent{};
  std::atomic<SiteProvider> sites{nullptr};
  std::atomic<bool> recording{false};
  std::atomic<int> first_card{-1};
};

// Never destroyed: tensors are freed after static destructors ran.
State& state() {
  static auto* const made = new State();
  return *made;
}

sim::Dtype dtype_of(const c10::TensorImpl& tensor) {
  switch (tensor.dtype().toScalarType()) {
    case at::kFloat:
      return sim::Dtype::kFloat32;
    case at::kHalf:
      return sim::Dtype::kFloat16;
    case at::kBFloat16:
      return sim::Dtype::kBFloat16;
    case at::kChar:
    case at::kByte:
      return sim::Dtype::kInt8;
    default:
      return sim::Dtype::kOther;
  }
}

sim::TensorDesc describe(const c10::TensorImpl& tensor) {
  return {.sizes = {tensor.sizes().data(), tensor.sizes().size()},
          .dtype = dtype_of(tensor),
          .bytes = tensor.numel() * static_cast<int64_t>(tensor.itemsize())};
}

std::string_view base_name(const char* name) {
  const char* colon = std::strrchr(name, ':');
  return colon == nullptr ? name : colon + 1;
}

}  // namespace

void set_on(bool on) {
  lazy_init();
  state();
  set_watching(kClock, on);
}

void set_watching(Watcher watcher, bool on) {
  if (on) {
    detail::g_watchers.fetch_or(watcher, std::memory_order_relaxed);
  } else {
    detail::g_watchers.fetch_and(static_cast<uint8_t>(~watcher), std::memory_order_relaxed);
  }
}

sim::Timeline& timeline() { return state().timeline; }
const sim::CostModel& costs() { return state().costs; }
const sim::Topology& topology() { return state().topology; }

uint32_t add_row(std::string name, const sim::Cost& cost) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.rows.push_back({std::move(name), cost});
  return static_cast<uint32_t>(s.rows.size() - 1);
}

Row row(uint32_t index) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.rows.at(index);
}

size_t row_count() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.rows.size();
}

uint16_t stream_index(c10::Stream stream) {
  State& s = state();
  int first = s.first_card.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(first < 0)) {
    s.first_card.compare_exchange_strong(first, stream.device_index());
    first = s.first_card.load(std::memory_order_relaxed);
  }
  int card = stream.device_index() - first;
  if (C10_UNLIKELY(card < 0)) card += sim::Server::get().card_count();
  return static_cast<uint16_t>(static_cast<unsigned>(card) * kStreamsPerCard + static_cast<unsigned>(stream.id()));
}

uint16_t current_stream_index(c10::DeviceIndex device) { return stream_index(current_stream(device)); }

void annotate(sim::Action& action, c10::DeviceIndex device) {
  State& s = state();
  if (!s.recording.load(std::memory_order_relaxed)) return;
  if (const SiteProvider sites = s.sites.load(std::memory_order_relaxed)) action.site = sites();
  if (DeviceHeaps* heaps = DeviceHeaps::if_initialized()) {
    action.allocated = static_cast<int64_t>((*heaps)[device].usage().first);
  }
}

void set_recording(bool recording, SiteProvider sites) {
  State& s = state();
  s.sites.store(sites, std::memory_order_relaxed);
  s.recording.store(recording, std::memory_order_relaxed);
  s.timeline.set_recording(recording);
}

namespace {

void launch_row(uint32_t index, sim::Engine engine, float us, c10::DeviceIndex device) {
  sim::Action action{.kind = sim::Action::kLaunch,
                     .engine = engine,
                     .stream = current_stream_index(device),
                     .what = index,
                     .us = us,
                     .host_us = state().host_us};
  annotate(action, device);
  state().timeline.launch(action);
}

// The entry of `hash`, made with `make_row` when it is new. Never null; stays valid.
template <class MakeRow>
const Known* find_or_add(uint64_t hash, MakeRow&& make_row) {
  State& s = state();
  std::atomic<const Known*>& slot = s.recent[hash & (kRecent - 1)];
  const Known* recent = slot.load(std::memory_order_acquire);
  if (C10_LIKELY(recent != nullptr && recent->hash == hash)) return recent;
  const std::lock_guard lock(s.mutex);
  auto it = s.known.find(hash);
  if (it == s.known.end()) {
    Row row = make_row();
    const Known fresh{.hash = hash,
                      .row = static_cast<uint32_t>(s.rows.size()),
                      .us = static_cast<float>(row.cost.us),
                      .engine = row.cost.engine};
    s.rows.push_back(std::move(row));
    it = s.known.emplace(hash, fresh).first;
  }
  slot.store(&it->second, std::memory_order_release);
  return &it->second;
}

}  // namespace

void launch(uint32_t index, c10::DeviceIndex device) {
  sim::Cost cost;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    cost = s.rows[index].cost;
  }
  if (cost.engine != sim::Engine::kNone) launch_row(index, cost.engine, static_cast<float>(cost.us), device);
}

void launch_host_copy(bool to_device, size_t bytes, c10::DeviceIndex device) {
  const uint64_t key = (uint64_t{bytes} << 2 | (to_device ? 3 : 1)) * 0x9E3779B97F4A7C15ull;
  const Known* known = find_or_add(key, [&]() -> Row {
    const auto count = static_cast<double>(bytes);
    const sim::CostModel& model = costs();
    return {to_device ? "copy host to device" : "copy device to host",
            {.engine = sim::Engine::kCopy,
             .us = to_device ? model.host_to_device_us(count) : model.device_to_host_us(count),
             .bytes = count}};
  });
  launch_row(known->row, known->engine, known->us, device);
}

void launch_card_copy(size_t bytes, c10::DeviceIndex from, c10::DeviceIndex to) {
  const std::array<int, 2> ends{from, to};
  const uint64_t pair = static_cast<uint64_t>(from) << 8 | static_cast<uint64_t>(to);
  const uint64_t key = ((uint64_t{bytes} << 2 | 2) * 0x9E3779B97F4A7C15ull) ^ (pair * 0xC2B2AE3D27D4EB4Full);
  const Known* known = find_or_add(key, [&]() -> Row {
    const auto count = static_cast<double>(bytes);
    const sim::Topology& links = topology();
    return {"copy card to card",
            {.engine = sim::Engine::kCopy,
             .us = links.collective_us(sim::Collective::kPointToPoint, count, links.shape_of(ends)),
             .bytes = count}};
  });
  sim::Timeline& time = timeline();
  const uint16_t sender = current_stream_index(from), receiver = current_stream_index(to);
  time.wait(sender, time.record(receiver));
  launch_row(known->row, known->engine, known->us, from);
  time.wait(receiver, time.record(sender));
}

void Observation::add(const at::Tensor& tensor, bool output) {
  if (!tensor.defined()) return;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.device().type() == kNPU) {
    if (device_ < 0) device_ = impl.device().index();
  } else if (impl.numel() <= 1) {
    return;  // numbers
  }
  if (!impl.key_set().has(c10::DispatchKey::Dense)) return;
  seen_.push_back({&impl, output});
  mix(static_cast<uint64_t>(impl.dtype().toScalarType()) << 8 | static_cast<uint64_t>(impl.dim()) << 1 |
      static_cast<uint64_t>(output));
  for (const int64_t size : impl.sizes()) mix(static_cast<uint64_t>(size));
}

void Observation::result(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  for (const Seen& seen : seen_) {
    // A result that is an argument, or views one, costs nothing of its own.
    if (seen.tensor == impl ||
        (impl->has_storage() && seen.tensor->has_storage() &&
         impl->unsafe_storage().unsafeGetStorageImpl() == seen.tensor->unsafe_storage().unsafeGetStorageImpl())) {
      views_ = true;
      return;
    }
  }
  add(tensor, true);
}

sim::Cost Observation::cost() const {
  std::vector<sim::TensorDesc> inputs, outputs;
  for (const Seen& seen : seen_) (seen.output ? outputs : inputs).push_back(describe(*seen.tensor));
  const sim::OperatorDesc op{.name = base_name(name_),
                             .inputs = inputs,
                             .outputs = outputs,
                             .pointwise = pointwise_,
                             .density = density_,
                             .layout = layout_,
                             .heads = heads_,
                             .world = world_};
  if (dry_run() && device_ >= 0) workspaces::reserve(op, device_);
  return costs().cost(op);
}

void Observation::report_to_sanitizer() const {
  bool wrote = false;
  for (const Seen& seen : seen_) wrote |= seen.output;
  if (device_ < 0 || (views_ && !wrote)) return;
  const c10::Stream stream = current_stream(device_);
  sanitizer::Launch launch(name_, stream);
  for (const Seen& seen : seen_) launch.access(*seen.tensor, seen.output);
  launch.check();
  if (blocking_) sanitizer::host_wait(stream);
}

void Observation::finish() {
  if (sanitizer::on()) report_to_sanitizer();
  if (!on()) return;
  bool wrote = false;
  for (const Seen& seen : seen_) wrote |= seen.output;
  if (!wrote || device_ < 0) return;
  const Known* known = find_or_add(hash_, [&]() -> Row { return {std::string(base_name(name_)), cost()}; });
  if (known->engine != sim::Engine::kNone) launch_row(known->row, known->engine, known->us, device_);
}

}  // namespace cann::simulator
