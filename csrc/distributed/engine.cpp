#include "distributed/engine.h"

#include <algorithm>
#include <array>

namespace cann::hccl {
namespace {

// In the order of c10d::OpType.
constexpr std::array kOpNames = {
    "BROADCAST",
    "ALLREDUCE",
    "ALLREDUCE_COALESCED",
    "REDUCE",
    "ALLGATHER",
    "_ALLGATHER_BASE",
    "ALLGATHER_COALESCED",
    "GATHER",
    "SCATTER",
    "REDUCE_SCATTER",
    "ALLTOALL_BASE",
    "ALLTOALL",
    "SEND",
    "RECV",
    "RECVANYSOURCE",
    "BARRIER",
    "_REDUCE_SCATTER_BASE",
    "COALESCED",
    "_ALLREDUCE_SPARSE",
};
constexpr uint8_t kSend = 12;
constexpr uint8_t kReceiveAny = 14;

// In the order of c10::ScalarType.
constexpr std::array kTypeNames = {
    "Byte",
    "Char",
    "Short",
    "Int",
    "Long",
    "Half",
    "Float",
    "Double",
    "ComplexHalf",
    "ComplexFloat",
    "ComplexDouble",
    "Bool",
    "QInt8",
    "QUInt8",
    "QInt32",
    "BFloat16",
    "QUInt4x2",
    "QUInt2x4",
    "Bits1x8",
    "Bits2x4",
    "Bits4x2",
    "Bits8",
    "Bits16",
    "Float8_e5m2",
    "Float8_e4m3fn",
    "Float8_e5m2fnuz",
    "Float8_e4m3fnuz",
    "UInt16",
    "UInt32",
    "UInt64",
};

}  // namespace

const char* op_name(uint8_t op) { return op < kOpNames.size() ? kOpNames[op] : "an unknown operation"; }

bool is_transfer(uint8_t op) { return op >= kSend && op <= kReceiveAny; }

const char* name_of(DataType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kTypeNames.size() ? kTypeNames[index] : "another type";
}

size_t element_bytes(DataType dtype) {
  switch (dtype) {
    case DataType::kUInt8:
    case DataType::kInt8:
    case DataType::kBool:
      return 1;
    case DataType::kInt16:
    case DataType::kHalf:
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat:
      return 4;
    case DataType::kInt64:
    case DataType::kUInt64:
    case DataType::kDouble:
      return 8;
  }
  throw std::invalid_argument(std::string(name_of(dtype)) + " cannot be reduced");
}

const char* name_of(Reduction reduction) {
  constexpr std::array kNames = {"NONE", "SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM"};
  const auto index = static_cast<size_t>(reduction);
  return index < kNames.size() ? kNames[index] : "an unknown reduction";
}

Slice slice_of(size_t count, int rank, int ranks, size_t unit) {
  const size_t units = (count + unit - 1) / unit;
  const size_t per_rank = (units + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks) * unit;
  const size_t begin = std::min(static_cast<size_t>(rank) * per_rank, count);
  return {begin, std::min(begin + per_rank, count)};
}

Deadline::Deadline(std::chrono::milliseconds allowed)
    : allowed_(allowed.count() > 0 ? allowed : std::chrono::hours(24 * 365)),
      start_(std::chrono::steady_clock::now()) {}

std::chrono::milliseconds Deadline::elapsed() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_);
}

std::chrono::milliseconds Deadline::remaining() const {
  return std::max(allowed_ - elapsed(), std::chrono::milliseconds(1));
}

}  // namespace cann::hccl
