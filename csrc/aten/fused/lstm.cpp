// nn.LSTM. ATen runs whole layers of it by oneDNN for CPU tensors, and step by step for those of other devices, which
// takes twice to three times as long; here npu tensors take oneDNN's layers where CPU tensors would.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>

#include <algorithm>
#include <array>
#include <vector>

#include "aten/fused/plain.h"
#include "aten/register.h"
#include "kernels/kernels.h"

namespace cann::aten {
namespace {

using at::Tensor;

// oneDNN multiplies bfloat16 from these instructions on.
bool has_bfloat16_layers() {
  static const bool has = kernels::kernels_for(sim::CpuCapability::kAvx512) != nullptr;
  return has;
}

// The arguments of at::lstm, sizes made explicit.
struct Lstm {
  Lstm(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases, int64_t num_layers,
       bool bidirectional, bool batch_first)
      : input(input),
        hx(hx),
        params(params),
        layers(num_layers),
        directions(bidirectional ? 2 : 1),
        of_a_layer(has_biases ? 4 : 2),
        batch_first(batch_first) {}

  // Of layer `i` in one direction: weights of the input and of the hidden state, then biases.
  at::TensorList of(int64_t i, int64_t direction) const {
    return params.slice(static_cast<size_t>(i * directions + direction) * of_a_layer, of_a_layer);
  }

  const Tensor& input;
  at::TensorList hx, params;
  int64_t layers, directions;
  size_t of_a_layer;
  bool batch_first;
};

// oneDNN reads what sizes it computes from some of the tensors: the others must have them. No projections.
bool sizes_fit(const Lstm& x) {
  if (x.input.dim() != 3 || x.input.numel() == 0 || x.hx.size() != 2 || x.hx[0].dim() != 3) return false;
  const int64_t count = x.layers * x.directions, hidden = x.hx[0].size(2), gates = 4 * hidden;
  const std::array<int64_t, 3> state{count, x.input.size(x.batch_first ? 0 : 1), hidden};
  if (x.params.size() != static_cast<size_t>(count) * x.of_a_layer || x.hx[0].sizes() != state ||
      x.hx[1].sizes() != state) {
    return false;
  }
  for (int64_t i = 0; i < x.layers; ++i) {
    const int64_t in = i == 0 ? x.input.size(2) : x.directions * hidden;
    for (int64_t direction = 0; direction < x.directions; ++direction) {
      const at::TensorList params = x.of(i, direction);
      if (params[0].sizes() != at::IntArrayRef{gates, in} || params[1].sizes() != at::IntArrayRef{gates, hidden}) {
        return false;
      }
      for (const Tensor& bias : params.slice(2)) {
        if (bias.sizes() != at::IntArrayRef{gates}) return false;
      }
    }
  }
  return true;
}

// Whether oneDNN's layers serve: types that CPU tensors have there, the cells compute others in float32.
bool by_layers(const Lstm& x) {
  const at::ScalarType type = x.input.scalar_type();
  if (type != at::kFloat && !(type == at::kBFloat16 && has_bfloat16_layers())) return false;
  const auto fits = [&](const Tensor& t) {
    return is_an_ordinary_tensor(t) && is_raw_memory(*t.unsafeGetTensorImpl()) && t.device() == x.input.device() &&
           t.scalar_type() == type;
  };
  return at::globalContext().userEnabledMkldnn() && !at::autocast::is_autocast_enabled(kNPU) && fits(x.input) &&
         std::ranges::all_of(x.hx, fits) && std::ranges::all_of(x.params, fits) && sizes_fit(x);
}

// A layer in one direction, of which oneDNN gets `train`, which says whether to keep what a backward pass needs.
// input [T, B, in], hx and cx [B, H]. Returns the outputs [T, B, H] and both last states.
std::tuple<Tensor, Tensor, Tensor> layer(const Tensor& input, at::TensorList params, const Tensor& hx, const Tensor& cx,
                                         bool has_biases, bool reverse, bool train) {
  constexpr int64_t kLstm = 2;  // of ATen's rnn_mode
  const Tensor no_bias = has_biases ? Tensor() : at::zeros({params[1].size(0)}, params[1].options());
  auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
      input, params[0], params[1], has_biases ? params[2] : no_bias, has_biases ? params[3] : no_bias, hx, cx, reverse,
      /*batch_sizes=*/{}, kLstm, hx.size(-1), /*num_layers=*/1, has_biases, /*bidirectional=*/false,
      /*batch_first=*/false, train);
  return {std::move(output), std::move(hy), std::move(cy)};
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Lstm all(input, hx, params, has_biases, num_layers, bidirectional, batch_first);
  if (!by_layers(all)) {
    return at::compositeimplicitautograd::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                                               batch_first);
  }
  // A model in eval() may be differentiated, too.
  const bool keep = train || at::GradMode::is_enabled();
  Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  std::vector<Tensor> hy, cy;
  for (int64_t i = 0; i < num_layers; ++i) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < all.directions; ++direction) {
      const int64_t at = i * all.directions + direction;
      auto [output, h, c] = layer(x, all.of(i, direction), hx[0].select(0, at), hx[1].select(0, at), has_biases,
                                  /*reverse=*/direction == 1, keep);
      outputs.push_back(std::move(output));
      hy.push_back(std::move(h));
      cy.push_back(std::move(c));
    }
    x = all.directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (dropout != 0 && train && i + 1 < num_layers) x = at::dropout(x, dropout, /*train=*/true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(hy), at::stack(cy)};
}

}  // namespace

void register_fused_lstm(torch::Library& library) { library.impl("lstm.input", TORCH_FN(lstm)); }

}  // namespace cann::aten
