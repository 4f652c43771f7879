#include "runtime/sanitizer.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/caching_allocator.h"
#include "runtime/device.h"

namespace cann::sanitizer {
namespace {

using Bytes = Launch::Bytes;

// An access that later ones are compared with.
struct Past {
  Bytes bytes;
  size_t stream;
  uint64_t epoch;
  bool stashed;
  std::optional<int64_t> freed_into;  // its memory was freed since, into the pool of this stream
  std::shared_ptr<const Access> access;
};

// tensor.record_stream(): the allocator will wait for the stream before it reuses these bytes.
struct Recorded {
  uintptr_t begin, end;
  size_t stream;
};

// Memory that storages have been seen in, live or freed. Ranges in one map do not overlap.
struct Region {
  uintptr_t end;
  std::vector<Past> past;
  std::vector<Recorded> recorded;
};

// Beyond it the oldest accesses of a region are forgotten.
constexpr size_t kMaxPast = 1024;

bool overlap(uintptr_t a, uintptr_t a_end, uintptr_t b, uintptr_t b_end) { return a < b_end && b < a_end; }

bool touch(const Bytes& a, const Bytes& b) {
  if (!overlap(a.begin, a.end, b.begin, b.end)) return false;
  if (a.period == 0 || a.period != b.period) return true;
  // Two sets of rows, such as the halves of a matrix split by columns.
  const uintptr_t phase = (b.begin % a.period + a.period - a.begin % a.period) % a.period;
  return phase < a.width || a.period - phase < b.width;
}

bool covers(const Bytes& outer, const Bytes& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end && (outer.period == 0 || outer.period == inner.period);
}

uint64_t key_of(c10::Stream stream) {
  return static_cast<uint64_t>(stream.device_index()) << 32 | static_cast<uint64_t>(stream.id());
}

class Sanitizer {
 public:
  void start(StackProvider stacks, Reporter reporter) {
    const std::lock_guard lock(mutex_);
    order_ = {};
    regions_.clear();
    stacks_ = stacks;
    reporter_ = reporter;
  }

  StreamOrder::Clock recorded(c10::Stream stream) {
    const std::lock_guard lock(mutex_);
    return order_.recorded(number(stream));
  }
  void wait(c10::Stream stream, const StreamOrder::Clock& event) {
    const std::lock_guard lock(mutex_);
    order_.wait(number(stream), event);
  }
  void host_wait(const StreamOrder::Clock& event) {
    const std::lock_guard lock(mutex_);
    order_.host_wait(event);
  }
  void host_wait_all() {
    const std::lock_guard lock(mutex_);
    order_.host_wait_all();
  }

  void record_stream(uintptr_t begin, uintptr_t end, c10::Stream stream, bool record) {
    const std::lock_guard lock(mutex_);
    Region& region = region_of(begin, end);
    const size_t wanted = number(stream);
    if (record) {
      region.recorded.push_back({begin, end, wanted});
    } else {
      std::erase_if(region.recorded,
                    [&](const Recorded& r) { return r.stream == wanted && overlap(r.begin, r.end, begin, end); });
    }
  }

  // The allocator waits for streams that were recorded before it reuses the memory, and what is stashed is freed when
  // it is done: neither can be overtaken.
  void freed(uintptr_t begin, uintptr_t end, int64_t pool) {
    const std::lock_guard lock(mutex_);
    for (auto it = first_overlapping(begin); it != regions_.end() && it->first < end; ++it) {
      Region& region = it->second;
      std::erase_if(region.past, [&](Past& past) {
        if (!overlap(past.bytes.begin, past.bytes.end, begin, end)) return false;
        past.freed_into = pool;
        return past.stashed || order_.host_knows(past.stream, past.epoch) || is_recorded(region, past);
      });
      std::erase_if(region.recorded, [&](const Recorded& r) { return overlap(r.begin, r.end, begin, end); });
    }
  }

