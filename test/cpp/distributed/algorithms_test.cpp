// The algorithms between hosts, run by threads: right for every number of ranks, and as many bytes as they say.

#include "distributed/algorithms.h"

#include <cmath>

#include "distributed/mesh_engine.h"
#include "thread_transport.h"
#include "world.h"

namespace cann::hccl {
namespace {

const std::vector<int> kRanks{2, 3, 4, 5, 8};
const std::vector<size_t> kElements{0, 1, 7, 5000};

// "allreduce=level0:NA;level1:ring" and so on, for each algorithm that an all_reduce can be told to take.
std::vector<std::string> choices() {
  std::vector<std::string> all;
  for (const char* name : {"direct", "ring", "H-D_R", "tree"}) all.push_back(std::string("level0:NA;level1:") + name);
  return all;
}

// A group of threads with a MeshEngine each.
class Mesh {
 public:
  Mesh(int ranks, const std::string& algorithm, const WireFormat& format = {}) {
    const auto hub = std::make_shared<ThreadTransport::Hub>();
    for (int rank = 0; rank < ranks; ++rank) {
      transports_.push_back(std::make_shared<ThreadTransport>(hub, rank, ranks));
      const WireOptions options{AlgorithmChoice::parse(algorithm), format};
      engines_.push_back(std::make_unique<MeshEngine>(transports_.back(), options));
    }
  }
  MeshEngine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  size_t bytes_sent(int rank) const { return transports_[static_cast<size_t>(rank)]->bytes_sent(); }
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(engines_.size()); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::shared_ptr<ThreadTransport>> transports_;
  std::vector<std::unique_ptr<MeshEngine>> engines_;
};

Span span_of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

TEST(Algorithms, AllReduceIsRightForEveryAlgorithmAndNumberOfRanks) {
  for (const std::string& algorithm : choices()) {
    for (const int ranks : kRanks) {
      Mesh mesh(ranks, algorithm);
      for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kAverage}) {
        for (const DataType dtype : {DataType::kFloat, DataType::kInt32}) {
          for (const size_t elements : kElements) {
            const Call call = call_of(1, elements, dtype, reduction);
            const auto expected = expected_reduction(call, elements, ranks, elements * 4);
            mesh.run([&](int rank) {
              std::vector<std::byte> data(elements * 4);
              fill_numbers(span_of(data), dtype, elements, rank);
              mesh.engine(rank).all_reduce(call, span_of(data));
              EXPECT_EQ(data, expected) << algorithm << " " << ranks << " " << name_of(reduction) << " " << elements;
            });
          }
        }
      }
    }
  }
}

TEST(Algorithms, TheOtherCollectivesAreRight) {
  for (const std::string& algorithm : choices()) {
    for (const int ranks : kRanks) {
      Mesh mesh(ranks, algorithm);
      const size_t count = static_cast<size_t>(ranks);
      mesh.run([&](int rank) {
        const auto me = static_cast<size_t>(rank);
        // Part r has 10 + r elements.
        std::vector<std::vector<std::byte>> parts;
        for (size_t part = 0; part < count; ++part) parts.emplace_back((10 + part) * 4);
        std::vector<Span> spans;
        for (auto& part : parts) spans.push_back(span_of(part));
        Call sum = call_of(9, 1, DataType::kFloat, Reduction::kPremultipliedSum);
        sum.factor = 0.5;
        for (const Reduction reduction : {Reduction::kSum, Reduction::kPremultipliedSum}) {
          sum.reduction = reduction;
          for (size_t part = 0; part < count; ++part) fill_numbers(spans[part], sum.dtype, part, rank);
          std::vector<std::byte> output(parts[me].size());
          mesh.engine(rank).reduce_scatter(sum, spans, span_of(output));
          EXPECT_EQ(output, expected_reduction(sum, me, ranks, output.size())) << algorithm << ranks;
        }
        fill(spans[me], 5, rank);
        mesh.engine(rank).all_gather(call_of(4, 2), spans[me], spans);
        for (size_t part = 0; part < count; ++part) {
          EXPECT_EQ(parts[part][3], pattern(5, static_cast<int>(part), 3)) << algorithm << ranks;
          EXPECT_EQ(parts[part].back(), pattern(5, static_cast<int>(part), parts[part].size() - 1));
        }
        for (int root = 0; root < ranks; ++root) {
          std::vector<std::byte> data(100);
          if (rank == root) fill(span_of(data), 6, root);
          Call from_root = call_of(0, 3);
          from_root.root = root;
          mesh.engine(rank).broadcast(from_root, span_of(data));
          EXPECT_EQ(data[99], pattern(6, root, 99)) << algorithm << ranks << root;
        }
        mesh.engine(rank).barrier(call_of(15, 4));
      });
    }
  }
}

