#include "aten/direct.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace cann::aten {

uint64_t written_arguments(const char* name, const char* overload_name) {
  const auto& arguments = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload_name).schema().arguments();
  uint64_t bits = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* info = arguments[i].alias_info();
    if (info != nullptr && info->isWrite()) bits |= uint64_t{1} << i;
  }
  return bits;
}

}  // namespace cann::aten
