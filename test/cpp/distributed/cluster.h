#pragma once
// Ranks of several hosts under the two-level engine: hosts are worlds of threads of their own, joined by a transport of
// threads, so that sanitizers see all of it. There is no shared HBM, of which a process can have one, and no transfers.

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "distributed/idle_transport.h"
#include "distributed/two_level_engine.h"
#include "thread_transport.h"
#include "world.h"

namespace cann::hccl {

// Hosts of as many ranks as `sizes` says. Ranks are dealt host by host, or, `interleaved`, in turn.
inline HostMap::Hosts deal(const std::vector<size_t>& sizes, bool interleaved) {
  HostMap::Hosts hosts(sizes.size());
  size_t total = 0;
  for (const size_t size : sizes) total += size;
  size_t host = 0;
  for (size_t rank = 0; rank < total; ++rank) {
    while (hosts[host].size() == sizes[host]) host = (host + 1) % sizes.size();
    hosts[host].push_back(static_cast<int>(rank));
    if (interleaved) host = (host + 1) % sizes.size();
  }
  return hosts;
}

class Cluster {
 public:
  explicit Cluster(const std::vector<size_t>& sizes, bool interleaved = false) {
    const HostMap::Hosts places = deal(sizes, interleaved);
    for (const size_t size : sizes) size_ += static_cast<int>(size);
    const auto everybody = std::make_shared<ThreadTransport::Hub>();
    std::vector<std::shared_ptr<ThreadTransport::Hub>> rails;
    for (size_t place = 0; place < HostMap(places, 0).rails(); ++place) {
      rails.push_back(std::make_shared<ThreadTransport::Hub>());
    }
    engines_.resize(static_cast<size_t>(size_));
    rails_.resize(static_cast<size_t>(size_));
    const int hosts = static_cast<int>(places.size());
    for (const auto& ranks : places) {
      // Foreign memory only: one Hbm of a process can be shared.
      local_.push_back(std::make_unique<LocalWorld>(static_cast<int>(ranks.size())));
      for (const int rank : ranks) {
        const HostMap map(places, rank);
        const int host = static_cast<int>(map.host());
        std::shared_ptr<Transport> wire = std::make_shared<IdleTransport>(host, hosts);
        if (map.place() < map.rails()) {
          wire = rails_[static_cast<size_t>(rank)] = std::make_shared<ThreadTransport>(rails[map.place()], host, hosts);
        }
        auto rail = std::make_shared<MeshEngine>(std::move(wire), WireOptions{});
        auto all =
            std::make_shared<MeshEngine>(std::make_shared<ThreadTransport>(everybody, rank, size_), WireOptions{});
        engines_[static_cast<size_t>(rank)] = std::make_unique<TwoLevelEngine>(
            map, local_.back()->engine(static_cast<int>(map.place())), std::move(rail), std::move(all));
      }
    }
  }

  int size() const { return size_; }
  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  // 0 for a rank on no rail.
  size_t bytes_on_rail(int rank) const {
    const auto& rail = rails_[static_cast<size_t>(rank)];
    return rail ? rail->bytes_sent() : 0;
  }
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

  int size_ = 0;
  std::vector<std::unique_ptr<LocalWorld>> local_;
  std::vector<std::shared_ptr<ThreadTransport>> rails_;
  std::vector<std::unique_ptr<TwoLevelEngine>> engines_;
};

}  // namespace cann::hccl
