// Every collective of the shared-memory engine against a plain reference: worlds, sizes, types, places of the memory.

#include "world.h"

namespace cann::hccl {
namespace {

// Round the limits at which the engine changes its ways: inline contents, stage pieces, streaming; and odd ones.
const std::vector<size_t> kElements{0, 1, 7, 4096, 4097, 100'003};
const std::vector<DataType> kTypes{DataType::kFloat, DataType::kHalf,   DataType::kBFloat16, DataType::kInt8,
                                   DataType::kUInt8, DataType::kBool,   DataType::kInt16,    DataType::kInt32,
                                   DataType::kInt64, DataType::kUInt64, DataType::kDouble};

// How the memory of the ranks lies.
enum class Layout { kAllHbm, kAllForeign, kMixed };

struct Setting {
  int ranks;
  Layout layout;
};

class CollectivesTest : public ::testing::TestWithParam<Setting> {
 protected:
  Place place(int rank) const {
    if (GetParam().layout == Layout::kMixed) return rank % 2 == 0 ? Place::kHbm : Place::kForeign;
    return GetParam().layout == Layout::kAllHbm ? Place::kHbm : Place::kForeign;
  }
  World world_{GetParam().ranks};
};

TEST_P(CollectivesTest, AllReduceAndReduce) {
  for (const DataType dtype : kTypes) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kMin, Reduction::kMax, Reduction::kProduct, Reduction::kAverage}) {
      if (dtype == DataType::kBool && reduction == Reduction::kAverage) continue;
      for (const size_t elements : kElements) {
        const size_t bytes = elements * element_bytes(dtype);
        Call call = call_of(1, elements, dtype, reduction);
        const auto expected = expected_reduction(call, elements, world_.size(), bytes);
        const int root = static_cast<int>(elements) % world_.size();
        world_.run([&](int rank) {
          Buffers buffers(world_, rank);
          const Span data = buffers.make(bytes, place(rank), /*odd=*/elements % 2 == 1);
          fill_numbers(data, dtype, elements, rank);
          const auto before = bytes_of(data);
          Call mine = call;
          mine.root = root;
          world_.engine(rank).reduce(mine, data);
          EXPECT_EQ(bytes_of(data), rank == root ? expected : before);
          fill_numbers(data, dtype, elements, rank);
          world_.engine(rank).all_reduce(call, data);
          EXPECT_EQ(bytes_of(data), expected) << name_of(dtype) << name_of(reduction) << elements;
        });
      }
    }
  }
}

TEST_P(CollectivesTest, PremultipliedSum) {
  for (const size_t elements : kElements) {
    Call call = call_of(1, elements, DataType::kFloat, Reduction::kPremultipliedSum);
    call.factor = 0.25;
    const auto expected = expected_reduction(call, elements, world_.size(), elements * 4);
    world_.run([&](int rank) {
      Buffers buffers(world_, rank);
      const Span data = buffers.make(elements * 4, place(rank));
      fill_numbers(data, call.dtype, elements, rank);
      world_.engine(rank).all_reduce(call, data);
      EXPECT_EQ(bytes_of(data), expected);
    });
  }
}

TEST_P(CollectivesTest, ReduceScatterWithPartsOfAnySize) {
  const auto ranks = static_cast<size_t>(world_.size());
  for (const size_t elements : kElements) {
    // Part r has `elements` + r elements.
    size_t total = 0;
    std::vector<size_t> begins;
    for (size_t rank = 0; rank < ranks; ++rank) {
      begins.push_back(total);
      total += (elements + rank) * 4;
    }
    const Call call = call_of(9, elements, DataType::kFloat, Reduction::kSum);
    const auto expected = expected_reduction(call, elements, world_.size(), total);
    world_.run([&](int rank) {
      const auto me = static_cast<size_t>(rank);
      Buffers buffers(world_, rank);
      const Span whole = buffers.make(total, place(rank));
      const Span output = buffers.make((elements + me) * 4, place(rank));
      fill_numbers(whole, call.dtype, elements, rank);
      std::vector<Span> parts;
      for (size_t part = 0; part < ranks; ++part) parts.push_back({whole.data + begins[part], (elements + part) * 4});
      const auto from = expected.begin() + static_cast<ptrdiff_t>(begins[me]);
      const std::vector<std::byte> wanted(from, from + static_cast<ptrdiff_t>(output.bytes));
      world_.engine(rank).reduce_scatter(call, parts, output);
      EXPECT_EQ(bytes_of(output), wanted);
      world_.engine(rank).reduce_scatter(call, parts, parts[me]);  // in place
      EXPECT_EQ(bytes_of(parts[me]), wanted);
    });
  }
}

