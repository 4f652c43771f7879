// Rotary position embeddings.
//
// "half" rotates x = [x1, x2] (halves of the last dimension) into [-x2, x1], "interleave" rotates the pairs
// (x[2i], x[2i+1]) into (-x[2i+1], x[2i]). The result is x * cos + rotated(x) * sin.

#include "aten/npu/families.h"
#include "aten/npu/floating.h"
#include "aten/npu/registry.h"
#include "aten/npu/rotary_rows.h"
#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

Rotation rotation_of(std::string_view mode, const char* op) {
  CANN_CHECK_OP(mode == "half" || mode == "interleave", op, ": rotary_mode must be 'half' or 'interleave', but got '",
                mode, "'");
  return mode == "half" ? Rotation::kHalf : Rotation::kInterleave;
}

void check_even(const Tensor& x, const char* op) {
  check_floating(x, "the tensor to rotate", op);
  CANN_CHECK_OP(x.dim() > 0 && x.sym_size(-1) % 2 == 0, op,
                ": the last dimension of the tensor to rotate must be even, but it has sizes ", x.sym_sizes());
}

Tensor rotate(const Tensor& x, Rotation rotation) {
  if (rotation == Rotation::kHalf) {
    const SymInt half = x.sym_size(-1) / 2;
    return at::cat({x.narrow_symint(-1, half, half).neg(), x.narrow_symint(-1, 0, half)}, -1);
  }
  return at::stack({x.slice(-1, 1, std::nullopt, 2).neg(), x.slice(-1, 0, std::nullopt, 2)}, -1).flatten(-2);
}

// The transpose of rotate(): its inverse.
Tensor rotate_back(const Tensor& x, Rotation rotation) { return rotate(x, rotation).neg_(); }

// The arithmetic core, on tensors of the compute type.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, Rotation rotation) {
  return x.mul(cos).add_(rotate(x, rotation).mul_(sin));
}

// `rotate`, when given, is a (D, D) matrix that stands for the rotation: rotated(x) = x @ rotate.
Tensor rotary_mul(const Tensor& input, const Tensor& r1, const Tensor& r2, std::string_view mode,
                  const OptionalTensor& rotate_matrix) {
  check_even(input, "npu_rotary_mul");
  const Rotation rotation = rotation_of(mode, "npu_rotary_mul");
  if (!has(rotate_matrix)) {
    if (Tensor result = rotary_by_rows(input, r1, r2, rotation); result.defined()) return result;
  }
  const Tensor x = wide(input);
  if (has(rotate_matrix)) {
    return x.mul(r1).add_(at::matmul(x, wide(*rotate_matrix)).mul_(r2)).to(input.scalar_type());
  }
  return rotated(x, wide(r1), wide(r2), rotation).to(input.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> rotary_mul_backward(const Tensor& grad, const Tensor& input, const Tensor& r1,
                                                       const Tensor& r2, std::string_view mode) {
  check_even(input, "npu_rotary_mul_backward");
  const Rotation rotation = rotation_of(mode, "npu_rotary_mul_backward");
  if (auto gradients = rotary_backward_by_rows(grad, input, r1, r2, rotation)) return std::move(*gradients);
  const Tensor g = wide(grad), x = wide(input);
  const Tensor dx = g.mul(r1).add_(rotate_back(g.mul(r2), rotation));
  const Tensor d1 = at::sum_to(g.mul(x), r1.sym_sizes());
  const Tensor d2 = at::sum_to(g.mul(rotate(x, rotation)), r2.sym_sizes());
  return {dx.to(input.scalar_type()), d1.to(r1.scalar_type()), d2.to(r2.scalar_type())};
}

variable_list rotary_mul_derivative(Context<rotary_mul>& c) {
  const Tensor x = c.input<0>(), r1 = c.input<1>(), r2 = c.input<2>();
  const OptionalTensor matrix = c.input<4>();
  if (!has(matrix)) {
    auto [dx, d1, d2] =
        Operator<"npu_rotary_mul_backward", rotary_mul_backward>::call(c.grad(0), x, r1, r2, c.input<3>());
    return {dx, d1, d2, Tensor()};
  }
  const Tensor& g = c.grad(0);
  const Tensor turned = at::matmul(x, *matrix);
  const Tensor d_turned = g.mul(r2);
  return {g.mul(r1).add(at::matmul(d_turned, matrix->transpose(0, 1))).to(x.scalar_type()),
          at::sum_to(g.mul(x), r1.sym_sizes()), at::sum_to(g.mul(turned), r2.sym_sizes()),
          at::matmul(x.reshape_symint({-1, x.sym_size(-1)}).transpose(0, 1),
                     d_turned.reshape_symint({-1, x.sym_size(-1)}))};
}

// Rotates query and key, whose layout only has to agree with that of cos and sin: they broadcast.
std::tuple<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& query, const Tensor& key, const Tensor& cos,
                                                const Tensor& sin, std::string_view layout, std::string_view mode) {
  constexpr const char* kOp = "npu_apply_rotary_pos_emb";
  CANN_CHECK_OP(layout == "BSND" || layout == "BSH" || layout == "SBND" || layout == "BNSD" || layout == "TND", kOp,
                ": layout must be one of BSND, SBND, BNSD, BSH and TND, but got '", layout, "'");
  check_even(query, kOp);
  check_even(key, kOp);
  const Rotation rotation = rotation_of(mode == "quarter" ? std::string_view("?") : mode, kOp);
  const auto embed = [&](const Tensor& x) {
    if (Tensor result = rotary_by_rows(x, cos, sin, rotation); result.defined()) return result;
    return rotated(wide(x), wide(cos), wide(sin), rotation).to(x.scalar_type());
  };
  return {embed(query), embed(key)};
}

// The pairs (x[2i], x[2i+1]) are gathered into halves, which are then rotated: the result is in "half" order.
Tensor interleave_rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  check_even(x, "npu_interleave_rope");
  const Tensor w = wide(x);
  const Tensor halves_first = at::cat({w.slice(-1, 0, std::nullopt, 2), w.slice(-1, 1, std::nullopt, 2)}, -1);
  return rotated(halves_first, wide(cos), wide(sin), Rotation::kHalf).to(x.scalar_type());
}

