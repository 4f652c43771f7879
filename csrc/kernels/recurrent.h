#pragma once
// The pointwise part of LSTM and GRU cells, and their derivatives, in one pass over each row. The definitions are
// PyTorch's (torch.nn.LSTMCell, torch.nn.GRUCell): B rows of H hidden units, gates one after the other in a row. 16-bit
// elements are computed in float and rounded once.

#include <cstdint>

#include "kernels/declare.h"
#include "kernels/element.h"

namespace cann::kernels {

inline constexpr int kLstmGates = 4;      // input, forget, cell, output
inline constexpr int kGruGates = 3;       // reset, update, new
inline constexpr int kGruWorkspaces = 5;  // reset, update, new, hx, and the hidden state's part of the new gate

// All of one element type and contiguous; hidden is H. Biases may be nullptr. What is written comes first.
struct LstmForward {
  void *hy = nullptr, *cy = nullptr;     // [B, H]
  void* activated = nullptr;             // [B, 4 H]: the gates
  const void *from_input, *from_hidden;  // [B, 4 H]: what the input and the hidden state give to the gates
  const void *input_bias, *hidden_bias;  // [4 H]
  const void* cx;                        // [B, H]
  int64_t hidden;
};

// The gradients that come in may be nullptr, which is zero.
struct LstmBackward {
  void* grad_gates = nullptr;       // [B, 4 H]
  void* grad_cx = nullptr;          // [B, H]
  const void *grad_hy, *grad_cy;    // [B, H]
  const void *cx, *cy, *activated;  // of the forward pass
  int64_t hidden;
};

struct GruForward {
  void* hy = nullptr;                    // [B, H]
  void* workspace = nullptr;             // [B, 5 H]
  const void *from_input, *from_hidden;  // [B, 3 H]
  const void *input_bias, *hidden_bias;  // [3 H]
  const void* hx;                        // [B, H]
  int64_t hidden;
};

struct GruBackward {
  void* grad_input = nullptr;   // [B, 3 H]: of what came from the input
  void* grad_hidden = nullptr;  // [B, 3 H]: of what came from the hidden state
  void* grad_hx = nullptr;      // [B, H]: without what comes through the gates
  const void* grad_hy;          // [B, H]
  const void* workspace;        // of the forward pass
  int64_t hidden;
};

// Each works on rows [first, last).
struct RecurrentKernels {
  void (*lstm[kElements])(const LstmForward&, int64_t first, int64_t last);
  void (*lstm_backward[kElements])(const LstmBackward&, int64_t first, int64_t last);
  void (*gru[kElements])(const GruForward&, int64_t first, int64_t last);
  void (*gru_backward[kElements])(const GruBackward&, int64_t first, int64_t last);
};

CANN_DECLARE_KERNELS(RecurrentKernels, recurrent)

}  // namespace cann::kernels
