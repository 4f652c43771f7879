#pragma once
// The buffer on each card that operators' kernels work in, counted against HBM in a dry run. It grows to the largest
// that any operator asks for and is kept, as torch_npu does. Thread-safe.

#include <c10/core/Device.h>

#include "sim/workspace.h"

namespace cann::workspaces {

// Makes the card's buffer large enough for `op`. Raises OutOfMemoryError.
void reserve(const sim::OperatorDesc& op, c10::DeviceIndex device);
// What is reserved on the card, and within which range the truth is taken to lie.
sim::Workspace reserved(c10::DeviceIndex device);

}  // namespace cann::workspaces
