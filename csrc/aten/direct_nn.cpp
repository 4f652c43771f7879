// Neural network layers: normalisation, convolution, pooling, resampling, losses, attention.

#include "aten/device_assert.h"
#include "aten/direct.h"
#include "aten/register.h"

namespace cann::aten {

void register_direct_nn(torch::Library& aten) {
  namespace ops = at::_ops;
  register_direct<ops::native_group_norm, ops::native_group_norm_backward, ops::_native_batch_norm_legit,
                  ops::_native_batch_norm_legit_no_stats, ops::_batch_norm_with_update, ops::batch_norm_backward>(aten);
  register_direct<ops::max_pool2d_with_indices, ops::max_pool2d_with_indices_backward, ops::avg_pool2d,
                  ops::avg_pool2d_backward, ops::_adaptive_avg_pool2d, ops::_adaptive_avg_pool2d_backward,
                  ops::adaptive_max_pool2d, ops::adaptive_max_pool2d_backward, ops::max_pool3d_with_indices,
                  ops::max_pool3d_with_indices_backward, ops::avg_pool3d, ops::avg_pool3d_backward>(aten);
  register_direct<ops::upsample_nearest1d, ops::upsample_nearest2d, ops::upsample_nearest2d_backward,
                  ops::upsample_bilinear2d, ops::upsample_bilinear2d_backward, ops::upsample_bicubic2d,
                  ops::grid_sampler_2d, ops::grid_sampler_2d_backward, ops::im2col, ops::col2im, ops::reflection_pad1d,
                  ops::reflection_pad2d, ops::replication_pad2d, ops::constant_pad_nd, ops::pixel_shuffle,
                  ops::pixel_unshuffle, ops::glu, ops::glu_backward>(aten);
  register_asserting<ops::nll_loss_forward, ops::nll_loss_backward, ops::nll_loss2d_forward, ops::nll_loss2d_backward>(
      aten);
  register_direct<ops::mse_loss, ops::mse_loss_backward, ops::binary_cross_entropy, ops::binary_cross_entropy_backward,
                  ops::binary_cross_entropy_with_logits, ops::smooth_l1_loss, ops::smooth_l1_loss_backward,
                  ops::huber_loss, ops::huber_loss_backward>(aten);
  register_direct<ops::_cdist_forward, ops::_cdist_backward, ops::_pdist_forward>(aten);
  register_direct<ops::_amp_update_scale_>(aten);
}

}  // namespace cann::aten
