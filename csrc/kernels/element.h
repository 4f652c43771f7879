#pragma once
// Element types of kernels. 16-bit ones are storage only: arithmetic is in float, rounded once to nearest even.

#include <cstdint>

namespace cann::kernels {

struct BFloat16 {
  uint16_t bits;
};

struct Half {
  uint16_t bits;
};

// Index into tables of kernels per element type.
enum class Element { kFloat32, kBFloat16, kFloat16 };
inline constexpr int kElements = 3;

constexpr int64_t bytes_of(Element element) { return element == Element::kFloat32 ? 4 : 2; }

}  // namespace cann::kernels
