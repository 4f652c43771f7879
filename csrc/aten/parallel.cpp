#include "aten/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

#ifndef _OPENMP
#error "without OpenMP at::parallel_for runs on one thread"
#endif

namespace cann::aten {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::parallel_for(begin, end, grain, body);
}

void parallel_elements(int64_t count, c10::function_ref<void(int64_t, int64_t)> body) {
  constexpr int64_t kPiece = 1024;
  parallel_for(0, (count + kPiece - 1) / kPiece, at::internal::GRAIN_SIZE / kPiece,
               [&](int64_t begin, int64_t end) { body(begin * kPiece, std::min(count, end * kPiece)); });
}

}  // namespace cann::aten
