// Quantisation, and products of quantised operands. int8 and int4 products are exact: they are summed in float64.
//
// int4 values are packed eight to an int32 along the last dimension, the first in the lowest bits.

#include <limits>

#include "aten/npu/families.h"
#include "aten/npu/registry.h"
#include "aten/npu/types.h"

namespace cann::aten::npu {
namespace {

using Integers = std::optional<int64_t>;

// ---- int4

constexpr int64_t kPacked = 8;

Tensor pack_int4(const Tensor& values, const char* op) {
  CANN_CHECK_OP(values.dim() > 0 && values.size(-1) % kPacked == 0, op,
                ": the last dimension must be a multiple of 8 to be packed as int4, but the sizes are ",
                values.sizes());
  const Tensor nibbles = values.to(at::kLong).bitwise_and(15).unflatten(-1, {-1, kPacked});
  const Tensor shifts = at::arange(0, 4 * kPacked, 4, nibbles.options());
  return at::bitwise_left_shift(nibbles, shifts).sum(-1).to(at::kInt);
}
Tensor unpack_int4(const Tensor& packed) {
  const Tensor shifts = at::arange(0, 4 * kPacked, 4, packed.options().dtype(at::kLong));
  const Tensor nibbles = at::bitwise_right_shift(packed.to(at::kLong).unsqueeze(-1), shifts).bitwise_and(15);
  return nibbles.sub(nibbles.ge(8).to(at::kLong).mul_(16)).flatten(-2);
}

// weight (..., N) int32 with values of int4 -> (..., N / 8).
Tensor convert_weight_to_int4pack(const Tensor& weight, int64_t) {
  CANN_CHECK_SUPPORTED(weight.scalar_type() == at::kInt,
                       "npu_convert_weight_to_int4pack: weight must be int32, but is ", weight.scalar_type());
  return pack_int4(weight, "npu_convert_weight_to_int4pack");
}
Tensor convert_weight_to_int4pack_shape(const Tensor& weight, int64_t) {
  c10::SymDimVector sizes = sizes_of(weight);
  sizes.back() = sizes.back() / kPacked;
  return empty_of(weight, sizes, at::kInt);
}

// ---- What a quantised type holds

struct QuantType {
  at::ScalarType type;  // of the result; int32 for packed int4
  bool packed;          // int4
  bool integer;
  double largest;  // the value that the largest magnitude maps to
};

QuantType quant_type(int64_t number, const char* op) {
  if (number == static_cast<int64_t>(at::kQUInt4x2)) return {at::kInt, true, true, 7};
  const at::ScalarType type = type_of_number(number, op);
  switch (type) {
    case at::kChar:
    case at::kQInt8:
      return {at::kChar, false, true, 127};
    case at::kFloat8_e5m2:
      return {type, false, false, 57344};
    case at::kFloat8_e4m3fn:
      return {type, false, false, 448};
    default:
      CANN_CHECK_SUPPORTED(false, op, ": the type ", type,
                           " is not implemented, only int8, quint4x2, float8_e5m2 and float8_e4m3fn");
  }
}

Tensor as_quantised(const Tensor& scaled, const QuantType& q, const char* op) {
  if (q.packed) return pack_int4(scaled.round().clamp_(-8, 7), op);
  if (q.integer) return scaled.round().clamp_(-128, 127).to(q.type);
  return scaled.clamp(-q.largest, q.largest).to(q.type);
}

// Blocks of nothing but zeros have scale 0 and stay zero.
Tensor divided(const Tensor& x, const Tensor& scale) { return x.div(scale.masked_fill(scale.eq(0), 1)); }

// ---- Dynamic quantisation: the scale comes from the values

// smooth_scales (H), or (E, H) with group_index (E), the cumulated ends of the experts' rows.
Tensor smoothed(const Tensor& input, const OptionalTensor& smooth, const OptionalTensor& group_index) {
  const Tensor x = input.to(at::kFloat);
  if (!has(smooth)) return x;
  if (!has(group_index)) return x.mul(*smooth);
  const Tensor rows = x.reshape({-1, x.size(-1)});
  const Tensor ends = group_index->to(at::kLong);
  const Tensor numbers = at::arange(rows.size(0), ends.options());
  const Tensor expert = at::searchsorted(ends, numbers, /*out_int32=*/false, /*right=*/true);
  return rows.mul(smooth->to(at::kFloat).index_select(0, expert.clamp_max(ends.size(0) - 1))).reshape(x.sizes());
}

std::tuple<Tensor, Tensor> dynamic_quant(const Tensor& input, const OptionalTensor& smooth,
                                         const OptionalTensor& group_index, Integers dst_type, std::string_view mode,
                                         double) {
  constexpr const char* kOp = "npu_dynamic_quant";
  const QuantType q = quant_type(dst_type.value_or(static_cast<int64_t>(at::kChar)), kOp);
  const Tensor x = smoothed(input, smooth, group_index);
  Tensor scale;
  if (mode == "pertoken") {
    scale = x.abs().amax(-1, /*keepdim=*/true).div_(q.largest);
  } else if (mode == "pertensor") {
    scale = x.abs().amax().div_(q.largest).reshape({1});
  } else {
    CANN_CHECK_OP(mode == "perchannel", kOp, ": quant_mode must be pertoken, pertensor or perchannel, but got '", mode,
                  "'");
    scale = x.abs().amax(-2, /*keepdim=*/true).div_(q.largest);
  }
  Tensor y = as_quantised(divided(x, scale), q, kOp);
  return {y, mode == "pertoken" ? scale.squeeze(-1) : mode == "perchannel" ? scale.squeeze(-2) : scale};
}

c10::SymDimVector quantised_sizes(const Tensor& input, const QuantType& q) {
  c10::SymDimVector sizes = sizes_of(input);
  if (q.packed) sizes.back() = sizes.back() / kPacked;
  return sizes;
}
std::tuple<Tensor, Tensor> dynamic_quant_shape(const Tensor& input, const OptionalTensor&, const OptionalTensor&,
                                               Integers dst_type, std::string_view mode, double) {
  const QuantType q = quant_type(dst_type.value_or(static_cast<int64_t>(at::kChar)), "npu_dynamic_quant");
  c10::SymDimVector scale{1};
  if (mode != "pertensor") {
    scale = sizes_of(input);
    scale.erase(scale.end() - (mode == "pertoken" ? 1 : 2));
  }
  return {empty_of(input, quantised_sizes(input, q), q.type), empty_of(input, scale, at::kFloat)};
}

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Blocks of row_block x col_block of the last two dimensions share a scale.
std::tuple<Tensor, Tensor> dynamic_block_quant(const Tensor& x, double min_scale, std::string_view round_mode,
                                               int64_t dst_type, int64_t row_block, int64_t col_block, double) {
  constexpr const char* kOp = "npu_dynamic_block_quant";
  CANN_CHECK_SUPPORTED(round_mode == "rint", kOp, ": round_mode must be rint, but got '", round_mode, "'");
  CANN_CHECK_OP(x.dim() >= 2 && row_block > 0 && col_block > 0, kOp,
                ": x must have at least 2 dimensions and blocks a positive size, but got ", x.sizes(), ", ", row_block,
                " and ", col_block);
  const QuantType q = quant_type(dst_type, kOp);
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const int64_t tall = blocks_of(rows, row_block), wide_blocks = blocks_of(columns, col_block);
  const Tensor padded =
      at::constant_pad_nd(x.to(at::kFloat), {0, wide_blocks * col_block - columns, 0, tall * row_block - rows});
  const Tensor blocks = padded.unflatten(-1, {wide_blocks, col_block}).unflatten(-3, {tall, row_block});
  Tensor scale = blocks.abs().amax({-3, -1}, /*keepdim=*/true).div_(q.largest);
  if (min_scale > 0) scale.clamp_min_(min_scale);
  const Tensor scaled = divided(blocks, scale).flatten(-2).flatten(-3, -2);
  return {as_quantised(scaled.narrow(-2, 0, rows).narrow(-1, 0, columns), q, kOp), scale.squeeze(-1).squeeze(-2)};
}
std::tuple<Tensor, Tensor> dynamic_block_quant_shape(const Tensor& x, double, std::string_view, int64_t dst_type,
                                                     int64_t row_block, int64_t col_block, double) {
  const QuantType q = quant_type(dst_type, "npu_dynamic_block_quant");
  c10::SymDimVector scale = sizes_of(x);
  scale.back() = (scale.back() + (col_block - 1)) / col_block;
  scale[scale.size() - 2] = (scale[scale.size() - 2] + (row_block - 1)) / row_block;
  return {empty_of(x, quantised_sizes(x, q), q.type), empty_of(x, scale, at::kFloat)};
}

// ---- Microscaling (OCP MX): blocks along one axis share a power of two, stored as float8_e8m0fnu

struct MxType {
  bool fp4;
  at::ScalarType type;
  int64_t largest_exponent;  // of the element type
  double largest;
};
MxType mx_type(int64_t number) {
  constexpr const char* kOp = "npu_dynamic_mx_quant";
  if (number == kFloat4E2M1) return {true, at::kByte, 2, 6};
  const at::ScalarType type = type_of_number(number, kOp);
  if (type == at::kFloat8_e4m3fn) return {false, type, 8, 448};
  CANN_CHECK_SUPPORTED(type == at::kFloat8_e5m2, kOp, ": the type ", number,
                       " is not implemented, only float8_e4m3fn, float8_e5m2 and float4_e2m1 (296)");
  return {false, type, 15, 57344};
}

// Rounds to float4_e2m1 and packs two to a byte, the first in the low bits. Code: sign, then the index of
// {0, 0.5, 1, 1.5, 2, 3, 4, 6}; ties go to the even index.
Tensor packed_fp4(const Tensor& x) {
  const Tensor magnitude = x.abs();
  Tensor code = at::zeros_like(x, x.options().dtype(at::kByte));
  struct Step {
    float threshold;  // between two values
    bool ties_up;
  };
  constexpr Step kSteps[] = {{0.25F, false}, {0.75F, true}, {1.25F, false}, {1.75F, true},
                             {2.5F, false},  {3.5F, true},  {5.0F, false}};
  for (const Step& step : kSteps) {
    code.add_(step.ties_up ? magnitude.ge(step.threshold) : magnitude.gt(step.threshold));
  }
  code.add_(x.signbit().to(at::kByte).mul_(8));
  const Tensor pairs = code.unflatten(-1, {-1, 2});
  return pairs.select(-1, 0).add(pairs.select(-1, 1).mul(16));
}

void check_mx(const Tensor& input, const MxType& type, int64_t axis, std::string_view round_mode, int64_t block,
              int64_t scale_alg) {
  constexpr const char* kOp = "npu_dynamic_mx_quant";
  CANN_CHECK_SUPPORTED(round_mode == "rint" && scale_alg == 0, kOp,
                       ": only round_mode rint and scale_alg 0 are implemented, but got '", round_mode, "' and ",
                       scale_alg);
  CANN_CHECK_OP(block > 0 && block % 32 == 0, kOp, ": block_size must be a positive multiple of 32, but got ", block);
  CANN_CHECK_OP(!type.fp4 || (axis == input.dim() - 1 && input.sym_size(-1) % 2 == 0), kOp,
                ": float4 packs pairs along the last dimension, which must be the axis and even");
}

std::tuple<Tensor, Tensor> dynamic_mx_quant(const Tensor& input, int64_t axis, std::string_view round_mode,
                                            int64_t dst_type, int64_t block, Integers scale_alg, double, double) {
  const MxType type = mx_type(dst_type);
  const int64_t dim = wrap_dim(input, axis), size = input.size(dim);
  check_mx(input, type, dim, round_mode, block, scale_alg.value_or(0));
  const Tensor x = input.to(at::kFloat).movedim(dim, -1);
  // The number of blocks is even: scales come in pairs.
  const int64_t pairs = blocks_of(blocks_of(size, block), 2);
  const Tensor blocks = at::constant_pad_nd(x, {0, pairs * 2 * block - size}).unflatten(-1, {pairs * 2, block});
  const Tensor largest = blocks.abs().amax(-1);
  // floor(log2) exactly, from the exponent that frexp gives; 0 has the smallest scale.
  const Tensor exponent = std::get<1>(largest.frexp()).sub(1 + type.largest_exponent);
  const Tensor shared = exponent.masked_fill(largest.eq(0), -127).clamp_(-127, 127);
  const Tensor scaled = at::ldexp(blocks, shared.neg().unsqueeze(-1)).clamp_(-type.largest, type.largest);
  Tensor y = scaled.flatten(-2).narrow(-1, 0, size);
  y = type.fp4 ? packed_fp4(y) : y.to(type.type);
  const Tensor bits = shared.add(127).to(at::kByte).masked_fill(largest.isfinite().logical_not(), 255);
  const Tensor scale = bits.unflatten(-1, {pairs, 2}).movedim(-2, dim).contiguous().view(at::kFloat8_e8m0fnu);
  return {y.movedim(-1, dim).contiguous(), scale};
}
std::tuple<Tensor, Tensor> dynamic_mx_quant_shape(const Tensor& input, int64_t axis, std::string_view round_mode,
                                                  int64_t dst_type, int64_t block, Integers scale_alg, double, double) {
  const MxType type = mx_type(dst_type);
  const int64_t dim = wrap_dim(input, axis);
  check_mx(input, type, dim, round_mode, block, scale_alg.value_or(0));
  c10::SymDimVector y = sizes_of(input), scale = y;
  if (type.fp4) y.back() = y.back() / 2;
  scale[static_cast<size_t>(dim)] = (input.sym_size(dim) + (2 * block - 1)) / (2 * block);
  scale.push_back(2);
  return {empty_of(input, y, type.type), empty_of(input, scale, at::kFloat8_e8m0fnu)};
}

// ---- Static quantisation: y = round(x / scale) + zero_point, or round(x * scale + zero_point) without div_mode

struct StaticType {
  at::ScalarType type;
  bool packed;
  double least, most;
};
StaticType static_type(int64_t number) {
  switch (number < 256 ? static_cast<at::ScalarType>(number) : type_of_number(number, "npu_quantize")) {
    case at::kQUInt8:
    case at::kByte:
      return {at::kByte, false, 0, 255};
    case at::kQInt8:
    case at::kChar:
      return {at::kChar, false, -128, 127};
    case at::kQInt32:
    case at::kInt:
      return {at::kInt, false, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case at::kQUInt4x2:
      return {at::kInt, true, -8, 7};
    default:
      CANN_CHECK_SUPPORTED(false, "npu_quantize: the type ", number,
                           " is not implemented, only quint8, qint8, qint32 and quint4x2");
  }
}

// A vector goes along `axis`; anything else broadcasts.
Tensor along(const Tensor& t, const Tensor& x, int64_t axis) {
  if (t.dim() != 1 || t.size(0) == 1) return t.to(at::kFloat);
  c10::DimVector sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(wrap_dim(x, axis))] = t.size(0);
  return t.to(at::kFloat).reshape(sizes);
}

Tensor quantize(const Tensor& input, const Tensor& scales, const OptionalTensor& zero_points, int64_t dtype,
                int64_t axis, bool div_mode) {
  const StaticType q = static_type(dtype);
  const Tensor x = input.to(at::kFloat), scale = along(scales, input, axis);
  const Tensor zero = has(zero_points) ? along(*zero_points, input, axis) : at::zeros({}, x.options());
  Tensor y = div_mode ? x.div(scale).round_().add_(zero) : x.mul(scale).add_(zero).round_();
  y.clamp_(q.least, q.most);
  return q.packed ? pack_int4(y, "npu_quantize") : y.to(q.type);
}
Tensor quantize_shape(const Tensor& input, const Tensor&, const OptionalTensor&, int64_t dtype, int64_t, bool) {
  const StaticType q = static_type(dtype);
  c10::SymDimVector sizes = sizes_of(input);
  if (q.packed) sizes.back() = sizes.back() / kPacked;
  return empty_of(input, sizes, q.type);
}

// ---- Products

// An operand as float64 values. A transposed view of a packed tensor is packed along its first of two dimensions.
Tensor operand(const Tensor& t, const char* op) {
  if (t.scalar_type() == at::kInt) {
    const bool transposed = t.dim() >= 2 && !t.is_contiguous() && t.stride(-2) == 1;
    return (transposed ? unpack_int4(t.transpose(-2, -1)).transpose(-2, -1) : unpack_int4(t)).to(at::kDouble);
  }
  CANN_CHECK_SUPPORTED(
      t.scalar_type() == at::kChar || t.scalar_type() == at::kFloat8_e5m2 || t.scalar_type() == at::kFloat8_e4m3fn, op,
      ": operands must be int8, int4 packed in int32 or float8, but one is ", t.scalar_type());
  return t.to(at::kFloat).to(at::kDouble);
}

// int64 scales hold the bits of a float32 whose last 13 are dropped.
Tensor scale_values(const Tensor& scale) {
  if (scale.scalar_type() != at::kLong) return scale.to(at::kDouble);
  return scale.bitwise_and(int64_t{0xFFFFE000}).to(at::kInt).view(at::kFloat).to(at::kDouble);
}

at::ScalarType product_type(Integers output_dtype) {
  return output_dtype.has_value() ? type_of_number(*output_dtype, "npu_quant_matmul") : at::kChar;
}

// (x1 @ x2 + integer bias) * scale * pertoken_scale + float bias; an int8 result adds offset, rounds and saturates.
Tensor quant_matmul(const Tensor& x1, const Tensor& x2, const Tensor& scale, const OptionalTensor& offset,
                    const OptionalTensor& pertoken_scale, const OptionalTensor& bias, Integers output_dtype, Integers,
                    Integers, Integers, Integers, at::OptionalIntArrayRef group_sizes, const OptionalTensor& y_scale) {
  constexpr const char* kOp = "npu_quant_matmul";
  CANN_CHECK_SUPPORTED(!has(y_scale) && (!group_sizes.has_value() || group_sizes->empty()), kOp,
                       ": group_sizes and y_scale are not implemented");
  CANN_CHECK_SUPPORTED(scale.dim() <= 1 || scale.numel() == scale.size(-1), kOp,
                       ": scale must be one value or one for each column, but has sizes ", scale.sizes());
  Tensor y = at::matmul(operand(x1, kOp), operand(x2, kOp));
  const bool integer_bias = has(bias) && !bias->is_floating_point();
  if (integer_bias) y.add_(*bias);
  y.mul_(scale_values(scale));
  if (has(pertoken_scale)) y.mul_(pertoken_scale->to(at::kDouble).unsqueeze(-1));
  if (has(bias) && !integer_bias) y.add_(bias->to(at::kDouble));
  const at::ScalarType type = product_type(output_dtype);
  if (type != at::kChar) return y.to(type);
  if (has(offset)) y.add_(offset->to(at::kDouble));
  return y.round_().clamp_(-128, 127).to(at::kChar);
}
Tensor quant_matmul_shape(const Tensor& x1, const Tensor& x2, const Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, Integers output_dtype, Integers, Integers,
                          Integers, Integers, at::OptionalIntArrayRef, const OptionalTensor&) {
  const bool packed = x2.scalar_type() == at::kInt && x2.is_contiguous();
  c10::SymDimVector sizes = sizes_of(x1.dim() >= x2.dim() ? x1 : x2);
  sizes[sizes.size() - 2] = x1.sym_size(-2);
  sizes.back() = packed ? x2.sym_size(-1) * kPacked : x2.sym_size(-1);
  return empty_of(x1, sizes, product_type(output_dtype));
}

// x @ ((weight + antiquant_offset) * antiquant_scale) + bias
Tensor weight_quant_batchmatmul(const Tensor& x, const Tensor& weight, const Tensor& scale,
                                const OptionalTensor& antiquant_offset, const OptionalTensor& quant_scale,
                                const OptionalTensor& quant_offset, const OptionalTensor& bias, int64_t group_size,
                                int64_t, Integers) {
  constexpr const char* kOp = "npu_weight_quant_batchmatmul";
  Tensor w = operand(weight, kOp).to(compute_type(x));
  const auto of_rows = [&](const Tensor& t) {
    const Tensor value = t.to(w.scalar_type());
    return group_size > 0 ? value.repeat_interleave(group_size, 0).narrow(0, 0, w.size(0)) : value;
  };
  if (has(antiquant_offset)) w = w.add(of_rows(*antiquant_offset));
  w = w.mul(of_rows(scale));
  Tensor y = at::matmul(wide(x), w);
  if (has(bias)) y.add_(*bias);
  if (!has(quant_scale)) return y.to(x.scalar_type());
  y.mul_(scale_values(*quant_scale).to(y.scalar_type()));
  if (has(quant_offset)) y.add_(*quant_offset);
  return y.round_().clamp_(-128, 127).to(at::kChar);
}
Tensor weight_quant_batchmatmul_shape(const Tensor& x, const Tensor& weight, const Tensor&, const OptionalTensor&,
                                      const OptionalTensor& quant_scale, const OptionalTensor&, const OptionalTensor&,
                                      int64_t, int64_t, Integers) {
  const bool packed = weight.scalar_type() == at::kInt && weight.is_contiguous();
  c10::SymDimVector sizes = sizes_of(x);
  sizes.back() = packed ? weight.sym_size(-1) * kPacked : weight.sym_size(-1);
  return empty_of(x, sizes, has(quant_scale) ? at::kChar : x.scalar_type());
}

}  // namespace

void register_quant(Registry& ops) {
  ops.add<"npu_convert_weight_to_int4pack", convert_weight_to_int4pack, convert_weight_to_int4pack_shape>(
      "(Tensor weight, int inner_k_tiles=0) -> Tensor");
  ops.add<"npu_dynamic_quant", dynamic_quant, dynamic_quant_shape>(
      "(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, str "
      "quant_mode=\"pertoken\", float dst_type_max=0.0) -> (Tensor, Tensor)");
  ops.add<"npu_dynamic_block_quant", dynamic_block_quant, dynamic_block_quant_shape>(
      "(Tensor x, *, float min_scale=0.0, str round_mode=\"rint\", int dst_type=1, int row_block_size=1, int "
      "col_block_size=128, float dst_type_max=0.0) -> (Tensor y, Tensor scale)");
  ops.add<"npu_dynamic_mx_quant", dynamic_mx_quant, dynamic_mx_quant_shape>(
      "(Tensor input, *, int axis=-1, str round_mode=\"rint\", int dst_type=296, int block_size=32, int? scale_alg=0, "
      "float dst_type_max=0.0, float max_low_bound=0.0) -> (Tensor, Tensor)");
  ops.add<"npu_quantize", quantize, quantize_shape>(
      "(Tensor input, Tensor scales, Tensor? zero_points, int dtype, int axis=1, bool div_mode=True) -> Tensor");
  ops.add<"npu_quant_matmul", quant_matmul, quant_matmul_shape>(
      "(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? bias=None, "
      "int? "
      "output_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? pertoken_scale_dtype=None, int? "
      "scale_dtype=None, int[]? group_sizes=None, Tensor? y_scale=None) -> Tensor");
  ops.add<"npu_weight_quant_batchmatmul", weight_quant_batchmatmul, weight_quant_batchmatmul_shape>(
      "(Tensor x, Tensor weight, Tensor antiquant_scale, Tensor? antiquant_offset=None, Tensor? quant_scale=None, "
      "Tensor? quant_offset=None, Tensor? bias=None, int antiquant_group_size=0, int inner_precise=0, int? "
      "weight_dtype=None) -> Tensor");
}

}  // namespace cann::aten::npu
