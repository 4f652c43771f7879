// Cells of LSTM and GRU against the same definitions in double, for every instruction set and tail length.

#include "kernels_fixture.h"

namespace cann::kernels {
namespace {

constexpr int64_t kRows = 3;
constexpr double kClose = 1e-6;  // of values round one

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class RecurrentTest : public KernelTest {
 protected:
  // What the gates of a cell get before their activations.
  struct Gates {
    std::vector<float> input, hidden, input_bias, hidden_bias;
    int64_t width;
    bool biased;

    double from_input(int64_t row, int64_t i) const { return input[row * width + i] + (biased ? input_bias[i] : 0.0); }
    double from_hidden(int64_t row, int64_t i) const {
      return hidden[row * width + i] + (biased ? hidden_bias[i] : 0.0);
    }
    double sum(int64_t row, int64_t i) const { return from_input(row, i) + from_hidden(row, i); }
    const float* bias(const std::vector<float>& values) const { return biased ? values.data() : nullptr; }
  };
  static Gates gates(int64_t width, bool biased) {
    return {normal(kRows * width, 1), normal(kRows * width, 2), normal(width, 3), normal(width, 4), width, biased};
  }
};

TEST_P(RecurrentTest, LstmForwardAndBackward) {
  for (const int64_t n : kSizes) {
    for (const bool biased : {false, true}) {
      const Gates g = gates(4 * n, biased);
      const std::vector<float> cx = normal(kRows * n, 5), grad_hy = normal(kRows * n, 6),
                               grad_cy = normal(kRows * n, 7);
      std::vector<float> hy(kRows * n), cy(kRows * n), activated(kRows * 4 * n), grad_gates(kRows * 4 * n),
          grad_cx(kRows * n);
      set_->recurrent->lstm[0]({.hy = hy.data(),
                                .cy = cy.data(),
                                .activated = activated.data(),
                                .from_input = g.input.data(),
                                .from_hidden = g.hidden.data(),
                                .input_bias = g.bias(g.input_bias),
                                .hidden_bias = g.bias(g.hidden_bias),
                                .cx = cx.data(),
                                .hidden = n},
                               0, kRows);
      set_->recurrent->lstm_backward[0]({.grad_gates = grad_gates.data(),
                                         .grad_cx = grad_cx.data(),
                                         .grad_hy = grad_hy.data(),
                                         .grad_cy = grad_cy.data(),
                                         .cx = cx.data(),
                                         .cy = cy.data(),
                                         .activated = activated.data(),
                                         .hidden = n},
                                        0, kRows);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = row * n + i;
          const double in = sigmoid(g.sum(row, i)), forget = sigmoid(g.sum(row, n + i)),
                       cell = std::tanh(g.sum(row, 2 * n + i)), out = sigmoid(g.sum(row, 3 * n + i));
          const double state = forget * cx[at] + in * cell, squashed = std::tanh(state);
          ASSERT_NEAR(cy[at], state, kClose) << n;
          ASSERT_NEAR(hy[at], out * squashed, kClose) << n;
          ASSERT_NEAR(activated[row * 4 * n + 2 * n + i], cell, kClose) << n;
          const double dc = grad_hy[at] * out * (1 - squashed * squashed) + grad_cy[at];
          const double want[4] = {dc * cell * in * (1 - in), dc * cx[at] * forget * (1 - forget),
                                  dc * in * (1 - cell * cell), grad_hy[at] * squashed * out * (1 - out)};
          for (int k = 0; k < 4; ++k) ASSERT_NEAR(grad_gates[row * 4 * n + k * n + i], want[k], 4 * kClose) << n;
          ASSERT_NEAR(grad_cx[at], dc * forget, 4 * kClose) << n;
        }
      }
    }
  }
}

