// Views, copies, gathers and scatters under their npu names. Schemas without alias annotations promise a new tensor, so
// views are copied.

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

Tensor fresh(const Tensor& view) { return view.clone(at::MemoryFormat::Contiguous); }

Tensor& into(Tensor& out, const Tensor& result) {
  if (!out.sizes().equals(result.sizes())) out.resize_(result.sizes());
  return out.copy_(result);
}

// ---- Views as copies

Tensor transpose(const Tensor& input, IntArrayRef perm, bool) { return fresh(input.permute(perm)); }
Tensor& transpose_out(const Tensor& input, IntArrayRef perm, bool, Tensor& out) {
  return into(out, input.permute(perm));
}

Tensor reshape(const Tensor& input, IntArrayRef shape, bool) { return fresh(input.reshape(shape)); }
Tensor& reshape_out(const Tensor& input, IntArrayRef shape, bool, Tensor& out) {
  return into(out, input.reshape(shape));
}

Tensor broadcast(const Tensor& input, IntArrayRef size) { return fresh(input.expand(size)); }
Tensor& broadcast_out(const Tensor& input, IntArrayRef size, Tensor& out) { return into(out, input.expand(size)); }

// size[i] == -1: to the end.
Tensor slice_view(const Tensor& input, IntArrayRef offsets, IntArrayRef size) {
  CANN_CHECK_OP(static_cast<int64_t>(offsets.size()) == input.dim() && offsets.size() == size.size(),
                "npu_slice: offsets and size need one number for each of the ", input.dim(),
                " dimensions of input, but have ", offsets.size(), " and ", size.size());
  Tensor view = input;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const auto i = static_cast<size_t>(d);
    const SymInt length = size[i] < 0 ? input.sym_size(d) - offsets[i] : SymInt(size[i]);
    view = view.narrow_symint(d, offsets[i], length);
  }
  return view;
}
Tensor slice(const Tensor& input, IntArrayRef offsets, IntArrayRef size) {
  return fresh(slice_view(input, offsets, size));
}
Tensor& slice_out(const Tensor& input, IntArrayRef offsets, IntArrayRef size, Tensor& out) {
  return into(out, slice_view(input, offsets, size));
}

// begin:end:stride for each dimension; bit i of a mask leaves out that end of dimension i, of shrink_axis_mask removes
// the dimension.
Tensor strided_view(const Tensor& input, IntArrayRef begin, IntArrayRef end, IntArrayRef strides, int64_t begin_mask,
                    int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask) {
  CANN_CHECK_SUPPORTED(ellipsis_mask == 0 && new_axis_mask == 0,
                       "npu_indexing: ellipsis_mask and new_axis_mask are not implemented");
  CANN_CHECK_OP(
      begin.size() == end.size() && begin.size() == strides.size() && static_cast<int64_t>(begin.size()) <= input.dim(),
      "npu_indexing: begin, end and strides need the same length, at most ", input.dim(), ", but have ", begin.size(),
      ", ", end.size(), " and ", strides.size());
  Tensor view = input;
  int64_t d = 0;
  for (size_t i = 0; i < begin.size(); ++i) {
    if (shrink_axis_mask >> i & 1) {
      view = view.select(d, begin[i]);
      continue;
    }
    const auto first = begin_mask >> i & 1 ? std::nullopt : std::optional(begin[i]);
    const auto last = end_mask >> i & 1 ? std::nullopt : std::optional(end[i]);
    view = view.slice(d++, first, last, strides[i]);
  }
  return view;
}
Tensor indexing(const Tensor& input, IntArrayRef begin, IntArrayRef end, IntArrayRef strides, int64_t begin_mask,
                int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask) {
  return fresh(
      strided_view(input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask));
}
Tensor& indexing_out(const Tensor& input, IntArrayRef begin, IntArrayRef end, IntArrayRef strides, int64_t begin_mask,
                     int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask,
                     Tensor& out) {
  return into(out, strided_view(input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
                                shrink_axis_mask));
}

Tensor stride_copy(const Tensor& input, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset) {
  return fresh(input.as_strided(shape, stride, storage_offset.toLong()));
}
Tensor& stride_copy_out(const Tensor& input, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset,
                        Tensor& out) {
  return into(out, input.as_strided(shape, stride, storage_offset.toLong()));
}

