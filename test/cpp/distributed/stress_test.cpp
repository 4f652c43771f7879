// Thousands of random operations, collectives and messages mixed, on one host and on several, whose every byte is
// checked. For sanitizers, too.
//
// CANN_STRESS_OPERATIONS sets how many per world (default 400), CANN_STRESS_SEED where to start; a failure prints the
// seed it happened with.

#include <algorithm>
#include <cstdlib>

#include "cluster.h"
#include "world.h"

namespace cann::hccl {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kGather, kScatter, kBarrier };
constexpr int kCollectives = static_cast<int>(Kind::kBarrier) + 1;

// One operation as all ranks choose it: drawn from the same generator on each. Kinds beyond Kind are transfers.
struct Choice {
  uint64_t seed;
  int kind;
  int root;
  Reduction reduction;
  size_t elements;
  DataType dtype;
  std::vector<Place> places;
};

// Kinds below `kinds`, and elements up to 2^`magnitudes`.
Choice draw(std::mt19937_64& random, int ranks, int kinds, uint64_t magnitudes) {
  constexpr DataType kTypes[] = {DataType::kFloat, DataType::kBFloat16, DataType::kHalf, DataType::kInt64,
                                 DataType::kInt8};
  constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMax, Reduction::kMin};
  Choice choice{random(),
                static_cast<int>(random() % static_cast<uint64_t>(kinds)),
                static_cast<int>(random() % static_cast<uint64_t>(ranks)),
                kReductions[random() % 3],
                0,
                kTypes[random() % 5],
                {}};
  const uint64_t magnitude = random() % (magnitudes + 1);
  choice.elements = (uint64_t{1} << magnitude) + random() % 3 - 1;
  for (int rank = 0; rank < ranks; ++rank) {
    choice.places.push_back(random() % 4 == 0 ? Place::kForeign : Place::kHbm);
  }
  return choice;
}

// One rank of `size`; its operations' memory comes from `fresh()`.
class Player {
 public:
  Player(Engine& engine, int rank, int size, std::function<Buffers()> fresh)
      : engine_(engine), rank_(rank), size_(size), fresh_(std::move(fresh)), buffers_(fresh_()) {}

  void play(const Choice& choice, uint64_t sequence) {
    buffers_ = fresh_();
    sequence_ = sequence;
    if (choice.kind >= kCollectives) return ring(choice);
    switch (static_cast<Kind>(choice.kind)) {
      case Kind::kAllReduce:
      case Kind::kReduce:
        return reduce(choice);
      case Kind::kReduceScatter:
        return reduce_scatter(choice);
      case Kind::kAllGather:
        return all_gather(choice);
      case Kind::kAllToAll:
        return all_to_all(choice);
      case Kind::kBroadcast:
        return broadcast(choice);
      case Kind::kGather:
      case Kind::kScatter:
        return gather_or_scatter(choice);
      case Kind::kBarrier:
        return engine_.barrier(call_of(15, sequence_));
    }
  }

 private:
  Span make(const Choice& choice, size_t bytes) {
    return buffers_.make(bytes, choice.places[static_cast<size_t>(rank_)], choice.seed % 2 == 0);
  }
  void expect(Span got, int from, uint64_t seed) {
    for (size_t i = 0; i < got.bytes; ++i) {
      if (got.data[i] != pattern(seed, from, i)) {
        ADD_FAILURE() << "byte " << i << " of " << got.bytes << " from rank " << from << ", operation seed " << seed;
        return;
      }
    }
  }

  void reduce(const Choice& choice) {
    const bool to_root = static_cast<Kind>(choice.kind) == Kind::kReduce;
    const size_t bytes = choice.elements * element_bytes(choice.dtype);
    const Call call = call_of(to_root ? 3 : 1, sequence_, choice.dtype, choice.reduction, to_root ? choice.root : -1);
    const Span data = make(choice, bytes);
    fill_numbers(data, choice.dtype, choice.seed, rank_);
    auto expected = bytes_of(data);
    if (!to_root || rank_ == choice.root) expected = expected_reduction(call, choice.seed, size_, bytes);
    to_root ? engine_.reduce(call, data) : engine_.all_reduce(call, data);
    EXPECT_TRUE(bytes_of(data) == expected) << choice.seed;
  }

