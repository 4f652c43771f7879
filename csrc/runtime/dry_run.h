#pragma once
// Dry run: npu tensors have addresses but no memory behind them, and operators have results but no values.
//
// A process is dry from its start or not at all (Env::dry_run). Addresses come from the caching allocator as ever, but
// segments above 2 MiB are protected, so that a stray touch faults instead of reading rubbish. Blocks of up to
// kKnownBytes lie in segments that are real memory: tensors that small keep their values as long as everything they
// were computed from is known (counters, loss scales, gathered sizes), and operators on them really run. Nobody knows
// the values of other tensors; a program that reads one is reported to the handler below. Thread-safe.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "sim/env.h"

namespace cann {

inline bool dry_run() noexcept {
  static const bool dry = sim::Env::get().dry_run;
  return dry;
}

// Storages of at most so many bytes may keep their values.
inline constexpr size_t kKnownBytes = 65536;

// Whether the values of `tensor` are known; true for CPU tensors, false for undefined ones.
bool values_known(const at::Tensor& tensor);
// Whether writing all of `tensor` with known values makes its storage known.
bool can_become_known(const at::Tensor& tensor);
void set_values_known(const at::Tensor& tensor, bool known);

// What a program wants to know that nobody does.
struct UnknownRead {
  enum Kind {
    kValue,   // one number that decides what the host does: item(), bool()
    kCopy,    // a copy to the host
    kCount,   // how many elements an operator selects
    kAssume,  // an operator whose usual outcome is assumed, and listed
  };
  Kind kind;
  std::string op;
  const at::Tensor& tensor;
};
// Returns the answer, raises, or answers nothing for kCopy and kAssume. Called without the GIL.
using UnknownHandler = std::optional<double> (*)(const UnknownRead& read);
void set_unknown_handler(UnknownHandler handler);
// Asks the handler. Without one raises RuntimeError for kValue and kCount.
std::optional<double> ask_unknown(const UnknownRead& read);

}  // namespace cann
