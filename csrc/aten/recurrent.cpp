// The fused cells that ATen's LSTM and GRU call on every device but the CPU. No CPU kernel exists for them, so they are
// composed from pointwise operators. Shapes: B batch, H hidden; gates are laid out along the last dimension.

#include "aten/register.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool present(const OptionalTensor& t) { return t.has_value() && t->defined(); }

Tensor biased(const Tensor& gates, const OptionalTensor& bias) { return present(bias) ? gates + *bias : gates; }

// gates [B, 4H] in the order input, forget, cell, output. Returns hy [B, H], cy [B, H] and the activated gates [B, 4H].
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto gates = (biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor input = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(),
               output = gates[3].sigmoid();
  Tensor cy = forget * cx + input * cell;
  Tensor hy = output * cy.tanh();
  return {std::move(hy), std::move(cy), at::cat({input, forget, cell, output}, 1)};
}

// `workspace` is the activated gates of the forward pass. Returns grad of gates [B, 4H], of cx [B, H], of the bias
// [4H].
std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!present(grad_hy) && !present(grad_cy)) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &input = gates[0], &forget = gates[1], &cell = gates[2], &output = gates[3];
  const Tensor tanh_cy = cy.tanh();
  Tensor grad_cell_state = present(grad_cy) ? *grad_cy : at::zeros_like(cx);
  Tensor grad_output = at::zeros_like(cx);
  if (present(grad_hy)) {
    grad_cell_state = grad_cell_state + *grad_hy * output * (1 - tanh_cy * tanh_cy);
    grad_output = *grad_hy * tanh_cy;
  }
  Tensor grad_gates =
      at::cat({grad_cell_state * cell * input * (1 - input), grad_cell_state * cx * forget * (1 - forget),
               grad_cell_state * input * (1 - cell * cell), grad_output * output * (1 - output)},
              1);
  Tensor grad_bias = has_bias ? grad_gates.sum(0) : Tensor();
  return {std::move(grad_gates), grad_cell_state * forget, std::move(grad_bias)};
}

// gates [B, 3H] in the order reset, update, new. Returns hy [B, H] and the workspace [B, 5H]: reset, update, new, hx
// and the hidden part of the new gate, which the backward pass needs.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto from_input = biased(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = biased(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

// Returns grads of the input gates and hidden gates [B, 3H], of hx [B, H], and of both biases [3H].
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden_new = saved[4];
  const Tensor grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const Tensor grad_new = grad_hy * (1 - update) * (1 - fresh * fresh);
  const Tensor grad_reset = grad_new * hidden_new * reset * (1 - reset);
  Tensor grad_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
  Tensor grad_input_bias = has_bias ? grad_input.sum(0) : Tensor();
  Tensor grad_hidden_bias = has_bias ? grad_hidden.sum(0) : Tensor();
  return {std::move(grad_input), std::move(grad_hidden), grad_hy * update, std::move(grad_input_bias),
          std::move(grad_hidden_bias)};
}

}  // namespace

void register_recurrent(torch::Library& aten) {
  aten.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  aten.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  aten.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  aten.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace cann::aten
