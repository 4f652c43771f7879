// Operators that are known but not implemented: the rest. See refused.h.

#include "aten/npu/families.h"
#include "aten/npu/refused.h"

namespace cann::aten::npu {
namespace {

// clang-format off
constexpr Refused kRefused[] = {
    {"_dropout_with_byte_mask",
     "(Tensor input, float p) -> (Tensor, Tensor)",
     "a published definition of its arithmetic"},
    {"_dropout_with_byte_mask_backward",
     "(Tensor grad_output, Tensor mask, float p) -> Tensor",
     "a published definition of its arithmetic"},
    {"_gru_npu",
     "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool "
     "bidirectional, *, bool? batch_first=False, Tensor? batch_sizes=None) -> (Tensor, Tensor, Tensor, Tensor, "
     "Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"_gru_npu_backward",
     "(Tensor grad_y, Tensor grad_h, Tensor input, Tensor hx, Tensor[] params, Tensor r, Tensor z, Tensor n, "
     "Tensor h_n, Tensor h, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, *, "
     "bool? batch_first=False, Tensor? batch_sizes=None) -> (Tensor, Tensor, Tensor[])",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"_lstm_npu",
     "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
     "bool bidirectional, *, bool? batch_first=False, Tensor? batch_sizes=None) -> (Tensor, Tensor, Tensor, "
     "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"_lstm_npu_backward",
     "(Tensor grad_y, Tensor grad_hy, Tensor grad_cy, Tensor input, Tensor[] hx, Tensor[] params, Tensor i, Tensor "
     "j, Tensor f, Tensor o, Tensor h, Tensor c, Tensor tanhc, bool has_biases, int num_layers, float dropout, "
     "bool train, bool bidirectional, *, bool? batch_first=False, Tensor? batch_sizes=None) -> (Tensor, Tensor[], "
     "Tensor[])",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"_npu_ciou",
     "(Tensor input, Tensor gtboxes, bool trans=False, bool is_cross=True, int mode=0, bool atan_sub_flag=False) "
     "-> (Tensor, Tensor)",
     "a published definition of its arithmetic"},
    {"_npu_matmul_abft_verify",
     "(Tensor a, Tensor b, Tensor c, Tensor checksum_weight, *, float e_max=0.001) -> Tensor",
     "detection of the chip's faulty results, which a simulated chip does not have"},
    {"_npu_silent_check",
     "(Tensor(a!) input_grad, Tensor val, Tensor(b!) pre_val, Tensor(c!) min_val, Tensor(d!) max_val, Tensor "
     "val_counter, int c_min_steps, float c_thresh_l1, float c_coeff_l1, float c_thresh_l2, float c_coeff_l2) -> "
     "Tensor",
     "detection of the chip's faulty results, which a simulated chip does not have"},
    {"_npu_silent_check_v2",
     "(Tensor val, Tensor(a!) input_grad, Tensor(b!) sfda, Tensor(c!) step, int c_min_steps, float c_thresh_l1, "
     "float c_coeff_l1, float c_thresh_l2, float c_coeff_l2, int npu_asd_detect) -> Tensor",
     "detection of the chip's faulty results, which a simulated chip does not have"},
    {"_npu_silent_check_v3",
     "(Tensor val, Tensor(a!) input_grad, Tensor(b!) step, Tensor(c!) max, Tensor(d!) avg, float c_thresh_l1, "
     "float c_thresh_l2, float betal, int npu_asd_detect) -> Tensor",
     "detection of the chip's faulty results, which a simulated chip does not have"},
    {"dropout_with_byte_mask",
     "(Tensor input, float p, bool train) -> Tensor",
     "a published definition of its arithmetic"},
    {"empty_with_swapped_memory",
     "(int[] size, *, ScalarType? dtype=None, Device? device=None) -> Tensor",
     "memory that the card and the host share under one address"},
    {"ffn_worker_scheduler",
     "(Tensor input, *, int sync_group_size=1, int execute_mode=0) -> Tensor",
     "a remote service that hardware deployments run beside it"},
    {"ffn_worker_scheduler_",
     "(Tensor(a!) input, *, int sync_group_size=1, int execute_mode=0) -> Tensor(a!)",
     "a remote service that hardware deployments run beside it"},
    {"fft_c2r_backward",
     "(Tensor grad, int[] dim, int normalization) -> Tensor",
     "a published definition of its arithmetic"},
    {"fft_r2c_backward",
     "(Tensor grad, int[] dim, int normalization, bool onesided, int last_dim_size) -> Tensor",
     "a published definition of its arithmetic"},
    {"int_repr",
     "(Tensor self) -> Tensor",
     "PyTorch's quantised tensors under this name; use torch.quantize_per_tensor and its kin"},
    {"matmul_double_backward",
     "(Tensor? grad_self, Tensor? grad_other, Tensor grad_out, Tensor input, Tensor other, bool[3] mask) -> "
     "(Tensor, Tensor, Tensor)",
     "a published definition of its arithmetic"},
    {"npu_anchor_response_flags",
     "(Tensor input, int[2] featmap_size, int[2] stride, int num_base_anchors) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_batch_gather_matmul",
     "(Tensor input, Tensor x, Tensor weight_b, Tensor indices, Tensor? weight_a=None, int layer_idx=0, float "
     "scale=1e-3, int y_offset=0, int y_slice_size=-1) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_batch_gather_matmul_",
     "(Tensor(a!) input, Tensor x, Tensor weight_b, Tensor indices, Tensor? weight_a=None, int layer_idx=0, float "
     "scale=1e-3, int y_offset=0, int y_slice_size=-1) -> Tensor(a!)",
     "a definition of its arithmetic more precise than the published one"},
    {"npu_batch_nms",
     "(Tensor input, Tensor scores, float score_threshold, float iou_threshold, int max_size_per_class, int "
     "max_total_size, bool change_coordinate_frame=False, bool transpose_box=False) -> (Tensor, Tensor, Tensor, "
     "Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_bounding_box_decode",
     "(Tensor rois, Tensor deltas, float means0, float means1, float means2, float means3, float stds0, float "
     "stds1, float stds2, float stds3, int[1] max_shape, float wh_ratio_clip) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_bounding_box_encode",
     "(Tensor anchor_box, Tensor ground_truth_box, float means0, float means1, float means2, float means3, float "
     "stds0, float stds1, float stds2, float stds3) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_chunk_gated_delta_rule",
     "(Tensor query, Tensor key, Tensor value, *, Tensor? beta=None, Tensor? initial_state=None, Tensor? "
     "actual_seq_lengths=None, float? scale=None, Tensor? g=None) -> (Tensor, Tensor)",
     "a kernel of this recurrence"},
    {"npu_ciou",
     "(Tensor input, Tensor gtboxes, bool trans=False, bool is_cross=True, int mode=0, bool atan_sub_flag=False) "
     "-> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_ciou_backward",
     "(Tensor grad, Tensor bboxes, Tensor gtboxes, Tensor? atan_sub, bool trans=False, bool is_cross=True, int "
     "mode=0) -> (Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_deformable_conv2d",
     "(Tensor input, Tensor weight, Tensor offset, Tensor? bias, int[2] kernel_size, int[] stride, int[] padding, "
     "int[4] dilation=[1,1,1,1], int groups=1, int deformable_groups=1, bool modulated=True) -> (Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_deformable_conv2dbk",
     "(Tensor input, Tensor grad_output, Tensor offset_out, Tensor weight, Tensor offset, int[2] kernel_size, "
     "int[] stride, int[] padding, int[4] dilation=[1,1,1,1], int groups=1, int deformable_groups=1, bool "
     "modulated=True) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_diou",
     "(Tensor input, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_diou_backward",
     "(Tensor grad, Tensor bboxes, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> (Tensor, "
     "Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_dropout_gen_mask",
     "(int[] size, float p, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? "
     "pin_memory=None) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_ffn",
     "(Tensor x, Tensor weight1, Tensor weight2, str activation, *, int[]? expert_tokens=None, int[]? "
     "expert_tokens_index=None, Tensor? bias1=None, Tensor? bias2=None, Tensor? scale=None, Tensor? offset=None, "
     "Tensor? deq_scale1=None, Tensor? deq_scale2=None, Tensor? antiquant_scale1=None, Tensor? "
     "antiquant_scale2=None, Tensor? antiquant_offset1=None, Tensor? antiquant_offset2=None, int? "
     "inner_precise=None, ScalarType? output_dtype=None) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_ffn_worker_batching",
     "(Tensor schedule_context, int expert_num, int[4] max_out_shape, *, int token_dtype=0, int need_schedule=0, "
     "int layer_num=0) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a remote service that hardware deployments run beside it"},
    {"npu_fused_causal_conv1d",
     "(Tensor x, Tensor weight, Tensor(a!) conv_states, *, Tensor? query_start_loc=None, Tensor? "
     "cache_indices=None, Tensor? initial_state_mode=None, Tensor? bias=None, Tensor? num_accepted_tokens=None, "
     "str? activation=\"None\", int? pad_slot_id=-1, int? run_mode=0, int? residual_connection=0, int? "
     "max_query_len=-1, Tensor? num_computed_tokens=None, Tensor? block_idx_first_scheduled_token=None, Tensor? "
     "block_idx_last_scheduled_token=None, Tensor? initial_state_idx=None, int? block_size=128, str? "
     "conv_mode=\"default\") -> Tensor",
     "a kernel, which has not been written"},
    {"npu_fused_causal_conv1d_v2",
     "(Tensor(a!) x, Tensor weight, Tensor(b!) conv_states, *, Tensor? query_start_loc=None, Tensor? "
     "cache_indices=None, Tensor? initial_state_mode=None, Tensor? bias=None, Tensor? num_accepted_tokens=None, "
     "str? activation=\"None\", int? pad_slot_id=-1, int? run_mode=0, int? residual_connection=0, int? "
     "max_query_len=-1, Tensor? num_computed_tokens=None, Tensor? block_idx_first_scheduled_token=None, Tensor? "
     "block_idx_last_scheduled_token=None, Tensor? initial_state_idx=None, int? block_size=128, str? "
     "conv_mode=\"default\") -> ()",
     "a kernel, which has not been written"},
    {"npu_giou",
     "(Tensor input, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_giou_backward",
     "(Tensor grad, Tensor bboxes, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> (Tensor, "
     "Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_grid_assign_positive",
     "(Tensor input, Tensor overlaps, Tensor box_responsible_flags, Tensor max_overlaps, Tensor argmax_overlaps, "
     "Tensor gt_max_overlaps, Tensor gt_argmax_overlaps, int num_gts, float pos_iou_thr, float min_pos_iou, bool "
     "gt_max_assign_all) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_gru",
     "(Tensor input, Tensor hx, Tensor weight_input, Tensor weight_hidden, Tensor bias_input, Tensor bias_hidden, "
     "Tensor seq_length, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool "
     "batch_first) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_gru_backward",
     "(Tensor? grady, Tensor? gradh, Tensor input, Tensor weight_input, Tensor weight_hidden, Tensor bias_input, "
     "Tensor bias_hidden, Tensor seq_length, Tensor hx, Tensor y_output, Tensor h_output, Tensor output_updata, "
     "Tensor output_reset, Tensor output_new, Tensor hidden_new) -> (Tensor, Tensor, Tensor, Tensor, Tensor, "
     "Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_hans_decode.out",
     "(Tensor mantissa, Tensor fixed, Tensor var, Tensor pdf, bool reshuff=False, *, Tensor(a!) out) -> Tensor(a!)",
     "the compressed format of its encoder, which is not published"},
    {"npu_hans_encode.out",
     "(Tensor input, bool statistic=False, bool reshuff=False, *, Tensor[] out) -> (Tensor, Tensor, Tensor, Tensor)",
     "the compressed format of its encoder, which is not published"},
    {"npu_ifmr",
     "(Tensor data, Tensor data_min, Tensor data_max, Tensor cumsum, float min_percentile, float max_percentile, "
     "float search_start, float search_end, float search_step, bool with_offset) -> (Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_iou",
     "(Tensor bboxes, Tensor gtboxes, int mode=0) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_kv_rmsnorm_rope_cache",
     "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, Tensor ckv_cache, *, Tensor? "
     "k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? "
     "v=None, float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False) -> (Tensor, Tensor, Tensor, "
     "Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_kv_rmsnorm_rope_cache_v2",
     "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor(a!) k_cache, Tensor(b!) ckv_cache, *, "
     "Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, "
     "Tensor? v=None, float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False, int? k_cache_dtype=None, "
     "int? ckv_cache_dtype=None) -> (Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_kv_rmsnorm_rope_cache_v2_functional",
     "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, Tensor ckv_cache, *, Tensor? "
     "k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? "
     "v=None, float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False, int? k_cache_dtype=None, int? "
     "ckv_cache_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_lstm",
     "(Tensor input, Tensor weight, Tensor bias, Tensor seq_mask, Tensor h, Tensor c, bool has_biases, int "
     "num_layers, float dropout, bool train, bool bidirectional, bool batch_first, bool flag_seq, bool direction) "
     "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_lstm_backward",
     "(Tensor? grady, Tensor? gradh, Tensor? gradc, Tensor input, Tensor weight, Tensor bias, Tensor hx, Tensor "
     "cx, Tensor y_output, Tensor h_output, Tensor c_output, Tensor i, Tensor j, Tensor f, Tensor o, Tensor tanhc) "
     "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_lstm_cell",
     "(Tensor input, Tensor w_ih, Tensor w_hh, Tensor h, Tensor c, Tensor? b_ih=None, Tensor? b_hh=None) -> "
     "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_lstm_cell_backward",
     "(Tensor? grady, Tensor? gradh, Tensor? gradc, Tensor input, Tensor w_ih, Tensor w_hh, Tensor h, Tensor c, "
     "Tensor y_output, Tensor h_output, Tensor c_output, Tensor i, Tensor j, Tensor f, Tensor o, Tensor tanhc) -> "
     "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_lstm_data",
     "(Tensor input, Tensor batch_sizes, Tensor weight, Tensor bias, Tensor seq_mask, Tensor h, Tensor c, bool "
     "has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first, bool flag_seq, "
     "bool direction) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_lstm_data_backward",
     "(Tensor? grady_opt, Tensor? gradh_opt, Tensor? gradc_opt, Tensor input, Tensor batch_sizes, Tensor weight, "
     "Tensor bias, Tensor init_h, Tensor init_c, Tensor y, Tensor h, Tensor c, Tensor i, Tensor j, Tensor f, "
     "Tensor o, Tensor tanhc, bool flag_direction) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel in this operator's packed layout of gates; use torch.nn.LSTM or torch.nn.GRU"},
    {"npu_masked_fill_range",
     "(Tensor input, Tensor start, Tensor end, Tensor value, int axis=-1) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_mhc_post",
     "(Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> Tensor",
     "a kernel of this recurrence"},
    {"npu_mhc_post_backward",
     "(Tensor grad_y, Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this recurrence"},
    {"npu_mhc_pre",
     "(Tensor x, Tensor phi, Tensor alpha, Tensor bias, *, Tensor? gamma=None, float norm_eps=1e-6, float "
     "hc_eps=1e-6, int out_flag=0, int inner_precise=0) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this recurrence"},
    {"npu_mhc_pre_backward",
     "(Tensor x, Tensor phi, Tensor alpha, Tensor grad_h_in, Tensor grad_h_post, Tensor grad_h_res, Tensor "
     "inv_rms, Tensor h_mix, Tensor h_pre, Tensor h_post, Tensor? gamma=None, float hc_eps=1e-6, Tensor? "
     "grad_x_post=None, int inner_precise=0) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this recurrence"},
    {"npu_mhc_sinkhorn",
     "(Tensor x, *, float eps=1e-6, SymInt num_iters=20, int out_flag=0) -> (Tensor, Tensor, Tensor)",
     "a kernel of this recurrence"},
    {"npu_mhc_sinkhorn_backward",
     "(Tensor grad_y, Tensor norm, Tensor sum) -> Tensor",
     "a kernel of this recurrence"},
    {"npu_nms_rotated",
     "(Tensor input, Tensor scores, float iou_threshold, float scores_threshold=0, int max_output_size=-1, int "
     "mode=0) -> (Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_nms_v4",
     "(Tensor input, Tensor scores, Scalar max_output_size, Tensor iou_threshold, Tensor scores_threshold, bool "
     "pad_to_max_output_size=False) -> (Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_nms_with_mask",
     "(Tensor input, Scalar iou_threshold) -> (Tensor, Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_normalize_batch",
     "(Tensor input, Tensor seq_len, int normalize_type=0) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_ps_roi_pooling",
     "(Tensor input, Tensor rois, float spatial_scale, int group_size, int output_dim) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_ps_roi_pooling_backward",
     "(Tensor output_grad, Tensor rois, float spatial_scale, int group_size, int output_dim, SymInt[] input_size) "
     "-> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_ptiou",
     "(Tensor bboxes, Tensor gtboxes, int mode=0) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_qkv_rms_norm_rope_cache",
     "(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, Tensor sin, Tensor index, Tensor(a!) q_out, "
     "Tensor(b!) k_cache, Tensor(c!) v_cache, int[4] qkv_size, int[3] head_nums, *, Tensor? k_scale=None, Tensor? "
     "v_scale=None, Tensor? k_offset=None, Tensor? v_offset=None, float epsilon=1e-6, str cache_mode='PA_NZ', bool "
     "is_output_qkv=False) -> (Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_qkv_rms_norm_rope_cache_functional",
     "(Tensor qkv, Tensor q_gamma, Tensor k_gamma, Tensor cos, Tensor sin, Tensor index, Tensor q_out, Tensor "
     "k_cache, Tensor v_cache, int[4] qkv_size, int[3] head_nums, *, Tensor? k_scale=None, Tensor? v_scale=None, "
     "Tensor? k_offset=None, Tensor? v_offset=None, float epsilon=1e-6, str cache_mode='PA_NZ', bool "
     "is_output_qkv=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_random_choice_with_mask",
     "(Tensor x, int count=256, int seed=0, int seed2=0) -> (Tensor, Tensor)",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_renorm_backward",
     "(Tensor grad, Tensor input, Scalar p, int dim, Scalar maxnorm) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_roi_align",
     "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sample_num, int "
     "roi_end_mode) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_roi_alignbk",
     "(Tensor input, Tensor rois, int[] xdiff_shape, int pooled_width, int pooled_height, float spatial_scale, int "
     "sample_num, int? roi_end_mode=None) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_rotated_box_decode",
     "(Tensor input, Tensor deltas, Tensor weight) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_rotated_box_encode",
     "(Tensor input, Tensor gt_bboxes, Tensor weight) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_rotated_iou",
     "(Tensor input, Tensor query_boxes, bool trans=False, int mode=0, bool is_cross=True, float v_threshold=0.0, "
     "float e_threshold=0.0) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_rotated_overlaps",
     "(Tensor input, Tensor query_boxes, bool trans=False) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"npu_sign_bits_pack",
     "(Tensor input, int size) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_sign_bits_unpack",
     "(Tensor input, int size, ScalarType dtype) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_sim_exponential_",
     "(Tensor(a!) input, float lambd=1, *, Generator? generator=None) -> Tensor(a!)",
     "a kernel, which has not been written"},
    {"npu_stride_add",
     "(Tensor input, Tensor other, Scalar offset1, Scalar offset2, Scalar c1_len) -> Tensor",
     "a definition of its arithmetic more precise than the published one"},
    {"npu_sub_sample",
     "(Tensor input, int per_images, float positive_fraction) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_top_k_top_p_sample",
     "(Tensor logits, Tensor top_k, Tensor top_p, Tensor? q=None, float? eps=1e-8, bool? is_need_logits=False, "
     "int? top_k_guess=32, Tensor? min_ps=None, int? ks_max=1024, bool? input_is_logits=True, str? "
     "post_sample='qSample', Generator? generator=None) -> (Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_yolo_boxes_encode",
     "(Tensor input, Tensor gt_bboxes, Tensor stride, bool performance_mode=False) -> Tensor",
     "a kernel of this detection operator; torchvision has one for CPU tensors"},
    {"obfuscation_calculate",
     "(Tensor fd, Tensor x, Tensor param, *, float? obf_coefficient=1.0) -> Tensor",
     "a remote service that hardware deployments run beside it"},
    {"obfuscation_finalize",
     "(Tensor fd_to_close) -> Tensor",
     "a remote service that hardware deployments run beside it"},
    {"obfuscation_initialize",
     "(int hidden_size, int tp_rank, int cmd, *, ScalarType? data_type=None, int? model_obf_seed_id=0, int? "
     "data_obf_seed_id=0, int? thread_num=4, float? obf_coefficient=1.0) -> Tensor",
     "a remote service that hardware deployments run beside it"},
    {"stft_backward",
     "(Tensor grad_output, Tensor input, int n_fft, int? hop_length=None, int? win_length=None, Tensor? "
     "window=None, bool normalized=False, bool? onesided=None, bool? return_complex=None) -> Tensor",
     "a published definition of its arithmetic"},
};
// clang-format on

}  // namespace

void register_refused_others(Registry& ops) { refuse(ops, kRefused); }

}  // namespace cann::aten::npu
