#include "aten/npu/registry.h"

#include <unordered_map>

#include "aten/npu/support.h"

namespace cann::aten::npu {
namespace {

// What each refused operator would need, by its name with overload.
std::unordered_map<std::string, const char*>& refused() {
  static auto& table = *new std::unordered_map<std::string, const char*>;
  return table;
}

void refuse_call(const c10::OperatorHandle& op, torch::jit::Stack*) {
  const std::string name = toString(op.operator_name());
  CANN_CHECK_SUPPORTED(false, name, " is not implemented on the simulated npu: it would need ", refused().at(name));
}

}  // namespace

void Registry::define(const char* id, const char* signature, Randomness randomness) {
  const bool draws = randomness == Randomness::kDraws;
  const std::vector<at::Tag> tags = draws ? std::vector{at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded}
                                          : std::vector{at::Tag::pt2_compliant_tag};
  libraries_.schemas.def((std::string(id) + signature).c_str(), tags);
}

void Registry::refuse(const char* id, const char* signature, const char* needs) {
  constexpr std::string_view kAtb = "atb::";
  const bool is_atb = std::string_view(id).starts_with(kAtb);
  const char* name = is_atb ? id + kAtb.size() : id;
  torch::Library& schemas = is_atb ? libraries_.atb_schemas : libraries_.schemas;
  schemas.def((std::string(name) + signature).c_str());
  refused().emplace(std::string(is_atb ? "atb::" : "npu::") + name, needs);
  // Whatever the device of its arguments, and with none: also while tracing.
  schemas.impl(name, torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                                     torch::CppFunction::makeFromBoxedFunction<&refuse_call>()));
}

}  // namespace cann::aten::npu
