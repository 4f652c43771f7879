// Products and decompositions. mm, addmm, bmm, baddbmm, mv and addmv are in low_precision.cpp.

#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {
namespace {

// ATen's kernel of eigvals ends the process where that of eig raises.
void check_finite(const at::Tensor& input) {
  TORCH_CHECK(at::isfinite(input).all().item().toBool(),
              "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
}

at::Tensor eigvals(const at::Tensor& input) {
  check_finite(input);
  return DirectKernel<at::_ops::_linalg_eigvals, at::_ops::_linalg_eigvals::schema>::call(input);
}

at::Tensor& eigvals_out(const at::Tensor& input, at::Tensor& out) {
  check_finite(input);
  return DirectKernel<at::_ops::linalg_eigvals_out, at::_ops::linalg_eigvals_out::schema>::call(input, out);
}

}  // namespace

void register_direct_linalg(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::dot, ops::vdot, ops::addmm_, ops::addmv_, ops::addr, ops::addbmm, ops::baddbmm_,
                  ops::_addmm_activation, ops::_int_mm, ops::linalg_qr, ops::_linalg_svd, ops::_linalg_eigh,
                  ops::linalg_cholesky_ex, ops::linalg_inv_ex, ops::_linalg_solve_ex, ops::linalg_lu_factor_ex,
                  ops::triangular_solve, ops::linalg_solve_triangular, ops::cholesky_solve, ops::_linalg_det,
                  ops::_fft_c2c, ops::_fft_r2c, ops::_fft_c2r>(aten);
  aten.impl("_linalg_eigvals", TORCH_FN(eigvals));
  aten.impl("linalg_eigvals.out", TORCH_FN(eigvals_out));
}

}  // namespace cann::aten
