#include "distributed/shm/shm_engine.h"

#include <utility>

namespace cann::hccl {

ShmEngine::ShmEngine(ControlBlock block, std::shared_ptr<void> owner, int rank,
                     std::vector<std::shared_ptr<PeerProcess>> peers, sim::Hbm* hbm)
    : communicator_(block, std::move(owner), rank, std::move(peers), hbm),
      collectives_(communicator_),
      mailboxes_(communicator_) {}

ShmEngine::Wants ShmEngine::from_all(const std::vector<Span>& places, size_t index) {
  Wants wants;
  for (size_t rank = 0; rank < places.size(); ++rank) wants.push_back({places[rank], static_cast<int>(rank), index});
  return wants;
}

void ShmEngine::exchange(const Call& call, const std::vector<Span>& contribution, const Wants& wants, uint64_t bytes) {
  communicator_.or_abort([&] { collectives_.exchange(call, contribution, wants, bytes); });
}

void ShmEngine::all_reduce(const Call& call, Span data) {
  communicator_.or_abort([&] { collectives_.all_reduce(call, data, /*to_root_only=*/false); });
}

void ShmEngine::reduce(const Call& call, Span data) {
  communicator_.or_abort([&] { collectives_.all_reduce(call, data, /*to_root_only=*/true); });
}

void ShmEngine::reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  communicator_.or_abort([&] { collectives_.reduce_scatter(call, inputs, output); });
}

void ShmEngine::broadcast(const Call& call, Span data) {
  communicator_.or_abort([&] { collectives_.broadcast(call, data); });
}

void ShmEngine::all_gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  exchange(call, {input}, from_all(outputs, 0));
}

void ShmEngine::all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) {
  exchange(call, inputs, from_all(outputs, me()));
}

void ShmEngine::gather(const Call& call, Span input, const std::vector<Span>& outputs) {
  exchange(call, {input}, communicator_.rank() == call.root ? from_all(outputs, 0) : Wants{});
}

void ShmEngine::scatter(const Call& call, const std::vector<Span>& inputs, Span output) {
  const bool is_root = communicator_.rank() == call.root;
  exchange(call, is_root ? inputs : std::vector<Span>{}, {{output, call.root, me()}});
}

void ShmEngine::barrier(const Call& call) { exchange(call, {}, {}); }

std::unique_ptr<Transfer> ShmEngine::send(const Call& call, Span data, int peer, int tag) {
  return mailboxes_.send(call, data, peer, tag);
}

std::unique_ptr<Transfer> ShmEngine::recv(const Call& call, Span data, int peer, int tag) {
  return mailboxes_.recv(call, data, peer, tag);
}

void ShmEngine::leave(const Deadline&) noexcept { communicator_.leave(); }

}  // namespace cann::hccl