// Permutes, then reshapes; or the other way round.
Tensor confusion_transpose(const Tensor& input, IntArrayRef perm, IntArrayRef shape, bool transpose_first) {
  return fresh(transpose_first ? input.permute(perm).reshape(shape) : input.reshape(shape).permute(perm));
}
// The dimensions of a permutation, from 0 on.
c10::DimVector wrapped(IntArrayRef perm) {
  c10::DimVector result;
  for (const int64_t d : perm) result.push_back(at::maybe_wrap_dim(d, static_cast<int64_t>(perm.size())));
  return result;
}
c10::DimVector inverse(IntArrayRef perm) {
  c10::DimVector result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}
// `shape` are the sizes of the forward's input and transpose_first is the opposite of the forward's.
Tensor confusion_transpose_backward(const Tensor& grad, IntArrayRef perm, c10::SymIntArrayRef shape,
                                    bool transpose_first) {
  const c10::DimVector order = wrapped(perm);
  if (transpose_first) return fresh(grad.permute(inverse(order)).reshape_symint(shape));
  CANN_CHECK_OP(order.size() == shape.size(), "npu_confusion_transpose_backward: perm must name each of the ",
                shape.size(), " dimensions of shape, but has ", order.size());
  c10::SymDimVector permuted;
  for (const int64_t d : order) permuted.push_back(shape[static_cast<size_t>(d)]);
  return fresh(grad.reshape_symint(permuted).permute(inverse(order)));
}
variable_list confusion_transpose_derivative(Context<confusion_transpose>& c) {
  const Tensor input = c.input<0>();
  return {Operator<"npu_confusion_transpose_backward", confusion_transpose_backward>::call(
      c.grad(0), c.input<1>(), input.sym_sizes(), !c.input<3>())};
}

// ---- Filling and copying

Tensor& view_copy(Tensor& input, const Tensor& other, bool non_blocking) { return input.copy_(other, non_blocking); }
Tensor& one_(Tensor& input) { return input.fill_(1); }

// paddings: before and after for each dimension, the first dimension first.
Tensor pad(const Tensor& input, IntArrayRef paddings) {
  CANN_CHECK_OP(static_cast<int64_t>(paddings.size()) == 2 * input.dim(),
                "npu_pad: paddings needs two numbers for each of the ", input.dim(), " dimensions of input, but has ",
                paddings.size());
  c10::DimVector last_first;
  for (size_t d = paddings.size() / 2; d-- > 0;) {
    last_first.push_back(paddings[2 * d]);
    last_first.push_back(paddings[2 * d + 1]);
  }
  return at::constant_pad_nd(input, last_first);
}

// The new axis of `depth` values goes where `axis` (the schema's num_classes) says, -1 for last.
Tensor one_hot(const Tensor& input, int64_t axis, int64_t depth, const Scalar& on_value, const Scalar& off_value) {
  CANN_CHECK_OP(depth > 0, "npu_one_hot: depth must be positive, but got ", depth);
  CANN_CHECK_OP(axis >= -1 && axis <= input.dim(), "npu_one_hot: the axis, num_classes, must be from -1 to ",
                input.dim(), ", the dimensions of input, but got ", axis);
  const int64_t dim = axis < 0 ? input.dim() : axis;
  c10::DimVector shape(static_cast<size_t>(input.dim()) + 1, 1);
  shape[static_cast<size_t>(dim)] = depth;
  const Tensor classes = at::arange(depth, input.options().dtype(at::kLong)).reshape(shape);
  const auto options = input.options().dtype(at::kFloat);
  return at::where(input.to(at::kLong).unsqueeze(dim).eq(classes), at::full({}, on_value, options),
                   at::full({}, off_value, options));
}

// ---- Extremes with int32 positions

