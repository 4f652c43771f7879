#include "aten/observe.h"

#include <string_view>
#include <unordered_set>

#include "runtime/device.h"
#include "runtime/sanitizer.h"
#include "runtime/stream.h"

namespace cann::aten {
namespace {

uint64_t written_bits(const c10::FunctionSchema& schema) {
  uint64_t bits = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite()) bits |= uint64_t{1} << i;
  }
  return bits;
}

// In-place operators that do not look at what they replace.
bool replaces_values(const std::string& name) {
  static const std::unordered_set<std::string_view> names{
      "aten::zero_",   "aten::fill_",      "aten::copy_",        "aten::uniform_",       "aten::normal_",
      "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::_foreach_zero_", "aten::_foreach_copy_"};
  return names.contains(name);
}

uint64_t overwritten_bits(const c10::FunctionSchema& schema) {
  uint64_t bits = replaces_values(schema.name()) ? 1 : 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].is_out()) bits |= uint64_t{1} << i;
  }
  return bits;
}

}  // namespace

uint64_t written_arguments(const char* name, const char* overload_name) {
  return written_bits(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload_name).schema());
}

Observed::Observed(const char* name, const char* overload_name)
    : Observed(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload_name)) {}

Observed::Observed(const c10::OperatorHandle& op)
    : id(reinterpret_cast<uintptr_t>(&op.schema())),
      pointwise(op.hasTag(at::Tag::pointwise)),
      blocking(op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)),
      written(written_bits(op.schema())),
      overwritten(overwritten_bits(op.schema())),
      causal(op.schema().argumentIndexWithName("is_causal").value_or(-1)),
      density(op.schema().argumentIndexWithName("density_ppm").value_or(-1)),
      world(op.schema().argumentIndexWithName("world_size").value_or(-1)),
      heads(op.schema().argumentIndexWithName("head_num").value_or(-1)),
      layout(op.schema().argumentIndexWithName("input_layout").value_or(-1)),
      sparse(op.schema().argumentIndexWithName("sparse_mode").value_or(-1)) {}

void observe_number(simulator::Observation& seen, const Observed& facts, size_t i, int64_t value) {
  const int position = static_cast<int>(i);
  if (position == facts.causal && value != 0) seen.density(0.5);
  if (position == facts.density) seen.density(static_cast<double>(value) * 1e-6);
  if (position == facts.world) seen.world(value);
  if (position == facts.heads) seen.heads(value);
  // 2 and 3 are the causal masks of npu_fusion_attention.
  if (position == facts.sparse && (value == 2 || value == 3)) seen.density(0.5);
}

void observe_text(simulator::Observation& seen, const Observed& facts, size_t i, std::string_view value) {
  if (static_cast<int>(i) != facts.layout) return;
  for (const char* known : {"BSH", "SBH", "BSND", "TND"}) {
    if (value == known) seen.layout(known);
  }
}

void observe_arguments(simulator::Observation& seen, const Observed& facts, std::span<const c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor()) {
      observe_argument(seen, facts, i, argument.toTensor());
    } else if (argument.isTensorList() || argument.isOptionalTensorList()) {
      for (const c10::IValue& item : argument.toListRef()) {
        if (item.isTensor()) observe_argument(seen, facts, i, item.toTensor());
      }
    } else if (argument.isBool()) {
      observe_number(seen, facts, i, argument.toBool() ? 1 : 0);
    } else if (argument.isInt()) {
      observe_number(seen, facts, i, argument.toInt());
    } else if (argument.isString()) {
      observe_text(seen, facts, i, argument.toStringRef());
    }
  }
}

void observe_result(simulator::Observation& seen, const c10::IValue& value) {
  if (value.isTensor()) {
    seen.result(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& item : value.toListRef()) seen.result(item.toTensor());
  }
}

namespace {

// The order that a copy between devices makes: both cards' streams wait for each other; the host waits unless its side
// is pinned and it said that it will not.
void report_copy_between_devices(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  std::vector<c10::Stream> streams;
  for (const at::Tensor* side : {&from, &to}) {
    if (side->device().type() == kNPU) streams.push_back(current_stream(side->device().index()));
  }
  if (streams.size() == 2) sanitizer::join(streams[0], streams[1]);
  for (const at::Tensor* side : {&from, &to}) {
    if (side->device().type() != kNPU || !side->unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Dense)) continue;
    sanitizer::Launch launch("aten::copy_", current_stream(side->device().index()));
    launch.access(*side->unsafeGetTensorImpl(), /*write=*/side == &to);
    launch.check();
  }
  if (streams.size() == 2) {
    sanitizer::join(streams[0], streams[1]);
  } else if (!non_blocking || !(to.is_cpu() ? to : from).is_pinned()) {
    sanitizer::host_wait(streams[0]);
  }
}

}  // namespace

void observe_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.device() == from.device()) {
    static const char* const kName = "aten::copy_";
    simulator::Observation seen(kName, reinterpret_cast<uintptr_t>(kName), /*pointwise=*/true);
    seen.read(from);
    seen.overwrite(to);
    seen.finish();
    return;
  }
  if (sanitizer::on()) report_copy_between_devices(to, from, non_blocking);
  if (!simulator::on()) return;
  const bool to_device = to.device().type() == kNPU;
  if (to_device && from.device().type() == kNPU) {
    simulator::launch_card_copy(to.nbytes(), from.device().index(), to.device().index());
    return;
  }
  simulator::launch_host_copy(to_device, (to_device ? to : from).nbytes(), (to_device ? to : from).device().index());
}

}  // namespace cann::aten
