#include "kernels/pointwise.h"

#include <utility>

#include "kernels/vec.h"

namespace cann::kernels::CANN_KERNEL_SET {
namespace {

template <Pointwise kOp>
CANN_INLINE Vec apply(Vec a, Vec b, Vec c, Vec s) {
  using enum Pointwise;
  if constexpr (kOp == kAdd) return fma(b, s, a);
  if constexpr (kOp == kMul) return a * b;
  if constexpr (kOp == kDiv) return a / b;
  if constexpr (kOp == kMaximum) return maximum(a, b);
  if constexpr (kOp == kMinimum) return minimum(a, b);
  if constexpr (kOp == kAddScalar) return a + s;
  if constexpr (kOp == kMulScalar) return a * s;
  if constexpr (kOp == kDivScalar) return a / s;
  if constexpr (kOp == kLerp) {
    const Vec distance = b - a;
    return select((IntVec)(abs(s) < broadcast(0.5f)), fma(distance, s, a), fma(-distance, broadcast(1.0f) - s, b));
  }
  if constexpr (kOp == kAddcmul) return fma(s * b, c, a);
  if constexpr (kOp == kAddcdiv) return a + (s * b) / c;
  if constexpr (kOp == kSqrt) return sqrt(a);
  if constexpr (kOp == kReciprocal) return broadcast(1.0f) / a;
  if constexpr (kOp == kNeg) return -a;
  if constexpr (kOp == kAbs) return abs(a);
  if constexpr (kOp == kClampMin) return select((IntVec)(s > a), s, a);
  if constexpr (kOp == kClampMax) return select((IntVec)(s < a), s, a);
  if constexpr (kOp == kReluBackward) return select((IntVec)(b <= Vec{}), Vec{}, a);
}

constexpr bool reads_b(Pointwise op) {
  using enum Pointwise;
  return op == kAdd || op == kMul || op == kDiv || op == kMaximum || op == kMinimum || op == kLerp || op == kAddcmul ||
         op == kAddcdiv || op == kReluBackward;
}

constexpr bool reads_c(Pointwise op) { return op == Pointwise::kAddcmul || op == Pointwise::kAddcdiv; }

template <Pointwise kOp, class T, bool kStream = false>
void pointwise_range(void* out_, const void* a_, const void* b_, const void* c_, float s, int64_t n) {
  T* out = static_cast<T*>(out_);
  const T *a = static_cast<const T*>(a_), *b = static_cast<const T*>(b_), *c = static_cast<const T*>(c_);
  const Vec scalar = broadcast(s);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec result =
        apply<kOp>(load(a + i), reads_b(kOp) ? load(b + i) : Vec{}, reads_c(kOp) ? load(c + i) : Vec{}, scalar);
    if constexpr (kStream) {
      stream(out + i, result);
    } else {
      store(out + i, result);
    }
  }
  if (const int64_t rest = n - i; rest > 0) {
    store_some(out + i,
               apply<kOp>(load_some(a + i, rest), reads_b(kOp) ? load_some(b + i, rest) : Vec{},
                          reads_c(kOp) ? load_some(c + i, rest) : Vec{}, scalar),
               rest);
  }
  if constexpr (kStream) finish_streaming();
}

template <int... kOps>
constexpr PointwiseKernels make_table(std::integer_sequence<int, kOps...>) {
  return {.table = {{&pointwise_range<static_cast<Pointwise>(kOps), float>,
                     &pointwise_range<static_cast<Pointwise>(kOps), BFloat16>,
                     &pointwise_range<static_cast<Pointwise>(kOps), Half>}...},
          .streaming = {&pointwise_range<static_cast<Pointwise>(kOps), float, /*kStream=*/true>...}};
}

}  // namespace

extern const PointwiseKernels pointwise = make_table(std::make_integer_sequence<int, kPointwiseOps>{});

}  // namespace cann::kernels::CANN_KERNEL_SET