  // Memory that comes out of another pool than it went into has been given back to the card in between, which waits for
  // all of its work.
  void allocated(uintptr_t begin, uintptr_t end, int64_t pool) {
    const std::lock_guard lock(mutex_);
    for (auto it = first_overlapping(begin); it != regions_.end() && it->first < end; ++it) {
      std::erase_if(it->second.past, [&](const Past& past) {
        return past.freed_into.has_value() && *past.freed_into != pool &&
               overlap(past.bytes.begin, past.bytes.end, begin, end);
      });
    }
  }

  std::vector<Race> launch(const std::shared_ptr<const Access>& write, const std::shared_ptr<const Access>& read,
                           c10::ArrayRef<Bytes> all, bool stashed) {
    const std::lock_guard lock(mutex_);
    std::vector<Race> races;
    const size_t stream = number(read->stream);
    const uint64_t epoch = order_.launch(stream);
    for (const Bytes& bytes : all) {
      Region& region = region_of(bytes.storage_begin, bytes.storage_end);
      const Past now{bytes, stream, epoch, stashed, std::nullopt, bytes.write ? write : read};
      for (Past& past : region.past) {
        if (!races_with(past, now)) continue;
        races.push_back({*now.access, *past.access, past.freed_into.has_value(),
                         std::max(past.bytes.begin, bytes.begin), std::min(past.bytes.end, bytes.end)});
        past.epoch = 0;  // reported once
      }
      remember(region, now);
    }
    return races;
  }

  Stack stack() const { return stacks_ == nullptr ? nullptr : stacks_(); }
  std::string report(const Race& race) const { return reporter_ == nullptr ? std::string() : reporter_(race); }

 private:
  size_t number(c10::Stream stream) { return order_.number(key_of(stream)); }

  static bool is_recorded(const Region& region, const Past& past) {
    return std::any_of(region.recorded.begin(), region.recorded.end(), [&](const Recorded& r) {
      return r.stream == past.stream && overlap(r.begin, r.end, past.bytes.begin, past.bytes.end);
    });
  }

  bool races_with(const Past& past, const Past& now) {
    return (past.bytes.write || now.bytes.write) && past.stream != now.stream && touch(past.bytes, now.bytes) &&
           !order_.ordered(now.stream, past.stream, past.epoch);
  }

  // What `now` makes needless: whoever comes after it comes after these too, or will be compared with `now` anyway.
  void remember(Region& region, const Past& now) {
    std::erase_if(region.past, [&](const Past& past) {
      return covers(now.bytes, past.bytes) && (now.bytes.write || (!past.bytes.write && past.stream == now.stream));
    });
    if (region.past.size() >= kMaxPast) region.past.erase(region.past.begin(), region.past.begin() + kMaxPast / 2);
    region.past.push_back(now);
  }

  std::map<uintptr_t, Region>::iterator first_overlapping(uintptr_t begin) {
    auto it = regions_.upper_bound(begin);
    if (it != regions_.begin() && std::prev(it)->second.end > begin) --it;
    return it;
  }

  // The region that holds these bytes; regions that they overlap become one.
  Region& region_of(uintptr_t begin, uintptr_t end) {
    auto it = first_overlapping(begin);
    if (it != regions_.end() && it->first <= begin && end <= it->second.end) return it->second;
    Region merged{end, {}, {}};
    while (it != regions_.end() && it->first < end) {
      begin = std::min(begin, it->first);
      merged.end = std::max(merged.end, it->second.end);
      std::move(it->second.past.begin(), it->second.past.end(), std::back_inserter(merged.past));
      std::move(it->second.recorded.begin(), it->second.recorded.end(), std::back_inserter(merged.recorded));
      it = regions_.erase(it);
    }
    return regions_.emplace(begin, std::move(merged)).first->second;
  }

