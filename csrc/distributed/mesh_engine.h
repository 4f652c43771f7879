#pragma once
// HCCL's collectives over messages between all pairs of ranks (GlooMesh): the engine that is right everywhere.
//
// Every collective is one or two rounds of a full exchange. Bytes that leave a rank, for a tensor of S bytes and n
// ranks:
//   all_reduce       (n-1) S <= 256 KiB: that, in one round; else 2 S (n-1)/n: reduce-scatter, then all-gather
//   reduce           the same reduce-scatter, then S/n to the root
//   broadcast        (n-1) S from the root
//   all_gather       (n-1) S with S the input
//   reduce_scatter   S (n-1)/n with S the input
//   all_to_all       what the splits say; gather and scatter: one side of it
// Reductions happen at one place per element in rank order, so results are bitwise equal on all ranks and run to run.

#include "distributed/gloo_mesh.h"

namespace cann::hccl {

class MeshEngine final : public Engine {
 public:
  // As GlooMesh: `gloo` belongs to this engine alone.
  explicit MeshEngine(c10::intrusive_ptr<c10d::Backend> gloo) : mesh_(std::move(gloo)) {}

  void all_reduce(const Call& call, Span data) override;
  void reduce(const Call& call, Span data) override;
  void broadcast(const Call& call, Span data) override;
  void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) override;
  void gather(const Call& call, Span input, const std::vector<Span>& outputs) override;
  void scatter(const Call& call, const std::vector<Span>& inputs, Span output) override;
  void barrier(const Call& call) override;
  std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag) override {
    return mesh_.send(call, data, peer, tag);
  }
  std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag) override {
    return mesh_.recv(call, data, peer, tag);
  }
  void leave(const Deadline& deadline) noexcept override;
  void abort(const std::string& reason) noexcept override { mesh_.abort(reason); }
  bool aborted() const override { return mesh_.aborted(); }

 private:
  GlooMesh::Spans to_all(Span data) const { return GlooMesh::Spans(static_cast<size_t>(mesh_.size()), data); }
  GlooMesh::Spans to_none() const { return GlooMesh::Spans(static_cast<size_t>(mesh_.size())); }
  // `whole` cut at element boundaries into one slice per rank.
  std::vector<Span> slices(const Call& call, Span whole) const;
  size_t me() const { return static_cast<size_t>(mesh_.rank()); }

  // One span per rank of the size of `mine`: `mine` itself for this rank, room to receive into for the others.
  std::vector<Span> inbox(Span mine);
  void trim_inbox();

  GlooMesh mesh_;
  // Kept from call to call, as fresh pages cost more than the transfer; used by the collectives' thread only.
  std::unique_ptr<std::byte[]> inbox_;
  size_t inbox_bytes_ = 0;
};

}  // namespace cann::hccl
