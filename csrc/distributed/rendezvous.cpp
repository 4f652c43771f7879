#include "distributed/rendezvous.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include "distributed/gloo_mesh.h"
#include "distributed/hccl_env.h"
#include "distributed/idle_transport.h"
#include "distributed/shm/shm_engine.h"
#include "distributed/two_level_engine.h"
#include "runtime/errors.h"
#include "sim/server.h"

namespace cann::hccl {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// What a rank tells the others.
struct Card {
  std::string host;
  ProcessId process;
  MemoryId control;     // the communicator's block, should this rank be the first of its host
  std::string meeting;  // a name for this meeting, should this rank be the first of all
};

std::string namespace_of_process(const char* kind) {
  struct stat status {};
  const std::string path = fmt::format("/proc/self/ns/{}", kind);
  return stat(path.c_str(), &status) == 0 ? std::to_string(status.st_ino) : "?";
}

std::string host_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return fmt::format("{}/{}/{}/{}/{}", boot_id, namespace_of_process("pid"), namespace_of_process("net"),
                     namespace_of_process("user"), geteuid());
}

// The HBM to share with peers, or nullptr.
sim::Hbm* shared_hbm() {
  try {
    sim::Server& server = sim::Server::get();
    return server.share_hbm() ? &server.hbm() : nullptr;
  } catch (const std::runtime_error&) {
    return nullptr;  // no card is visible here
  }
}

std::string write_memory(const MemoryId& id) { return fmt::format("{} {} {} {}", id.pid, id.fd, id.inode, id.bytes); }

std::string write_card(const Card& card) {
  return fmt::format("{} {} {} {} {} {} {}", card.host, card.process.pid, card.process.start_time,
                     write_memory(card.process.hbm), card.process.bytes_per_card, write_memory(card.control),
                     card.meeting);
}

std::istream& operator>>(std::istream& in, MemoryId& id) { return in >> id.pid >> id.fd >> id.inode >> id.bytes; }

Card read_card(const std::string& text) {
  Card card;
  std::istringstream in(text);
  in >> card.host >> card.process.pid >> card.process.start_time >> card.process.hbm >> card.process.bytes_per_card >>
      card.control >> card.meeting;
  TORCH_CHECK(in, "A rank introduced itself in a way this version does not understand: \"", text,
              "\". All ranks must run the same version.", error_suffix(ErrModule::DIST, ErrCode::PARAM));
  return card;
}

class Meeting {
 public:
  Meeting(StorePtr store, int rank, int size, std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), size_(size), deadline_(timeout) {}

  // Tells the others `value` under `what`, and what they told. Nothing stays in the store: a group that is destroyed
  // and made again, as after an error, has the same name and so the same keys, and must not read what was told before.
  // The last reader takes the values away, which is in time as long as all meet once more before any of them ends the
  // group.
  std::vector<std::string> exchange(const std::string& what, const std::string& value) {
    store_->set(key(what, rank_), value);
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) keys.push_back(key(what, rank));
    try {
      store_->wait(keys, deadline_.remaining());
    } catch (const std::exception& error) {
      raise_missing(keys, error.what());
    }
    std::vector<std::string> values;
    for (const std::string& one : keys) {
      const auto bytes = store_->get(one);
      values.emplace_back(bytes.begin(), bytes.end());
    }
    const std::string readers = fmt::format("hccl/{}/readers", what);
    if (store_->add(readers, 1) == size_) {
      for (const std::string& one : keys) store_->deleteKey(one);
      store_->deleteKey(readers);
    }
    return values;
  }

  // Meets at another store from here on.
  void move_to(StorePtr store) { store_ = std::move(store); }

 private:
  static std::string key(const std::string& what, int rank) { return fmt::format("hccl/{}/{}", what, rank); }

  [[noreturn]] void raise_missing(const std::vector<std::string>& keys, const std::string& reason) {
    std::string missing;
    for (int rank = 0; rank < size_; ++rank) {
      if (!store_->check({keys[static_cast<size_t>(rank)]})) {
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
      }
    }
    store_->deleteKey(keys[static_cast<size_t>(rank_)]);  // who tries again must not meet this rank's ghost
    C10_THROW_ERROR(DistBackendError,
                    fmt::format("[Rank {}] the communicator of {} ranks could not be made within {} ms: no sign from "
                                "rank {}. Start all ranks, or allow more time (timeout, HCCL_CONNECT_TIMEOUT). {}{}",
                                rank_, size_, deadline_.allowed().count(), missing, reason,
                                error_suffix(ErrModule::DIST, ErrCode::TIMEOUT)));
  }

  StorePtr store_;
  const int rank_;
  const int size_;
  Deadline deadline_;
};

// The ranks of each host, hosts in the order of their first rank.
HostMap::Hosts hosts_of(const std::vector<Card>& cards) {
  HostMap::Hosts hosts;
  std::vector<std::string> names;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const auto known = std::find(names.begin(), names.end(), cards[rank].host);
    const auto host = static_cast<size_t>(known - names.begin());
    if (known == names.end()) {
      names.push_back(cards[rank].host);
      hosts.emplace_back();
    }
    hosts[host].push_back(static_cast<int>(rank));
  }
  return hosts;
}