template <bool kMax>
std::tuple<Tensor, Tensor> extreme(const Tensor& input, int64_t dim, bool keepdim) {
  auto [values, indices] = kMax ? at::max(input, dim, keepdim) : at::min(input, dim, keepdim);
  return {values, indices.to(at::kInt)};
}
Tensor extreme_backward(const Tensor& grad, int64_t dim, const Tensor& indices, c10::SymIntArrayRef sizes,
                        bool keepdim) {
  Tensor result = at::zeros_symint(sizes, grad.options());
  if (sizes.empty()) return result.copy_(grad);
  const Tensor at_positions = keepdim ? indices : indices.unsqueeze(dim);
  return result.scatter_(dim, at_positions.to(at::kLong), keepdim ? grad : grad.unsqueeze(dim));
}
template <bool kMax>
variable_list extreme_derivative(Context<extreme<kMax>>& c) {
  const Tensor input = c.template input<0>();
  constexpr auto call = kMax ? &Operator<"npu_max_backward", extreme_backward>::call
                             : &Operator<"npu_min_backward", extreme_backward>::call;
  return {call(c.grad(0), c.template input<1>(), c.template output<1>(), input.sym_sizes(), c.template input<2>())};
}

Tensor sort_v2(const Tensor& input, int64_t dim, bool descending) {
  return std::get<0>(at::sort(input, dim, descending));
}
Tensor& sort_v2_out(const Tensor& input, int64_t dim, bool descending, Tensor& out) {
  return into(out, sort_v2(input, dim, descending));
}

// ---- Gathers and scatters

// Rows of `input`, index.sizes() + input.sizes()[1:].
Tensor gather_sparse_index(const Tensor& input, const Tensor& index) {
  if (input.dim() == 0) return input.clone();
  c10::SymDimVector sizes = sizes_of(index);
  const auto row = input.sym_sizes().slice(1);
  sizes.append(row.begin(), row.end());
  return input.index_select(0, index.reshape(-1).to(at::kLong)).reshape_symint(sizes);
}
Tensor gather_sparse_index_backward(const Tensor& grad, c10::SymIntArrayRef sizes, const Tensor& index) {
  if (sizes.empty()) return grad.clone();
  Tensor result = at::zeros_symint(sizes, grad.options().dtype(compute_type(grad)));
  c10::SymDimVector rows{-1};
  rows.append(sizes.begin() + 1, sizes.end());
  result.index_add_(0, index.reshape(-1).to(at::kLong), wide(grad).reshape_symint(rows));
  return result.to(grad.scalar_type());
}
variable_list gather_sparse_index_derivative(Context<gather_sparse_index>& c) {
  const Tensor input = c.input<0>();
  return {Operator<"npu_gather_sparse_index_backward", gather_sparse_index_backward>::call(c.grad(0), input.sym_sizes(),
                                                                                           c.input<1>()),
          Tensor()};
}

// indices (..., k) name the first k dimensions of `input`.
Tensor& scatter_nd_update_(Tensor& input, const Tensor& indices, const Tensor& updates) {
  const int64_t depth = indices.size(-1);
  CANN_CHECK_OP(indices.dim() > 0 && depth <= input.dim(), "npu_scatter_nd_update: the last dimension of indices, ",
                depth, ", must be at most the ", input.dim(), " dimensions of input");
  c10::List<OptionalTensor> index;
  for (int64_t d = 0; d < depth; ++d) index.push_back(indices.select(-1, d).to(at::kLong));
  return input.index_put_(index, updates.to(input.scalar_type()));
}
Tensor scatter_nd_update(const Tensor& input, const Tensor& indices, const Tensor& updates) {
  Tensor result = fresh(input);
  return scatter_nd_update_(result, indices, updates);
}
Tensor scatter_shape(const Tensor& input, const Tensor&, const Tensor&) {
  return at::empty_like(input, at::MemoryFormat::Contiguous);
}
Tensor& scatter_shape_(Tensor& input, const Tensor&, const Tensor&) { return input; }

