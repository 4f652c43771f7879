// Pointwise kernels against the same formula in double, for every instruction set, element type and tail length.

#include "kernels_fixture.h"

namespace cann::kernels {
namespace {

using PointwiseTest = KernelTest;

double expected(Pointwise op, double a, double b, double c, double s) {
  using enum Pointwise;
  switch (op) {
    case kAdd:
      return a + s * b;
    case kMul:
      return a * b;
    case kDiv:
      return a / b;
    case kMaximum:
      return std::max(a, b);
    case kMinimum:
      return std::min(a, b);
    case kAddScalar:
      return a + s;
    case kMulScalar:
      return a * s;
    case kDivScalar:
      return a / s;
    case kLerp:
      return a + s * (b - a);
    case kAddcmul:
      return a + s * b * c;
    case kAddcdiv:
      return a + s * b / c;
    case kSqrt:
      return std::sqrt(a);
    case kReciprocal:
      return 1 / a;
    case kNeg:
      return -a;
    case kAbs:
      return std::abs(a);
    case kClampMin:
      return std::max(a, s);
    case kClampMax:
      return std::min(a, s);
    case kReluBackward:
      return b <= 0 ? 0 : a;
  }
  return NAN;
}

// The float of each element type's bits, by the definition of the format.
float widen(float value) { return value; }
float widen(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
float widen(Half value) {
  const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  const float magnitude = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (value.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void narrow(float value, float& out) { out = value; }
void narrow(float value, BFloat16& out) { out.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
// Exact: drops the bits a half has no room for. Normal numbers only.
void narrow(float value, Half& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  out.bits = static_cast<uint16_t>((bits >> 16 & 0x8000) | (exponent > 0 ? exponent << 10 | (bits >> 13 & 1023) : 0));
}

// `roundoff`: half the distance from 1 to the next number of type T.
template <class T>
void check_all_ops(const PointwiseKernels& kernels, Element element, double roundoff) {
  for (const int64_t n : kSizes) {
    std::vector<T> a(n), b(n), c(n), out(n + 1);
    std::mt19937 engine(static_cast<unsigned>(n));
    std::uniform_real_distribution<float> distribution(0.5f, 2.0f);
    for (std::vector<T>* values : {&a, &b, &c}) {
      for (T& value : *values) narrow(distribution(engine), value);
    }
    for (int op = 0; op < kPointwiseOps; ++op) {
      for (const float s : {0.25f, 0.75f}) {
        T guard;
        narrow(42.0f, guard);
        out[n] = guard;
        kernels.get(static_cast<Pointwise>(op), element)(out.data(), a.data(), b.data(), c.data(), s, n);
        EXPECT_EQ(widen(out[n]), 42.0f) << "wrote past the end of " << n;
        for (int64_t i = 0; i < n; ++i) {
          const double want = expected(static_cast<Pointwise>(op), widen(a[i]), widen(b[i]), widen(c[i]), s);
          ASSERT_NEAR(widen(out[i]), want, std::abs(want) * roundoff + 6 * 0x1p-24)
              << "op " << op << ", element " << i << " of " << n;
        }
      }
    }
  }
}

TEST_P(PointwiseTest, Float32) { check_all_ops<float>(*set_->pointwise, Element::kFloat32, 0x1p-24); }
TEST_P(PointwiseTest, BFloat16) { check_all_ops<BFloat16>(*set_->pointwise, Element::kBFloat16, 0x1p-8); }
TEST_P(PointwiseTest, Float16) { check_all_ops<Half>(*set_->pointwise, Element::kFloat16, 0x1p-11); }

// Every half through float and back: infinities, subnormals and signs survive, a NaN stays one.
TEST_P(PointwiseTest, EveryHalfSurvives) {
  std::vector<Half> values(1 << 16), out(1 << 16);
  for (size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<uint16_t>(i);
  set_->pointwise->get(Pointwise::kMulScalar, Element::kFloat16)(out.data(), values.data(), nullptr, nullptr, 1.0f,
                                                                 1 << 16);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(widen(values[i]))) {
      ASSERT_TRUE(std::isnan(widen(out[i]))) << i;
    } else {
      ASSERT_EQ(out[i].bits, values[i].bits);
    }
  }
}

// What lies between two 16-bit numbers goes to the nearer, and in the middle to the even one.
TEST_P(PointwiseTest, RoundsToNearestEven) {
  const auto rounded = [&]<class T>(T, Element element, float from, float step) {
    std::vector<T> a(1), b(1), out(1);
    narrow(from, a[0]);
    narrow(1.0f, b[0]);
    set_->pointwise->get(Pointwise::kAdd, element)(out.data(), a.data(), b.data(), nullptr, step, 1);
    return widen(out[0]);
  };
  EXPECT_EQ(rounded(BFloat16{}, Element::kBFloat16, 1.0f, 0x1p-8f), 1.0f);
  EXPECT_EQ(rounded(BFloat16{}, Element::kBFloat16, 1.0f + 0x1p-7f, 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_EQ(rounded(BFloat16{}, Element::kBFloat16, 1.0f, 0x1.8p-8f), 1.0f + 0x1p-7f);
  EXPECT_EQ(rounded(Half{}, Element::kFloat16, 1.0f, 0x1p-11f), 1.0f);
  EXPECT_EQ(rounded(Half{}, Element::kFloat16, 1.0f + 0x1p-10f, 0x1p-11f), 1.0f + 0x1p-9f);
  EXPECT_EQ(rounded(Half{}, Element::kFloat16, 60000.0f, 10000.0f), INFINITY);
}

TEST_P(PointwiseTest, NaNComesThrough) {
  const std::vector<float> a{NAN, 1.0f, 2.0f}, b{1.0f, NAN, 1.0f};
  for (const Pointwise op : {Pointwise::kMaximum, Pointwise::kMinimum, Pointwise::kAdd, Pointwise::kMul}) {
    std::vector<float> out(3);
    set_->pointwise->get(op, Element::kFloat32)(out.data(), a.data(), b.data(), nullptr, 1.0f, 3);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_FALSE(std::isnan(out[2]));
  }
}

CANN_FOR_EACH_CAPABILITY(PointwiseTest);

TEST(Kernels, TheBestSetIsChosen) {
  const auto chosen = kernels().capability;
  for (const auto better : {sim::CpuCapability::kAvx2, sim::CpuCapability::kAvx512}) {
    EXPECT_TRUE(better <= chosen || kernels_for(better) == nullptr) << name_of(better);
  }
}

}  // namespace
}  // namespace cann::kernels
