#include "distributed/compressed_sum.h"

#include <utility>

#include "distributed/algorithms.h"
#include "distributed/reduction.h"

namespace cann::hccl {
namespace {

size_t count_of(Span span) { return span.bytes / sizeof(float); }
float* floats(Span span) { return reinterpret_cast<float*>(span.data); }

// Messages of the encoded size of `contents`, in memory of the plan.
std::vector<Span> rooms_for(const WireFormat& format, const std::vector<Span>& contents, Scratch& scratch) {
  std::vector<Span> rooms;
  for (const Span& one : contents) rooms.push_back(scratch.take(encoded_bytes(format, count_of(one))));
  return rooms;
}

Messages to_each(const std::vector<Span>& spans) { return {spans.begin(), spans.end()}; }

}  // namespace

bool is_compressed(const WireFormat& format, const Call& call, size_t bytes) {
  const bool sum = call.reduction == Reduction::kSum || call.reduction == Reduction::kAverage;
  return !format.exact() && sum && call.dtype == DataType::kFloat && bytes >= kCompressedBytes;
}

Plan compressed_sum_plan(const WireFormat& format, const Call& call, int rank, int n, Span data, Residuals& residuals,
                         Scratch& scratch) {
  const auto me = static_cast<size_t>(rank);
  const auto ranks = static_cast<size_t>(n);
  const std::vector<Span> slices = slices_of(data, call.dtype, n);
  const Span mine = slices[me];
  const std::vector<Span> encoded = rooms_for(format, slices, scratch);
  const std::vector<Span> received = rooms_for(format, std::vector<Span>(ranks, mine), scratch);
  std::vector<Span> decoded;
  for (int peer = 0; peer < n; ++peer) decoded.push_back(peer == rank ? mine : scratch.take(mine.bytes));
  const auto residual = [format, &residuals](Span slice) {
    return format.feeds_errors_back() ? residuals.of(slice.data, count_of(slice)) : nullptr;
  };

  Step scatter{{}, to_each(encoded), to_each(received), {}};
  scatter.before = [=] {
    for (size_t peer = 0; peer < ranks; ++peer) {
      const Span slice = slices[peer];
      if (peer != me) encode(format, floats(slice), count_of(slice), encoded[peer].data, residual(slice));
    }
  };
  scatter.after = [=](const std::vector<double>&) {
    std::vector<const std::byte*> parts;
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (peer != me) decode(format, received[peer].data, count_of(mine), floats(decoded[peer]));
      parts.push_back(decoded[peer].data);
    }
    reduce_in_order(call.reduction, call.dtype, parts, {}, {mine.data}, count_of(mine), /*stream=*/false,
                    call.divisor > 0 ? call.divisor : n);
  };

  // The rooms of the first step are free again: what was sent has gone.
  Step gather{{}, Messages(ranks, encoded[me]), to_each(encoded), {}};
  gather.before = [=] { encode(format, floats(mine), count_of(mine), encoded[me].data, residual(mine)); };
  gather.after = [=](const std::vector<double>&) {
    for (size_t peer = 0; peer < ranks; ++peer) {
      decode(format, encoded[peer].data, count_of(slices[peer]), floats(slices[peer]));
    }
  };
  Plan plan;
  plan.push_back(std::move(scatter));
  plan.push_back(std::move(gather));
  return plan;
}

}  // namespace cann::hccl