// input[b] along `axis` from indices[b] takes updates[b]: how a key-value cache takes the newest entries.
Tensor& scatter_update_(Tensor& input, const Tensor& indices, const Tensor& updates, int64_t axis) {
  const int64_t dim = wrap_dim(input, axis);
  CANN_CHECK_OP(dim > 0, "scatter_update: axis must not be the batch dimension 0, but got ", axis);
  CANN_CHECK_OP(
      indices.dim() == 1 && updates.dim() == input.dim() && indices.size(0) == updates.size(0),
      "scatter_update: indices must be (B) and updates have as many dimensions as input, the first of size B, "
      "but have ",
      indices.sizes(), " and ", updates.sizes());
  const Tensor begins = indices.to(at::kCPU, at::kLong);
  for (int64_t b = 0; b < indices.size(0); ++b) {
    const int64_t begin = begins[b].item<int64_t>(), length = updates.size(dim);
    CANN_CHECK_OP(begin >= 0 && begin + length <= input.size(dim), "scatter_update: rows ", begin, " to ",
                  begin + length, " of batch entry ", b, " are outside of input's ", input.size(dim));
    input.select(0, b).narrow(dim - 1, begin, length).copy_(updates.select(0, b));
  }
  return input;
}
Tensor scatter_update(const Tensor& input, const Tensor& indices, const Tensor& updates, int64_t axis) {
  Tensor result = fresh(input);
  return scatter_update_(result, indices, updates, axis);
}
Tensor scatter_update_shape(const Tensor& input, const Tensor&, const Tensor&, int64_t) {
  return at::empty_like(input, at::MemoryFormat::Contiguous);
}
Tensor& scatter_update_shape_(Tensor& input, const Tensor&, const Tensor&, int64_t) { return input; }

// The list's form of it: list[i] along `axis` from indices[i] takes updates[i], where mask[i].
void scatter_list_(TensorList list, const Tensor& indices, const Tensor& updates, const OptionalTensor& mask,
                   std::string_view reduce, int64_t axis) {
  constexpr const char* kOp = "npu_scatter_list";
  CANN_CHECK_SUPPORTED(reduce == "update", kOp, ": reduce must be 'update', but got '", reduce, "'");
  CANN_CHECK_OP(
      indices.dim() == 1 && indices.size(0) == static_cast<int64_t>(list.size()) && updates.size(0) == indices.size(0),
      kOp, ": indices and updates need one entry for each of the ", list.size(), " tensors, but have sizes ",
      indices.sizes(), " and ", updates.sizes());
  const Tensor begins = indices.to(at::kCPU, at::kLong);
  const Tensor kept = has(mask) ? mask->to(at::kCPU, at::kBool) : at::ones({indices.size(0)}, at::kBool);
  for (int64_t i = 0; i < indices.size(0); ++i) {
    if (!kept[i].item<bool>()) continue;
    const Tensor& target = list[static_cast<size_t>(i)];
    const Tensor update = updates.select(0, i);
    target.narrow(axis, begins[i].item<int64_t>(), update.size(axis)).copy_(update);
  }
}
std::vector<Tensor> scatter_list(TensorList list, const Tensor& indices, const Tensor& updates,
                                 const OptionalTensor& mask, std::string_view reduce, int64_t axis) {
  std::vector<Tensor> result;
  for (const Tensor& t : list) result.push_back(fresh(t));
  scatter_list_(result, indices, updates, mask, reduce, axis);
  return result;
}
void scatter_list_shape_(TensorList, const Tensor&, const Tensor&, const OptionalTensor&, std::string_view, int64_t) {}
std::vector<Tensor> scatter_list_shape(TensorList list, const Tensor&, const Tensor&, const OptionalTensor&,
                                       std::string_view, int64_t) {
  std::vector<Tensor> result;
  for (const Tensor& t : list) result.push_back(at::empty_like(t, at::MemoryFormat::Contiguous));
  return result;
}

/// One element of each line along dim is replaced; indices and updates may lack that dimension.
Tensor scatter(const Tensor& input, const Tensor& indices, const Tensor& updates, int64_t dim) {
  const Tensor positions = indices.to(at::kLong);
  if (positions.dim() == input.dim()) return input.scatter(dim, positions, updates);
  const int64_t d = wrap_dim(input, dim);
  CANN_CHECK_OP(positions.dim() == input.dim() - 1 && updates.dim() == positions.dim(),
                "npu_scatter: indices and updates must have the dimensions of input, or all but dim, but input has ",
                input.dim(), ", indices ", indices.dim(), " and updates ", updates.dim());
  return input.scatter(d, positions.unsqueeze(d), updates.unsqueeze(d));
}

