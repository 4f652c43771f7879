#include "aten/dry_values.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "aten/boxed.h"
#include "aten/observe.h"
#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/host_alias.h"
#include "runtime/simulator.h"

namespace cann::aten {
namespace {

using c10::IValue;
using torch::jit::Stack;

at::Tensor fresh(c10::IntArrayRef sizes, at::ScalarType dtype, const at::Tensor& like) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(like.device()));
}

// How many elements `op` selects, given by the user.
int64_t selected(const c10::OperatorHandle& op, const at::Tensor& from) {
  const auto answer = ask_unknown({UnknownRead::kCount, op.schema().name(), from});
  return static_cast<int64_t>(std::llround(answer.value_or(static_cast<double>(from.numel()))));
}

void launch_result(const c10::OperatorHandle& op, const at::Tensor& input, const at::Tensor& output) {
  if (!simulator::on()) return;
  const Observed facts(op);
  simulator::Observation seen(op.schema().name().c_str(), facts.id, facts.pointwise);
  seen.read(input);
  seen.overwrite(output);
  seen.finish();
}

// Each answers one call whose tensor `self` is not known: pops nothing, returns the results.
using Answer = std::vector<IValue> (*)(const c10::OperatorHandle& op, std::span<const IValue> arguments);

std::vector<IValue> answer_item(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const double value = ask_unknown({UnknownRead::kValue, op.schema().name(), self}).value_or(0);
  const at::ScalarType type = self.scalar_type();
  if (simulator::on()) {
    simulator::launch_host_copy(/*to_device=*/false, self.nbytes(), self.device().index());
    simulator::timeline().host_sync();
  }
  if (type == at::kBool) return {at::Scalar(value != 0)};
  if (at::isIntegralType(type, /*includeBool=*/false)) return {at::Scalar(static_cast<int64_t>(value))};
  return {at::Scalar(value)};
}

std::vector<IValue> answer_equal(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  return {ask_unknown({UnknownRead::kValue, op.schema().name(), arguments[0].toTensor()}).value_or(0) != 0};
}

std::vector<IValue> answer_nonzero(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  at::Tensor result = fresh({self.dim(), selected(op, self)}, at::kLong, self);
  launch_result(op, self, result);
  return {result.t()};
}

std::vector<IValue> answer_masked_select(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  at::Tensor result = fresh({selected(op, arguments[1].toTensor())}, self.scalar_type(), self);
  launch_result(op, self, result);
  return {std::move(result)};
}

std::vector<IValue> answer_unique(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t count = selected(op, self);
  std::vector<int64_t> sizes{count};
  at::Tensor inverse = fresh(self.sizes(), at::kLong, self);
  if (op.schema().name().find("_dim") != std::string::npos) {
    const int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
    sizes = self.sizes().vec();
    sizes[static_cast<size_t>(dim)] = count;
    inverse = fresh({self.size(dim)}, at::kLong, self);
  }
  at::Tensor values = fresh(sizes, self.scalar_type(), self);
  launch_result(op, self, values);
  std::vector<IValue> results{std::move(values), std::move(inverse), fresh({count}, at::kLong, self)};
  results.resize(op.schema().returns().size());
  return results;
}

std::vector<IValue> answer_repeat_interleave(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t count = arguments[1].isNone() ? selected(op, self) : arguments[1].toInt();
  return {fresh({count}, self.scalar_type(), self)};
}

std::vector<IValue> answer_bincount(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t least = std::max<int64_t>(arguments[2].toInt(), 1);
  // With a minimum given, that is taken to be the number of bins.
  const int64_t bins = least > 1 ? least : selected(op, self);
  return {fresh({bins}, arguments[1].isTensor() ? at::kDouble : at::kLong, self)};
}

const std::unordered_map<std::string_view, Answer>& answers() {
  static const std::unordered_map<std::string_view, Answer> table{
      {"aten::_local_scalar_dense", answer_item},
      {"aten::equal", answer_equal},
      {"aten::nonzero", answer_nonzero},
      {"aten::masked_select", answer_masked_select},
      {"aten::_unique2", answer_unique},
      {"aten::_unique", answer_unique},
      {"aten::unique_dim", answer_unique},
      {"aten::unique_consecutive", answer_unique},
      {"aten::unique_dim_consecutive", answer_unique},
      {"aten::repeat_interleave", answer_repeat_interleave},
      {"aten::bincount", answer_bincount},
  };
  return table;
}

