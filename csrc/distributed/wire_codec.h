#pragma once
// Lossy forms in which float32 sums may travel between hosts, for links so slow that bytes cost more than arithmetic.
//
// The form is the user's to choose, TORCH_CANN_HCCL_WIRE or Options.wire, and "exact" unless chosen:
//   exact          4 bytes per value, nothing is lost
//   fp16           2 bytes; a message whose values would overflow is scaled by a power of two
//   bf16           2 bytes
//   int8           1 byte and a scale per 256 values
//   topk:FRACTION  8 bytes for each of the FRACTION of values that are largest, 0 < FRACTION <= 0.5; the others are 0
// With int8 and topk what one operation leaves out is added to the values of the next one at the same place in memory
// (error feedback, as in arXiv:1901.09847), so that the sum over many steps loses nothing. Values that are not finite
// stay so, or make their block of 256 NaN with int8. No torch here.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cann::hccl {

struct WireFormat {
  enum class Kind { kExact, kHalf, kBFloat16, kInt8, kTopK };
  Kind kind = Kind::kExact;
  double fraction = 0;  // of kTopK

  // Raises std::invalid_argument saying what is allowed.
  static WireFormat parse(const std::string& text);
  // What parse() takes.
  std::string text() const;
  bool exact() const { return kind == Kind::kExact; }
  bool feeds_errors_back() const { return kind == Kind::kInt8 || kind == Kind::kTopK; }
};

// Bytes of `count` encoded values.
size_t encoded_bytes(const WireFormat& format, size_t count);

// Encodes in[0 .. count) into `out`, encoded_bytes() of them. `residual`, if any, has `count` values: they are added to
// the input first, and replaced by what is left out. `format` must not be exact.
void encode(const WireFormat& format, const float* in, size_t count, std::byte* out, float* residual);
// The reverse. What peers wrote is checked: raises EngineError for an index out of range.
void decode(const WireFormat& format, const std::byte* in, size_t count, float* out);

// What has been left out so far, by the place of the values in memory. For one thread at a time.
class Residuals {
 public:
  // `count` values for the memory at `place`, zero at first. With more than 4096 places all start anew.
  float* of(const void* place, size_t count);

 private:
  std::map<std::pair<const void*, size_t>, std::vector<float>> values_;
};

}  // namespace cann::hccl
