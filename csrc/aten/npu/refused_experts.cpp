// Operators that are known but not implemented: experts and communication. See refused.h.

#include "aten/npu/families.h"
#include "aten/npu/refused.h"

namespace cann::aten::npu {
namespace {

// clang-format off
constexpr Refused kRefused[] = {
    {"_npu_distribute_barrier",
     "(Tensor x_ref, str group, int world_size, *, Tensor? time_out=None, Tensor? elastic_info=None) -> Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_all_to_all_matmul",
     "(Tensor x1, Tensor x2, str hcom, int world_size, Tensor? bias=None, int[]? all2all_axes=None, bool "
     "all2all_out_flag=True, str? comm_mode=None) -> (Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_alltoallv_gmm",
     "(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] send_counts, int[] recv_counts, *, "
     "Tensor? send_counts_tensor=None, Tensor? recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, "
     "bool trans_gmm_weight=False, bool trans_mm_weight=False, bool permute_out_flag=False, str? comm_mode=None) "
     "-> (Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_gmm_alltoallv",
     "(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] send_counts, int[] recv_counts, *, "
     "Tensor? send_counts_tensor=None, Tensor? recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, "
     "bool trans_gmm_weight=False, bool trans_mm_weight=False, str? comm_mode=None) -> (Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_grouped_matmul_finalize_routing",
     "(Tensor x, Tensor w, Tensor group_list, *, Tensor? scale=None, Tensor? bias=None, Tensor? offset=None, "
     "Tensor? pertoken_scale=None, Tensor? shared_input=None, Tensor? logit=None, Tensor? row_index=None, "
     "ScalarType? dtype=None, float? shared_input_weight=1.0, int? shared_input_offset=0, int? output_bs=0, int? "
     "group_list_type=1, int[]? tuning_config=None, int? x_dtype=None, int? w_dtype=None, int? scale_dtype=None, "
     "int? pertoken_scale_dtype=None) -> Tensor",
     "a kernel of this routing operator"},
    {"npu_matmul_all_to_all",
     "(Tensor x1, Tensor x2, str hcom, int world_size, Tensor? bias=None, int[]? all2all_axes=None, str? "
     "comm_mode=None) -> Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_combine",
     "(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor ep_send_counts, Tensor expert_scales, str "
     "group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? tp_send_counts=None, Tensor? "
     "x_active_mask=None, Tensor? activation_scale=None, Tensor? weight_scale=None, Tensor? group_list=None, "
     "Tensor? expand_scales=None, Tensor? shared_expert_x=None, str group_tp=\"\", int tp_world_size=0, int "
     "tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int "
     "global_bs=0, int out_dtype=0, int comm_quant_mode=0, int group_list_type=0) -> Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_combine_add_rms_norm",
     "(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, Tensor ep_send_counts, Tensor expert_scales, Tensor "
     "residual_x, Tensor gamma, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? "
     "tp_send_counts=None, Tensor? x_active_mask=None, Tensor? activation_scale=None, Tensor? weight_scale=None, "
     "Tensor? group_list=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, Tensor? "
     "elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, Tensor? const_expert_alpha_2=None, "
     "Tensor? const_expert_v=None, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int "
     "expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0, int "
     "out_dtype=0, int comm_quant_mode=0, int group_list_type=0, str comm_alg=\"\", float norm_eps=1e-06, int "
     "zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0) -> (Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_combine_setup",
     "(Tensor expand_x, Tensor expert_ids, Tensor assist_info_for_combine, str group_ep, int ep_world_size, int "
     "ep_rank_id, int moe_expert_num, *, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int global_bs=0, int comm_quant_mode=0, int comm_type=0, str comm_alg=\"\") -> "
     "(Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_combine_teardown",
     "(Tensor expand_x, Tensor quant_expand_x, Tensor expert_ids, Tensor expand_idx, Tensor expert_scales, Tensor "
     "comm_cmd_info, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? "
     "x_active_mask=None, Tensor? shared_expert_x=None, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int global_bs=0, int comm_quant_mode=0, int comm_type=0, str comm_alg=\"\") -> "
     "Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_combine_v2",
     "(Tensor expand_x, Tensor expert_ids, Tensor assist_info_for_combine, Tensor ep_send_counts, Tensor "
     "expert_scales, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? "
     "tp_send_counts=None, Tensor? x_active_mask=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
     "Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, Tensor? "
     "const_expert_alpha_2=None, Tensor? const_expert_v=None, Tensor? performance_info=None, str group_tp=\"\", "
     "int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int global_bs=0, int comm_quant_mode=0, str comm_alg=\"\", int zero_expert_num=0, "
     "int copy_expert_num=0, int const_expert_num=0) -> Tensor",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_dispatch",
     "(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, "
     "Tensor? scales=None, Tensor? x_active_mask=None, Tensor? expert_scales=None, str group_tp=\"\", int "
     "tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int quant_mode=0, int global_bs=0, int expert_token_nums_type=1) -> (Tensor, "
     "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_dispatch_setup",
     "(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, "
     "Tensor? scales=None, Tensor? x_active_mask=None, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int quant_mode=0, int global_bs=0, int comm_type=0, str comm_alg=\"\", int? "
     "y_dtype=None) -> (Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_dispatch_teardown",
     "(Tensor x, Tensor y, Tensor expert_ids, Tensor comm_cmd_info, str group_ep, int ep_world_size, int "
     "ep_rank_id, int moe_expert_num, *, int expert_shard_type=0, int shared_expert_num=1, int "
     "shared_expert_rank_num=0, int quant_mode=0, int global_bs=0, int expert_token_nums_type=1, int comm_type=0, "
     "str comm_alg=\"\") -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_distribute_dispatch_v2",
     "(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, "
     "Tensor? scales=None, Tensor? x_active_mask=None, Tensor? expert_scales=None, Tensor? elastic_info=None, "
     "Tensor? performance_info=None, str group_tp=\"\", int tp_world_size=0, int tp_rank_id=0, int "
     "expert_shard_type=0, int shared_expert_num=1, int shared_expert_rank_num=0, int quant_mode=0, int "
     "global_bs=0, int expert_token_nums_type=1, str comm_alg=\"\", int zero_expert_num=0, int copy_expert_num=0, "
     "int const_expert_num=0, int? y_dtype=None, int? x_dtype=None, int? scales_dtype=None) -> (Tensor, Tensor, "
     "Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel that communicates while it computes; use the collective and the product one after the other"},
    {"npu_moe_update_expert",
     "(Tensor expert_ids, Tensor eplb_table, *, Tensor? expert_scales=None, Tensor? pruning_threshold=None, "
     "Tensor? active_mask=None, int local_rank_id=-1, int world_size=-1, int balance_mode=0) -> (Tensor, Tensor)",
     "a kernel of this routing operator"},
    {"wrap_allgather_base_uneven_inner",
     "(Tensor output_tensor, Tensor input_tensor, int[] output_split_sizes, Any process_group_hccl, int timeout) "
     "-> Any",
     "its torch.classes type; call the function of torch.distributed or of the process group"},
    {"wrap_alltoallvc_inner",
     "(Tensor output_tensor, Tensor input_tensor, int[] send_count_matrix, Any process_group_hccl, int timeout) -> "
     "Any",
     "its torch.classes type; call the function of torch.distributed or of the process group"},
    {"wrap_batch_isend_irecv_inner",
     "(Tensor[] tensors, str[] op_type, int[] remote_rank_list, Any process_group_hccl) -> Any",
     "its torch.classes type; call the function of torch.distributed or of the process group"},
    {"wrap_reduce_scatter_base_uneven_inner",
     "(Tensor output_tensor, Tensor input_tensor, int[] input_split_sizes, Any process_group_hccl, Any reduce_op, "
     "int timeout) -> Any",
     "its torch.classes type; call the function of torch.distributed or of the process group"},
};
// clang-format on

}  // namespace

void register_refused_experts(Registry& ops) { refuse(ops, kRefused); }

}  // namespace cann::aten::npu