Tensor& index_add_(Tensor& input, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  return input.index_add_(0, index.to(at::kLong), source, alpha);
}
Tensor index_add(const Tensor& input, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  return input.index_add(0, index.to(at::kLong), source, alpha);
}

Tensor gather_backward(const Tensor& grad, c10::SymIntArrayRef sizes, int64_t dim, const Tensor& index, bool) {
  return at::zeros_symint(sizes, grad.options()).scatter_add_(dim, index, grad);
}

// ---- Gradients of repeat_interleave

Tensor repeat_backward_int(const Tensor& grad, const Tensor& input, SymInt repeats, std::optional<int64_t> dim) {
  if (!dim.has_value()) return grad.reshape_symint({-1, std::move(repeats)}).sum(1).reshape_symint(input.sym_sizes());
  const int64_t d = wrap_dim(input, *dim);
  return grad.unflatten_symint(d, {input.sym_size(d), std::move(repeats)}).sum(d + 1);
}
Tensor repeat_backward_tensor(const Tensor& grad, const Tensor& input, const Tensor& repeats,
                              std::optional<int64_t> dim) {
  const Tensor flat = dim.has_value() ? input : input.reshape(-1);
  const int64_t d = dim.has_value() ? wrap_dim(input, *dim) : 0;
  const Tensor counts = repeats.numel() == 1 ? repeats.reshape(-1).expand({flat.size(d)}) : repeats;
  const Tensor source = at::repeat_interleave(counts.to(at::kLong));
  Tensor result = at::zeros_like(flat, flat.options().dtype(compute_type(grad)));
  return result.index_add_(d, source, wide(grad)).reshape(input.sizes()).to(grad.scalar_type());
}
Tensor repeat_backward_tensor_shape(const Tensor& grad, const Tensor& input, const Tensor&, std::optional<int64_t>) {
  return at::empty_like(input, input.options().dtype(grad.scalar_type()));
}