// The engine of `ranks`, all on this host, of which this process is number `place`. The first one's block is used.
std::shared_ptr<Engine> share_memory(const std::vector<Card>& cards, const std::vector<int>& ranks, int place,
                                     SharedMemory own, sim::Hbm* hbm) {
  const Card& first = cards[static_cast<size_t>(ranks[0])];
  const int size = static_cast<int>(ranks.size());
  TORCH_CHECK(first.control.bytes >= ControlBlock::bytes_for(size), "rank ", ranks[0], " runs another version",
              error_suffix(ErrModule::DIST, ErrCode::PARAM));
  auto memory = std::make_shared<SharedMemory>(place == 0 ? std::move(own) : SharedMemory::open(first.control));
  std::vector<std::shared_ptr<PeerProcess>> peers;
  for (const int rank : ranks) {
    const ProcessId& process = cards[static_cast<size_t>(rank)].process;
    const bool here = process.pid == getpid();  // this rank, or another thread
    peers.push_back(here ? nullptr : PeerProcess::find(process));
  }
  const ControlBlock block(memory->data(), size);
  return std::make_shared<ShmEngine>(block, std::move(memory), place, std::move(peers), hbm);
}

std::shared_ptr<MeshEngine> mesh(const StorePtr& store, const std::string& name, int rank, int size,
                                 const GlooMaker& make_gloo, const WireOptions& wire) {
  auto gloo = std::make_shared<GlooMesh>(make_gloo(c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size));
  Transfers transfers;
  transfers.send = [gloo](const Call& call, Span data, int peer, int tag) { return gloo->send(call, data, peer, tag); };
  transfers.recv = [gloo](const Call& call, Span data, int peer, int tag) { return gloo->recv(call, data, peer, tag); };
  return std::make_shared<MeshEngine>(std::move(gloo), wire, std::move(transfers));
}

void show_warnings(const HcclEnv& env) {
  [[maybe_unused]] static const bool shown = [&env] {
    for (const std::string& warning : env.warnings) TORCH_WARN(warning);
    return true;
  }();
}

Card introduction(const SharedMemory& control, const sim::Hbm* hbm) {
  Card card;
  card.host = host_identity();
  card.process.pid = getpid();
  card.process.start_time = start_time_of(getpid());
  if (hbm != nullptr) {
    card.process.hbm = id_of(hbm->shared_fd());
    card.process.bytes_per_card = hbm->stride();
  }
  card.control = control.id();
  std::random_device random;
  card.meeting = fmt::format("{:08x}{:08x}", random(), random());
  return card;
}

}  // namespace

Connection connect(const StorePtr& all_meetings, int rank, int size, std::chrono::milliseconds timeout,
                   const GlooMaker& make_gloo, const WireOptions& wire) {
  show_warnings(HcclEnv::get());
  if (const auto limit = HcclEnv::get().connect_timeout) timeout = std::min(timeout, std::chrono::milliseconds(*limit));
  Meeting meeting(all_meetings, rank, size, timeout);
  sim::Hbm* hbm = size > 1 ? shared_hbm() : nullptr;
  // Costs nothing on ranks whose block is not the one that is used.
  SharedMemory control = SharedMemory::create("torch_cann_hccl", ControlBlock::bytes_for(size));
  const Card mine = introduction(control, hbm);
  if (size == 1) return {share_memory({mine}, {0}, 0, std::move(control), hbm), all_meetings};

  std::vector<Card> cards;
  for (const std::string& text : meeting.exchange("card", write_card(mine))) cards.push_back(read_card(text));
  const StorePtr store = c10::make_intrusive<c10d::PrefixStore>(cards[0].meeting, all_meetings);
  meeting.move_to(store);
  const HostMap::Hosts hosts = hosts_of(cards);
  if (hosts.size() == cards.size()) return {mesh(store, "all", rank, size, make_gloo, wire), store};
  const HostMap map(hosts, rank);
  const int place = static_cast<int>(map.place());

  // Sharing may fail on one rank alone (a limit of its own, a hidden /proc); then all take the other way.
  std::shared_ptr<Engine> local;
  std::string problem;
  try {
    local = share_memory(cards, hosts[map.host()], place, std::move(control), hbm);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const auto problems = meeting.exchange("shared", problem);
  const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& text) { return !text.empty(); });
  if (first != problems.end()) {
    TORCH_WARN_ONCE(
        "The ranks of a host cannot share memory and exchange messages instead, which is much slower: rank ",
        first - problems.begin(), " says: ", *first);
    // Inside a host no link is slow.
    const WireOptions exact{wire.algorithms, {}};
    return {mesh(store, "all", rank, size, make_gloo, hosts.size() == 1 ? exact : wire), store};
  }
  if (hosts.size() == 1) return {std::move(local), store};
  auto all = mesh(store, "all", rank, size, make_gloo, wire);
  const int host = static_cast<int>(map.host()), count = static_cast<int>(hosts.size());
  auto rail = map.place() < map.rails()
                  ? mesh(store, fmt::format("rail{}", place), host, count, make_gloo, wire)
                  : std::make_shared<MeshEngine>(std::make_shared<IdleTransport>(host, count), wire);
  return {std::make_shared<TwoLevelEngine>(map, std::move(local), std::move(rail), std::move(all)), store};
}

}  // namespace cann::hccl
