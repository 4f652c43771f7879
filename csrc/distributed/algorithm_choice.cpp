#include "distributed/algorithm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string_view>

namespace cann::hccl {
namespace {

constexpr int kFewRanks = 8;
constexpr size_t kTreeBytes = 64 * 1024;
// Up to this many bytes received, one round of whole tensors beats two rounds of slices.
constexpr size_t kWholeBytes = 256 * 1024;

constexpr std::string_view kForm =
    "\"level0:NA;level1:<algorithm>\" or \"<operation>=level0:NA;level1:<algorithm>/...\"";
constexpr std::string_view kAlgorithms = "ring, H-D_R, direct, tree, NHR, NHR_V1, NB, AHC, pipeline or pairwise";
constexpr std::string_view kOperations = "allgather, reducescatter, allreduce, broadcast, reduce, scatter or alltoall";

struct NamedAlgorithm {
  std::string_view name;
  std::optional<Algorithm> algorithm;  // nullopt: HCCL's, and not simulated
};
constexpr NamedAlgorithm kNamedAlgorithms[] = {
    {"ring", Algorithm::kRing},
    {"H-D_R", Algorithm::kHalvingDoubling},
    {"direct", Algorithm::kDirect},
    {"tree", Algorithm::kTree},
    {"NHR", {}},
    {"NHR_V1", {}},
    {"NB", {}},
    {"AHC", {}},
    {"pipeline", {}},
    {"pairwise", {}},
};

struct NamedOperation {
  std::string_view name;
  std::optional<MeshOperation> operation;  // nullopt: has but one algorithm
};
constexpr NamedOperation kNamedOperations[] = {
    {"allreduce", MeshOperation::kAllReduce},
    {"reducescatter", MeshOperation::kReduceScatter},
    {"allgather", MeshOperation::kAllGather},
    {"broadcast", MeshOperation::kBroadcast},
    {"reduce", {}},
    {"scatter", {}},
    {"alltoall", {}},
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

template <typename Table>
const auto* find_named(const Table& table, const std::string& name) {
  const auto* row = std::find_if(std::begin(table), std::end(table), [&](const auto& one) { return one.name == name; });
  return row == std::end(table) ? nullptr : row;
}

// The algorithm of level1; levels other than 0 and 1 are between superpods, of which there are none.
std::string level1_of(const std::string& text) {
  std::string algorithm;
  for (const std::string& part : split(text, ';')) {
    const size_t colon = part.find(':');
    const std::string level = part.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : part.substr(colon + 1);
    if (value.empty()) throw std::invalid_argument(std::string(kForm));
    if (level == "level1") {
      algorithm = value;
    } else if (level == "level0" && value != "NA") {
      throw std::invalid_argument("NA for level0, the inside of a host");
    } else if (level != "level0" && level != "level2") {
      throw std::invalid_argument(std::string(kForm));
    }
  }
  return algorithm;
}

bool is_16_bit(DataType dtype) { return dtype == DataType::kHalf || dtype == DataType::kBFloat16; }

Algorithm automatic(MeshOperation operation, size_t bytes, DataType dtype, int ranks) {
  const bool reduces = operation == MeshOperation::kAllReduce || operation == MeshOperation::kReduceScatter;
  if (ranks <= kFewRanks || (reduces && is_16_bit(dtype))) return Algorithm::kDirect;
  if (operation == MeshOperation::kBroadcast) return Algorithm::kTree;
  if (operation != MeshOperation::kAllReduce) return Algorithm::kRing;
  return bytes <= kTreeBytes ? Algorithm::kTree : Algorithm::kHalvingDoubling;
}

// What carries out `operation` when `algorithm` was chosen.
Algorithm possible(Algorithm algorithm, MeshOperation operation, int ranks) {
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  switch (operation) {
    case MeshOperation::kAllReduce:
      return algorithm == Algorithm::kHalvingDoubling && !power_of_two ? Algorithm::kRing : algorithm;
    case MeshOperation::kReduceScatter:
    case MeshOperation::kAllGather:
      if (algorithm == Algorithm::kHalvingDoubling) return Algorithm::kRing;
      return algorithm == Algorithm::kTree ? Algorithm::kDirect : algorithm;
    case MeshOperation::kBroadcast:
      return algorithm == Algorithm::kTree ? algorithm : Algorithm::kDirect;
  }
  return Algorithm::kDirect;
}

}  // namespace

void AlgorithmChoice::parse_one(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string operation = equals == std::string::npos ? "" : text.substr(0, equals);
  const std::string algorithm = level1_of(equals == std::string::npos ? text : text.substr(equals + 1));
  const auto* named = algorithm.empty() || algorithm == "NA" ? nullptr : find_named(kNamedAlgorithms, algorithm);
  if (named == nullptr && !algorithm.empty() && algorithm != "NA") {
    throw std::invalid_argument(fmt::format("{} for level1", kAlgorithms));
  }
  const auto* known = find_named(kNamedOperations, operation);
  if (known == nullptr && equals != std::string::npos) throw std::invalid_argument(std::string(kOperations));
  if (named == nullptr) return;
  if (!named->algorithm) {
    warnings_.push_back(fmt::format("the algorithm {} is not simulated; the choice stays automatic.", algorithm));
    return;
  }
  if (known == nullptr) {
    asked_.fill(named->algorithm);
  } else if (known->operation) {
    asked_[static_cast<size_t>(*known->operation)] = named->algorithm;
  } else {
    warnings_.push_back(fmt::format("{} has but one algorithm here; {} has no effect on it.", operation, algorithm));
  }
}

AlgorithmChoice AlgorithmChoice::parse(const std::string& text) {
  AlgorithmChoice choice;
  for (const std::string& one : split(text, '/')) choice.parse_one(one);
  return choice;
}

Algorithm AlgorithmChoice::choose(MeshOperation operation, size_t bytes, DataType dtype, Reduction reduction,
                                  int ranks) const {
  const auto& asked = asked_[static_cast<size_t>(operation)];
  const Algorithm wanted = asked ? *asked : automatic(operation, bytes, dtype, ranks);
  const bool only_direct = reduction == Reduction::kPremultipliedSum;
  const Algorithm algorithm = only_direct ? Algorithm::kDirect : possible(wanted, operation, ranks);
  // Between two ranks it takes no more bytes either.
  const bool one_round = ranks == 2 || bytes * static_cast<size_t>(ranks - 1) <= kWholeBytes;
  const bool whole = operation == MeshOperation::kAllReduce && algorithm == Algorithm::kDirect && one_round;
  return whole ? Algorithm::kWhole : algorithm;
}

}  // namespace cann::hccl