TEST(Algorithms, SendAsManyBytesInAsManyStepsAsTheHeaderSays) {
  constexpr size_t kBytes = 840 * 4;  // a multiple of every number of ranks
  std::vector<std::byte> memory(kBytes);
  const Span data = span_of(memory);
  const Call call = call_of(1, 1, DataType::kFloat, Reduction::kSum);
  Scratch scratch;
  for (const int n : {2, 4, 8}) {
    const auto ranks = static_cast<size_t>(n);
    const size_t sliced = 2 * kBytes * (ranks - 1) / ranks;
    size_t log = 0;
    while ((size_t{1} << log) < ranks) ++log;
    const auto expect = [&](Algorithm algorithm, size_t steps, size_t bytes) {
      const Plan plan = all_reduce_plan(algorithm, call, /*rank=*/1, n, data, scratch);
      EXPECT_EQ(plan.size(), steps) << n;
      EXPECT_EQ(bytes_sent(plan, 1), bytes) << n;
    };
    expect(Algorithm::kWhole, 1, kBytes * (ranks - 1));
    expect(Algorithm::kDirect, 2, sliced);
    expect(Algorithm::kRing, 2 * (ranks - 1), sliced);
    expect(Algorithm::kHalvingDoubling, 2 * log, sliced);
    expect(Algorithm::kTree, 2 * log, kBytes);  // rank 1 has no children
  }
}

TEST(Algorithms, RanksThatDisagreeAboutTheRootFindOut) {
  for (const uint8_t op : {uint8_t{0}, uint8_t{3}, uint8_t{7}, uint8_t{8}}) {
    Mesh mesh(3, "level0:NA;level1:direct");
    std::vector<std::string> errors(3);
    mesh.run([&](int rank) {
      std::vector<std::byte> data(64), other(64), third(64);
      const std::vector<Span> spans{span_of(data), span_of(other), span_of(third)};
      Call call = call_of(op, 1, DataType::kFloat, op == 3 ? Reduction::kSum : Reduction::kNone, rank == 2 ? 1 : 0);
      call.deadline = Deadline(std::chrono::seconds(5));
      const bool is_root = rank == call.root;
      const std::vector<Span> at_root = is_root ? spans : std::vector<Span>{};
      try {
        if (op == 0) mesh.engine(rank).broadcast(call, span_of(data));
        if (op == 3) mesh.engine(rank).reduce(call, span_of(data));
        if (op == 7) mesh.engine(rank).gather(call, span_of(data), at_root);
        if (op == 8) mesh.engine(rank).scatter(call, at_root, span_of(data));
      } catch (const EngineError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
    for (const std::string& error : errors) EXPECT_NE(error.find("does something else"), std::string::npos) << int{op};
  }
}

TEST(CompressedSum, IsEqualOnAllRanksAndNearTheSum) {
  constexpr size_t kCount = 20'000;
  for (const char* name : {"fp16", "bf16", "int8"}) {
    for (const int ranks : kRanks) {
      Mesh mesh(ranks, "level0:NA;level1:direct", WireFormat::parse(name));
      std::vector<std::vector<float>> results(static_cast<size_t>(ranks), std::vector<float>(kCount));
      const auto value = [](int rank, size_t i) { return std::sin(static_cast<float>(i + 1) * (1.0F + rank)); };
      mesh.run([&](int rank) {
        auto& data = results[static_cast<size_t>(rank)];
        for (size_t i = 0; i < kCount; ++i) data[i] = value(rank, i);
        const Call call = call_of(1, 1, DataType::kFloat, Reduction::kAverage);
        mesh.engine(rank).all_reduce(call, {reinterpret_cast<std::byte*>(data.data()), kCount * 4});
      });
      for (const auto& result : results) EXPECT_EQ(result, results[0]);
      for (size_t i = 0; i < kCount; ++i) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i);
        ASSERT_NEAR(results[0][i], sum / static_cast<float>(ranks), 0.01) << name << ranks;
      }
    }
  }
}

TEST(CompressedSum, ErrorsAreMadeUpForInLaterSteps) {
  constexpr size_t kCount = 20'000;
  constexpr int kSteps = 60;
  for (const char* name : {"int8", "topk:0.1"}) {
    Mesh mesh(2, "level0:NA;level1:direct", WireFormat::parse(name));
    std::vector<double> worst(2);
    mesh.run([&](int rank) {
      std::vector<float> data(kCount);
      std::vector<double> total(kCount);
      for (int step = 0; step < kSteps; ++step) {
        // The same gradient at every step, mostly too small to be among the largest tenth.
        for (size_t i = 0; i < kCount; ++i) data[i] = i % 100 == 0 ? 1.0F : 0.01F;
        const Call call = call_of(1, 1, DataType::kFloat, Reduction::kSum);
        mesh.engine(rank).all_reduce(call, {reinterpret_cast<std::byte*>(data.data()), kCount * 4});
        for (size_t i = 0; i < kCount; ++i) total[i] += data[i];
      }
      for (size_t i = 0; i < kCount; ++i) {
        const double wanted = (i % 100 == 0 ? 2.0 : 0.02) * kSteps;
        worst[static_cast<size_t>(rank)] = std::max(worst[static_cast<size_t>(rank)], std::abs(total[i] / wanted - 1));
      }
    });
    EXPECT_EQ(worst[0], worst[1]);
    EXPECT_LT(worst[0], 0.5) << name;  // without feedback small values never arrive: 1
  }
}

}  // namespace
}  // namespace cann::hccl
