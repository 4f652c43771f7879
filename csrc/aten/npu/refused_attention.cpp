// Operators that are known but not implemented: attention and key-value caches. See refused.h.

#include "aten/npu/families.h"
#include "aten/npu/infer_attention_schema.h"
#include "aten/npu/refused.h"

namespace cann::aten::npu {
namespace {

// clang-format off
constexpr Refused kRefused[] = {
    {"_npu_fused_infer_attention_score_get_max_workspace",
     "(" CANN_INFER_ATTENTION_V1_ARGUMENTS ") -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fused_infer_attention_score_infer_output",
     "(Tensor query, Tensor value, *, str input_layout=\"BSH\", Tensor? quant_scale2=None, Tensor? "
     "block_table=None, int num_heads=1, int num_key_value_heads=0, bool softmax_lse_flag=False, Tensor? "
     "query_rope=None) -> (Tensor, Tensor)",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fused_infer_attention_score_v2_get_max_workspace",
     "(" CANN_INFER_ATTENTION_V2_ARGUMENTS ") -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fused_infer_attention_score_v2_infer_output",
     "(Tensor query, Tensor value, *, int? query_dtype=None, int? value_dtype=None, str input_layout=\"BSH\", "
     "Tensor? quant_scale_out=None, Tensor? block_table=None, int num_query_heads=1, int num_key_value_heads=0, "
     "bool return_softmax_lse=False, Tensor? query_rope=None, int? out_dtype=None) -> (Tensor, Tensor)",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fusion_attention_grad_v3_get_max_workspace",
     "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, Tensor? pse=None, "
     "Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, "
     "Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., float keep_prob=1., int "
     "pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, Tensor? seed=None, Tensor? "
     "offset=None, int[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int "
     "sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\", Tensor? sink=None) -> "
     "Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fusion_attention_grad_v3_infer_output",
     "(Tensor query, Tensor key, Tensor value, Tensor? pse=None, Tensor? sink=None) -> (Tensor, Tensor, Tensor, "
     "Tensor, Tensor)",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fusion_attention_v3_get_max_workspace",
     "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, Tensor? "
     "padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, "
     "int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? "
     "actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str "
     "softmax_layout=\"\", Tensor? sink=None) -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"_npu_fusion_attention_v3_infer_output",
     "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout) -> (Tensor, Tensor, Tensor)",
     "the workspace of a hardware kernel; call the operator itself"},
    {"atb::_npu_flash_attention",
     "(Tensor query, Tensor key, Tensor value, Tensor mask, Tensor seq_len, float scale_value, int num_heads, int "
     "num_kv_heads, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_prefix_v2.out",
     "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor mask, SymInt[] seq_len, "
     "SymInt[] context_lens, *, Tensor? slopes=None, int kernel_type=1, int mask_type=3, int num_kv_heads=0, int "
     "num_heads=0, float scale_value=1, Tensor(a!) out) -> Tensor(a!)",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_qlens",
     "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor mask, Tensor seq_len, Tensor "
     "context_lens, int num_kv_heads, int num_heads, float scale_value, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_unpad",
     "(Tensor query, Tensor key, Tensor value, Tensor seq_len, float scale_value, int num_heads, int num_kv_heads, "
     "Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_unpad_v2",
     "(Tensor query, Tensor key, Tensor value, Tensor seq_len, float scale_value, int num_heads, int num_kv_heads, "
     "*, int ? kernel_type = 0, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_v2.out",
     "(Tensor query, Tensor key, Tensor value, SymInt[] seq_len, *, Tensor? mask=None, Tensor? slopes=None, int "
     "kernel_type=0, int mask_type=2, float scale_value=1, int num_heads=0, int num_kv_heads=0, Tensor(a!) out) -> "
     "Tensor(a!)",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_flash_attention_v3",
     "(Tensor query, Tensor key, Tensor value, Tensor mask, Tensor seq_len, float scale_value, int num_heads, int "
     "num_kv_heads, *, int ? mask_type = 3, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_group_topk",
     "(Tensor self, int k=0, int group_num=1, int n=1) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_matmul_add_fp32",
     "(Tensor x, Tensor weight, Tensor(a!) C) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_multi_head_latent_attention_get_workspace.lse",
     "(Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int "
     "q_headnum, float qk_scale, int kv_headnum, bool return_lse, *, Tensor? mask=None, SymInt[]? qseqlen=None, "
     "Tensor? qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, str? calc_type=None, str? "
     "cache_mode=None) -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"atb::_npu_paged_attention",
     "(Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, int num_heads, float scale_value, "
     "Tensor block_table, Tensor context_lens, Tensor(a!) out, *,Tensor? workspace=None) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_get_workspace",
     "(Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, int num_heads, float scale_value, "
     "Tensor block_table, Tensor context_lens, Tensor(a!) out) -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"atb::_npu_paged_attention_mla",
     "(Tensor query, Tensor key_cache, int num_kv_heads, int num_heads, float scale_value, Tensor block_table, "
     "Tensor context_lens, int mla_vheadsize, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_quant",
     "(Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, int num_heads, float scale_value, "
     "Tensor block_table, Tensor context_lens, int quant_type, int outdata_type, Tensor k_descale, Tensor "
     "v_descale, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_splitfuse",
     "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, Tensor mask, "
     "Tensor seq_len, int num_kv_heads, int num_heads, float scale_value, Tensor(a!) out) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_splitfuse_v2",
     "(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, Tensor mask, "
     "Tensor seq_len, int num_kv_heads, int num_heads, float scale_value, *, int ? mask_type = 5, Tensor(a!) out) "
     "-> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_v2.out",
     "(Tensor query, Tensor key_cache, Tensor block_table, SymInt[] context_lens, *, Tensor? value_cache=None, "
     "Tensor? mask=None, int num_kv_heads=0, int num_heads=0, float scale_value=1.0, int mask_type=0, Tensor? "
     "workspace=None, Tensor(a!) out) -> Tensor(a!)",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_paged_attention_v2_get_workspace",
     "(Tensor query, Tensor key_cache, Tensor block_table, SymInt[] context_lens, *, Tensor? value_cache=None, "
     "Tensor? mask=None, int num_kv_heads=0, int num_heads=0, float scale_value=1.0, int mask_type=0, Tensor(a!) "
     "out) -> Tensor",
     "the workspace of a hardware kernel; call the operator itself"},
    {"atb::_npu_quant_rms_norm",
     "(Tensor self, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, Tensor(a!) output, float eps=1e-05) -> "
     "()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_quantize_per_tensor",
     "(Tensor x, Tensor scale, Tensor zero_point, Tensor(a!) y) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_reshape_and_cache",
     "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_indices) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_reshape_and_cache_siso",
     "(Tensor key, Tensor(a!) key_cache, Tensor slot_indices) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::_npu_rotary_embedding",
     "(Tensor positions, Tensor(a!) query, Tensor(b!) key, int head_size, Tensor cos_sin_cache, bool "
     "is_neox_style) -> ()",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_fused_add_topk_div",
     "(Tensor x, Tensor add_num, *, Tensor? mapping_num=None, Tensor? mapping_table=None, str? "
     "activation_type=None, int group_num=1, int group_topk=1, int n=1, int k=1,  bool is_norm=True, float "
     "scale=1, bool enable_expert_mapping=False) -> (Tensor, Tensor)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_fused_add_topk_div.out",
     "(Tensor x, Tensor add_num, *, Tensor? mapping_num=None, Tensor? mapping_table=None, str? "
     "activation_type=None, int group_num=1, int group_topk=1, int n=1, int k=1,  bool is_norm=True, float "
     "scale=1, bool enable_expert_mapping=False, Tensor(a!) y, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_mla_preprocess",
     "(Tensor input, Tensor gamma0, Tensor beta0, Tensor wdqkv, Tensor descale0, Tensor gamma1, Tensor beta1, "
     "Tensor wuq, Tensor descale1, Tensor gamma2, Tensor cos, Tensor sin, Tensor wuk, Tensor kv_cache, Tensor "
     "kv_cache_rope, Tensor slotmapping, *,  Tensor? quant_scale0=None, Tensor? quant_offset0=None, Tensor? "
     "bias0=None, Tensor? quant_scale1=None, Tensor? quant_offset1=None, Tensor? bias1=None, Tensor? "
     "ctkv_scale=None, Tensor? q_nope_scale=None, str? cache_mode=None, str? quant_mode=None) -> (Tensor, Tensor, "
     "Tensor, Tensor)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_mla_preprocess.out",
     "(Tensor input, Tensor gamma0, Tensor beta0, Tensor wdqkv, Tensor descale0, Tensor gamma1, Tensor beta1, "
     "Tensor wuq, Tensor descale1, Tensor gamma2, Tensor cos, Tensor sin, Tensor wuk, Tensor kv_cache, Tensor "
     "kv_cache_rope, Tensor slotmapping, *,  Tensor? quant_scale0=None, Tensor? quant_offset0=None, Tensor? "
     "bias0=None, Tensor? quant_scale1=None, Tensor? quant_offset1=None, Tensor? bias1=None, Tensor? "
     "ctkv_scale=None, Tensor? q_nope_scale=None, str? cache_mode=None, str? quant_mode=None, Tensor(a!) q_out0, "
     "Tensor(b!) kv_cache_out0, Tensor(c!) q_out1, Tensor(d!) kv_cache_out1) -> (Tensor(a!), Tensor(b!), "
     "Tensor(c!), Tensor(d!))",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_multi_head_latent_attention",
     "(Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int "
     "q_headnum, float qk_scale, int kv_headnum, *, Tensor? mask=None, SymInt[]? qseqlen=None, Tensor? "
     "qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, str? calc_type=None, str? cache_mode=None) -> "
     "Tensor",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_multi_head_latent_attention.lse",
     "(Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int "
     "q_headnum, float qk_scale, int kv_headnum, bool return_lse, *, Tensor? mask=None, SymInt[]? qseqlen=None, "
     "Tensor? qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, str? calc_type=None, str? "
     "cache_mode=None, Tensor? workspace=None) -> (Tensor, Tensor)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_multi_head_latent_attention.lse_out",
     "(Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int "
     "q_headnum, float qk_scale, int kv_headnum, bool return_lse, *, Tensor? mask=None, SymInt[]? qseqlen=None, "
     "Tensor? qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, str? calc_type=None, str? "
     "cache_mode=None, Tensor? workspace=None, Tensor(a!) output, Tensor(b!) lse) -> (Tensor(a!), Tensor(b!))",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_multi_head_latent_attention.out",
     "(Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, int "
     "q_headnum, float qk_scale, int kv_headnum, *, Tensor? mask=None, SymInt[]? qseqlen=None, Tensor? "
     "qk_descale=None, Tensor? pv_descale=None, str? mask_type=None, str? calc_type=None, str? cache_mode=None, "
     "Tensor(a!) output) -> Tensor(a!)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_paged_cache_load",
     "(Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, *, Tensor? seq_starts=None, "
     "bool cumsum=False) -> (Tensor, Tensor)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_paged_cache_load.out",
     "(Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor context_lens, *, Tensor? seq_starts=None, "
     "bool cumsum=False, Tensor(a!) key, Tensor(b!) value) -> (Tensor(a!), Tensor(b!))",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_ring_mla",
     "(Tensor q_nope, Tensor q_rope, Tensor k_nope, Tensor k_rope, Tensor value, Tensor mask, Tensor seqlen, int "
     "head_num, int kv_head_num, *, Tensor? pre_out=None, Tensor? prev_lse=None, float qk_scale=1, str? "
     "kernel_type=None, str? mask_type=None, str? input_layout=None, str? calc_type=None) -> (Tensor, Tensor)",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_ring_mla.out",
     "(Tensor q_nope, Tensor q_rope, Tensor k_nope, Tensor k_rope, Tensor value, Tensor mask, Tensor seqlen, int "
     "head_num, int kv_head_num, *, Tensor? pre_out=None, Tensor? prev_lse=None, float qk_scale=1, str? "
     "kernel_type=None, str? mask_type=None, str? input_layout=None, str? calc_type=None, Tensor(a!) output, "
     "Tensor(b!) softmax_lse) -> (Tensor(a!), Tensor(b!))",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_self_attention_prefix_encoder",
     "(Tensor query, Tensor key, Tensor value, Tensor block_tables, SymInt[] seqlen, SymInt[] kv_seqlen, int "
     "q_headnum, float qk_scale, int kv_headnum,*, Tensor? mask=None, Tensor? slopes=None, str? mask_type=None) -> "
     "Tensor",
     "a kernel of the ATB library's inference operators"},
    {"atb::npu_self_attention_prefix_encoder.out",
     "(Tensor query, Tensor key, Tensor value, Tensor block_tables, SymInt[] seqlen, SymInt[] kv_seqlen, int "
     "q_headnum, float qk_scale, int kv_headnum,*, Tensor? mask=None, Tensor? slopes=None, str? mask_type=None, "
     "Tensor(a!) output) -> Tensor(a!)",
     "a kernel of the ATB library's inference operators"},
    {"attention_worker_scheduler",
     "(Tensor input) -> Tensor",
     "a definition of its arithmetic more precise than the published one"},
    {"attention_worker_scheduler_",
     "(Tensor(a!) input) -> Tensor(a!)",
     "a definition of its arithmetic more precise than the published one"},
    {"npu_advance_step_flashattn",
     "(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) input_positions, Tensor(c!) seq_lens, "
     "Tensor(d!) slot_mapping, Tensor block_tables, int num_seqs, int num_queries, int block_size, *, Tensor? "
     "spec_token=None, Tensor? accepted_num=None) -> ()",
     "a kernel over key-value caches of inference"},
    {"npu_attention_to_ffn",
     "(Tensor x, Tensor session_id, Tensor micro_batch_id, Tensor layer_id, Tensor expert_ids, Tensor "
     "expert_rank_table, str group, int world_size, int[] ffn_token_info_table_shape, int[] ffn_token_data_shape, "
     "int[] attn_token_info_table_shape, int moe_expert_num, *, Tensor? scales=None, Tensor? active_mask=None, int "
     "quant_mode=0, int sync_flag=0, int ffn_start_rank_id=0) -> ()",
     "a kernel, which has not been written"},
    {"npu_attention_worker_combine",
     "(Tensor schedule_context, Tensor expert_scales, Tensor layer_id, int hidden_size, *, int token_dtype=0, int "
     "need_schedule=0) -> (Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_block_sparse_attention",
     "(Tensor query, Tensor key, Tensor value, Tensor block_sparse_mask, int[] block_shape, *, str "
     "q_input_layout='TND', str kv_input_layout='TND', int num_key_value_heads=1, float scale_value=0.0, int "
     "inner_precise=1, int[]? actual_seq_lengths=None, int[]? actual_seq_lengths_kv=None, int? softmax_lse_flag=0) "
     "-> (Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_block_sparse_attention_backward",
     "(Tensor d_out, Tensor query, Tensor key, Tensor value, Tensor attention_out, Tensor softmax_lse, Tensor "
     "block_sparse_mask, int[]? block_shape, int[]? actual_seq_lengths, int[]? actual_seq_lengths_kv, str "
     "q_input_layout, str kv_input_layout, int num_key_value_heads, float scale_value) -> (Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_dense_lightning_indexer_grad_kl_loss",
     "(Tensor query, Tensor key, Tensor query_index, Tensor key_index, Tensor weights, Tensor softmax_max, Tensor "
     "softmax_sum, Tensor softmax_max_index, Tensor softmax_sum_index, float scale_value, *, Tensor? "
     "query_rope=None, Tensor? key_rope=None, SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_klen=None, str? "
     "layout='BSND', int? sparse_mode=3, int? pre_tokens=9223372036854775807, int? "
     "next_tokens=9223372036854775807) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_dense_lightning_indexer_softmax_lse",
     "(Tensor query_index, Tensor key_index, Tensor weights, *, SymInt[]? actual_seq_qlen=None, SymInt[]? "
     "actual_seq_klen=None, str? layout='BSND', int? sparse_mode=3, int? pre_tokens=9223372036854775807, int? "
     "next_tokens=9223372036854775807) -> (Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_ffn_to_attention",
     "(Tensor x, Tensor session_ids, Tensor micro_batch_ids, Tensor token_ids, Tensor expert_offsets, Tensor "
     "actual_token_num, str group, int world_size, int[] token_info_table_shape, int[] token_data_shape, *, "
     "Tensor? attn_rank_table=None) -> ()",
     "a kernel, which has not been written"},
    {"npu_fused_attention_layernorm_qkv_fwd",
     "(Tensor x, Tensor kernel_query, Tensor kernel_key, Tensor kernel_value, Tensor gamma, Tensor beta, Tensor? "
     "bias_query=None, Tensor? bias_key=None, Tensor? bias_value=None, int seq_len=128, int num_heads=12, float "
     "eps=1e-05) -> Tensor[]",
     "a published definition of its arithmetic"},
    {"npu_fused_attention_qkv_grad",
     "(Tensor grad_output_query, Tensor grad_output_key, Tensor grad_output_value, Tensor query_kernel, Tensor "
     "key_kernel, Tensor value_kernel, Tensor hidden_states, Tensor grad_output_ln) -> Tensor[]",
     "a published definition of its arithmetic"},
    {"npu_fused_attention_score",
     "(Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor attention_mask, Scalar scale, float "
     "keep_prob, bool query_transpose=False, bool key_transpose=False, bool bmm_score_transpose_a=False, bool "
     "bmm_score_transpose_b=False, bool value_transpose=False, bool dx_transpose=False) -> Tensor",
     "a kernel, which has not been written"},
    {"npu_fused_attention_score_backward",
     "(Tensor grad_output, Tensor softmax_output, Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor "
     "mask, Scalar scale, float keep_prob, bool query_transpose=False, bool key_transpose=False, bool "
     "value_transpose=False, bool dx_transpose=False) -> (Tensor, Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_fused_attention_score_fwd",
     "(Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor attention_mask, Scalar scale, float "
     "keep_prob, bool query_transpose=False, bool key_transpose=False, bool bmm_score_transpose_a=False, bool "
     "bmm_score_transpose_b=False, bool value_transpose=False, bool dx_transpose=False) -> (Tensor, Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_fused_attention_score_grad",
     "(Tensor grad_output, Tensor softmax_output, Tensor query_layer, Tensor key_layer, Tensor value_layer, Tensor "
     "mask, Scalar scale, float keep_prob, bool query_transpose=False, bool key_transpose=False, bool "
     "value_transpose=False, bool dx_transpose=False) -> (Tensor, Tensor, Tensor)",
     "a kernel, which has not been written"},
    {"npu_fused_floyd_attention",
     "(Tensor query_ik, Tensor key_ij, Tensor value_ij, Tensor key_jk, Tensor value_jk, *, Tensor? "
     "atten_mask=None, float scale_value=1.) -> (Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_fused_floyd_attention_backward",
     "(Tensor grad_output, Tensor query_ik, Tensor key_ij, Tensor value_ij, Tensor key_jk, Tensor value_jk, Tensor "
     "attention_out, Tensor softmax_max, Tensor softmax_sum, *, Tensor? atten_mask=None, float scale_value=1.) -> "
     "(Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_gather_pa_kv_cache",
     "(Tensor key_cache, Tensor value_cache, Tensor block_tables, Tensor seq_lens, Tensor(a!) key, Tensor(b!) "
     "value, *, Tensor? seq_offset=None, bool is_seq_lens_cumsum=False) -> ()",
     "a kernel over key-value caches of inference"},
    {"npu_gather_pa_kv_cache_functional",
     "(Tensor key_cache, Tensor value_cache, Tensor block_tables, Tensor seq_lens, Tensor key, Tensor value, *, "
     "Tensor? seq_offset=None, bool is_seq_lens_cumsum=False) -> (Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_incre_flash_attention",
     "(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? "
     "pse_shift=None, SymInt[]? actual_seq_lengths=None, Tensor? antiquant_scale=None, Tensor? "
     "antiquant_offset=None, Tensor? block_table=None, Tensor? dequant_scale1=None, Tensor? quant_scale1=None, "
     "Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? "
     "kv_padding_size=None, int num_heads=1, float scale_value=1.0, str input_layout=\"BSH\", int "
     "num_key_value_heads=0, int block_size=0, int inner_precise=1) -> Tensor",
     "a kernel over key-value caches of inference"},
    {"npu_kv_quant_sparse_flash_attention",
     "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, int key_quant_mode, int "
     "value_quant_mode, *, Tensor? key_dequant_scale=None, Tensor? value_dequant_scale=None, Tensor? "
     "block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, int "
     "sparse_block_size=1, str layout_query=\"BSND\", str layout_kv=\"BSND\", int sparse_mode=3, int "
     "pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int attention_mode=0, int "
     "quant_scale_repo_mode=1, int tile_size=128, int rope_head_dim=64, int? key_dtype=None, int? "
     "value_dtype=None) -> Tensor",
     "a kernel of this kind of sparse attention"},
    {"npu_lightning_indexer_grad",
     "(Tensor query, Tensor key, Tensor dy, Tensor sparse_indices, Tensor weights, Tensor? "
     "actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, str? layout=\"BSND\", int? "
     "sparse_mode=3, int? pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807) -> (Tensor, "
     "Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_mla_prolog",
     "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor weight_dkv_kr, Tensor "
     "rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos, Tensor cache_index, Tensor "
     "kv_cache, Tensor kr_cache, *, Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
     "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? quant_scale_ckv=None, Tensor? "
     "quant_scale_ckr=None, Tensor? smooth_scales_cq=None, float rmsnorm_epsilon_cq=1e-05, float "
     "rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\") -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_mla_prolog_v2",
     "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor weight_dkv_kr, Tensor "
     "rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos, Tensor cache_index, Tensor "
     "kv_cache, Tensor kr_cache, *, Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, Tensor? "
     "dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? quant_scale_ckv=None, Tensor? "
     "quant_scale_ckr=None, Tensor? smooth_scales_cq=None, float rmsnorm_epsilon_cq=1e-05, float "
     "rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\") -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_mla_prolog_v3",
     "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor weight_dkv_kr, Tensor "
     "rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos, Tensor(a!) kv_cache, "
     "Tensor(b!) kr_cache, *, Tensor? cache_index=None, Tensor? dequant_scale_x=None, Tensor? "
     "dequant_scale_w_dq=None, Tensor? dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? "
     "quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, Tensor? "
     "actual_seq_len=None, Tensor? k_nope_clip_alpha=None, float rmsnorm_epsilon_cq=1e-05, float "
     "rmsnorm_epsilon_ckv=1e-05, str cache_mode=\"PA_BSND\", bool query_norm_flag=False, int weight_quant_mode=0, "
     "int kv_cache_quant_mode=0, int query_quant_mode=0, int ckvkr_repo_mode=0, int quant_scale_repo_mode=0, int "
     "tile_size=128, float qc_qr_scale=1.0, float kc_scale=1.0, int? token_x_dtype=None, int? "
     "weight_dq_dtype=None, int? weight_uq_qr_dtype=None, int? weight_dkv_kr_dtype=None, int? kv_cache_dtype=None) "
     "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_mla_prolog_v3_functional",
     "(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, Tensor weight_dkv_kr, Tensor "
     "rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos, Tensor kv_cache, Tensor "
     "kr_cache, *, Tensor? cache_index=None, Tensor? dequant_scale_x=None, Tensor? dequant_scale_w_dq=None, "
     "Tensor? dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, Tensor? quant_scale_ckv=None, "
     "Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, Tensor? actual_seq_len=None, Tensor? "
     "k_nope_clip_alpha=None, float rmsnorm_epsilon_cq=1e-05, float rmsnorm_epsilon_ckv=1e-05, str "
     "cache_mode=\"PA_BSND\", bool query_norm_flag=False, int weight_quant_mode=0, int kv_cache_quant_mode=0, int "
     "query_quant_mode=0, int ckvkr_repo_mode=0, int quant_scale_repo_mode=0, int tile_size=128, float "
     "qc_qr_scale=1.0, float kc_scale=1.0, int? token_x_dtype=None, int? weight_dq_dtype=None, int? "
     "weight_uq_qr_dtype=None, int? weight_dkv_kr_dtype=None, int? kv_cache_dtype=None) -> (Tensor, Tensor, "
     "Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel over key-value caches of inference"},
    {"npu_nsa_compress",
     "(Tensor input, Tensor weight, int compress_block_size, int compress_stride, *, int[]? actual_seq_len=None) "
     "-> Tensor",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_compress_attention",
     "(Tensor query, Tensor key, Tensor value, float scale_value, int head_num, int compress_block_size, int "
     "compress_stride, int select_block_size, int select_block_count, *, Tensor? topk_mask=None, Tensor? "
     "atten_mask=None, int[]? actual_seq_qlen=None, int[]? actual_cmp_seq_kvlen=None, int[]? "
     "actual_sel_seq_kvlen=None) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_compress_attention_infer",
     "(Tensor query, Tensor key, Tensor value, float scale_value, int head_num, int key_value_head_num, int "
     "select_block_size, int select_block_count, int page_block_size, int compress_block_size, int "
     "compress_stride, *, str layout='TND', Tensor? atten_mask=None, Tensor? block_table=None, Tensor? "
     "topk_mask=None, int[]? actual_seq_qlen=None, int[]? actual_cmp_seq_kvlen=None, int[]? "
     "actual_sel_seq_kvlen=None) -> (Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_compress_grad",
     "(Tensor grad, Tensor input, Tensor weight, int compress_block_size, int compress_stride, *, int[]? "
     "actual_seq_len=None) -> (Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_compress_infer.cache",
     "(Tensor input, Tensor weight, Tensor slot_mapping, int compress_block_size, int compress_stride, int "
     "page_block_size, *, Tensor? block_table=None, int[]? actual_seq_len=None, Tensor(a!) cache) -> Tensor(a!)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_select_attention",
     "(Tensor query, Tensor key, Tensor value, Tensor topk_indices, float scale_value, int head_num, int "
     "select_block_size, int select_block_count, *, Tensor? atten_mask=None, int[]? actual_seq_qlen=None, int[]? "
     "actual_seq_kvlen=None) -> (Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_select_attention_grad",
     "(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor attention_out, Tensor softmax_max, Tensor "
     "softmax_sum, Tensor topk_indices, float scale_value, int head_num, int select_block_size, int "
     "select_block_count, *, Tensor? atten_mask=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None) "
     "-> (Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
    {"npu_nsa_select_attention_infer",
     "(Tensor query, Tensor key, Tensor value, Tensor topk_indices, float scale_value, int head_num, int "
     "key_value_head_num, int select_block_size, int select_block_count, int page_block_size, *, str "
     "layout='BSND', Tensor? atten_mask=None, Tensor? block_table=None, int[]? actual_seq_qlen=None, int[]? "
     "actual_seq_kvlen=None) -> Tensor",
     "a kernel of this kind of sparse attention"},
    {"npu_prompt_flash_attention",
     "(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? "
     "pse_shift=None, int[]? actual_seq_lengths=None, Tensor? deq_scale1=None, Tensor? quant_scale1=None, Tensor? "
     "deq_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, int num_heads=1, float "
     "scale_value=1.0, int pre_tokens=2147483647, int next_tokens=0, str input_layout=\"BSH\", int "
     "num_key_value_heads=0, int[]? actual_seq_lengths_kv=None, int sparse_mode=0) -> Tensor",
     "a kernel over key-value caches of inference"},
    {"npu_quant_fusion_attention",
     "(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, Tensor d_scale_q, Tensor "
     "d_scale_k, Tensor d_scale_v, Tensor? p_scale=None, float scale=1., int? query_dtype=None) -> (Tensor, "
     "Tensor, Tensor, Tensor, int, int, int)",
     "a kernel for this quantised form"},
    {"npu_quant_fusion_attention_backward",
     "(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, Tensor d_scale_q, Tensor "
     "d_scale_k, Tensor d_scale_v, Tensor d_scale_dy, *, Tensor? p_scale=None, Tensor? ds_scale=None, Tensor? "
     "softmax_max=None, Tensor? softmax_sum=None, Tensor? attention_in=None, float scale_value=1., int? "
     "query_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
     "a kernel for this quantised form"},
    {"npu_quant_lightning_indexer",
     "(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, Tensor key_dequant_scale, int "
     "query_quant_mode, int key_quant_mode, *, Tensor? actual_seq_lengths_query=None, Tensor? "
     "actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", "
     "int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int "
     "next_tokens=9223372036854775807, int? query_dtype=None, int? key_dtype=None) -> Tensor",
     "a kernel of this kind of sparse attention"},
    {"npu_scatter_pa_cache.value",
     "(Tensor key, Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? "
     "seq_lens=None, Tensor(a!) key_cache) -> Tensor(a!)",
     "a kernel over key-value caches of inference"},
    {"npu_sparse_lightning_indexer_grad_kl_loss",
     "(Tensor query, Tensor key, Tensor query_index, Tensor key_index, Tensor weights, Tensor sparse_indices, "
     "Tensor softmax_max, Tensor softmax_sum, float scale_value, *, Tensor? query_rope=None, Tensor? "
     "key_rope=None, SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_klen=None, str? layout='BSND', int? "
     "sparse_mode=3, int? pre_tokens=9223372036854775807, int? next_tokens=9223372036854775807, Tensor? "
     "sinks=None) -> (Tensor, Tensor, Tensor, Tensor)",
     "a kernel of this kind of sparse attention"},
};
// clang-format on

}  // namespace

void register_refused_attention(Registry& ops) { refuse(ops, kRefused); }

}  // namespace cann::aten::npu
