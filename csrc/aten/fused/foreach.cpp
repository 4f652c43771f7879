// Pointwise operators on lists of tensors, as torch.optim's default (foreach) optimizers and gradient clipping call
// them.
//
// The CPU's kernels are loops over single operators: with small tensors the overhead of each is what takes the time.
// Where the lists are regular (dense_lists.h) one pass over raw memory does the whole list; results equal the CPU's to
// the bit on a CPU with fused multiply-add. Other lists take the direct kernel.

#include <cfloat>
#include <cmath>
#include <cstring>

#include "aten/factories.h"
#include "aten/fused/dense_lists.h"
#include "aten/fused/native_kernel.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using kernels::Pointwise;

// A list operator as it is being called: its operands and its scalar argument, in the order of the schema.
class ListCall {
 public:
  // `scale` multiplies the scalar argument: -1 turns an addition into a subtraction.
  ListCall(Pointwise op, float scale, bool in_place) : op_(op), scale_(scale), in_place_(in_place) {}

  void take(at::TensorList tensors) {
    if (operands_ == 0) self_ = tensors;
    lists_.add(tensors, /*written=*/in_place_ && operands_ == 0);
    ++operands_;
  }
  void take(const at::Scalar& scalar) {
    number_given_ = true;
    simple_ = simple_ && as_float(scalar, scalar_);
  }
  void take(at::ArrayRef<at::Scalar> scalars) {
    number_given_ = true;
    scalars_.resize(scalars.size());
    simple_ = simple_ && scalars.size() == self_.size();
    for (size_t i = 0; i < scalars.size() && simple_; ++i) simple_ = as_float(scalars[i], scalars_[i]);
  }
  // A tensor that stands for a number.
  void take(const at::Tensor& number) {
    number_given_ = true;
    simple_ = simple_ && lists_.regular() && lists_.read_number(number, scalar_);
  }

  // Whether the call can be done here.
  bool simple() const { return simple_ && lists_.regular() && !rounds_product(); }

  void run_in_place() {
    run([&](size_t i) { return lists_.at(0, i); });
    bump_versions(self_);
  }

  std::vector<at::Tensor> run() {
    std::vector<at::Tensor> results;
    results.reserve(self_.size());
    for (const at::Tensor& tensor : self_) results.push_back(empty_like_dense(tensor));
    run([&](size_t i) { return results[i].mutable_data_ptr(); });
    return results;
  }

 private:
  // False for complex numbers, which change the type of the result, and for what float cannot hold.
  static bool as_float(const at::Scalar& scalar, float& value) {
    if (scalar.isComplex() || scalar.isSymbolic()) return false;
    const double number = scalar.toDouble();
    value = static_cast<float>(number);
    return std::isinf(number) || !(std::abs(number) > FLT_MAX);
  }

  // ATen rounds the scalar of these to the type of 16-bit tensors, of the others to float32.
  bool rounds_scalar() const {
    return op_ == Pointwise::kAdd || op_ == Pointwise::kAddScalar || (op_ == Pointwise::kMulScalar && in_place_);
  }

  // ATen rounds a 16-bit product of the last, partial vector before it adds.
  bool rounds_product() const {
    return op_ == Pointwise::kAdd && scalar_ != 1.0f && lists_.element() != kernels::Element::kFloat32;
  }

  float scalar_of(size_t i) const {
    const float scalar = (scalars_.empty() ? scalar_ : scalars_[i]) * scale_;
    if (!rounds_scalar() || lists_.element() == kernels::Element::kFloat32) return scalar;
    return lists_.element() == kernels::Element::kBFloat16 ? static_cast<float>(at::BFloat16(scalar))
                                                           : static_cast<float>(at::Half(scalar));
  }

  // Multiplying or dividing by one is not worth a pass: gradient clipping does so whenever the norm is small enough.
  bool changes_nothing(float scalar) const {
    return in_place_ && number_given_ && scalar == 1.0f &&
           (op_ == Pointwise::kMulScalar || op_ == Pointwise::kDivScalar);
  }

  void run(const auto& out) {
    if (scalars_.empty() && changes_nothing(scalar_)) return;
    const kernels::PointwiseKernel kernel = kernels::kernels().pointwise->get(op_, lists_.element());
    lists_.for_each_range([&](size_t i, int64_t begin, int64_t end) {
      kernel(static_cast<char*>(out(i)) + begin * lists_.item_size(), lists_.at(0, i, begin),
             operands_ > 1 ? lists_.at(1, i, begin) : nullptr, operands_ > 2 ? lists_.at(2, i, begin) : nullptr,
             scalar_of(i), end - begin);
    });
  }

  Pointwise op_;
  float scale_;
  bool in_place_;
  bool simple_ = true;
  bool number_given_ = false;
  size_t operands_ = 0;
  at::TensorList self_;
  DenseLists lists_;
  float scalar_ = 1.0f;
  c10::SmallVector<float, 32> scalars_;
};