void register_views(Registry& ops) {
  ops.add<"npu_transpose", transpose>("(Tensor input, int[] perm, bool require_contiguous=True) -> Tensor");
  ops.add<"npu_transpose.out", transpose_out>(
      "(Tensor input, int[] perm, bool require_contiguous=True, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_reshape", reshape>("(Tensor input, int[] shape, bool can_refresh=False) -> Tensor");
  ops.add<"npu_reshape.out", reshape_out>(
      "(Tensor input, int[] shape, bool can_refresh=False, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_broadcast", broadcast>("(Tensor input, int[] size) -> Tensor");
  ops.add<"npu_broadcast.out", broadcast_out>("(Tensor input, int[] size, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_slice", slice>("(Tensor input, int[] offsets, int[] size) -> Tensor");
  ops.add<"npu_slice.out", slice_out>("(Tensor input, int[] offsets, int[] size, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_indexing", indexing>(
      "(Tensor input, int[] begin, int[] end, int[] strides, int begin_mask=0, int end_mask=0, int ellipsis_mask=0, "
      "int new_axis_mask=0, int shrink_axis_mask=0) -> Tensor");
  ops.add<"npu_indexing.out", indexing_out>(
      "(Tensor input, int[] begin, int[] end, int[] strides, int begin_mask=0, int end_mask=0, int ellipsis_mask=0, "
      "int new_axis_mask=0, int shrink_axis_mask=0, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_stride_copy", stride_copy>("(Tensor input, int[] shape, int[] stride, Scalar storage_offset) -> Tensor");
  ops.add<"npu_stride_copy.out", stride_copy_out>(
      "(Tensor input, int[] shape, int[] stride, Scalar storage_offset, *, Tensor(a!) out) -> Tensor(a!)");
  ops.add<"npu_confusion_transpose", confusion_transpose>(
         "(Tensor input, int[] perm, int[] shape, bool transpose_first) -> Tensor")
      .autograd<confusion_transpose_derivative, Saves<0>>();
  ops.add<"npu_confusion_transpose_backward", confusion_transpose_backward>(
      "(Tensor grad, int[] perm, SymInt[] shape, bool transpose_first) -> Tensor");
}

void register_scatters(Registry& ops) {
  ops.add<"npu_gather_sparse_index", gather_sparse_index>("(Tensor input, Tensor index) -> Tensor")
      .autograd<gather_sparse_index_derivative, Saves<0, 1>>();
  ops.add<"npu_gather_sparse_index_backward", gather_sparse_index_backward>(
      "(Tensor grad, SymInt[] self_sizes, Tensor index) -> Tensor");
  ops.add<"npu_scatter_nd_update", scatter_nd_update, scatter_shape>(
      "(Tensor input, Tensor indices, Tensor updates) -> Tensor");
  ops.add<"npu_scatter_nd_update_", scatter_nd_update_, scatter_shape_>(
      "(Tensor(a!) input, Tensor indices, Tensor updates) -> Tensor(a!)");
  ops.add<"scatter_update", scatter_update, scatter_update_shape>(
      "(Tensor input, Tensor indices, Tensor updates, int axis) -> Tensor");
  ops.add<"scatter_update_", scatter_update_, scatter_update_shape_>(
      "(Tensor(a!) input, Tensor indices, Tensor updates, int axis) -> Tensor(a!)");
  ops.add_native<"npu_scatter_list_", scatter_list_, scatter_list_shape_>(
      "(Tensor(a!)[] input, Tensor indices, Tensor updates, Tensor? mask=None, str reduce='update', int axis=-2) -> "
      "()");
  ops.add_native<"npu_scatter_list", scatter_list, scatter_list_shape>(
      "(Tensor[] input, Tensor indices, Tensor updates, Tensor? mask=None, str reduce='update', int axis=-2) -> "
      "Tensor[]");
  ops.add<"npu_scatter", scatter>("(Tensor input, Tensor indices, Tensor updates, int dim) -> Tensor");
  ops.add<"_npu_index_add", index_add>("(Tensor input, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor");
  ops.add<"_npu_index_add_", index_add_>(
      "(Tensor(a!) input, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)");
  ops.add<"npu_gather_backward", gather_backward>(
      "(Tensor grad, SymInt[] self_size, int dim, Tensor index, bool sparse_grad) -> Tensor");
  ops.add<"repeat_interleave_backward_int", repeat_backward_int>(
      "(Tensor grad, Tensor input, SymInt repeats, int? dim=None) -> Tensor");
  ops.add<"repeat_interleave_backward_tensor", repeat_backward_tensor, repeat_backward_tensor_shape>(
      "(Tensor grad, Tensor input, Tensor repeats, int? dim=None) -> Tensor");
}

}  // namespace

void register_indexing(Registry& ops) {
  register_views(ops);
  register_scatters(ops);
  ops.add<"npu_view_copy", view_copy>("(Tensor(a!) input, Tensor other, bool non_blocking) -> Tensor(a!)");
  ops.add<"one_", one_>("(Tensor(a!) input) -> Tensor(a!)");
  ops.add<"npu_pad", pad>("(Tensor input, int[] paddings) -> Tensor");
  ops.add<"npu_one_hot", one_hot>(
      "(Tensor input, int num_classes=-1, int depth=1, Scalar on_value=1, Scalar off_value=0) -> Tensor");
  constexpr const char* kExtreme = "(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)";
  constexpr const char* kExtremeBackward =
      "(Tensor grad, int dim, Tensor indices, SymInt[] sizes, bool keepdim) -> Tensor";
  ops.add<"npu_max.dim", extreme<true>>(kExtreme).autograd<extreme_derivative<true>, Saves<0>, Saves<1>>();
  ops.add<"npu_max_backward", extreme_backward>(kExtremeBackward);
  ops.add<"npu_min.dim", extreme<false>>(kExtreme).autograd<extreme_derivative<false>, Saves<0>, Saves<1>>();
  ops.add<"npu_min_backward", extreme_backward>(kExtremeBackward);
  ops.add<"npu_sort_v2", sort_v2>("(Tensor input, int dim=-1, bool descending=False) -> Tensor");
  ops.add<"npu_sort_v2.out", sort_v2_out>(
      "(Tensor input, int dim=-1, bool descending=False, *, Tensor(a!) out) -> Tensor(a!)");
}

}  // namespace cann::aten::npu
