// Grouped matrix products: x split into groups of rows (group_type 0) or of the summed dimension (2), or lists of
// tensors (-1), each group with a weight of its own. Products run as operators on npu tensors.

#include "aten/npu/families.h"
#include "aten/npu/host_values.h"
#include "aten/npu/registry.h"
#include "aten/npu/types.h"

namespace cann::aten::npu {
namespace {

using OptionalList = std::optional<TensorList>;
using Integers = std::optional<int64_t>;

bool present(const OptionalList& list) { return list.has_value() && !list->empty() && (*list)[0].defined(); }

// ---- What a call asks for

struct GroupedCall {
  TensorList x, weight;
  OptionalList bias, scale, antiquant_scale, antiquant_offset, per_token_scale;
  int64_t split_item, group_type, act_type;
  std::optional<at::ScalarType> output_type;
};

void check_call(const GroupedCall& c, const OptionalList& offset, const OptionalList& activation_input) {
  constexpr const char* kOp = "npu_grouped_matmul";
  CANN_CHECK_OP(!c.x.empty() && !c.weight.empty(), kOp, ": x and weight must not be empty");
  CANN_CHECK_OP(c.group_type == -1 || c.group_type == 0 || c.group_type == 2, kOp,
                ": group_type must be -1 (lists), 0 (rows) or 2 (summed dimension), but got ", c.group_type);
  CANN_CHECK_OP(c.split_item >= 0 && c.split_item <= 3, kOp, ": split_item must be from 0 to 3, but got ",
                c.split_item);
  CANN_CHECK_SUPPORTED(!present(offset) && !present(activation_input), kOp,
                       ": offset and activation_input are not implemented");
  for (const Tensor& w : c.weight) {
    CANN_CHECK_SUPPORTED(w.scalar_type() != at::kInt, kOp, ": int4 weights packed in int32 are not implemented");
  }
  if (present(c.scale)) {
    CANN_CHECK_SUPPORTED((*c.scale)[0].is_floating_point(), kOp, ": a scale of ", (*c.scale)[0].scalar_type(),
                         ", the hardware's packed form, is not "
                         "implemented: give it as bfloat16 or float32");
  }
}

// Member i of a list, or row i of its single member of one more dimension; undefined without a list.
Tensor of_group(const OptionalList& list, size_t i, int64_t dims) {
  if (!present(list)) return Tensor();
  if (list->size() == 1 && (*list)[0].dim() > dims) return (*list)[0].select(0, static_cast<int64_t>(i));
  return (*list)[list->size() == 1 ? 0 : i];
}

Tensor activated(const Tensor& y, int64_t act_type) {
  switch (act_type) {
    case 0:
      return y;
    case 1:
      return y.relu();
    case 2:
      return at::gelu(y, "tanh");
    case 4:
      return y.mul(y.mul(1.702).sigmoid());
    case 5:
      return at::silu(y);
    default:
      CANN_CHECK_SUPPORTED(false, "npu_grouped_matmul: act_type ", act_type,
                           " is not implemented, only 0 (none), 1 (relu), 2 (gelu, tanh), 4 (fast gelu) and 5 (silu)");
  }
}

// One group: x (..., K) @ weight (K, N). int8 operands are multiplied exactly, in float64.
Tensor group_product(const GroupedCall& c, const Tensor& x, const Tensor& weight, size_t group,
                     const Tensor& token_scale) {
  const at::ScalarType type = c.output_type.value_or(x.scalar_type());
  const Tensor bias = of_group(c.bias, group, 1);
  if (x.scalar_type() == at::kChar) {
    Tensor y = at::matmul(x.to(at::kDouble), weight.to(at::kDouble));
    if (bias.defined()) y = y.add(bias);
    if (const Tensor scale = of_group(c.scale, group, 1); scale.defined()) y = y.mul(scale);
    if (token_scale.defined()) y = y.mul(token_scale.unsqueeze(-1));
    return activated(y.to(at::kFloat), c.act_type).to(c.output_type.value_or(at::kHalf));
  }
  Tensor w = weight;
  if (weight.scalar_type() == at::kChar) {
    w = weight.to(compute_type(x));
    if (const Tensor offset = of_group(c.antiquant_offset, group, 1); offset.defined()) w = w.add(offset);
    if (const Tensor scale = of_group(c.antiquant_scale, group, 1); scale.defined()) w = w.mul(scale);
    w = w.to(x.scalar_type());
  }
  Tensor y = at::matmul(x, w);
  if (bias.defined()) y = y.add(bias.to(y.scalar_type()));
  return activated(y, c.act_type).to(type);
}

// ---- Groups from group_list: cumulated ends (0), lengths (1), or (expert, length) pairs (2)

struct Group {
  size_t weight;
  int64_t begin, length;
};
std::vector<Group> groups_of(const std::vector<int64_t>& list, int64_t list_type, int64_t total) {
  constexpr const char* kOp = "npu_grouped_matmul";
  CANN_CHECK_OP(list_type >= 0 && list_type <= 2, kOp, ": group_list_type must be from 0 to 2, but got ", list_type);
  std::vector<Group> groups;
  int64_t begin = 0;
  const size_t step = list_type == 2 ? 2 : 1;
  for (size_t i = 0; i + step <= list.size(); i += step) {
    const int64_t length = list_type == 0 ? list[i] - begin : list[i + step - 1];
    CANN_CHECK_OP(length >= 0 && begin + length <= total, kOp, ": group ", i / step, " of group_list has ", length,
                  " rows from ", begin, " on, but x has ", total);
    groups.push_back({list_type == 2 ? static_cast<size_t>(list[i]) : i, begin, length});
    begin += length;
  }
  return groups;
}

Tensor weight_of(const GroupedCall& c, size_t group) {
  const bool stacked = c.weight.size() == 1 && c.weight[0].dim() == 3;
  const size_t count = stacked ? static_cast<size_t>(c.weight[0].size(0)) : c.weight.size();
  CANN_CHECK_OP(group < count, "npu_grouped_matmul: group_list has a group ", group, ", but there are ", count,
                " weights");
  return stacked ? c.weight[0].select(0, static_cast<int64_t>(group)) : c.weight[group];
}

std::vector<Tensor> by_lists(const GroupedCall& c) {
  CANN_CHECK_OP(c.x.size() == c.weight.size() || (c.weight.size() == 1 && c.weight[0].dim() == 3),
                "npu_grouped_matmul: group_type -1 needs as many weights as x, but has ", c.weight.size(), " and ",
                c.x.size());
  std::vector<Tensor> y;
  for (size_t i = 0; i < c.x.size(); ++i) {
    const Tensor token_scale = of_group(c.per_token_scale, i, 1);
    y.push_back(group_product(c, c.x[i], weight_of(c, i), i, token_scale));
  }
  return c.split_item < 2 ? y : std::vector<Tensor>{at::cat(y, 0)};
}

// Rows that no group covers are zeros.
std::vector<Tensor> by_rows(const GroupedCall& c, const std::vector<int64_t>& list, int64_t list_type) {
  const Tensor x = c.x.size() == 1 ? c.x[0] : at::cat(c.x, 0);
  const Tensor scales = present(c.per_token_scale) ? (*c.per_token_scale)[0] : Tensor();
  std::vector<Tensor> y;
  int64_t covered = 0;
  for (const Group& g : groups_of(list, list_type, x.size(0))) {
    const Tensor rows = x.narrow(0, g.begin, g.length);
    y.push_back(group_product(c, rows, weight_of(c, g.weight), g.weight,
                              scales.defined() ? scales.narrow(0, g.begin, g.length) : Tensor()));
    covered = g.begin + g.length;
  }
  if (c.split_item < 2) return y;
  CANN_CHECK_OP(!y.empty(), "npu_grouped_matmul: group_list is empty");
  if (covered < x.size(0)) y.push_back(at::zeros({x.size(0) - covered, y[0].size(1)}, y[0].options()));
  return {y.size() == 1 ? y[0] : at::cat(y, 0)};
}

// x (M, K) and weight (K, N) share groups of K: y (groups, M, N).
std::vector<Tensor> by_summed(const GroupedCall& c, const std::vector<int64_t>& list, int64_t list_type) {
  CANN_CHECK_OP(c.x.size() == 1 && c.weight.size() == 1 && c.x[0].dim() == 2 && c.weight[0].dim() == 2 &&
                    c.x[0].size(1) == c.weight[0].size(0),
                "npu_grouped_matmul: group_type 2 needs one x (M, K) and one weight (K, N), but the first have sizes ",
                c.x[0].sizes(), " and ", c.weight[0].sizes());
  std::vector<Tensor> y;
  for (const Group& g : groups_of(list, list_type, c.x[0].size(1))) {
    y.push_back(group_product(c, c.x[0].narrow(1, g.begin, g.length), c.weight[0].narrow(0, g.begin, g.length),
                              g.weight, Tensor()));
  }
  return {at::stack(y)};
}

std::vector<Tensor> grouped(const GroupedCall& c, const std::optional<std::vector<int64_t>>& list, int64_t list_type) {
  if (c.group_type == -1) return by_lists(c);
  CANN_CHECK_OP(list.has_value(), "npu_grouped_matmul: group_type ", c.group_type, " needs group_list");
  return c.group_type == 0 ? by_rows(c, *list, list_type) : by_summed(c, *list, list_type);
}

// Results as empty tensors; how many rows each of several results has is only known when `list` is.
std::vector<Tensor> grouped_shape(const GroupedCall& c, const std::optional<std::vector<int64_t>>& list,
                                  int64_t list_type, const SymInt& groups) {
  const Tensor& x = c.x[0];
  const auto type = c.output_type.value_or(x.scalar_type() == at::kChar ? at::kHalf : x.scalar_type());
  if (c.group_type == 2) {
    return {empty_of(x, {groups, x.sym_size(0), c.weight[0].sym_size(1)}, type)};
  }
  const bool stacked = c.weight.size() == 1 && c.weight[0].dim() == 3;
  const auto columns = [&](size_t i) { return c.weight[stacked || c.weight.size() == 1 ? 0 : i].sym_size(-1); };
  std::vector<Tensor> y;
  if (c.split_item >= 2) {
    SymInt rows = 0;
    for (const Tensor& t : c.x) rows = rows + t.sym_size(0);
    return {empty_of(x, {rows, columns(0)}, type)};
  }
  if (c.group_type == -1) {
    for (size_t i = 0; i < c.x.size(); ++i) {
      c10::SymDimVector sizes = sizes_of(c.x[i]);
      sizes.back() = columns(i);
      y.push_back(empty_of(c.x[i], sizes, type));
    }
    return y;
  }
  CANN_CHECK_SUPPORTED(list.has_value(),
                       "npu_grouped_matmul: the number of rows of each of several results depends on "
                       "the values of group_list, which tracing does not have; use split_item 2 or 3");
  for (const Group& g : groups_of(*list, list_type, x.size(0))) {
    y.push_back(empty_of(x, {g.length, columns(g.weight)}, type));
  }
  return y;
}

std::optional<at::ScalarType> optional_type(Integers number) {
  return number.has_value() ? std::optional(type_of_number(*number, "npu_grouped_matmul")) : std::nullopt;
}
int64_t group_type_or_lists(Integers group_type) { return group_type.value_or(-1); }

// ---- The two overloads

template <bool kShape>
std::vector<Tensor> grouped_matmul(TensorList x, TensorList weight, OptionalList bias, OptionalList scale,
                                   OptionalList offset, OptionalList antiquant_scale, OptionalList antiquant_offset,
                                   OptionalList per_token_scale, const OptionalTensor& group_list,
                                   OptionalList activation_input, OptionalList, OptionalList, Integers split_item,
                                   Integers group_type, Integers group_list_type, Integers act_type,
                                   at::OptionalIntArrayRef, Integers output_dtype, Integers, Integers, Integers,
                                   Integers) {
  const GroupedCall call{.x = x,
                         .weight = weight,
                         .bias = bias,
                         .scale = scale,
                         .antiquant_scale = antiquant_scale,
                         .antiquant_offset = antiquant_offset,
                         .per_token_scale = per_token_scale,
                         .split_item = split_item.value_or(0),
                         .group_type = group_type_or_lists(group_type),
                         .act_type = act_type.value_or(0),
                         .output_type = optional_type(output_dtype)};
  check_call(call, offset, activation_input);
  if constexpr (kShape) {
    return grouped_shape(call, std::nullopt, group_list_type.value_or(0),
                         has(group_list) ? group_list->sym_size(0) : SymInt(0));
  } else {
    return grouped(call, has(group_list) ? std::optional(integers_of(*group_list)) : std::nullopt,
                   group_list_type.value_or(0));
  }
}

template <bool kShape>
std::vector<Tensor> grouped_matmul_list(TensorList x, TensorList weight, OptionalList bias, OptionalList scale,
                                        OptionalList offset, OptionalList antiquant_scale,
                                        OptionalList antiquant_offset, OptionalList per_token_scale,
                                        at::OptionalIntArrayRef group_list, OptionalList activation_input, OptionalList,
                                        OptionalList, Integers split_item, Integers group_type,
                                        Integers group_list_type, Integers act_type,
                                        std::optional<at::ScalarType> output_dtype) {
  // A list of ends alone used to say that rows are grouped.
  const int64_t kind = group_type.value_or(group_list.has_value() && !group_list->empty() ? 0 : -1);
  const GroupedCall call{.x = x,
                         .weight = weight,
                         .bias = bias,
                         .scale = scale,
                         .antiquant_scale = antiquant_scale,
                         .antiquant_offset = antiquant_offset,
                         .per_token_scale = per_token_scale,
                         .split_item = split_item.value_or(0),
                         .group_type = kind,
                         .act_type = act_type.value_or(0),
                         .output_type = output_dtype};
  check_call(call, offset, activation_input);
  std::optional<std::vector<int64_t>> list;
  if (group_list.has_value()) list = group_list->vec();
  const int64_t list_type = group_list_type.value_or(0);
  if constexpr (kShape) {
    return grouped_shape(call, list, list_type, list.has_value() ? static_cast<int64_t>(list->size()) : 0);
  } else {
    return grouped(call, list, list_type);
  }
}

// ---- y += x^T @ weight of each group: how gradients of expert weights accumulate

Tensor& grouped_matmul_add_(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& group_list,
                            bool transpose_x, bool transpose_weight, int64_t group_type, Integers list_type) {
  constexpr const char* kOp = "npu_grouped_matmul_add_";
  CANN_CHECK_SUPPORTED(
      transpose_x && !transpose_weight && group_type == 2, kOp,
      ": only transpose_x=True, transpose_weight=False and group_type=2 are supported, as on hardware");
  const auto groups = groups_of(integers_of(group_list), list_type.value_or(0), x.size(0));
  const Tensor by_group = y.view({static_cast<int64_t>(groups.size()), x.size(1), weight.size(1)});
  for (size_t i = 0; i < groups.size(); ++i) {
    const Tensor rows = x.narrow(0, groups[i].begin, groups[i].length).to(y.scalar_type());
    by_group.select(0, static_cast<int64_t>(i))
        .addmm_(rows.t(), weight.narrow(0, groups[i].begin, groups[i].length).to(y.scalar_type()));
  }
  return y;
}
Tensor grouped_matmul_add(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& group_list,
                          bool transpose_x, bool transpose_weight, int64_t group_type, Integers list_type) {
  Tensor result = y.clone();
  return grouped_matmul_add_(result, x, weight, group_list, transpose_x, transpose_weight, group_type, list_type);
}
Tensor& add_shape_(Tensor& y, const Tensor&, const Tensor&, const Tensor&, bool, bool, int64_t, Integers) { return y; }
Tensor add_shape(const Tensor& y, const Tensor&, const Tensor&, const Tensor&, bool, bool, int64_t, Integers) {
  return at::empty_like(y);
}

}  // namespace

void register_grouped_matmul(Registry& ops) {
  ops.add_native<"npu_grouped_matmul", grouped_matmul<false>, grouped_matmul<true>>(
      "(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? offset=None, Tensor[]? "
      "antiquant_scale=None, Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, Tensor? "
      "group_list=None, Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? "
      "activation_quant_offset=None, int? split_item=0, int? group_type=None, int? group_list_type=0, int? "
      "act_type=0, int[]? tuning_config=None, int? output_dtype=None, int? x_dtype=None, int? weight_dtype=None, int? "
      "scale_dtype=None, int? per_token_scale_dtype=None) -> Tensor[]");
  ops.add_native<"npu_grouped_matmul.List", grouped_matmul_list<false>, grouped_matmul_list<true>>(
      "(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? offset=None, Tensor[]? "
      "antiquant_scale=None, Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, int[]? group_list=None, "
      "Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? "
      "activation_quant_offset=None, int? split_item=0, int? group_type=None, int? group_list_type=0, int? "
      "act_type=0, ScalarType? output_dtype=None) -> Tensor[]");
  ops.add_native<"npu_grouped_matmul_add", grouped_matmul_add, add_shape>(
      "(Tensor input, Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, bool "
      "transpose_weight=False, int group_type=2, int? group_list_type=0) -> Tensor");
  ops.add_native<"npu_grouped_matmul_add_", grouped_matmul_add_, add_shape_>(
      "(Tensor(a!) input, Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, bool "
      "transpose_weight=False, int group_type=2, int? group_list_type=0) -> Tensor(a!)");
}

}  // namespace cann::aten::npu