// cos or sin (3, tokens, half): sections of the last dimension come from the three position rows in turn.
Tensor by_sections(const Tensor& table, IntArrayRef sections, bool interleaved) {
  if (!interleaved) {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (int64_t row = 0; row < 3; ++row) {
      parts.push_back(table.select(0, row).narrow(-1, begin, sections[row]));
      begin += sections[row];
    }
    return at::cat(parts, -1);
  }
  Tensor merged = table.select(0, 0).clone();
  for (int64_t row = 1; row < 3; ++row) {
    const int64_t end = sections[1] * 3;
    merged.slice(-1, row, end, 3).copy_(table.select(0, row).slice(-1, row, end, 3));
  }
  return merged;
}

Tensor rotate_heads(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_size, Rotation rotation) {
  const SymInt tokens = x.sym_size(0), rotary = cos.sym_size(-1) * 2;
  const Tensor heads = wide(x).reshape_symint({tokens, -1, head_size});
  const bool half = rotation == Rotation::kHalf;
  const auto doubled = [&](const Tensor& t) {
    return (half ? at::cat({t, t}, -1) : t.repeat_interleave(2, -1)).unsqueeze(1);
  };
  const Tensor turned = rotated(heads.narrow_symint(-1, 0, rotary), doubled(cos), doubled(sin), rotation);
  return at::cat({turned, heads.narrow_symint(-1, rotary, head_size - rotary)}, -1)
      .reshape_symint(x.sym_sizes())
      .to(x.scalar_type());
}

// positions (tokens) or (3, tokens); query (tokens, heads * head_size); cos_sin_cache (positions, rotary), cosines in
// its first half.
std::tuple<Tensor, Tensor> mrope(const Tensor& positions, const Tensor& query, const Tensor& key,
                                 const Tensor& cos_sin_cache, int64_t head_size, at::OptionalIntArrayRef mrope_section,
                                 std::optional<std::string_view> rotary_mode,
                                 std::optional<std::string_view> cache_mode) {
  const Rotation rotation = rotation_of(rotary_mode.value_or("half"), "npu_mrope");
  const std::string_view order = cache_mode.value_or("default");
  CANN_CHECK_OP(order == "default" || order == "interleave",
                "npu_mrope: cache_mode only support default or interleave, but got '", order, "'");
  CANN_CHECK_OP(positions.dim() == 1 || (positions.dim() == 2 && positions.sym_size(0) == 3),
                "npu_mrope: positions must be (tokens,) or (3, tokens), but has sizes ", positions.sym_sizes());
  const SymInt half = cos_sin_cache.sym_size(-1) / 2;
  const Tensor table = wide(cos_sin_cache).index_select(0, positions.reshape(-1));
  Tensor cos = table.narrow_symint(-1, 0, half), sin = table.narrow_symint(-1, half, half);
  if (positions.dim() == 2) {
    CANN_CHECK_OP(mrope_section.has_value() && mrope_section->size() == 3, "npu_mrope: positions of sizes ",
                  positions.sym_sizes(), " need mrope_section, three integers");
    const auto rows = [&](const Tensor& t) {
      return by_sections(t.reshape_symint({3, positions.sym_size(1), half}), *mrope_section, order == "interleave");
    };
    cos = rows(cos);
    sin = rows(sin);
  }
  return {rotate_heads(query, cos, sin, head_size, rotation), rotate_heads(key, cos, sin, head_size, rotation)};
}

}  // namespace

void register_rotary(Registry& ops) {
  ops.add<"npu_rotary_mul", rotary_mul>(
         "(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor")
      .autograd<rotary_mul_derivative, Saves<0, 1, 2, 4>>();
  ops.add<"npu_rotary_mul_backward", rotary_mul_backward>(
      "(Tensor grad, Tensor input, Tensor r1, Tensor r2, str rotary_mode='half') -> (Tensor, Tensor, Tensor)");
  ops.add<"npu_apply_rotary_pos_emb", apply_rotary_pos_emb>(
      "(Tensor query, Tensor key, Tensor cos, Tensor sin, str layout='BSND', str rotary_mode='half') "
      "-> (Tensor, Tensor)");
  ops.add<"npu_interleave_rope", interleave_rope>("(Tensor x, Tensor cos, Tensor sin) -> Tensor");
  ops.add<"npu_mrope", mrope>(
      "(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, *, int[]? mrope_section=None, "
      "str? rotary_mode='half', str? cache_mode='default') -> (Tensor, Tensor)");
}

}  // namespace cann::aten::npu