  void reduce_scatter(const Choice& choice) {
    const size_t bytes = choice.elements * element_bytes(choice.dtype);
    const auto ranks = static_cast<size_t>(size_);
    const Call call = call_of(9, sequence_, choice.dtype, choice.reduction);
    const Span data = make(choice, bytes * ranks);
    fill_numbers(data, choice.dtype, choice.seed, rank_);
    const auto expected = expected_reduction(call, choice.seed, size_, bytes * ranks);
    std::vector<Span> parts;
    for (size_t part = 0; part < ranks; ++part) parts.push_back({data.data + part * bytes, bytes});
    const Span output = make(choice, bytes);
    engine_.reduce_scatter(call, parts, output);
    const auto from = expected.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank_) * bytes);
    EXPECT_TRUE(std::equal(from, from + static_cast<ptrdiff_t>(bytes), output.data)) << choice.seed;
  }

  void all_gather(const Choice& choice) {
    const Span mine = make(choice, choice.elements);
    fill(mine, choice.seed, rank_);
    std::vector<Span> outputs;
    for (int peer = 0; peer < size_; ++peer) outputs.push_back(make(choice, choice.elements));
    engine_.all_gather(call_of(4, sequence_), mine, outputs);
    for (int peer = 0; peer < size_; ++peer) expect(outputs[static_cast<size_t>(peer)], peer, choice.seed);
  }

  // Rank r's part has `elements` + r bytes.
  void gather_or_scatter(const Choice& choice) {
    const bool gathers = static_cast<Kind>(choice.kind) == Kind::kGather;
    const bool is_root = rank_ == choice.root;
    const Span mine = make(choice, choice.elements + static_cast<size_t>(rank_));
    if (gathers) fill(mine, choice.seed, rank_);
    std::vector<Span> parts;
    for (int peer = 0; is_root && peer < size_; ++peer) {
      parts.push_back(make(choice, choice.elements + static_cast<size_t>(peer)));
      if (!gathers) fill(parts.back(), choice.seed, peer);
    }
    Call call = call_of(gathers ? 7 : 8, sequence_);
    call.root = choice.root;
    gathers ? engine_.gather(call, mine, parts) : engine_.scatter(call, parts, mine);
    for (size_t peer = 0; gathers && peer < parts.size(); ++peer) {
      expect(parts[peer], static_cast<int>(peer), choice.seed);
    }
    expect(mine, rank_, choice.seed);
  }

  // From rank a to rank b go `elements` + a + 3 b bytes.
  void all_to_all(const Choice& choice) {
    const auto size = [&](int from, int to) { return choice.elements + static_cast<size_t>(from + 3 * to); };
    std::vector<Span> inputs, outputs;
    for (int peer = 0; peer < size_; ++peer) {
      inputs.push_back(make(choice, size(rank_, peer)));
      fill(inputs.back(), choice.seed + static_cast<uint64_t>(peer), rank_);
      outputs.push_back(make(choice, size(peer, rank_)));
    }
    engine_.all_to_all(call_of(11, sequence_), inputs, outputs);
    for (int peer = 0; peer < size_; ++peer) {
      expect(outputs[static_cast<size_t>(peer)], peer, choice.seed + static_cast<uint64_t>(rank_));
    }
  }

  void broadcast(const Choice& choice) {
    const Span data = make(choice, choice.elements);
    fill(data, choice.seed, rank_);
    Call call = call_of(0, sequence_);
    call.root = choice.root;
    engine_.broadcast(call, data);
    expect(data, choice.root, choice.seed);
  }

  // Each rank sends several messages to the next one, which receives them by tag in another order.
  void ring(const Choice& choice) {
    if (size_ == 1) return;
    constexpr int kMessages = 3;
    const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
    std::vector<std::unique_ptr<Transfer>> transfers;
    std::vector<Span> received;
    for (int tag = 0; tag < kMessages; ++tag) {
      const Span data = make(choice, choice.elements + static_cast<size_t>(tag));
      fill(data, choice.seed + static_cast<uint64_t>(tag), rank_);
      transfers.push_back(engine_.send(call_of(12, sequence_), data, next, tag));
    }
    for (int tag = kMessages - 1; tag >= 0; --tag) {
      received.push_back(make(choice, choice.elements + static_cast<size_t>(tag)));
      const bool any = size_ == 2 && choice.seed % 3 == 0;
      transfers.push_back(engine_.recv(call_of(13, sequence_), received.back(), any ? -1 : previous, tag));
    }
    for (const auto& transfer : transfers) transfer->wait();
    for (int tag = kMessages - 1; tag >= 0; --tag) {
      expect(received[static_cast<size_t>(kMessages - 1 - tag)], previous, choice.seed + static_cast<uint64_t>(tag));
    }
  }

  Engine& engine_;
  const int rank_;
  const int size_;
  const std::function<Buffers()> fresh_;
  Buffers buffers_;
  uint64_t sequence_ = 0;
};

// Plays on all ranks of `world`, a World or a Cluster.
template <typename AnyWorld>
void play_all(AnyWorld& world, int kinds, uint64_t magnitudes, const std::function<Buffers(int)>& fresh) {
  const uint64_t seed = setting("CANN_STRESS_SEED", 1);
  const uint64_t operations = setting("CANN_STRESS_OPERATIONS", 400);
  SCOPED_TRACE(testing::Message() << "CANN_STRESS_SEED=" << seed);
  world.run([&](int rank) {
    std::mt19937_64 random(seed);
    Player player(world.engine(rank), rank, world.size(), [&] { return fresh(rank); });
    for (uint64_t sequence = 1; sequence <= operations && !testing::Test::HasFailure(); ++sequence) {
      const Choice choice = draw(random, world.size(), kinds, magnitudes);
      try {
        player.play(choice, sequence);
      } catch (const EngineError& error) {
        ADD_FAILURE() << "rank " << rank << ", operation " << sequence << " of kind " << choice.kind << ", "
                      << choice.elements << " elements: " << error.what();
      }
    }
  });
}

class StressTest : public ::testing::TestWithParam<int> {};

TEST_P(StressTest, RandomOperations) {
  World world(GetParam());
  play_all(world, kCollectives + 3, 17, [&](int rank) { return Buffers(world, rank); });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StressTest, ::testing::Values(1, 2, 3, 5));

class TwoLevelStressTest : public ::testing::TestWithParam<std::vector<size_t>> {};

TEST_P(TwoLevelStressTest, RandomCollectives) {
  Cluster cluster(GetParam(), /*interleaved=*/true);
  play_all(cluster, kCollectives, 18, [](int) { return Buffers(); });
}

INSTANTIATE_TEST_SUITE_P(Clusters, TwoLevelStressTest,
                         ::testing::Values(std::vector<size_t>{2, 2}, std::vector<size_t>{2, 1, 1},
                                           std::vector<size_t>{1, 4}));

}  // namespace
}  // namespace cann::hccl
