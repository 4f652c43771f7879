#include "distributed/virtual_time.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "distributed/collective_kind.h"
#include "runtime/simulator.h"

namespace cann::hccl {
namespace {

using c10d::OpType;
using sim::Collective;

// What ranks tell each other: when they are ready, and how long they think it takes.
using Word = std::array<double, 2>;
// Times travel beside the messages of a tag, so that those from any source still match.
constexpr int kTagOfTimes = 1 << 30;

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

std::vector<int> members(const std::vector<int64_t>& ranks, int size) {
  std::vector<int> all(ranks.begin(), ranks.end());
  if (all.size() != static_cast<size_t>(size)) {
    all.resize(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
  }
  return all;
}

Span span_of(Word& word) { return {reinterpret_cast<std::byte*>(word.data()), sizeof(Word)}; }

Call call_of_times(const Call& call, OpType op) {
  Call times;
  times.op = static_cast<uint8_t>(op);
  times.sequence = call.sequence;
  times.dtype = DataType::kDouble;
  times.deadline = call.deadline;
  return times;
}

// Keeps what is sent until it has gone.
class Telling final : public Transfer {
 public:
  Telling(Engine& engine, const Call& call, const Word& word, int peer, int tag)
      : word_(word), transfer_(engine.send(call, span_of(word_), peer, tag)) {}
  void wait() override { transfer_->wait(); }
  bool ready() override { return transfer_->ready(); }
  int source() const override { return -1; }

 private:
  Word word_;
  std::unique_ptr<Transfer> transfer_;  // uses the word, so goes first
};

}  // namespace

VirtualTime::VirtualTime(std::vector<int64_t> ranks, int rank, int size)
    : ranks_(members(ranks, size)), rank_(rank), shape_(simulator::topology().shape_of(ranks_)) {}

VirtualTime::Arrival VirtualTime::arrive(OpType op, const std::vector<at::Tensor>& inputs,
                                         const std::vector<at::Tensor>& outputs, c10::Device device, int peer) const {
  const Collective kind = collective_of(op);
  double bytes = std::max(bytes_of(inputs), bytes_of(outputs));
  if (kind == Collective::kGather) bytes = bytes_of(inputs) * shape_.ranks;
  if (kind == Collective::kScatter) bytes = bytes_of(outputs) * shape_.ranks;
  sim::GroupShape shape = shape_;
  if (peer >= 0) {
    const int ends[] = {ranks_[static_cast<size_t>(rank_)], ranks_[static_cast<size_t>(peer)]};
    shape = simulator::topology().shape_of(ends);
  }
  sim::Timeline& timeline = simulator::timeline();
  const double ready = timeline.time_of(timeline.record(simulator::current_stream_index(device.index())));
  // Who receives from any rank is told by the sender how long it takes.
  const bool any = op == OpType::RECVANYSOURCE;
  return {.ready = ready, .us = any ? 0 : simulator::topology().collective_us(kind, bytes, shape)};
}

double VirtualTime::meet(Engine& engine, const Call& call, const Arrival& mine) {
  Word own{mine.ready, mine.us};
  std::vector<Word> all(ranks_.size());
  std::vector<Span> outputs;
  for (Word& word : all) outputs.push_back(span_of(word));
  engine.all_gather(call_of_times(call, OpType::ALLGATHER), span_of(own), outputs);
  const std::lock_guard lock(mutex_);
  double us = 0;
  for (const Word& word : all) {
    free_ = std::max(free_, word[0]);
    us = std::max(us, word[1]);
  }
  return free_ += us;
}

std::unique_ptr<Transfer> VirtualTime::tell(Engine& engine, const Call& call, const Arrival& mine, int peer, int tag) {
  return std::make_unique<Telling>(engine, call_of_times(call, OpType::SEND), Word{mine.ready, mine.us}, peer,
                                   tag % kTagOfTimes + kTagOfTimes);
}

double VirtualTime::learn(Engine& engine, const Call& call, const Arrival& mine, int peer, int tag) const {
  Word word{};
  engine.recv(call_of_times(call, OpType::RECV), span_of(word), peer, tag % kTagOfTimes + kTagOfTimes)->wait();
  return std::max(mine.ready, word[0]) + std::max(mine.us, word[1]);
}

void wait_until(double end, c10::Stream communication, c10::Stream stream, bool host_too) {
  static const uint32_t row = simulator::add_row("hccl", {.engine = sim::Engine::kCollective});
  sim::Timeline& timeline = simulator::timeline();
  // The communication stream is busy until then, and the other waits for it.
  sim::Action busy{.engine = sim::Engine::kCollective, .stream = simulator::stream_index(communication), .what = row};
  const double start = timeline.launch(busy);
  busy.us = static_cast<float>(end - start);
  if (end > start) timeline.launch(busy);
  const uint32_t event = timeline.record(busy.stream);
  timeline.wait(simulator::stream_index(stream), event);
  if (host_too) timeline.host_wait(event);
}

}  // namespace cann::hccl
