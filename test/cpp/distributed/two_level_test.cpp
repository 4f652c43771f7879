// The two-level engine with hosts that are worlds of threads of their own, joined by a transport of threads.

#include "cluster.h"

namespace cann::hccl {
namespace {

Span span_of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

struct Setting {
  std::vector<size_t> hosts;
  bool interleaved;
};

class TwoLevelTest : public ::testing::TestWithParam<Setting> {
 protected:
  Cluster cluster_{GetParam().hosts, GetParam().interleaved};
};

// Below and above the size from which there are two levels, and with several chunks of unequal length.
const std::vector<size_t> kElements{3, 16'384, 100'003, 3'500'001};

TEST_P(TwoLevelTest, AllReduce) {
  const int ranks = cluster_.size();
  for (const size_t elements : kElements) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage, Reduction::kPremultipliedSum}) {
      Call call = call_of(1, elements, DataType::kFloat, reduction);
      call.factor = 0.25;
      const auto expected = expected_reduction(call, elements, ranks, elements * 4);
      cluster_.run([&](int rank) {
        std::vector<std::byte> data(elements * 4);
        fill_numbers(span_of(data), call.dtype, elements, rank);
        cluster_.engine(rank).all_reduce(call, span_of(data));
        EXPECT_TRUE(data == expected) << name_of(reduction) << elements;
      });
    }
  }
}

