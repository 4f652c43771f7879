// The fused cells that ATen's LSTM and GRU call on every device but the CPU: one kernel, or for types and shapes that
// it does not take a composition of pointwise operators, since ATen has no CPU kernel for them. Shapes: B batch, H
// hidden; gates are laid out along the last dimension.

#include "aten/element.h"
#include "aten/factories.h"
#include "aten/fused/native_kernel.h"
#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// ---- Composed

Tensor biased(const Tensor& gates, const OptionalTensor& bias) { return present(bias) ? gates + *bias : gates; }

// gates [B, 4H] in the order input, forget, cell, output. Returns hy [B, H], cy [B, H] and the activated gates [B, 4H].
std::tuple<Tensor, Tensor, Tensor> composed_lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                                      const Tensor& cx, const OptionalTensor& input_bias,
                                                      const OptionalTensor& hidden_bias) {
  const auto gates = (biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor input = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(),
               output = gates[3].sigmoid();
  Tensor cy = forget * cx + input * cell;
  Tensor hy = output * cy.tanh();
  return {std::move(hy), std::move(cy), at::cat({input, forget, cell, output}, 1)};
}

// `workspace` is the activated gates of the forward pass. Returns grad of gates [B, 4H], of cx [B, H], of the bias
// [4H].
std::tuple<Tensor, Tensor, Tensor> composed_lstm_cell_backward(const OptionalTensor& grad_hy,
                                                               const OptionalTensor& grad_cy, const Tensor& cx,
                                                               const Tensor& cy, const Tensor& workspace,
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
std::tuple<Tensor, Tensor> composed_gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto from_input = biased(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = biased(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

// Returns grads of the input gates and hidden gates [B, 3H], of hx [B, H], and of both biases [3H].
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> composed_gru_cell_backward(const Tensor& grad_hy,
                                                                              const Tensor& workspace, bool has_bias) {
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

// ---- By one kernel

// What the kernels read: contiguous tensors of one type.
class CellArguments {
 public:
  // Of a cell with states [B, H] like `state`, which decides the type.
  explicit CellArguments(const Tensor& state)
      : device_(state.device()), type_(state.scalar_type()), element_(element_of(type_)) {
    fits_ = element_.has_value() && state.dim() == 2;
    if (fits_) rows_ = state.size(0), hidden_ = state.size(1);
  }

  // The data of a tensor of B rows of `blocks` H elements, or of one row if it is a `bias`; nullptr if it is absent.
  // Copies what has gaps; the copy lives as long as this.
  const void* data(const OptionalTensor& tensor, int64_t blocks, bool bias = false) {
    if (!fits_ || !present(tensor)) return nullptr;
    const bool shape_fits = bias
                                ? tensor->dim() == 1 && tensor->size(0) == blocks * hidden_
                                : tensor->dim() == 2 && tensor->size(0) == rows_ && tensor->size(1) == blocks * hidden_;
    const Tensor& kept = kept_.emplace_back(tensor->contiguous());
    fits_ = shape_fits && kept.scalar_type() == type_ && is_plain(kept, device_);
    return fits_ ? kept.const_data_ptr() : nullptr;
  }

  bool fit() const { return fits_; }
  int64_t hidden() const { return hidden_; }
  size_t element() const { return static_cast<size_t>(*element_); }
  Tensor result(int64_t blocks) const { return empty_contiguous({rows_, blocks * hidden_}, type_, device_); }

  // Runs a kernel on all rows.
  void run(const auto& kernel, const auto& arguments) const {
    parallel(rows_, hidden_ * kernels::kLstmGates,
             [&](int64_t first, int64_t last) { kernel[element()](arguments, first, last); });
  }

 private:
  c10::Device device_;
  at::ScalarType type_;
  std::optional<kernels::Element> element_;
  bool fits_;
  int64_t rows_ = 0, hidden_ = 0;
  c10::SmallVector<Tensor, 8> kept_;
};

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  constexpr int kGates = kernels::kLstmGates;
  CellArguments cell(cx);
  kernels::LstmForward arguments{.from_input = cell.data(input_gates, kGates),
                                 .from_hidden = cell.data(hidden_gates, kGates),
                                 .input_bias = cell.data(input_bias, kGates, /*bias=*/true),
                                 .hidden_bias = cell.data(hidden_bias, kGates, /*bias=*/true),
                                 .cx = cell.data(cx, 1),
                                 .hidden = cell.hidden()};
  if (!cell.fit()) return composed_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias);
  Tensor hy = cell.result(1), cy = cell.result(1), activated = cell.result(kGates);
  arguments.hy = hy.mutable_data_ptr();
  arguments.cy = cy.mutable_data_ptr();
  arguments.activated = activated.mutable_data_ptr();
  cell.run(kernels::kernels().recurrent->lstm, arguments);
  return {std::move(hy), std::move(cy), std::move(activated)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  if (!present(grad_hy) && !present(grad_cy)) return {};
  CellArguments cell(cx);
  kernels::LstmBackward arguments{.grad_hy = cell.data(grad_hy, 1),
                                  .grad_cy = cell.data(grad_cy, 1),
                                  .cx = cell.data(cx, 1),
                                  .cy = cell.data(cy, 1),
                                  .activated = cell.data(workspace, kernels::kLstmGates),
                                  .hidden = cell.hidden()};
  if (!cell.fit()) return composed_lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias);
  Tensor grad_gates = cell.result(kernels::kLstmGates), grad_cx = cell.result(1);
  arguments.grad_gates = grad_gates.mutable_data_ptr();
  arguments.grad_cx = grad_cx.mutable_data_ptr();
  cell.run(kernels::kernels().recurrent->lstm_backward, arguments);
  Tensor grad_bias = has_bias ? grad_gates.sum(0) : Tensor();
  return {std::move(grad_gates), std::move(grad_cx), std::move(grad_bias)};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  constexpr int kGates = kernels::kGruGates;
  CellArguments cell(hx);
  kernels::GruForward arguments{.from_input = cell.data(input_gates, kGates),
                                .from_hidden = cell.data(hidden_gates, kGates),
                                .input_bias = cell.data(input_bias, kGates, /*bias=*/true),
                                .hidden_bias = cell.data(hidden_bias, kGates, /*bias=*/true),
                                .hx = cell.data(hx, 1),
                                .hidden = cell.hidden()};
  if (!cell.fit()) return composed_gru_cell(input_gates, hidden_gates, hx, input_bias, hidden_bias);
  Tensor hy = cell.result(1), workspace = cell.result(kernels::kGruWorkspaces);
  arguments.hy = hy.mutable_data_ptr();
  arguments.workspace = workspace.mutable_data_ptr();
  cell.run(kernels::kernels().recurrent->gru, arguments);
  return {std::move(hy), std::move(workspace)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  CellArguments cell(grad_hy);
  kernels::GruBackward arguments{.grad_hy = cell.data(grad_hy, 1),
                                 .workspace = cell.data(workspace, kernels::kGruWorkspaces),
                                 .hidden = cell.hidden()};
  if (!cell.fit()) return composed_gru_cell_backward(grad_hy, workspace, has_bias);
  Tensor grad_input = cell.result(kernels::kGruGates), grad_hidden = cell.result(kernels::kGruGates),
         grad_hx = cell.result(1);
  arguments.grad_input = grad_input.mutable_data_ptr();
  arguments.grad_hidden = grad_hidden.mutable_data_ptr();
  arguments.grad_hx = grad_hx.mutable_data_ptr();
  cell.run(kernels::kernels().recurrent->gru_backward, arguments);
  Tensor grad_input_bias = has_bias ? grad_input.sum(0) : Tensor();
  Tensor grad_hidden_bias = has_bias ? grad_hidden.sum(0) : Tensor();
  return {std::move(grad_input), std::move(grad_hidden), std::move(grad_hx), std::move(grad_input_bias),
          std::move(grad_hidden_bias)};
}

}  // namespace

void register_fused_recurrent(torch::Library& aten) {
  register_native<at::_ops::_thnn_fused_lstm_cell, &lstm_cell>(aten);
  register_native<at::_ops::_thnn_fused_lstm_cell_backward_impl, &lstm_cell_backward>(aten);
  register_native<at::_ops::_thnn_fused_gru_cell, &gru_cell>(aten);
  register_native<at::_ops::_thnn_fused_gru_cell_backward, &gru_cell_backward>(aten);
}

}  // namespace cann::aten
