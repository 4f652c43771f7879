#pragma once
// A communicator whose ranks are threads of this process, so that sanitizers see all of it.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "distributed/reduction.h"
#include "distributed/shm/shm_engine.h"

namespace cann::hccl {

// Where a buffer of the test lies.
enum class Place { kHbm, kForeign };

class World {
 public:
  static constexpr size_t kHbmBytes = size_t{64} << 20;

  explicit World(int ranks)
      : ranks_(ranks),
        memory_(
            std::make_shared<SharedMemory>(SharedMemory::create("torch_cann_test", ControlBlock::bytes_for(ranks)))),
        hbm_(ranks, kHbmBytes, /*huge_pages=*/false) {
    hbm_.share();
    const ControlBlock block(memory_->data(), ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<std::shared_ptr<PeerProcess>> threads(static_cast<size_t>(ranks));
      engines_.push_back(std::make_unique<ShmEngine>(block, memory_, rank, threads, &hbm_));
      cards_.push_back(static_cast<std::byte*>(hbm_.reserve(rank, kHbmBytes)));
    }
  }

  int size() const { return ranks_; }
  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  ControlBlock block() const { return {memory_->data(), ranks_}; }
  std::byte* card(int rank) const { return cards_[static_cast<size_t>(rank)]; }

  // Runs body(rank) on a thread per rank.
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const int ranks_;
  const std::shared_ptr<SharedMemory> memory_;
  sim::Hbm hbm_;
  std::vector<std::unique_ptr<ShmEngine>> engines_;
  std::vector<std::byte*> cards_;
};

// Memory of one rank for the length of an operation: a bump allocator over its card, and foreign blocks. Without a
// card all blocks are foreign.
class Buffers {
 public:
  Buffers() = default;
  Buffers(const World& world, int rank) : next_(world.card(rank)), end_(next_ + World::kHbmBytes) {}

  // `bytes` at an address that is 4 bytes off a multiple of 64 if `odd`.
  Span make(size_t bytes, Place place, bool odd = false) {
    const size_t shift = odd ? 4 : 0;
    if (place == Place::kForeign || next_ == nullptr) {
      foreign_.push_back(std::make_unique<std::byte[]>(bytes + shift + 64));
      return {foreign_.back().get() + shift, bytes};
    }
    std::byte* data = next_ + shift;
    next_ += (bytes + shift + 127) / 64 * 64;
    EXPECT_LE(next_, end_);
    return {data, bytes};
  }

 private:
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> foreign_;
};

// Byte `i` of what rank `rank` contributes to operation `seed`; the same function on every rank.
inline std::byte pattern(uint64_t seed, int rank, size_t i) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(rank) * 0xC2B2AE3D27D4EB4Fu + i / 8;
  x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93u;
  return static_cast<std::byte>(x >> (8 * (i % 8)));
}

inline void fill(Span span, uint64_t seed, int rank) {
  for (size_t i = 0; i < span.bytes; ++i) span.data[i] = pattern(seed, rank, i);
}

// Small whole numbers, exact in every type even when summed over 64 ranks.
inline void fill_numbers(Span span, DataType dtype, uint64_t seed, int rank) {
  const size_t item = element_bytes(dtype);
  for (size_t i = 0; i < span.bytes / item; ++i) {
    const int value = static_cast<int>(pattern(seed, rank, 8 * i)) % 2 + (dtype == DataType::kBool ? 0 : 1);
    std::byte* at = span.data + i * item;
    const auto put = [at](auto number) { std::memcpy(at, &number, sizeof(number)); };
    switch (dtype) {
      case DataType::kFloat:
        put(static_cast<float>(value));
        break;
      case DataType::kHalf:
        put(static_cast<uint16_t>(value == 2 ? 0x4000 : 0x3c00));
        break;
      case DataType::kBFloat16:
        put(static_cast<uint16_t>(value == 2 ? 0x4000 : 0x3f80));
        break;
      case DataType::kDouble:
        put(static_cast<double>(value));
        break;
      case DataType::kInt64:
      case DataType::kUInt64:
        put(static_cast<int64_t>(value));
        break;
      case DataType::kInt32:
        put(static_cast<int32_t>(value));
        break;
      case DataType::kInt16:
        put(static_cast<int16_t>(value));
        break;
      default:
        put(static_cast<uint8_t>(value));
        break;
    }
  }
}

inline std::vector<std::byte> bytes_of(Span span) { return {span.data, span.data + span.bytes}; }

// What the ranks' contributions of `bytes` reduce to, by the plain kernels in one go.
inline std::vector<std::byte> expected_reduction(const Call& call, uint64_t seed, int ranks, size_t bytes) {
  std::vector<std::vector<std::byte>> all;
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    all.emplace_back(bytes);
    fill_numbers({all.back().data(), bytes}, call.dtype, seed, rank);
  }
  for (const auto& one : all) parts.push_back(one.data());
  std::vector<std::byte> out(bytes);
  const std::vector<double> factors(static_cast<size_t>(ranks), call.factor);
  reduce_in_order(call.reduction, call.dtype, parts, factors, {out.data()}, bytes / element_bytes(call.dtype));
  return out;
}

inline Call call_of(uint8_t op, uint64_t sequence, DataType dtype = DataType::kUInt8,
                    Reduction reduction = Reduction::kNone, int root = -1) {
  Call call;
  call.op = op;
  call.sequence = sequence;
  call.dtype = dtype;
  call.reduction = reduction;
  call.root = root;
  call.deadline = Deadline(std::chrono::seconds(60));
  return call;
}

}  // namespace cann::hccl
