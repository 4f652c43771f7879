#pragma once
// Types that operators take as numbers: below 256 a torch.dtype's, as PyTorch passes one for an int; from 256 on CANN's
// aclDataType plus 256, which has types that PyTorch lacks.

#include "aten/npu/support.h"

namespace cann::aten::npu {

constexpr int64_t kAclTypes = 256;

inline at::ScalarType type_of_number(int64_t number, const char* op) {
  switch (number) {
    case kAclTypes + 0:
      return at::kFloat;
    case kAclTypes + 1:
      return at::kHalf;
    case kAclTypes + 2:
      return at::kChar;
    case kAclTypes + 3:
      return at::kInt;
    case kAclTypes + 4:
      return at::kByte;
    case kAclTypes + 6:
      return at::kShort;
    case kAclTypes + 9:
      return at::kLong;
    case kAclTypes + 11:
      return at::kDouble;
    case kAclTypes + 12:
      return at::kBool;
    case kAclTypes + 27:
      return at::kBFloat16;
    case kAclTypes + 35:
      return at::kFloat8_e5m2;
    case kAclTypes + 36:
      return at::kFloat8_e4m3fn;
    default:
      CANN_CHECK_SUPPORTED(number >= 0 && number < static_cast<int64_t>(at::ScalarType::NumOptions), op, ": type ",
                           number, " is neither a torch.dtype nor an aclDataType (less 256) that PyTorch has");
      return static_cast<at::ScalarType>(number);
  }
}

// Two values in a byte: not a type of PyTorch's arithmetic.
constexpr int64_t kFloat4E2M1 = kAclTypes + 40;

}  // namespace cann::aten::npu
