#pragma once
// The families of npu operators, each a file of its own; aten/register.cpp calls them all.

namespace cann::aten::npu {

class Registry;

void register_activation(Registry& ops);
void register_norm(Registry& ops);
void register_rotary(Registry& ops);
void register_fusion_attention(Registry& ops);
void register_attention_parts(Registry& ops);
void register_loss(Registry& ops);
void register_dropout(Registry& ops);
void register_linear(Registry& ops);
void register_grouped_matmul(Registry& ops);
void register_indexing(Registry& ops);
void register_format(Registry& ops);
void register_moe_permute(Registry& ops);
void register_moe_routing(Registry& ops);
void register_optimizer(Registry& ops);
void register_status(Registry& ops);
void register_quant(Registry& ops);
void register_infer_attention(Registry& ops);
void register_sparse_attention(Registry& ops);
void register_recurrence(Registry& ops);
void register_serving(Registry& ops);

// Operators that are known and not implemented.
void register_refused_attention(Registry& ops);
void register_refused_experts(Registry& ops);
void register_refused_others(Registry& ops);
void register_refused_quantised(Registry& ops);

}  // namespace cann::aten::npu