// The kernel of list operator `Op`: pointwise `kOp` on its operands, the scalar argument multiplied by kScale.
template <class Op, Pointwise kOp, int kScale, class Schema = typename Op::schema>
struct ListKernel;

template <class Op, Pointwise kOp, int kScale, class R, class... A>
struct ListKernel<Op, kOp, kScale, R(A...)> {
  static R call(A... args) {
    {
      ListCall list(kOp, kScale, std::is_void_v<R>);
      (list.take(args), ...);
      if (C10_LIKELY(list.simple())) {
        if constexpr (std::is_void_v<R>) {
          return list.run_in_place();
        } else {
          return list.run();
        }
      }
    }
    return general<Op>(static_cast<A&&>(args)...);
  }
};

template <Pointwise kOp, int kScale, class... Ops>
void register_lists(torch::Library& aten) {
  (register_native<Ops, &ListKernel<Ops, kOp, kScale>::call>(aten), ...);
}

void zero_lists(at::TensorList self) {
  DenseLists lists;
  lists.add(self, /*written=*/true);
  if (!lists.regular()) return general<at::_ops::_foreach_zero_>(self);
  lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
    std::memset(lists.at(0, i, begin), 0, (end - begin) * lists.item_size());
  });
  bump_versions(self);
}

void copy_lists(at::TensorList self, at::TensorList source, bool non_blocking) {
  DenseLists lists;
  lists.add(self, /*written=*/true);
  lists.add(source, /*written=*/false);
  if (!lists.regular()) return general<at::_ops::_foreach_copy_>(self, source, non_blocking);
  lists.for_each_range([&](size_t i, int64_t begin, int64_t end) {
    std::memmove(lists.at(0, i, begin), lists.at(1, i, begin), (end - begin) * lists.item_size());
  });
  bump_versions(self);
}

}  // namespace

void register_fused_foreach(torch::Library& aten) {
  namespace ops = at::_ops;
  using enum Pointwise;
  register_lists<kAdd, 1, ops::_foreach_add__List, ops::_foreach_add_List>(aten);
  register_lists<kAdd, -1, ops::_foreach_sub__List, ops::_foreach_sub_List>(aten);
  register_lists<kAddScalar, 1, ops::_foreach_add__Scalar, ops::_foreach_add_Scalar, ops::_foreach_add__ScalarList,
                 ops::_foreach_add_ScalarList>(aten);
  register_lists<kAddScalar, -1, ops::_foreach_sub__Scalar, ops::_foreach_sub_Scalar>(aten);
  register_lists<kMul, 1, ops::_foreach_mul__List, ops::_foreach_mul_List>(aten);
  register_lists<kMulScalar, 1, ops::_foreach_mul__Scalar, ops::_foreach_mul_Scalar, ops::_foreach_mul__ScalarList,
                 ops::_foreach_mul_ScalarList, ops::_foreach_mul__Tensor, ops::_foreach_mul_Tensor>(aten);
  register_lists<kDiv, 1, ops::_foreach_div__List, ops::_foreach_div_List>(aten);
  register_lists<kDivScalar, 1, ops::_foreach_div__Scalar, ops::_foreach_div_Scalar, ops::_foreach_div__ScalarList,
                 ops::_foreach_div_ScalarList, ops::_foreach_div__Tensor>(aten);
  register_lists<kLerp, 1, ops::_foreach_lerp__Scalar, ops::_foreach_lerp_Scalar>(aten);
  register_lists<kAddcmul, 1, ops::_foreach_addcmul__Scalar, ops::_foreach_addcmul_Scalar,
                 ops::_foreach_addcmul__ScalarList>(aten);
  register_lists<kAddcdiv, 1, ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv_Scalar,
                 ops::_foreach_addcdiv__ScalarList>(aten);
  register_lists<kMaximum, 1, ops::_foreach_maximum__List, ops::_foreach_maximum_List>(aten);
  register_lists<kMinimum, 1, ops::_foreach_minimum__List, ops::_foreach_minimum_List>(aten);
  register_lists<kSqrt, 1, ops::_foreach_sqrt, ops::_foreach_sqrt_>(aten);
  register_lists<kReciprocal, 1, ops::_foreach_reciprocal, ops::_foreach_reciprocal_>(aten);
  register_lists<kNeg, 1, ops::_foreach_neg, ops::_foreach_neg_>(aten);
  register_lists<kAbs, 1, ops::_foreach_abs, ops::_foreach_abs_>(aten);
  register_native<ops::_foreach_zero_, &zero_lists>(aten);
  register_native<ops::_foreach_copy_, &copy_lists>(aten);
}

}  // namespace cann::aten
