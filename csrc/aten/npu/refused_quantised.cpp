// Operators that are known but not implemented: quantised forms. See refused.h.

#include "aten/npu/families.h"
#include "aten/npu/refused.h"

namespace cann::aten::npu {
namespace {

// clang-format off
constexpr Refused kRefused[] = {
    {"_empty_affine_quantized",
     "(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
     "float scale=1, int zero_point=0, MemoryFormat? memory_format=contiguous_format) -> Tensor",
     "PyTorch's quantised tensors under this name; use torch.quantize_per_tensor and its kin"},
    {"_npu_rms_norm_backward_quant",
     "(Tensor dy, Tensor x, Tensor rstd, Tensor gamma, Tensor scale_x, *, Tensor? offset_x=None, bool? "
     "div_mode=True, str quant_mode=\"static\", int? dst_type=1) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"_npu_swiglu_backward_mx_quant_with_dual_axis",
     "(Tensor x, Tensor y_grad, *, Tensor? group_index=None, bool activate_left=True, str round_mode=\"rint\", int "
     "scale_alg=1, int dst_type=24, float dst_type_max=0) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"_quantize_per_channel_impl.out",
     "(Tensor inputs, Tensor scales, Tensor zero_points, int axis, ScalarType dtype, *, Tensor(a!) result) -> "
     "Tensor(a!)",
     "PyTorch's quantised tensors under this name; use torch.quantize_per_tensor and its kin"},
    {"_quantize_per_tensor_impl.out",
     "(Tensor inputs, Tensor scales, Tensor zero_points, ScalarType dtype, *, Tensor(a!) result) -> Tensor(a!)",
     "PyTorch's quantised tensors under this name; use torch.quantize_per_tensor and its kin"},
    {"dequantize.self",
     "(Tensor self) -> Tensor",
     "PyTorch's quantised tensors under this name; use torch.quantize_per_tensor and its kin"},
    {"npu_add_quant_gmm",
     "(Tensor input, Tensor x1, Tensor x2, Tensor x2_scale, Tensor group_list, *, Tensor? x1_scale=None, int? "
     "group_list_type=0, int[]? group_sizes=None, int? x1_dtype=None, int? x2_dtype=None, int? "
     "x1_scale_dtype=None, int? x2_scale_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_add_quant_gmm_",
     "(Tensor(a!) input, Tensor x1, Tensor x2, Tensor x2_scale, Tensor group_list, *, Tensor? x1_scale=None, int? "
     "group_list_type=0, int[]? group_sizes=None, int? x1_dtype=None, int? x2_dtype=None, int? "
     "x1_scale_dtype=None, int? x2_scale_dtype=None) -> Tensor(a!)",
     "a kernel for this quantised form"},
    {"npu_add_quant_matmul",
     "(Tensor input, Tensor x1, Tensor x2, Tensor x2_scale, *, Tensor? x1_scale=None, int[]? group_sizes=None, "
     "int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_add_quant_matmul_",
     "(Tensor(a!) input, Tensor x1, Tensor x2, Tensor x2_scale, *, Tensor? x1_scale=None, int[]? group_sizes=None, "
     "int? x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None) -> Tensor(a!)",
     "a kernel for this quantised form"},
    {"npu_add_rms_norm_dynamic_mx_quant",
     "(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? beta=None, float epsilon=1e-06, int scale_alg=0, str "
     "round_mode=\"rint\", int dst_type=296) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_add_rms_norm_dynamic_quant",
     "(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? smooth_scale1=None, Tensor? smooth_scale2=None, Tensor? "
     "beta=None, float epsilon=1e-6, bool[2]? output_mask=None, int? y_dtype=None) -> (Tensor, Tensor, Tensor, "
     "Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_add_rms_norm_quant",
     "(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1, Tensor? beta=None, Tensor? "
     "scales2=None, Tensor? zero_points2=None, *, int axis=-1, float epsilon=1e-06, bool div_mode=True, int? "
     "dst_type=None) -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_all_gather_quant_mm",
     "(Tensor input, Tensor x2, str hcom, int world_size, *, Tensor? bias=None, Tensor? x1_scale=None, Tensor? "
     "x2_scale=None, Tensor? quant_scale=None, int block_size=0, int gather_index=0, bool gather_output=True, int "
     "comm_turn=0, int[]? group_sizes=None, bool amax_output=False, int? y_dtype=None, int? x1_dtype=None, int? "
     "x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None, str? comm_mode=None) -> (Tensor, Tensor, "
     "Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_all_to_all_quant_matmul",
     "(Tensor x1, Tensor x2, str hcom, int world_size, *, bool all2all_out_flag=True, Tensor? bias=None, Tensor? "
     "x1_scale=None, Tensor? x2_scale=None, Tensor? common_scale=None, Tensor? x1_offset=None, Tensor? "
     "x2_offset=None, int? x1_quant_mode=None, int? x2_quant_mode=None, int? common_quant_mode=None, int[]? "
     "group_sizes=None, int[]? all2all_axes=None, int? comm_quant_dtype=None, int? x1_quant_dtype=None, int? "
     "x1_dtype=None, int? x2_dtype=None, int? x1_scale_dtype=None, int? x2_scale_dtype=None, int? "
     "output_scale_dtype=None, int? comm_scale_dtype=None, int? y_dtype=None, str? comm_mode=None) -> (Tensor, "
     "Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_alltoallv_quant_gmm",
     "(Tensor gmm_x, Tensor gmm_weight, Tensor gmm_x_scale, Tensor gmm_weight_scale, str hcom, int ep_world_size, "
     "int[] send_counts, int[] recv_counts, int gmm_y_dtype, *, Tensor? send_counts_tensor=None, Tensor? "
     "recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, Tensor? mm_x_scale=None, Tensor? "
     "mm_weight_scale=None, int? gmm_x_quant_mode=None, int? gmm_weight_quant_mode=None, int? "
     "mm_x_quant_mode=None, int? mm_weight_quant_mode=None, bool permute_out_flag=False, int[]? group_size=None, "
     "int? gmm_x_dtype=None, int? gmm_weight_dtype=None, int? gmm_x_scale_dtype=None, int? "
     "gmm_weight_scale_dtype=None, int? mm_x_dtype=None, int? mm_weight_dtype=None, int? mm_x_scale_dtype=None, "
     "int? mm_weight_scale_dtype=None, int? mm_y_dtype=None, str? comm_mode=None) -> (Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_anti_mx_quant",
     "(Tensor x, Tensor mxscale, *, int? axis=-1, int? dst_type=15, int? src_type=292) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_anti_quant",
     "(Tensor x, Tensor scale, *, Tensor? offset=None, int? dst_dtype=None, int? src_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_dequant_bias",
     "(Tensor x, Tensor weight_scale, Tensor? activation_scale, Tensor? bias, *, ScalarType? output_dtype=None) -> "
     "Tensor",
     "a kernel for this quantised form"},
    {"npu_dequant_rope_quant_kvcache",
     "(Tensor x, Tensor cos, Tensor sin, Tensor k_cache, Tensor v_cache, Tensor indices, Tensor scale_k, Tensor "
     "scale_v, int[3] size_splits, *, Tensor? offset_k=None, Tensor? offset_v=None, Tensor? weight_scale=None, "
     "Tensor? activation_scale=None, Tensor? bias=None, int quant_mode=0, str input_layout=\"BSND\", bool "
     "kv_output=False, str cache_mode=\"contiguous\") -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_dequant_swiglu_quant",
     "(Tensor x, *, Tensor? weight_scale=None, Tensor? activation_scale=None, Tensor? bias=None, Tensor? "
     "quant_scale=None, Tensor? quant_offset=None, Tensor? group_index=None, bool activate_left=False, int "
     "quant_mode=0, int? dst_type=None, int? round_mode=None, int? activate_dim=None, int swiglu_mode=0, float "
     "clamp_limit=7.0, float glu_alpha=1.702, float glu_bias=1.0) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_dual_level_quant_matmul",
     "(Tensor x1, Tensor x2, Tensor x1_level0_scale, Tensor x2_level0_scale, Tensor x1_level1_scale, Tensor "
     "x2_level1_scale, *, Tensor? bias=None, int output_dtype=15) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_dynamic_block_mx_quant",
     "(Tensor input, *, str round_mode=\"rint\", int dst_type=296, int scale_alg=0, float dst_type_max=0.0) -> "
     "(Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_dynamic_dual_level_mx_quant",
     "(Tensor input, *, Tensor? smooth_scale=None, str round_mode=\"rint\") -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_dynamic_mx_quant_with_dual_axis",
     "(Tensor input, *, str round_mode=\"rint\", int dst_type=296, int scale_alg=0, float? dst_type_max=0.0) -> "
     "(Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_dynamic_quant_asymmetric",
     "(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, str "
     "quant_mode=\"pertoken\", float dst_type_max=0.0) -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_gelu_quant",
     "(Tensor input, *, Tensor? input_scale=None, Tensor? input_offset=None, str approximate='none', str "
     "quant_mode='dynamic', int? dst_type=None, str round_mode='rint') -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_group_quant",
     "(Tensor x, Tensor scale, Tensor group_index, *, Tensor? offset=None, ScalarType? dst_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_grouped_dynamic_block_quant",
     "(Tensor x, Tensor group_list, *, float min_scale=0.0, str round_mode=\"rint\", int dst_type=291, int "
     "row_block_size=1, int col_block_size=128, int group_list_type=0, float dst_type_max=0.0) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_grouped_dynamic_mx_quant",
     "(Tensor x, Tensor group_index, *, str round_mode=\"rint\", int dst_type=23, int blocksize=32, int? "
     "scale_alg=0, float? dst_type_max=0.0) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_grouped_matmul_swiglu_quant",
     "(Tensor x, Tensor weight, Tensor group_list, Tensor weight_scale, Tensor x_scale, *, Tensor? bias=None, "
     "Tensor? offset=None) -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_grouped_matmul_swiglu_quant_v2",
     "(Tensor x, Tensor[] weight, Tensor[] weight_scale, Tensor x_scale, Tensor group_list, *, Tensor? "
     "smooth_scale=None, Tensor[]? weight_assist_matrix=None, Tensor? bias=None, int? dequant_mode=0, int? "
     "dequant_dtype=6, int? quant_mode=0, int? quant_dtype=1, int? group_list_type=0, int[]? tuning_config=None, "
     "int? x_dtype=None, int? weight_dtype=None, int? weight_scale_dtype=None, int? x_scale_dtype=None) -> "
     "(Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_kronecker_quant",
     "(Tensor x, Tensor kronecker_p1, Tensor kronecker_p2, float? clip_ratio=None, int? dst_dtype=None, float? "
     "dst_type_max=None) -> (Tensor out, Tensor quant_scale)",
     "a kernel for this quantised form"},
    {"npu_matmul_compress_dequant",
     "(Tensor x1, Tensor x2, Tensor compress_index, Tensor bias, Tensor scale, *, Tensor? offsetW=None, int? "
     "offsetX=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_moe_init_routing_quant",
     "(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, int active_num=1024, int "
     "expert_capacity=0, int expert_num=256, int drop_pad_mode=0, int expert_tokens_num_mode=0, bool "
     "expert_tokens_before_capacity_flag=False, int quant_mode=1) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_quant_conv2d",
     "(Tensor input, Tensor weight, Tensor scale, int[2] strides=1, int[2] pads=0, int[2] dilations=1, int "
     "groups=1, int offset_x=0, str round_mode='rint', int? output_dtype=None, Tensor? bias=None, Tensor? "
     "offset=None, int? input_dtype=None, int? weight_dtype=None) -> Tensor",
     "a published definition of its arithmetic"},
    {"npu_quant_gmm_alltoallv",
     "(Tensor gmm_x, Tensor gmm_weight, Tensor gmm_x_scale, Tensor gmm_weight_scale, str hcom, int ep_world_size, "
     "int[] send_counts, int[] recv_counts, int gmm_y_dtype, *, Tensor? send_counts_tensor=None, Tensor? "
     "recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, Tensor? mm_x_scale=None, Tensor? "
     "mm_weight_scale=None, Tensor? comm_quant_scale=None, int? gmm_x_quant_mode=None, int? "
     "gmm_weight_quant_mode=None, int? mm_x_quant_mode=None, int? mm_weight_quant_mode=None, int? "
     "comm_quant_mode=None, int[]? group_size=None, int? gmm_x_dtype=None, int? gmm_weight_dtype=None, int? "
     "gmm_x_scale_dtype=None, int? gmm_weight_scale_dtype=None, int? mm_x_dtype=None, int? mm_weight_dtype=None, "
     "int? mm_x_scale_dtype=None, int? mm_weight_scale_dtype=None, int? comm_quant_dtype=None, int? "
     "mm_y_dtype=None, str? comm_mode=None) -> (Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_quant_grouped_matmul_dequant",
     "(Tensor x, Tensor quantized_weight, Tensor weight_scale, Tensor group_list, *, Tensor? bias=None, Tensor? "
     "x_scale=None, Tensor? x_offset=None, Tensor? smooth_scale=None, str? quant_mode='pertoken') -> Tensor",
     "a kernel for this quantised form"},
    {"npu_quant_matmul_all_to_all",
     "(Tensor x1, Tensor x2, str hcom, int world_size, Tensor? bias=None, Tensor? x1_scale=None, Tensor? "
     "x2_scale=None, Tensor? common_scale=None, Tensor? x1_offset=None, Tensor? x2_offset=None, int? "
     "x1_quant_mode=None, int? x2_quant_mode=None, int? common_quant_mode=None, int[]? group_sizes=None, int[]? "
     "all2all_axes=None, int? comm_quant_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? "
     "x1_scale_dtype=None, int? x2_scale_dtype=None, int? output_scale_dtype=None, int? comm_scale_dtype=None, "
     "int? y_dtype=None, str? comm_mode=None) -> Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_quant_matmul_dequant",
     "(Tensor x, Tensor quantized_weight, Tensor weight_scale, *, Tensor? bias=None, Tensor? x_scale=None, Tensor? "
     "x_offset=None, Tensor? smooth_scale=None, str? quant_mode='pertoken') -> Tensor",
     "a kernel for this quantised form"},
    {"npu_quant_matmul_gelu",
     "(Tensor x1, Tensor x2, Tensor x1_scale, Tensor x2_scale, *, Tensor? bias=None, str? approximate='gelu_erf') "
     "-> Tensor",
     "a kernel for this quantised form"},
    {"npu_quant_matmul_reduce_sum",
     "(Tensor x1, Tensor x2, *, Tensor? x1_scale=None, Tensor? x2_scale=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_quant_max",
     "(Tensor x, Tensor scale, *, str round_mode=\"rint\", int dst_dtype=291, Tensor? group_list=None) -> (Tensor, "
     "Tensor)",
     "a kernel for this quantised form"},
    {"npu_quant_mm_reduce_scatter",
     "(Tensor input, Tensor x2, str hcom, int world_size, *, str reduce_op='sum', Tensor? bias=None, Tensor? "
     "x1_scale=None, Tensor? x2_scale=None, Tensor? quant_scale=None, int block_size=0, int comm_turn=0, int[]? "
     "group_sizes=None, bool amax_output=False, int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? "
     "x1_scale_dtype=None, int? x2_scale_dtype=None, str? comm_mode=None) -> (Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_quant_scatter",
     "(Tensor input, Tensor indices, Tensor updates, Tensor quant_scales, Tensor? quant_zero_points=None, int "
     "axis=-2, int quant_axis=-1, str reduce='update', int? dst_type=None, str? round_mode='rint') -> Tensor",
     "a kernel for this quantised form"},
    {"npu_quant_scatter_",
     "(Tensor(a!) input, Tensor indices, Tensor updates, Tensor quant_scales, Tensor? quant_zero_points=None, int "
     "axis=-2, int quant_axis=-1, str reduce='update', int? dst_type=None, str? round_mode='rint') -> Tensor(a!)",
     "a kernel for this quantised form"},
    {"npu_rms_norm_dynamic_mx_quant",
     "(Tensor x, Tensor gamma, *, Tensor? beta=None, float epsilon=1e-06, int scale_alg=0, str "
     "round_mode=\"rint\", int dst_type=296) -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_rms_norm_quant",
     "(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, float epsilon=1e-06, *, int? "
     "dst_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_rms_norm_quant_v2",
     "(Tensor x, Tensor gamma, Tensor scale, *, Tensor? offset=None, Tensor? beta=None, float epsilon=1e-06, bool "
     "div_mode=True, int? dst_dtype=None) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_rope_quant_kvcache",
     "(Tensor x, Tensor cos, Tensor sin, Tensor k_cache, Tensor v_cache, Tensor indices, Tensor scale_k, Tensor "
     "scale_v, int[3] size_splits, *, Tensor? offset_k=None, Tensor? offset_v=None, int quant_mode=0, str "
     "input_layout=\"BSND\", bool kv_output=False, str cache_mode=\"contiguous\") -> (Tensor, Tensor, Tensor, "
     "Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_rotate_quant",
     "(Tensor x, Tensor rotation, *, Tensor? alpha=None, int? dst_dtype=None, int? axis=-1, str? "
     "round_mode=\"rint\", int? scale_alg=0, float? dst_type_max=0.0, bool? transpose_y=False) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_swiglu_group_quant",
     "(Tensor x, *, Tensor? weight=None, Tensor? group_index=None, Tensor? scale=None, int dst_type=291, int "
     "quant_mode=0, int block_size=0, bool round_scale=False, float clamp_limit=-1.0, float dst_type_max=15.0, "
     "bool output_origin=False) -> (Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_swiglu_group_quant_backward",
     "(Tensor grad_y, Tensor x, *, Tensor? weight=None, Tensor? y_origin=None, Tensor? group_index=None, float "
     "clamp_limit=0.0) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_swiglu_mx_quant",
     "(Tensor x, *, Tensor? group_index=None, int activate_dim=-1, bool activate_left=False, int swiglu_mode=0, "
     "float clamp_limit=7.0, float glu_alpha=1.702, float glu_bias=1.0, int group_mode=0, int axis=-1, int "
     "dst_type=296, str round_mode=\"rint\", int scale_alg=0, float max_dtype_value=0) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_swiglu_mx_quant_with_dual_axis",
     "(Tensor x, *, Tensor? group_index=None, bool activate_left=True, str round_mode=\"rint\", int scale_alg=1, "
     "int dst_type=24, float dst_type_max=0) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_swiglu_quant",
     "(Tensor x, *, Tensor? smooth_scales=None, Tensor? offsets=None, Tensor? group_index=None, bool "
     "activate_left=False, int quant_mode=0, int group_list_type=0, ScalarType? dst_type=None) -> (Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_trans_quant_param",
     "(Tensor scale, Tensor? offset=None, int? round_mode=0) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_transpose_quant_batchmatmul",
     "(Tensor x1, Tensor x2, int dtype, *, Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int[]? "
     "group_sizes=None, int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1, "
     "int? x1_dtype=None, int? x2_dtype=None) -> Tensor",
     "a kernel for this quantised form"},
    {"npu_weight_quant_preprocess",
     "(Tensor weight, Tensor weight_scale, int x_dtype, int weight_dtype, int weight_scale_dtype, Tensor? "
     "weight_offset=None, Tensor? bias=None, int? x_scale_dtype=None, int? k_group_size=0) -> (Tensor, Tensor, "
     "Tensor, Tensor)",
     "a published definition of its arithmetic"},
};
// clang-format on

}  // namespace

void register_refused_quantised(Registry& ops) { refuse(ops, kRefused); }

}  // namespace cann::aten::npu
