#include "aten/dry_memo.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "aten/dry_values.h"
#include "runtime/device.h"

namespace cann::aten {
namespace {

bool computes_sizes_from_fractions(const std::string& name) {
  constexpr std::array<std::string_view, 8> kParts = {"arange",   "linspace", "logspace", "range",
                                                      "upsample", "window",   "histc",    "interpol"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

bool takes_generator(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.type()->str().find("Generator") != std::string::npos;
  });
}

// Per result the argument that the schema says it is. Identity after the call would not do: out= may be an input.
std::vector<int> returned_arguments(const c10::FunctionSchema& schema) {
  std::vector<int> all;
  for (const c10::Argument& result : schema.returns()) {
    int found = -1;
    const auto* alias = result.alias_info();
    for (size_t i = 0; alias != nullptr && alias->isWrite() && i < schema.arguments().size(); ++i) {
      const auto* argument = schema.arguments()[i].alias_info();
      if (argument != nullptr && argument->isWrite() && argument->beforeSets() == alias->beforeSets()) {
        found = static_cast<int>(i);
        break;
      }
    }
    all.push_back(found);
  }
  return all;
}

uint64_t hash_of(std::span<const uint64_t> key) {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (const uint64_t word : key) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}

enum Tag : uint64_t {
  kTensor = 1,
  kUndefined,
  kNone,
  kInt,
  kBool,
  kDouble,
  kList,
  kDevice,
  kGenerator,
  kString,
  kComplex
};

}  // namespace

DryFacts::DryFacts(const c10::OperatorHandle& op)
    : observed(op),
      returned_argument(returned_arguments(op.schema())),
      random(takes_generator(op.schema()) || op.schema().name() == "aten::native_dropout"),
      sized_by_fractions(computes_sizes_from_fractions(op.schema().name())),
      may_depend_on_values(cann::aten::may_depend_on_values(op)) {}

const DryFacts& dry_facts(const c10::OperatorHandle& op) {
  static auto& all = *new std::unordered_map<const void*, std::unique_ptr<const DryFacts>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& facts = all[&op.schema()];
  if (facts == nullptr) facts = std::make_unique<const DryFacts>(op);
  return *facts;
}

DryCall::DryCall(const c10::OperatorHandle& op, const DryFacts& facts, std::span<const c10::IValue> arguments) {
  key.push_back(reinterpret_cast<uintptr_t>(&op.schema()));
  key.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  for (const c10::IValue& argument : arguments) add(argument, facts.sized_by_fractions);
}

void DryCall::add_tensor(c10::TensorImpl* tensor) {
  tensors.push_back(tensor);
  if (tensor == c10::UndefinedTensorImpl::singleton()) return key.push_back(kUndefined);
  if (!tensor->key_set().has(c10::DispatchKey::Dense) || tensor->has_symbolic_sizes_strides()) {
    cacheable = false;
    return;
  }
  const c10::Device place = tensor->device();
  if (place.type() == kNPU) {
    if (device < 0) device = place.index();
    mixed |= device != place.index();
  } else if (tensor->dim() > 0 && place.type() == c10::kCPU) {
    mixed = true;
  }
  const uint64_t flags = static_cast<uint64_t>(tensor->key_set().has(c10::DispatchKey::Conjugate)) |
                         static_cast<uint64_t>(tensor->key_set().has(c10::DispatchKey::Negative)) << 1 |
                         static_cast<uint64_t>(tensor->is_wrapped_number()) << 2;
  key.push_back(kTensor | static_cast<uint64_t>(tensor->dtype().toScalarType()) << 8 |
                static_cast<uint64_t>(place.type()) << 16 | flags << 24 | static_cast<uint64_t>(tensor->dim()) << 32 |
                static_cast<uint64_t>(static_cast<uint8_t>(place.index())) << 48);
  for (const int64_t size : tensor->sizes()) key.push_back(static_cast<uint64_t>(size));
  for (const int64_t stride : tensor->strides()) key.push_back(static_cast<uint64_t>(stride));
}

void DryCall::add(const c10::IValue& value, bool fractions) {
  const auto push_double = [&](double number) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    if (fractions) key.push_back(bits);
  };
  if (value.isTensor()) {
    add_tensor(value.unsafeToTensorImpl());
  } else if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.push_back(kInt), key.push_back(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    key.push_back(kBool | static_cast<uint64_t>(value.toBool()) << 8);
  } else if (value.isDouble()) {
    key.push_back(kDouble), push_double(value.toDouble());
  } else if (value.isList()) {
    const auto list = value.toListRef();
    key.push_back(kList | static_cast<uint64_t>(list.size()) << 8);
    for (const c10::IValue& item : list) add(item, fractions);
  } else if (value.isDevice()) {
    const c10::Device place = value.toDevice();
    if (place.type() == kNPU && device < 0) device = place.has_index() ? place.index() : current_device();
    key.push_back(kDevice | static_cast<uint64_t>(place.type()) << 8 |
                  static_cast<uint64_t>(static_cast<uint8_t>(place.index())) << 16);
  } else if (value.isGenerator()) {
    key.push_back(kGenerator);
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    key.push_back(kString | static_cast<uint64_t>(text.size()) << 8);
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      key.push_back(word);
    }
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    key.push_back(kComplex), push_double(number.real()), push_double(number.imag());
  } else {
    cacheable = false;
  }
}

DryMemo& DryMemo::get() {
  static auto* const memo = new DryMemo();
  return *memo;
}

std::shared_ptr<const DryEntry> DryMemo::find(const DryCall& call) const {
  if (!call.cacheable) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = entries_.equal_range(hash_of({call.key.data(), call.key.size()}));
  for (auto it = begin; it != end; ++it) {
    if (std::ranges::equal(it->second->key, call.key)) return it->second;
  }
  return nullptr;
}

void DryMemo::insert(const DryCall& call, const std::shared_ptr<DryEntry>& entry) {
  entry->key.assign(call.key.begin(), call.key.end());
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMaxEntries) entries_.clear();
  entries_.emplace(hash_of({call.key.data(), call.key.size()}), entry);
}

}  // namespace cann::aten
