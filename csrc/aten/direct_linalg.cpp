// Products and decompositions. mm, addmm, bmm, baddbmm, mv and addmv are in low_precision.cpp.

#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_linalg(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::dot, ops::vdot, ops::addmm_, ops::addmv_, ops::addr, ops::addbmm, ops::baddbmm_,
                  ops::_addmm_activation, ops::_int_mm, ops::linalg_qr, ops::_linalg_svd, ops::_linalg_eigh,
                  ops::linalg_cholesky_ex, ops::linalg_inv_ex, ops::_linalg_solve_ex, ops::linalg_lu_factor_ex,
                  ops::triangular_solve, ops::linalg_solve_triangular, ops::cholesky_solve, ops::_linalg_det,
                  ops::_fft_c2c, ops::_fft_r2c, ops::_fft_c2r>(aten);
}

}  // namespace cann::aten