TEST_P(RecurrentTest, AnAbsentGradientOfALstmIsZero) {
  constexpr int64_t n = 33;
  const std::vector<float> zero(kRows * n), grad = normal(kRows * n, 1), cx = normal(kRows * n, 2),
                                            cy = normal(kRows * n, 3), activated = normal(kRows * 4 * n, 4);
  const auto backward = [&](const float* grad_hy, const float* grad_cy) {
    std::vector<float> grad_gates(kRows * 4 * n), grad_cx(kRows * n);
    set_->recurrent->lstm_backward[0]({.grad_gates = grad_gates.data(),
                                       .grad_cx = grad_cx.data(),
                                       .grad_hy = grad_hy,
                                       .grad_cy = grad_cy,
                                       .cx = cx.data(),
                                       .cy = cy.data(),
                                       .activated = activated.data(),
                                       .hidden = n},
                                      0, kRows);
    return std::pair(grad_gates, grad_cx);
  };
  EXPECT_EQ(backward(grad.data(), nullptr), backward(grad.data(), zero.data()));
  EXPECT_EQ(backward(nullptr, grad.data()), backward(zero.data(), grad.data()));
}

TEST_P(RecurrentTest, GruForwardAndBackward) {
  for (const int64_t n : kSizes) {
    for (const bool biased : {false, true}) {
      const Gates g = gates(3 * n, biased);
      const std::vector<float> hx = normal(kRows * n, 5), grad_hy = normal(kRows * n, 6);
      std::vector<float> hy(kRows * n), workspace(kRows * 5 * n), grad_input(kRows * 3 * n), grad_hidden(kRows * 3 * n),
          grad_hx(kRows * n);
      set_->recurrent->gru[0]({.hy = hy.data(),
                               .workspace = workspace.data(),
                               .from_input = g.input.data(),
                               .from_hidden = g.hidden.data(),
                               .input_bias = g.bias(g.input_bias),
                               .hidden_bias = g.bias(g.hidden_bias),
                               .hx = hx.data(),
                               .hidden = n},
                              0, kRows);
      set_->recurrent->gru_backward[0]({.grad_input = grad_input.data(),
                                        .grad_hidden = grad_hidden.data(),
                                        .grad_hx = grad_hx.data(),
                                        .grad_hy = grad_hy.data(),
                                        .workspace = workspace.data(),
                                        .hidden = n},
                                       0, kRows);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = row * n + i;
          const double reset = sigmoid(g.sum(row, i)), update = sigmoid(g.sum(row, n + i)),
                       hidden_new = g.from_hidden(row, 2 * n + i),
                       fresh = std::tanh(g.from_input(row, 2 * n + i) + reset * hidden_new);
          ASSERT_NEAR(hy[at], fresh + update * (hx[at] - fresh), kClose) << n;
          const double grad_new = grad_hy[at] * (1 - update) * (1 - fresh * fresh),
                       grad_reset = grad_new * hidden_new * reset * (1 - reset),
                       grad_update = grad_hy[at] * (hx[at] - fresh) * update * (1 - update);
          const double of_input[3] = {grad_reset, grad_update, grad_new},
                       of_hidden[3] = {grad_reset, grad_update, grad_new * reset};
          for (int k = 0; k < 3; ++k) {
            ASSERT_NEAR(grad_input[row * 3 * n + k * n + i], of_input[k], 4 * kClose) << n;
            ASSERT_NEAR(grad_hidden[row * 3 * n + k * n + i], of_hidden[k], 4 * kClose) << n;
          }
          ASSERT_NEAR(grad_hx[at], grad_hy[at] * update, kClose) << n;
        }
      }
    }
  }
}

TEST_P(RecurrentTest, SmallStatesKeepTheirDigits) {
  // tanh x of a small x is x: a GRU whose gates are closed to all but the new state shows it.
  constexpr int64_t n = 16;
  std::vector<float> input(3 * n), hidden(3 * n), hx(n), hy(n), workspace(5 * n);
  for (int64_t i = 0; i < n; ++i) input[n + i] = -100.0f, input[2 * n + i] = std::ldexp(1.0f, static_cast<int>(-4 * i));
  set_->recurrent->gru[0]({.hy = hy.data(),
                           .workspace = workspace.data(),
                           .from_input = input.data(),
                           .from_hidden = hidden.data(),
                           .input_bias = nullptr,
                           .hidden_bias = nullptr,
                           .hx = hx.data(),
                           .hidden = n},
                          0, 1);
  for (int64_t i = 0; i < n; ++i) {
    const double want = std::tanh(static_cast<double>(input[2 * n + i]));
    EXPECT_NEAR(hy[i] / want, 1.0, 2.5e-7) << i;
  }
}

CANN_FOR_EACH_CAPABILITY(RecurrentTest);

}  // namespace
}  // namespace cann::kernels
