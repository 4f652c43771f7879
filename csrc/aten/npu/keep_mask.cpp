#include "aten/npu/keep_mask.h"

#include <cmath>

#include "aten/parallel.h"
#include "runtime/generator.h"

namespace cann::aten::npu {
namespace {

constexpr int64_t kGrain = 1 << 15;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void check_probability(double keep) {
  CANN_CHECK_OP(keep >= 0 && keep <= 1, "the probability to keep an element must be from 0 to 1, but got ", keep);
}

void check_packed(const Tensor& packed, int64_t bits) {
  CANN_CHECK_OP(
      packed.scalar_type() == at::kByte || packed.scalar_type() == at::kBool || packed.scalar_type() == at::kChar,
      "a dropout mask must be uint8, one bit for each element, but is ", packed.scalar_type());
  CANN_CHECK_OP(packed.numel() * 8 >= bits, "the dropout mask holds ", packed.numel() * 8, " bits, but ", bits,
                " elements need one each");
}

}  // namespace

DropoutKey take_dropout_key(c10::DeviceIndex device) {
  const auto [seed, offset] =
      static_cast<NPUGeneratorImpl*>(default_generator(device).unsafeGetGeneratorImpl())->take();
  return {static_cast<int64_t>(seed), static_cast<int64_t>(offset)};
}

// Two elements share the 64 bits of one hash.
void fill_keep(bool* keep, int64_t begin, int64_t count, DropoutKey key, double keep_probability) {
  check_probability(keep_probability);
  const uint64_t stream = mix(mix(static_cast<uint64_t>(key.seed) + kGolden) ^ static_cast<uint64_t>(key.offset));
  const auto limit = static_cast<uint64_t>(std::llround(keep_probability * 4294967296.0));
  int64_t i = 0;
  const auto word = [&](int64_t element) { return mix(stream + kGolden * static_cast<uint64_t>(element >> 1)); };
  if (begin % 2 != 0 && count > 0) keep[i++] = (word(begin) >> 32) < limit;
  for (; i + 1 < count; i += 2) {
    const uint64_t bits = word(begin + i);
    keep[i] = (bits & 0xffffffffU) < limit;
    keep[i + 1] = (bits >> 32) < limit;
  }
  if (i < count) keep[i] = (word(begin + i) & 0xffffffffU) < limit;
}

Tensor make_packed_mask(int64_t elements, DropoutKey key, double keep_probability) {
  check_probability(keep_probability);
  Tensor packed = at::zeros({packed_mask_bytes(elements)}, at::kByte);
  auto* bytes = packed.mutable_data_ptr<uint8_t>();
  parallel_for(0, (elements + 7) / 8, kGrain / 8, [&](int64_t first, int64_t last) {
    bool keep[8];
    for (int64_t byte = first; byte < last; ++byte) {
      const int64_t bits = std::min<int64_t>(8, elements - byte * 8);
      fill_keep(keep, byte * 8, bits, key, keep_probability);
      uint8_t value = 0;
      for (int64_t b = 0; b < bits; ++b) value |= static_cast<uint8_t>(keep[b]) << b;
      bytes[byte] = value;
    }
  });
  return packed;
}

void unpack_keep(bool* keep, const Tensor& packed, int64_t begin, int64_t count) {
  check_packed(packed, begin + count);
  const auto* bytes = static_cast<const uint8_t*>(packed.const_data_ptr());
  for (int64_t i = 0; i < count; ++i) keep[i] = (bytes[(begin + i) / 8] >> ((begin + i) % 8)) & 1;
}

Tensor unpack_mask(const Tensor& packed, IntArrayRef sizes, const char* op) {
  const int64_t elements = c10::multiply_integers(sizes);
  CANN_CHECK_OP(packed.numel() * 8 >= elements, op, ": the mask holds ", packed.numel() * 8, " bits, but the ",
                elements, " elements of sizes ", sizes, " need one each");
  const Tensor contiguous = packed.contiguous();
  Tensor keep = at::empty(sizes, at::kBool);
  auto* out = keep.mutable_data_ptr<bool>();
  parallel_for(0, elements, kGrain,
               [&](int64_t first, int64_t last) { unpack_keep(out + first, contiguous, first, last - first); });
  return keep;
}

}  // namespace cann::aten::npu
