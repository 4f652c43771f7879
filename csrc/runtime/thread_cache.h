#pragma once
// A small per-thread stack of reusable objects, for things that come and go with every operator.
//
// Meant to be `thread_local constinit`: without a constructor or destructor, access is one address computation. The
// first give() of a thread registers the clean-up at thread exit; what is given after that clean-up is refused, so that
// destructors running late are safe.

#include <cstddef>
#include <cstdlib>

namespace cann {

// `kDestroy` frees one object; it also makes the type, and with it the clean-up, unique.
template <void (*kDestroy)(void*), size_t kCapacity>
class ThreadCache {
 public:
  // An object given earlier, or nullptr.
  void* take() { return count_ == 0 ? nullptr : items_[--count_]; }

  // Keeps `object`; false when full or closed, and the caller keeps it.
  bool give(void* object) {
    if (count_ >= capacity_ && !open()) [[unlikely]]
      return false;
    items_[count_++] = object;
    return true;
  }

 private:
  struct Closer {
    ThreadCache* cache;
    ~Closer() { cache->close(); }
  };

  bool open() {
    if (closed_ || items_ != nullptr) return false;
    items_ = static_cast<void**>(std::malloc(kCapacity * sizeof(void*)));
    if (items_ == nullptr) return false;
    capacity_ = kCapacity;
    thread_local Closer closer{this};
    return true;
  }
  void close() {
    closed_ = true;
    while (count_ > 0) kDestroy(items_[--count_]);
    capacity_ = 0;
    std::free(items_);
    items_ = nullptr;
  }

  void** items_ = nullptr;
  size_t count_ = 0;
  size_t capacity_ = 0;
  bool closed_ = false;
};

}  // namespace cann
