#include "distributed/options.h"

#include <stdexcept>
#include <utility>

#include "distributed/hccl_env.h"
#include "runtime/errors.h"

namespace cann::hccl {
namespace {

enum class Type { kUnsigned, kSigned, kText };

// Keys and types: torch_npu's documentation of Options.hccl_config.
const std::map<std::string, Type> kKeys = {
    {"hccl_buffer_size", Type::kUnsigned},   {"group_name", Type::kText},
    {"qos_traffic_class", Type::kUnsigned},  {"qos_service_level", Type::kUnsigned},
    {"hccl_sdma_qos", Type::kUnsigned},      {"hccl_op_expansion_mode", Type::kUnsigned},
    {"hccl_world_rank_id", Type::kUnsigned}, {"hccl_job_id", Type::kUnsigned},
    {"hccl_exec_timeout", Type::kSigned},    {"hccl_algo", Type::kText},
    {"hccl_retry_enable", Type::kText},      {"hccl_retry_params", Type::kText},
    {"hccl_buffer_name", Type::kText},
};

void check_value(const std::string& key, Type type, const ConfigValue& value) {
  const bool wants_text = type == Type::kText;
  const bool fits = wants_text ? std::holds_alternative<std::string>(value) : std::holds_alternative<int64_t>(value);
  TORCH_CHECK(fits, "Value type of ", key, " should be ", wants_text ? "string" : "int", ".",
              error_suffix(ErrModule::DIST, ErrCode::TYPE));
  TORCH_CHECK_VALUE(type != Type::kUnsigned || std::get<int64_t>(value) >= 0, "Value of ", key,
                    " should not be negative, but is ", std::get<int64_t>(value), ".",
                    error_suffix(ErrModule::DIST, ErrCode::VALUE));
}

AlgorithmChoice algorithms_of(const std::string& text) {
  try {
    AlgorithmChoice choice = AlgorithmChoice::parse(text);
    for (const std::string& warning : choice.warnings()) TORCH_WARN("hccl_algo: ", warning);
    return choice;
  } catch (const std::invalid_argument& allowed) {
    TORCH_CHECK_VALUE(false, "Value of hccl_algo should be ", allowed.what(), ", but is \"", text, "\".",
                      error_suffix(ErrModule::DIST, ErrCode::VALUE));
  }
}

}  // namespace

void Options::set_config(Config config) {
  for (const auto& [key, value] : config) {
    const auto known = kKeys.find(key);
    if (known == kKeys.end()) {
      TORCH_WARN("hccl_config has the unknown key \"", key, "\", which has no effect.");
    } else {
      check_value(key, known->second, value);
    }
  }
  const auto buffer = config.find("hccl_buffer_size");
  TORCH_CHECK_VALUE(buffer == config.end() || std::get<int64_t>(buffer->second) > 0,
                    "Value of hccl_buffer_size should be positive.", error_suffix(ErrModule::DIST, ErrCode::VALUE));
  const auto algorithm = config.find("hccl_algo");
  std::optional<AlgorithmChoice> algorithms;
  if (algorithm != config.end()) algorithms = algorithms_of(std::get<std::string>(algorithm->second));
  algorithms_ = std::move(algorithms);
  config_ = std::move(config);
}

void Options::set_wire(const std::string& text) {
  try {
    wire_ = text.empty() ? std::nullopt : std::make_optional(WireFormat::parse(text));
  } catch (const std::invalid_argument& allowed) {
    TORCH_CHECK_VALUE(false, "wire: expected ", allowed.what(), ", but got \"", text, "\".",
                      error_suffix(ErrModule::DIST, ErrCode::VALUE));
  }
}

WireOptions Options::wire_options() const {
  const HcclEnv& env = HcclEnv::get();
  return {algorithms_.value_or(env.algorithms), wire_.value_or(env.wire)};
}

size_t Options::buffer_megabytes() const {
  const auto entry = config_.find("hccl_buffer_size");
  if (entry == config_.end()) return HcclEnv::get().buffer_megabytes;
  return static_cast<size_t>(std::get<int64_t>(entry->second));
}

std::string Options::communicator_name() const {
  const auto entry = config_.find("group_name");
  return entry == config_.end() ? "" : std::get<std::string>(entry->second);
}

}  // namespace cann::hccl