bool all_known(std::span<const IValue> arguments) {
  return std::ranges::all_of(arguments, [](const IValue& value) {
    return !value.isTensor() || !value.toTensor().defined() || values_known(value.toTensor());
  });
}

bool is_mask(const std::optional<at::Tensor>& index) {
  return index.has_value() && index->defined() &&
         (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

bool takes_indices(const c10::OperatorHandle& op) {
  return op.schema().name().find("index") != std::string::npos && op.schema().arguments().size() >= 2;
}

// index and index_put with masks: each becomes the index tensors that it stands for.
void replace_masks(const c10::OperatorHandle& op, Stack* stack) {
  if (!takes_indices(op)) return;
  IValue& indices = (*stack)[stack->size() - op.schema().arguments().size() + 1];
  if (!indices.isOptionalTensorList()) return;
  const auto given = indices.toOptionalTensorList();
  const bool masked = std::ranges::any_of(given.vec(), is_mask);
  if (!masked) return;
  c10::List<std::optional<at::Tensor>> replaced;
  for (const std::optional<at::Tensor>& index : given.vec()) {
    if (!is_mask(index)) {
      replaced.push_back(index);
    } else if (values_known(*index)) {
      for (const at::Tensor& positions : index->nonzero().unbind(1)) replaced.push_back(positions);
    } else {
      const at::Tensor positions = fresh({selected(op, *index)}, at::kLong, *index);
      for (int64_t i = 0; i < index->dim(); ++i) replaced.push_back(positions);
    }
  }
  indices = std::move(replaced);
}

}  // namespace

bool may_depend_on_values(const c10::OperatorHandle& op) {
  return takes_indices(op) || answers().contains(op.schema().name());
}

bool answer_from_values(const c10::OperatorHandle& op, Stack* stack) {
  replace_masks(op, stack);
  const auto found = answers().find(op.schema().name());
  if (found == answers().end()) return false;
  const std::string& overload = op.schema().overload_name();
  if (!overload.empty() && overload != "Tensor") return false;
  const size_t count = op.schema().arguments().size();
  const std::span<const IValue> arguments(stack->data() + stack->size() - count, count);
  if (all_known(arguments)) {
    run_on_host(op, stack);
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
      if ((*stack)[i].isTensor()) set_values_known((*stack)[i].toTensor(), true);
    }
    return true;
  }
  std::vector<IValue> results = found->second(op, arguments);
  torch::jit::drop(*stack, count);
  for (IValue& result : results) stack->push_back(std::move(result));
  return true;
}

bool keeps_values_by_assumption(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  if (op.schema().name() != "aten::_amp_foreach_non_finite_check_and_unscale_") return false;
  const at::Tensor& found_inf = arguments[1].toTensor();
  ask_unknown({UnknownRead::kAssume, op.schema().name(), found_inf});
  return true;
}

at::Tensor& dry_copy(at::Tensor& self, const at::Tensor& source) {
  TORCH_CHECK(at::is_expandable_to(source.sizes(), self.sizes()), "The size of tensor a ", self.sizes(),
              " must match the size of tensor b ", source.sizes());
  if (self.is_meta() || source.is_meta()) return self;
  const bool known = values_known(source);
  const bool to_host = self.device().type() != kNPU;
  if (known && (to_host ? source.device().type() == kNPU : can_become_known(self))) {
    at::Tensor to = host_alias(self);
    to.copy_(host_alias(source));
    if (!to_host) set_values_known(self, true);
  } else if (to_host) {
    ask_unknown({UnknownRead::kCopy, "aten::copy_", source});
    if (at::isFloatingType(self.scalar_type()) && self.nbytes() <= kKnownBytes) {
      self.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  } else {
    set_values_known(self, false);
  }
  if (simulator::on()) {
    observe_copy(self, source, /*non_blocking=*/!to_host);
    if (to_host) simulator::timeline().host_sync();
  }
  return self;
}

}  // namespace cann::aten
