#include "distributed/wire_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "distributed/engine.h"
#include "kernels/kernels.h"

namespace cann::hccl {
namespace {

using Kind = WireFormat::Kind;

constexpr std::string_view kAllowed = "exact, fp16, bf16, int8 or topk:FRACTION with 0 < FRACTION <= 0.5";
constexpr std::string_view kTopK = "topk:";

// Ahead of the values of an encoded message: what to multiply them with.
constexpr size_t kScaleBytes = sizeof(float);
// Where fp16 begins to be scaled: a factor of two below its largest value.
constexpr float kHalfLimit = 32768.0F;
constexpr size_t kInt8Block = 256;
constexpr size_t kMaxPlaces = 4096;

struct Entry {
  uint32_t index;
  float value;
};

size_t kept_of(const WireFormat& format, size_t count) {
  const auto wanted = static_cast<size_t>(std::ceil(format.fraction * static_cast<double>(count)));
  return std::min(std::max<size_t>(wanted, 1), count);
}

const kernels::ConversionKernels& conversion() { return *kernels::kernels().conversion; }

void put_scale(std::byte* out, float scale) { std::memcpy(out, &scale, kScaleBytes); }
float get_scale(const std::byte* in) {
  float scale = 0;
  std::memcpy(&scale, in, kScaleBytes);
  return scale;
}

// A power of two that brings values up to `largest` below kHalfLimit; 1 if they are, or are not finite.
float half_scale(float largest) {
  if (!(largest > kHalfLimit) || std::isinf(largest)) return 1.0F;
  return std::ldexp(1.0F, -(std::ilogb(largest) - 14));
}

void encode_int8(const float* in, size_t count, std::byte* out) {
  for (size_t begin = 0; begin < count; begin += kInt8Block) {
    const auto length = static_cast<int64_t>(std::min(kInt8Block, count - begin));
    const float largest = conversion().max_abs(in + begin, length);
    const bool finite = std::isfinite(largest);
    const float scale = finite ? largest / 127.0F : std::numeric_limits<float>::quiet_NaN();
    put_scale(out, scale);
    auto* values = reinterpret_cast<int8_t*>(out + kScaleBytes);
    // Below the smallest normal number the reciprocal would overflow: such values are nothing.
    if (finite && scale >= std::numeric_limits<float>::min()) {
      conversion().to_int8(in + begin, values, length, 1.0F / scale);
    } else {
      std::memset(values, 0, static_cast<size_t>(length));
    }
    out += kScaleBytes + static_cast<size_t>(length);
  }
}

void decode_int8(const std::byte* in, size_t count, float* out) {
  for (size_t begin = 0; begin < count; begin += kInt8Block) {
    const size_t length = std::min(kInt8Block, count - begin);
    conversion().from_int8(reinterpret_cast<const int8_t*>(in + kScaleBytes), out + begin, static_cast<int64_t>(length),
                           get_scale(in));
    in += kScaleBytes + length;
  }
}

// Magnitudes order as their bits do, and NaN comes after everything.
uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffU; }

void encode_top(const WireFormat& format, const float* in, size_t count, std::byte* out) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  const auto kept = static_cast<ptrdiff_t>(kept_of(format, count));
  const auto larger = [in](uint32_t a, uint32_t b) {
    const uint32_t left = magnitude(in[a]), right = magnitude(in[b]);
    return left != right ? left > right : a < b;
  };
  std::nth_element(order.begin(), order.begin() + kept - 1, order.end(), larger);
  std::sort(order.begin(), order.begin() + kept);
  for (ptrdiff_t i = 0; i < kept; ++i) {
    const Entry entry{order[static_cast<size_t>(i)], in[order[static_cast<size_t>(i)]]};
    std::memcpy(out + static_cast<size_t>(i) * sizeof(Entry), &entry, sizeof(Entry));
  }
}

void decode_top(const WireFormat& format, const std::byte* in, size_t count, float* out) {
  std::fill_n(out, count, 0.0F);
  for (size_t i = 0; i < kept_of(format, count); ++i) {
    Entry entry;
    std::memcpy(&entry, in + i * sizeof(Entry), sizeof(Entry));
    if (entry.index >= count) {
      throw EngineError(EngineError::Kind::kRemote, "a peer sent a damaged top-k message");
    }
    out[entry.index] = entry.value;
  }
}

