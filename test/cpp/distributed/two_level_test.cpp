// The two-level engine with hosts that are worlds of threads of their own, joined by a transport of threads.

#include "distributed/two_level_engine.h"

#include "thread_transport.h"
#include "world.h"

namespace cann::hccl {
namespace {

// `hosts` hosts of `ranks_per_host` ranks; rank r is on host r / ranks_per_host, or, `interleaved`, r % hosts.
class Cluster {
 public:
  Cluster(int hosts, int ranks_per_host, bool interleaved = false) : size_(hosts * ranks_per_host) {
    TwoLevelEngine::Hosts places(static_cast<size_t>(hosts));
    for (int rank = 0; rank < size_; ++rank) {
      places[static_cast<size_t>(interleaved ? rank % hosts : rank / ranks_per_host)].push_back(rank);
    }
    const auto everybody = std::make_shared<ThreadTransport::Hub>();
    std::vector<std::shared_ptr<ThreadTransport::Hub>> rails;
    for (int place = 0; place < ranks_per_host; ++place) rails.push_back(std::make_shared<ThreadTransport::Hub>());
    engines_.resize(static_cast<size_t>(size_));
    rails_.resize(static_cast<size_t>(size_));
    for (int host = 0; host < hosts; ++host) {
      // Foreign memory only: one Hbm of a process can be shared.
      local_.push_back(std::make_unique<LocalWorld>(ranks_per_host));
      for (int place = 0; place < ranks_per_host; ++place) {
        const int rank = places[static_cast<size_t>(host)][static_cast<size_t>(place)];
        const auto index = static_cast<size_t>(rank);
        rails_[index] = std::make_shared<ThreadTransport>(rails[static_cast<size_t>(place)], host, hosts);
        auto rail = std::make_shared<MeshEngine>(rails_[index], WireOptions{});
        auto all =
            std::make_shared<MeshEngine>(std::make_shared<ThreadTransport>(everybody, rank, size_), WireOptions{});
        engines_[index] = std::make_unique<TwoLevelEngine>(places, rank, local_.back()->engine(place), std::move(rail),
                                                           std::move(all));
      }
    }
  }

  int size() const { return size_; }
  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  size_t bytes_on_rail(int rank) const { return rails_[static_cast<size_t>(rank)]->bytes_sent(); }
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  // Ranks of one host.
  class LocalWorld {
   public:
    explicit LocalWorld(int ranks) {
      auto memory =
          std::make_shared<SharedMemory>(SharedMemory::create("torch_cann_test", ControlBlock::bytes_for(ranks)));
      const ControlBlock block(memory->data(), ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<std::shared_ptr<PeerProcess>> threads(static_cast<size_t>(ranks));
        engines_.push_back(std::make_shared<ShmEngine>(block, memory, rank, threads, nullptr));
      }
    }
    std::shared_ptr<Engine> engine(int rank) { return engines_[static_cast<size_t>(rank)]; }

   private:
    std::vector<std::shared_ptr<Engine>> engines_;
  };

  const int size_;
  std::vector<std::unique_ptr<LocalWorld>> local_;
  std::vector<std::shared_ptr<ThreadTransport>> rails_;
  std::vector<std::unique_ptr<TwoLevelEngine>> engines_;
};

Span span_of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

struct Setting {
  int hosts;
  int ranks_per_host;
  bool interleaved;
};

class TwoLevelTest : public ::testing::TestWithParam<Setting> {
 protected:
  Cluster cluster_{GetParam().hosts, GetParam().ranks_per_host, GetParam().interleaved};
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

std::string name_of_setting(const ::testing::TestParamInfo<Setting>& info) {
  return std::to_string(info.param.hosts) + "HostsOf" + std::to_string(info.param.ranks_per_host) +
         (info.param.interleaved ? "Interleaved" : "");
}

INSTANTIATE_TEST_SUITE_P(Clusters, TwoLevelTest,
                         ::testing::Values(Setting{2, 2, false}, Setting{2, 2, true}, Setting{3, 2, false},
                                           Setting{2, 3, false}),
                         name_of_setting);

TEST(TwoLevel, SendsAsManyBytesAsTheHeaderSays) {
  Cluster cluster(2, 2);
  constexpr size_t kBytes = size_t{8} << 20;
  cluster.run([&](int rank) {
    std::vector<std::byte> data(kBytes);
    cluster.engine(rank).all_reduce(call_of(1, 1, DataType::kFloat, Reduction::kSum), span_of(data));
  });
  // 2 S (H-1)/H from a host, on two rails.
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster.bytes_on_rail(rank), kBytes / 2);
}

TEST(TwoLevel, RanksThatDisagreeFindOut) {
  for (const bool about_root : {true, false}) {
    Cluster cluster(2, 2);
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
