#pragma once
// The seam between the semantics of HCCL (ProcessGroupHCCL: checks, order, work objects) and the moving of bytes.
//
// An Engine carries out one communicator's operations on plain host memory. Collectives block the calling thread until
// this rank's part is done and its buffers are free; they must be called by one thread at a time, in the same order on
// every rank. Point-to-point transfers are posted by send() and recv() without blocking, from any thread, and waited
// for later. Every failure is an EngineError; after one the communicator is dead and every later call raises too, as an
// HCCL communicator is after an error. Ranks are ranks of the group. Empty spans are allowed everywhere. No torch here.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace cann::hccl {

struct Span {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Numbered as c10::ScalarType is; others than these are moved but never looked into.
enum class DataType : uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kHalf = 5,
  kFloat = 6,
  kDouble = 7,
  kBool = 11,
  kBFloat16 = 15,
  kUInt64 = 29,
};

// "Half": the name c10 gives it, also for types that are only moved.
const char* name_of(DataType dtype);
// Bytes of an element of a type that can be reduced, which are those listed; raises std::invalid_argument for others.
size_t element_bytes(DataType dtype);

enum class Reduction : uint8_t { kNone, kSum, kProduct, kMin, kMax, kAverage, kPremultipliedSum };

// "SUM", "AVG", ...: the name torch.distributed.ReduceOp gives it.
const char* name_of(Reduction reduction);

// When to give up waiting for peers.
class Deadline {
 public:
  // Zero or less: never (a year).
  explicit Deadline(std::chrono::milliseconds allowed);
  std::chrono::milliseconds allowed() const { return allowed_; }
  std::chrono::milliseconds elapsed() const;
  // What is left, at least 1 ms.
  std::chrono::milliseconds remaining() const;
  bool expired() const { return elapsed() >= allowed_; }

 private:
  std::chrono::milliseconds allowed_;
  std::chrono::steady_clock::time_point start_;
};

// One operation as this rank understands it. All ranks must agree on everything but `sequence`, `factor` and the
// deadline.
struct Call {
  uint8_t op = 0;  // c10d::OpType
  uint64_t sequence = 0;
  DataType dtype = DataType::kUInt8;
  uint8_t layout = 0;  // c10::MemoryFormat of the data: equal bytes in another order must not be mixed
  Reduction reduction = Reduction::kNone;
  double factor = 1.0;  // of kPremultipliedSum: what this rank's input is multiplied with before it is added
  int root = -1;
  int divisor = 0;     // of kAverage: what the sum is divided by; 0: the number of ranks
  uint64_t bytes = 0;  // of the whole operation, set by engines whose ranks cannot tell by looking; 0 where it is free
  Deadline deadline{std::chrono::milliseconds(0)};
};

// "ALLREDUCE": the name of a c10d::OpType.
const char* op_name(uint8_t op);
// Whether it is SEND, RECV or RECVANYSOURCE.
bool is_transfer(uint8_t op);

// Elements [begin, end) of `count` that rank `rank` of `ranks` reduces: slices are equal, but for the last ones, and
// begin at multiples of `unit` elements.
struct Slice {
  size_t begin;
  size_t end;
};
Slice slice_of(size_t count, int rank, int ranks, size_t unit = 1);

struct EngineError : std::runtime_error {
  enum class Kind { kTimeout, kMismatch, kRemote, kAborted };
  EngineError(Kind kind, const std::string& text) : std::runtime_error(text), kind(kind) {}
  Kind kind;
};

// A posted point-to-point transfer. Its memory must stay valid until wait() returns or the transfer is destroyed.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until done; call once. Raises EngineError.
  virtual void wait() = 0;
  // Whether wait() would return at once; false where that is not known.
  virtual bool ready() { return false; }
  // Rank the data came from; -1 before wait() and for sends.
  virtual int source() const = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // In place; bitwise the same result on every rank.
  virtual void all_reduce(const Call& call, Span data) = 0;
  // As all_reduce, but only the root's `data` is written.
  virtual void reduce(const Call& call, Span data) = 0;
  virtual void broadcast(const Call& call, Span data) = 0;
  // outputs[r] receives rank r's input; sizes may differ between ranks, but outputs[r] must have the size of rank r's
  // input.
  virtual void all_gather(const Call& call, Span input, const std::vector<Span>& outputs) = 0;
  // inputs[r] goes to rank r; `output` has the size of inputs[rank] and may be that very memory.
  virtual void reduce_scatter(const Call& call, const std::vector<Span>& inputs, Span output) = 0;
  // inputs[r] goes to rank r, outputs[r] comes from it; sizes are free as long as both ends agree.
  virtual void all_to_all(const Call& call, const std::vector<Span>& inputs, const std::vector<Span>& outputs) = 0;
  // outputs is used at the root only, inputs of scatter likewise.
  virtual void gather(const Call& call, Span input, const std::vector<Span>& outputs) = 0;
  virtual void scatter(const Call& call, const std::vector<Span>& inputs, Span output) = 0;
  virtual void barrier(const Call& call) = 0;

  // Transfers between a pair of ranks with equal tags match in the order of posting. `tag` >= 0.
  virtual std::unique_ptr<Transfer> send(const Call& call, Span data, int peer, int tag) = 0;
  // `peer` -1 takes from any rank.
  virtual std::unique_ptr<Transfer> recv(const Call& call, Span data, int peer, int tag) = 0;

  // Ends the communicator together with the peers it has talked to: returns when they leave too, at the deadline, or
  // when anything fails; later calls raise kAborted. As a collective, belongs to one thread at a time. Without it the
  // last bytes sent to a slow peer may be lost when this process closes its connections.
  virtual void leave(const Deadline& deadline) noexcept = 0;

  // Makes every blocked and every later call raise kAborted with `reason`, here, and fail soon on the peers. Any
  // thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  virtual bool aborted() const = 0;
};

}  // namespace cann::hccl