  std::mutex mutex_;  // guards what follows; never held while Python runs
  StreamOrder order_;
  std::map<uintptr_t, Region> regions_;
  StackProvider stacks_ = nullptr;
  Reporter reporter_ = nullptr;
};

// Never destroyed: tensors are freed after static destructors ran.
Sanitizer& sanitizer() {
  static auto* const made = new Sanitizer();
  return *made;
}

void set_recorded(const void* ptr, c10::Stream stream, bool record) {
  const auto [block, bytes] = caching_allocator::block_of(ptr);
  if (block == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  sanitizer().record_stream(begin, begin + bytes, stream, record);
}

}  // namespace

void enable(StackProvider stacks, Reporter reporter) {
  sanitizer().start(stacks, reporter);
  simulator::set_watching(simulator::kSanitizer, true);
}

void disable() { simulator::set_watching(simulator::kSanitizer, false); }

StreamOrder::Clock recorded(c10::Stream stream) { return sanitizer().recorded(stream); }
void wait(c10::Stream stream, const StreamOrder::Clock& event) { sanitizer().wait(stream, event); }
void host_wait(const StreamOrder::Clock& event) { sanitizer().host_wait(event); }
void host_wait(c10::Stream stream) { sanitizer().host_wait(recorded(stream)); }
void host_wait_all() { sanitizer().host_wait_all(); }

void join(c10::Stream a, c10::Stream b) {
  wait(a, recorded(b));
  wait(b, recorded(a));
}

void record_stream(const void* ptr, c10::Stream stream) { set_recorded(ptr, stream, true); }
void erase_stream(const void* ptr, c10::Stream stream) { set_recorded(ptr, stream, false); }

void freed(const void* ptr, size_t bytes, int64_t pool) noexcept {
  try {
    const auto begin = reinterpret_cast<uintptr_t>(ptr);
    sanitizer().freed(begin, begin + bytes, pool);
  } catch (...) {
    // An account that cannot be kept must not stop the free.
  }
}

void allocated(const void* ptr, size_t bytes, int64_t pool) {
  const auto begin = reinterpret_cast<uintptr_t>(ptr);
  sanitizer().allocated(begin, begin + bytes, pool);
}

void Launch::access(const c10::TensorImpl& tensor, bool write) {
  if (tensor.device().type() != kNPU || !tensor.key_set().has(c10::DispatchKey::Dense) || tensor.numel() == 0) return;
  const auto& storage = tensor.unsafe_storage();
  const auto base = reinterpret_cast<uintptr_t>(storage.data());
  if (base == 0) return;
  const auto item = static_cast<uintptr_t>(tensor.itemsize());
  Bytes bytes{.storage_begin = base, .storage_end = base + storage.nbytes(), .period = 0, .width = 0, .write = write};
  bytes.begin = base + static_cast<uintptr_t>(tensor.storage_offset()) * item;
  if (tensor.is_non_overlapping_and_dense()) {
    bytes.end = bytes.begin + static_cast<uintptr_t>(tensor.numel()) * item;
  } else {
    int64_t last = 0, longest = 0, rows = 0;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      const int64_t stride = tensor.strides()[dim], reach = (tensor.sizes()[dim] - 1) * stride;
      last += reach;
      if (tensor.sizes()[dim] > 1 && stride > longest) longest = stride, rows = reach;
    }
    bytes.end = bytes.begin + static_cast<uintptr_t>(last + 1) * item;
    const int64_t width = last - rows + 1;
    if (width < longest) {
      bytes.period = static_cast<uintptr_t>(longest) * item;
      bytes.width = static_cast<uintptr_t>(width) * item;
    }
  }
  for (Bytes& seen : bytes_) {  // read and written: one access
    if (seen.begin == bytes.begin && seen.end == bytes.end && seen.period == bytes.period) {
      seen.write |= write;
      return;
    }
  }
  bytes_.push_back(bytes);
}

void Launch::check() {
  const Stack stack = sanitizer().stack();  // takes the GIL: before any lock
  const auto read = std::make_shared<const Access>(Access{op_, stream_, false, stack});
  const auto write = std::make_shared<const Access>(Access{op_, stream_, true, stack});
  std::string text;
  for (const Race& race : sanitizer().launch(write, read, bytes_, stashed_)) {
    if (std::string said = sanitizer().report(race); text.empty()) text = std::move(said);
  }
  TORCH_CHECK(text.empty(), text);
}

}  // namespace cann::sanitizer