TEST_P(CollectivesTest, ContentsMoveUnchanged) {
  const int ranks = world_.size();
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{16'384}, size_t{16'385}, size_t{3'000'001}}) {
    world_.run([&](int rank) {
      const auto me = static_cast<size_t>(rank);
      Engine& engine = world_.engine(rank);
      Buffers buffers(world_, rank);
      const Span mine = buffers.make(bytes, place(rank));
      std::vector<Span> outputs;
      for (int peer = 0; peer < ranks; ++peer) outputs.push_back(buffers.make(bytes, place(rank)));
      const auto expect = [&](Span got, int from, uint64_t seed) {
        for (size_t i = 0; i < got.bytes; ++i) ASSERT_EQ(got.data[i], pattern(seed, from, i)) << bytes << " at " << i;
      };
      fill(mine, 1, rank);
      engine.all_gather(call_of(4, 1), mine, outputs);
      for (int peer = 0; peer < ranks; ++peer) expect(outputs[static_cast<size_t>(peer)], peer, 1);
      engine.all_gather(call_of(4, 2), outputs[me], outputs);  // in place
      for (int peer = 0; peer < ranks; ++peer) expect(outputs[static_cast<size_t>(peer)], peer, 1);

      const int root = ranks - 1;
      Call to_root = call_of(7, 3);
      to_root.root = root;
      for (Span& output : outputs) fill(output, 9, rank);
      engine.gather(to_root, mine, rank == root ? outputs : std::vector<Span>{});
      for (int peer = 0; peer < ranks && rank == root; ++peer) expect(outputs[static_cast<size_t>(peer)], peer, 1);

      // Part p of rank r's inputs is the pattern of rank r, seed p + 10.
      std::vector<Span> inputs;
      for (int peer = 0; peer < ranks; ++peer) {
        inputs.push_back(buffers.make(bytes, place(rank)));
        fill(inputs.back(), static_cast<uint64_t>(peer) + 10, rank);
      }
      engine.all_to_all(call_of(11, 4), inputs, outputs);
      for (int peer = 0; peer < ranks; ++peer) expect(outputs[static_cast<size_t>(peer)], peer, me + 10);

      Call from_root = call_of(8, 5);
      from_root.root = root;
      engine.scatter(from_root, rank == root ? inputs : std::vector<Span>{}, mine);
      expect(mine, root, me + 10);

      from_root.op = 0;
      if (rank == root) fill(mine, 77, rank);
      engine.broadcast(from_root, mine);
      expect(mine, root, 77);
      engine.barrier(call_of(15, 6));
    });
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const Layout layout : {Layout::kAllHbm, Layout::kAllForeign, Layout::kMixed}) all.push_back({ranks, layout});
  }
  return all;
}

std::string name_of_setting(const ::testing::TestParamInfo<Setting>& info) {
  const std::vector<std::string> names{"Hbm", "Foreign", "Mixed"};
  return std::to_string(info.param.ranks) + "Ranks" + names[static_cast<size_t>(info.param.layout)];
}

INSTANTIATE_TEST_SUITE_P(Worlds, CollectivesTest, ::testing::ValuesIn(settings()), name_of_setting);

}  // namespace
}  // namespace cann::hccl
