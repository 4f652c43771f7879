#include "runtime/address_map.h"

#include <new>

#include "runtime/virtual_memory.h"

namespace cann {

// Zero pages are valid null entries, so the table needs no initialisation and stays untouched where nothing is
// allocated.
AddressMap::AddressMap(uintptr_t begin, uintptr_t end)
    : begin_(begin),
      span_(end - begin),
      words_(static_cast<std::atomic<uintptr_t>*>(map_pages((span_ >> kShift) * sizeof(*words_)))) {
  if (words_ == nullptr) throw std::bad_alloc();
}

AddressMap::~AddressMap() { unmap_pages(words_, (span_ >> kShift) * sizeof(*words_)); }

}  // namespace cann