TEST_P(TwoLevelTest, ReduceScatterAllGatherAndAllToAll) {
  const int ranks = cluster_.size();
  const auto count = static_cast<size_t>(ranks);
  for (const size_t elements : {size_t{5}, size_t{400'001}}) {
    cluster_.run([&](int rank) {
      const auto me = static_cast<size_t>(rank);
      Engine& engine = cluster_.engine(rank);
      // Part r has `elements` + r elements.
      std::vector<std::vector<std::byte>> parts, received;
      std::vector<Span> inputs, outputs;
      for (size_t part = 0; part < count; ++part) {
        parts.emplace_back((elements + part) * 4);
        received.emplace_back((elements + part) * 4);
      }
      for (size_t part = 0; part < count; ++part) {
        inputs.push_back(span_of(parts[part]));
        outputs.push_back(span_of(received[part]));
        fill_numbers(inputs[part], DataType::kFloat, part, rank);
      }
      const Call sum = call_of(9, 1, DataType::kFloat, Reduction::kSum);
      engine.reduce_scatter(sum, inputs, outputs[me]);
      EXPECT_TRUE(received[me] == expected_reduction(sum, me, ranks, received[me].size())) << elements;
      engine.reduce_scatter(sum, inputs, inputs[me]);  // in place
      EXPECT_TRUE(parts[me] == received[me]);

      fill(inputs[me], 7, rank);
      engine.all_gather(call_of(4, 2), inputs[me], outputs);
      for (size_t part = 0; part < count; ++part) {
        std::vector<std::byte> wanted(received[part].size());
        fill(span_of(wanted), 7, static_cast<int>(part));
        EXPECT_TRUE(received[part] == wanted) << part;
      }

      // What goes from r to s has `elements` + r + s elements.
      for (size_t part = 0; part < count; ++part) {
        parts[part].resize((elements + part + me) * 4);
        received[part].resize((elements + part + me) * 4);
        inputs[part] = span_of(parts[part]);
        outputs[part] = span_of(received[part]);
        fill(inputs[part], part, rank);
      }
      engine.all_to_all(call_of(11, 3), inputs, outputs);
      for (size_t part = 0; part < count; ++part) {
        std::vector<std::byte> wanted(received[part].size());
        fill(span_of(wanted), me, static_cast<int>(part));
        EXPECT_TRUE(received[part] == wanted) << part;
      }
    });
  }
}

TEST_P(TwoLevelTest, BroadcastAndBarrier) {
  for (const size_t bytes : {size_t{100}, size_t{9'000'001}}) {
    for (const int root : {0, cluster_.size() - 1}) {
      cluster_.run([&](int rank) {
        std::vector<std::byte> data(bytes), wanted(bytes);
        fill(span_of(wanted), 3, root);
        if (rank == root) data = wanted;
        Call call = call_of(0, 1);
        call.root = root;
        cluster_.engine(rank).broadcast(call, span_of(data));
        EXPECT_TRUE(data == wanted) << root;
        cluster_.engine(rank).barrier(call_of(15, 2));
      });
    }
  }
}

TEST_P(TwoLevelTest, ReduceChangesTheRootsDataOnly) {
  const int ranks = cluster_.size();
  for (const size_t elements : kElements) {
    for (const int root : {0, ranks - 1}) {
      Call call = call_of(3, elements, DataType::kFloat, Reduction::kSum);
      call.root = root;
      const auto expected = expected_reduction(call, elements, ranks, elements * 4);
      cluster_.run([&](int rank) {
        std::vector<std::byte> data(elements * 4);
        fill_numbers(span_of(data), call.dtype, elements, rank);
        const auto before = data;
        cluster_.engine(rank).reduce(call, span_of(data));
        EXPECT_TRUE(data == (rank == root ? expected : before)) << elements << " to " << root;
      });
    }
  }
}

TEST_P(TwoLevelTest, GatherAndScatter) {
  const auto count = static_cast<size_t>(cluster_.size());
  for (const size_t bytes : {size_t{10}, size_t{300'001}}) {
    for (const size_t root : {size_t{0}, count - 1}) {
      cluster_.run([&](int rank) {
        const auto me = static_cast<size_t>(rank);
        // Part r has `bytes` + r bytes.
        std::vector<std::vector<std::byte>> parts, wanted;
        std::vector<Span> spans;
        for (size_t part = 0; part < count; ++part) {
          parts.emplace_back(bytes + part);
          wanted.emplace_back(bytes + part);
          fill(span_of(wanted[part]), 5, static_cast<int>(part));
        }
        for (auto& part : parts) spans.push_back(span_of(part));
        Call call = call_of(7, 1);
        call.root = static_cast<int>(root);
        std::vector<std::byte> mine = wanted[me];
        cluster_.engine(rank).gather(call, span_of(mine), me == root ? spans : std::vector<Span>{});
        if (me == root) {
          EXPECT_TRUE(parts == wanted);
        }
        mine.assign(mine.size(), std::byte{0});
        cluster_.engine(rank).scatter(call, me == root ? spans : std::vector<Span>{}, span_of(mine));
        EXPECT_TRUE(mine == wanted[me]);
      });
    }
  }
}

std::string name_of_setting(const ::testing::TestParamInfo<Setting>& info) {
  std::string name = "Hosts";
  for (const size_t ranks : info.param.hosts) name += "Of" + std::to_string(ranks);
  return name + (info.param.interleaved ? "Interleaved" : "");
}

INSTANTIATE_TEST_SUITE_P(Clusters, TwoLevelTest,
                         ::testing::Values(Setting{{2, 2}, false}, Setting{{2, 2}, true}, Setting{{2, 2, 2}, false},
                                           Setting{{3, 3}, false}, Setting{{3, 1}, false}, Setting{{1, 2, 4}, true},
                                           Setting{{2, 5}, true}),
                         name_of_setting);

TEST(TwoLevel, MeansOf16BitTypesCountEveryRankAlike) {
  Cluster cluster({1, 2});
  constexpr size_t kElements16 = 100'000;
  constexpr uint16_t kThree = 0x4040, kTwo = 0x4000;  // bfloat16
  cluster.run([&](int rank) {
    std::vector<uint16_t> data(kElements16, rank == 1 ? 0 : kThree);
    cluster.engine(rank).all_reduce(call_of(1, 1, DataType::kBFloat16, Reduction::kAverage),
                                    {reinterpret_cast<std::byte*>(data.data()), data.size() * 2});
    EXPECT_EQ(data, std::vector<uint16_t>(kElements16, kTwo));
  });
}

TEST(TwoLevel, SendsAsManyBytesAsTheHeaderSays) {
  constexpr size_t kBytes = size_t{8} << 20;
  for (const std::vector<size_t>& sizes : {std::vector<size_t>{2, 2}, {3, 1}, {4, 2}}) {
    Cluster cluster(sizes);
    // Of each host, and how much `run` adds to it.
    std::vector<size_t> before(sizes.size());
    const auto expect = [&](const char* what, const std::vector<size_t>& expected, auto&& body) {
      cluster.run(body);
      size_t rank = 0;
      for (size_t host = 0; host < sizes.size(); ++host) {
        size_t sent = 0;
        for (size_t place = 0; place < sizes[host]; ++place) sent += cluster.bytes_on_rail(static_cast<int>(rank++));
        EXPECT_EQ(sent - before[host], expected[host]) << what << " of host " << host;
        before[host] = sent;
      }
    };
    const auto sum = [](uint8_t op) {
      Call call = call_of(op, 1, DataType::kFloat, Reduction::kSum);
      call.root = 0;
      return call;
    };
    expect("all_reduce", {kBytes, kBytes}, [&](int rank) {
      std::vector<std::byte> data(kBytes);
      cluster.engine(rank).all_reduce(sum(1), span_of(data));
    });
    expect("reduce", {0, kBytes}, [&](int rank) {
      std::vector<std::byte> data(kBytes);
      cluster.engine(rank).reduce(sum(3), span_of(data));
    });
    expect("broadcast", {kBytes, 0}, [&](int rank) {
      std::vector<std::byte> data(kBytes);
      cluster.engine(rank).broadcast(sum(0), span_of(data));
    });
    const size_t part = kBytes / 8;
    expect("reduce_scatter", {sizes[1] * part, sizes[0] * part}, [&](int rank) {
      std::vector<std::byte> data(kBytes), result(part);
      std::vector<Span> inputs;
      for (int one = 0; one < cluster.size(); ++one) inputs.push_back({data.data() + one * part, part});
      cluster.engine(rank).reduce_scatter(sum(9), inputs, span_of(result));
    });
    expect("all_gather", {sizes[0] * part, sizes[1] * part}, [&](int rank) {
      std::vector<std::byte> data(kBytes), input(part);
      std::vector<Span> outputs;
      for (int one = 0; one < cluster.size(); ++one) outputs.push_back({data.data() + one * part, part});
      cluster.engine(rank).all_gather(call_of(4, 2), span_of(input), outputs);
    });
  }
}

TEST(TwoLevel, RanksThatDisagreeFindOut) {
  for (const bool about_root : {true, false}) {
    Cluster cluster({2, 2});
    std::vector<std::string> errors(4);
    cluster.run([&](int rank) {
      // About the root within a host, or about a size that one of them thinks is small.
      std::vector<std::byte> data(about_root || rank != 3 ? 400'000 : 4000);
      Call call = about_root ? call_of(0, 1) : call_of(1, 1, DataType::kFloat, Reduction::kSum);
      if (about_root) call.root = rank == 1 ? 1 : 0;
      call.deadline = Deadline(std::chrono::seconds(5));
      try {
        if (about_root) cluster.engine(rank).broadcast(call, span_of(data));
        if (!about_root) cluster.engine(rank).all_reduce(call, span_of(data));
      } catch (const EngineError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
    for (const std::string& error : errors) EXPECT_NE(error.find("does something else"), std::string::npos);
  }
}

}  // namespace
}  // namespace cann::hccl
