// Thousands of random operations, collectives and messages mixed, whose every byte is checked. For sanitizers, too.
//
// CANN_STRESS_OPERATIONS sets how many per world (default 400), CANN_STRESS_SEED where to start; a failure prints the
// seed it happened with.

#include <algorithm>
#include <cstdlib>

#include "world.h"

namespace cann::hccl {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// One operation as all ranks choose it: drawn from the same generator on each.
struct Choice {
  uint64_t seed;
  int kind;
  int root;
  size_t elements;
  DataType dtype;
  std::vector<Place> places;
};

Choice draw(std::mt19937_64& random, int ranks) {
  constexpr DataType kTypes[] = {DataType::kFloat, DataType::kBFloat16, DataType::kHalf, DataType::kInt64,
                                 DataType::kInt8};
  Choice choice{random(), static_cast<int>(random() % 8), static_cast<int>(random() % static_cast<uint64_t>(ranks)),
                0,        kTypes[random() % 5],           {}};
  const uint64_t magnitude = random() % 18;
  choice.elements = (uint64_t{1} << magnitude) + random() % 3 - 1;
  for (int rank = 0; rank < ranks; ++rank) {
    choice.places.push_back(random() % 4 == 0 ? Place::kForeign : Place::kHbm);
  }
  return choice;
}

class Player {
 public:
  Player(World& world, int rank) : world_(world), engine_(world.engine(rank)), rank_(rank), buffers_(world, rank) {}

  void play(const Choice& choice, uint64_t sequence) {
    buffers_ = Buffers(world_, rank_);
    sequence_ = sequence;
    switch (choice.kind) {
      case 0:
      case 1:
        return reduce(choice, /*scatter=*/false);
      case 2:
        return reduce(choice, /*scatter=*/true);
      case 3:
        return gather(choice);
      case 4:
        return all_to_all(choice);
      case 5:
        return broadcast(choice);
      default:
        return ring(choice);
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

  void reduce(const Choice& choice, bool scatter) {
    const size_t bytes = choice.elements * element_bytes(choice.dtype);
    const auto ranks = static_cast<size_t>(world_.size());
    const Call call = call_of(scatter ? 9 : 1, sequence_, choice.dtype, Reduction::kSum);
    const size_t total = scatter ? bytes * ranks : bytes;
    const Span data = make(choice, total);
    fill_numbers(data, choice.dtype, choice.seed, rank_);
    auto expected = expected_reduction(call, choice.seed, world_.size(), total);
    if (!scatter) {
      engine_.all_reduce(call, data);
      EXPECT_EQ(bytes_of(data), expected) << choice.seed;
      return;
    }
    std::vector<Span> parts;
    for (size_t part = 0; part < ranks; ++part) parts.push_back({data.data + part * bytes, bytes});
    const Span output = make(choice, bytes);
    engine_.reduce_scatter(call, parts, output);
    const auto from = expected.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank_) * bytes);
    EXPECT_TRUE(std::equal(from, from + static_cast<ptrdiff_t>(bytes), output.data)) << choice.seed;
  }

  void gather(const Choice& choice) {
    const Span mine = make(choice, choice.elements);
    fill(mine, choice.seed, rank_);
    std::vector<Span> outputs;
    for (int peer = 0; peer < world_.size(); ++peer) outputs.push_back(make(choice, choice.elements));
    engine_.all_gather(call_of(4, sequence_), mine, outputs);
    for (int peer = 0; peer < world_.size(); ++peer) expect(outputs[static_cast<size_t>(peer)], peer, choice.seed);
  }

  // From rank a to rank b go `elements` + a + 3 b bytes.
  void all_to_all(const Choice& choice) {
    const auto size = [&](int from, int to) { return choice.elements + static_cast<size_t>(from + 3 * to); };
    std::vector<Span> inputs, outputs;
    for (int peer = 0; peer < world_.size(); ++peer) {
      inputs.push_back(make(choice, size(rank_, peer)));
      fill(inputs.back(), choice.seed + static_cast<uint64_t>(peer), rank_);
      outputs.push_back(make(choice, size(peer, rank_)));
    }
    engine_.all_to_all(call_of(11, sequence_), inputs, outputs);
    for (int peer = 0; peer < world_.size(); ++peer) {
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
    if (world_.size() == 1) return;
    constexpr int kMessages = 3;
    const int next = (rank_ + 1) % world_.size(), previous = (rank_ + world_.size() - 1) % world_.size();
    std::vector<std::unique_ptr<Transfer>> transfers;
    std::vector<Span> received;
    for (int tag = 0; tag < kMessages; ++tag) {
      const Span data = make(choice, choice.elements + static_cast<size_t>(tag));
      fill(data, choice.seed + static_cast<uint64_t>(tag), rank_);
      transfers.push_back(engine_.send(call_of(12, sequence_), data, next, tag));
    }
    for (int tag = kMessages - 1; tag >= 0; --tag) {
      received.push_back(make(choice, choice.elements + static_cast<size_t>(tag)));
      const bool any = world_.size() == 2 && choice.seed % 3 == 0;
      transfers.push_back(engine_.recv(call_of(13, sequence_), received.back(), any ? -1 : previous, tag));
    }
    for (const auto& transfer : transfers) transfer->wait();
    for (int tag = kMessages - 1; tag >= 0; --tag) {
      expect(received[static_cast<size_t>(kMessages - 1 - tag)], previous, choice.seed + static_cast<uint64_t>(tag));
    }
  }

  World& world_;
  Engine& engine_;
  const int rank_;
  Buffers buffers_;
  uint64_t sequence_ = 0;
};

class StressTest : public ::testing::TestWithParam<int> {};

TEST_P(StressTest, RandomOperations) {
  const uint64_t seed = setting("CANN_STRESS_SEED", 1);
  const uint64_t operations = setting("CANN_STRESS_OPERATIONS", 400);
  SCOPED_TRACE(testing::Message() << "CANN_STRESS_SEED=" << seed);
  World world(GetParam());
  world.run([&](int rank) {
    std::mt19937_64 random(seed);
    Player player(world, rank);
    for (uint64_t sequence = 1; sequence <= operations && !testing::Test::HasFailure(); ++sequence) {
      const Choice choice = draw(random, world.size());
      try {
        player.play(choice, sequence);
      } catch (const EngineError& error) {
        ADD_FAILURE() << "rank " << rank << ", operation " << sequence << " of kind " << choice.kind << ", "
                      << choice.elements << " elements: " << error.what();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StressTest, ::testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace cann::hccl