void encode_plain(const WireFormat& format, const float* in, size_t count, std::byte* out) {
  const auto n = static_cast<int64_t>(count);
  switch (format.kind) {
    case Kind::kHalf: {
      const float scale = half_scale(conversion().max_abs(in, n));
      put_scale(out, 1.0F / scale);
      conversion().to_half(in, reinterpret_cast<kernels::Half*>(out + kScaleBytes), n, scale);
      return;
    }
    case Kind::kBFloat16:
      conversion().to_bfloat16(in, reinterpret_cast<kernels::BFloat16*>(out), n, 1.0F);
      return;
    case Kind::kInt8:
      encode_int8(in, count, out);
      return;
    case Kind::kTopK:
      encode_top(format, in, count, out);
      return;
    case Kind::kExact:
      break;
  }
  throw std::logic_error("exact values are not encoded");
}

}  // namespace

WireFormat WireFormat::parse(const std::string& text) {
  if (text == "exact") return {};
  if (text == "fp16") return {Kind::kHalf};
  if (text == "bf16") return {Kind::kBFloat16};
  if (text == "int8") return {Kind::kInt8};
  if (text.starts_with(kTopK)) {
    double fraction = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kTopK.size(), end, fraction);
    if (error == std::errc() && stop == end && fraction > 0 && fraction <= 0.5) return {Kind::kTopK, fraction};
  }
  throw std::invalid_argument(std::string(kAllowed));
}

std::string WireFormat::text() const {
  switch (kind) {
    case Kind::kHalf:
      return "fp16";
    case Kind::kBFloat16:
      return "bf16";
    case Kind::kInt8:
      return "int8";
    case Kind::kTopK:
      return fmt::format("{}{}", kTopK, fraction);
    case Kind::kExact:
      break;
  }
  return "exact";
}

size_t encoded_bytes(const WireFormat& format, size_t count) {
  if (count == 0) return 0;
  switch (format.kind) {
    case Kind::kHalf:
      return kScaleBytes + 2 * count;
    case Kind::kBFloat16:
      return 2 * count;
    case Kind::kInt8:
      return count + (count + kInt8Block - 1) / kInt8Block * kScaleBytes;
    case Kind::kTopK:
      return kept_of(format, count) * sizeof(Entry);
    case Kind::kExact:
      break;
  }
  return 4 * count;
}

void encode(const WireFormat& format, const float* in, size_t count, std::byte* out, float* residual) {
  if (count == 0) return;
  if (residual == nullptr) return encode_plain(format, in, count, out);
  for (size_t i = 0; i < count; ++i) residual[i] += in[i];
  encode_plain(format, residual, count, out);
  std::vector<float> sent(count);
  decode(format, out, count, sent.data());
  for (size_t i = 0; i < count; ++i) {
    const float left = residual[i] - sent[i];
    residual[i] = std::isfinite(left) ? left : 0.0F;  // what is not finite is not carried on
  }
}

void decode(const WireFormat& format, const std::byte* in, size_t count, float* out) {
  if (count == 0) return;
  const auto n = static_cast<int64_t>(count);
  switch (format.kind) {
    case Kind::kHalf:
      conversion().from_half(reinterpret_cast<const kernels::Half*>(in + kScaleBytes), out, n, get_scale(in));
      return;
    case Kind::kBFloat16:
      conversion().from_bfloat16(reinterpret_cast<const kernels::BFloat16*>(in), out, n, 1.0F);
      return;
    case Kind::kInt8:
      decode_int8(in, count, out);
      return;
    case Kind::kTopK:
      decode_top(format, in, count, out);
      return;
    case Kind::kExact:
      std::memcpy(out, in, 4 * count);
      return;
  }
}

float* Residuals::of(const void* place, size_t count) {
  if (values_.size() > kMaxPlaces) values_.clear();
  std::vector<float>& values = values_[{place, count}];
  values.resize(count);
  return values.data();
}

}  // namespace cann::hccl
