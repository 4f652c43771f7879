#include "distributed/shm/signature.h"

#include <fmt/format.h>

namespace cann::hccl {
namespace {

std::string describe(const Signature& signature) {
  const auto reduction = static_cast<Reduction>(signature.reduction);
  std::string text = fmt::format("{} #{} (", op_name(signature.op), signature.sequence);
  // Where sizes may differ between ranks they are no part of the signature.
  if (signature.bytes > 0) text += fmt::format("{} bytes of ", signature.bytes);
  text += name_of(static_cast<DataType>(signature.dtype));
  if (reduction != Reduction::kNone) text += fmt::format(", {}", name_of(reduction));
  if (signature.root >= 0) text += fmt::format(", root {}", signature.root);
  return text + ")";
}

}  // namespace

Signature signature_of(const Call& call, uint64_t bytes) {
  return {call.sequence,
          bytes,
          call.factor,
          call.root,
          call.op,
          static_cast<uint8_t>(call.dtype),
          static_cast<uint8_t>(call.reduction),
          call.layout};
}

bool agree(const Signature& mine, const Signature& theirs) {
  const bool transfer = is_transfer(mine.op) && is_transfer(theirs.op);
  return (transfer || mine.op == theirs.op) && mine.bytes == theirs.bytes && mine.root == theirs.root &&
         mine.dtype == theirs.dtype && mine.reduction == theirs.reduction && mine.layout == theirs.layout;
}

std::string disagreement(int rank, const Signature& mine, int peer, const Signature& theirs) {
  std::string text =
      fmt::format("rank {} is in {}, but rank {} says it is in {}", rank, describe(mine), peer, describe(theirs));
  if (mine.layout != theirs.layout) text += " in another memory format";
  return text;
}

}  // namespace cann::hccl
