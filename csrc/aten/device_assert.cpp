#include "aten/device_assert.h"

#include <array>
#include <string>
#include <string_view>

#include "runtime/errors.h"

namespace cann::aten {
namespace {

// What ATen's CPU kernels say of an index that is out of range, but not of a dimension that is.
constexpr std::array<std::string_view, 5> kOutOfRange = {"index out of range in self", "is out of bounds",
                                                         "out of range: tried to access index", "target out of range",
                                                         "which is not in the valid range"};

}  // namespace

void rethrow_as_device_assert(const char* op, const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  for (const std::string_view phrase : kOutOfRange) {
    if (text.find(phrase) == std::string::npos) continue;
    TORCH_CHECK(false, op, ": ", text, "\nNPU function error: ", op, " (device-side assert), error code is 507015",
                error_suffix(ErrModule::PTA, ErrCode::ACL),
                "\n[Error]: AI core exception. An index tensor holds a value outside of the tensor that it indexes.");
  }
  throw;
}

void check_expanded_index(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  if (self.dim() == 0 || index.numel() == 0 || index.dim() != self.dim() || dim < -self.dim() || dim >= self.dim()) {
    return;  // the kernel has its own opinion of these
  }
  bool expanded = false;
  for (int64_t i = 0; i < index.dim(); ++i) expanded |= index.stride(i) == 0 && index.size(i) > 1;
  if (!expanded || (index.scalar_type() != at::kLong && index.scalar_type() != at::kInt)) return;
  const int64_t size = self.size(dim);
  const auto [low, high] = index.aminmax();
  const int64_t first = low.item<int64_t>(), last = high.item<int64_t>();
  TORCH_CHECK(first >= 0 && last < size, "index ", first < 0 ? first : last, " is out of bounds for dimension ", dim,
              " with size ", size);
}

}  // namespace cann::aten
