"""Definitions of operators in plain PyTorch, written from their documentation, for float64 tensors."""

from __future__ import annotations

import math

import torch

F = torch.nn.functional


def swiglu(x, dim=-1):
    a, b = x.chunk(2, dim)
    return F.silu(a) * b


def geglu(x, dim=-1, approximate=1, activate_left=False):
    a, b = x.chunk(2, dim)
    linear, gate = (b, a) if activate_left else (a, b)
    g = F.gelu(gate, approximate="tanh" if approximate else "none")
    return linear * g, g


def fast_gelu(x):
    return x * torch.exp(0.851 * (x - x.abs())) / (1 + torch.exp(-1.702 * x.abs()))


def clipped_swiglu(x, alpha=1.702, limit=7.0, bias=1.0, interleaved=True):
    gate, linear = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (linear + bias)


def rms_norm(x, gamma, epsilon=1e-6):
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    rstd = 1 / torch.sqrt((x * x).mean(dims, keepdim=True) + epsilon)
    return x * rstd * gamma, rstd


def gemma_rms_norm(x, gamma, epsilon=1e-6):
    y, rstd = rms_norm(x, 1 + gamma, epsilon)
    return y, rstd


def layer_norm(x, gamma, beta, epsilon):
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    mean = x.mean(dims, keepdim=True)
    rstd = 1 / torch.sqrt(((x - mean) ** 2).mean(dims, keepdim=True) + epsilon)
    return (x - mean) * rstd * gamma + beta, mean, rstd


def add_layer_norm(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    y, mean, rstd = layer_norm(x1 + x2, gamma, beta, epsilon)
    return y, mean, rstd, x1 + x2 if additional_output else x1.new_empty(0)


def deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    y, mean, rstd = layer_norm(alpha * x + gx, gamma, beta, epsilon)
    return mean, rstd, y


def group_norm(x, groups, weight, bias, eps):
    grouped = x.reshape(x.size(0), groups, -1)
    mean = grouped.mean(-1)
    rstd = 1 / torch.sqrt(((grouped - mean[..., None]) ** 2).mean(-1) + eps)
    return F.group_norm(x, groups, weight, bias, eps), mean, rstd


def group_norm_swish(x, groups, weight, bias, eps=1e-5, swish_scale=1.0):
    y, mean, rstd = group_norm(x, groups, weight, bias, eps)
    return y * torch.sigmoid(swish_scale * y), mean, rstd


def rotate(x, mode="half"):
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotary_mul(x, cos, sin, rotary_mode="half"):
    return x * cos + rotate(x, rotary_mode) * sin


def interleave_rope(x, cos, sin):
    return rotary_mul(torch.cat((x[..., ::2], x[..., 1::2]), -1), cos, sin)


def mrope(positions, query, key, cache, head_size, mrope_section=None, rotary_mode="half", cache_mode="default"):
    half = cache.size(-1) // 2
    cos, sin = cache[positions].split(half, -1)
    if positions.dim() == 2:
        columns = torch.arange(half)
        if cache_mode == "default":
            row = torch.bucketize(columns, torch.tensor(mrope_section).cumsum(0), right=True)
        else:
            row = torch.where(columns < 3 * mrope_section[1], columns % 3, 0)
        cos, sin = (t.permute(1, 2, 0).gather(2, row.expand(t.size(1), -1)[..., None])[..., 0] for t in (cos, sin))

    def turn(x):
        heads = x.view(x.size(0), -1, head_size)
        front, rest = heads[..., : 2 * half], heads[..., 2 * half :]
        c, s = (torch.cat((t, t), -1) if rotary_mode == "half" else t.repeat_interleave(2, -1) for t in (cos, sin))
        return torch.cat((rotary_mul(front, c[:, None], s[:, None], rotary_mode), rest), -1).view(x.shape)

    return turn(query), turn(key)


def scaled_masked_softmax(x, mask, scale=1, fixed_triu_mask=False):
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return (x * scale).masked_fill(mask, -10000).softmax(-1)


def cross_entropy(x, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    loss = F.cross_entropy(
        x, target, weight, reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing
    )
    return loss if reduction == "none" else loss.reshape(1), x.log_softmax(1), None, None


def linear_online_max_sum(x, weight, target, first, last, return_logits=False):
    logits = x @ weight.T
    top = logits.max(1).values
    elsewhere = (target < first) | (target > last)
    masked = torch.where(elsewhere, 0, target - first)
    predicted = torch.where(elsewhere, 0.0, logits.gather(1, masked[:, None])[:, 0] - top)
    bits = torch.cat((elsewhere, torch.ones(-len(target) % 8, dtype=torch.bool))).view(-1, 8)
    packed = (bits * torch.tensor([128, 64, 32, 16, 8, 4, 2, 1])).sum(1)
    return top, (logits - top[:, None]).exp().sum(1), predicted, packed, masked, logits if return_logits else None


def confusion_transpose(x, perm, shape, transpose_first):
    return x.permute(perm).reshape(shape) if transpose_first else x.reshape(shape).permute(perm)


def scatter_update(x, indices, updates, axis):
    x = x.clone()
    for b, begin in enumerate(indices.tolist()):
        x[b].narrow(axis - 1 if axis > 0 else axis, begin, updates.size(axis)).copy_(updates[b])
    return x


# ---- Mixture of experts


def token_permute(tokens, indices, num_out_tokens=None):
    topk = 1 if indices.dim() == 1 else indices.size(1)
    order = indices.flatten().argsort(stable=True)
    kept = order[:num_out_tokens] if num_out_tokens else order
    return tokens[kept // topk], order.argsort()


def token_unpermute(permuted, sorted_indices, probs=None):
    topk = 1 if probs is None else probs.size(1)
    padded = torch.cat((permuted, permuted.new_zeros(max(0, len(sorted_indices) - len(permuted)), permuted.size(1))))
    rows = padded[sorted_indices.long()].view(-1, topk, permuted.size(1))
    return (rows if probs is None else rows * probs[..., None]).sum(1)


def permute_by_map(tokens, routing_map, probs=None, num_out_tokens=None, drop_and_pad=False):
    experts = routing_map.size(1)
    if drop_and_pad:
        capacity = num_out_tokens // experts
        order = routing_map.T.int().sort(dim=1, descending=True, stable=True).indices[:, :capacity]
        chosen = None if probs is None else probs.T.gather(1, order).flatten()
        return tokens[order.flatten()], chosen, order.flatten()
    expert, token = routing_map.T.bool().nonzero(as_tuple=True)
    return tokens[token], None if probs is None else probs[token, expert], token.argsort(stable=True)


def unpermute_by_map(permuted, sorted_indices, restore_shape, probs=None, routing_map=None, drop_and_pad=False):
    out = permuted.new_zeros(restore_shape)
    if drop_and_pad:
        expert = torch.arange(routing_map.size(1)).repeat_interleave(len(permuted) // routing_map.size(1))
        token = sorted_indices.long()
    else:
        expert, token = routing_map.T.bool().nonzero(as_tuple=True)
    rows = permuted if probs is None else permuted * probs[token, expert][:, None]
    return out.index_add(0, token, rows)


def gating_top_k(x, k, bias=None, k_group=1, group_count=1, group_select_mode=0, norm_type=0, scale=1.0, eps=1e-20):
    scores = x.sigmoid() if norm_type else x.softmax(-1)
    ranked = scores if bias is None else scores + bias
    if group_count > 1:
        grouped = ranked.view(len(x), group_count, -1)
        rank = grouped.topk(2).values.sum(-1) if group_select_mode else grouped.amax(-1)
        best = rank.argsort(descending=True, stable=True)[:, :k_group]
        seen = torch.zeros_like(rank, dtype=torch.bool).scatter(1, best, True)
        ranked = grouped.masked_fill(~seen[..., None], -math.inf).flatten(1)
    chosen = ranked.argsort(descending=True, stable=True)[:, :k]
    y = scores.gather(1, chosen)
    if norm_type:
        y = y / (y.sum(-1, keepdim=True) + eps)
    return y * scale, chosen, scores


def gating_softmax(x, finished=None, k=1):
    experts = x.size(-1)
    y, index = x.softmax(-1).sort(descending=True, stable=True)
    y, index = y[..., :k], index[..., :k]
    if finished is not None:
        index = torch.where(finished[..., None], experts, index)
    rows = x[..., 0].numel()
    return y, index, torch.arange(rows * k).view(k, rows).T.reshape(y.shape)


def init_routing(x, row_idx, expert_idx, active_num):
    tokens, k = expert_idx.shape
    experts, order = expert_idx.flatten().sort(stable=True)
    source = row_idx.flatten()[order]
    went = torch.empty_like(source)
    went[source] = torch.arange(len(source), dtype=source.dtype)
    return x[source[: min(active_num, tokens) * k] % tokens], went, experts


def finalize_routing(rows, skip1, skip2, bias, scales, src_to_dst, expert, drop_pad_mode=0):
    k = scales.size(1)
    tokens = len(src_to_dst) // k
    out = torch.zeros(tokens, rows.size(-1), dtype=rows.dtype)
    flat = rows.reshape(-1, rows.size(-1))
    for i in range(tokens):
        for j in range(k):
            source = src_to_dst[j * tokens + i if drop_pad_mode < 2 else i * k + j]
            row = flat[source] if source >= 0 else torch.zeros_like(flat[0])
            out[i] += scales[i, j] * (row + (0 if bias is None else bias[expert[i, j]]))
    for skip in (skip1, skip2):
        if skip is not None:
            out += skip
    return out


def re_routing(tokens, counts, per_token_scales=None, expert_token_num_type=1, idx_type=0):
    ranks, experts = counts.shape
    starts = torch.cat((torch.zeros(1, dtype=torch.long), counts.flatten().cumsum(0)))
    order = [
        row
        for e in range(experts)
        for r in range(ranks)
        for row in range(int(starts[r * experts + e]), int(starts[r * experts + e + 1]))
    ]
    source = torch.tensor(order, dtype=torch.long)
    scales = torch.ones(len(tokens)) if per_token_scales is None else per_token_scales[source]
    totals = counts.sum(0)
    return tokens[source], scales, source.argsort() if idx_type else source, (
        totals if expert_token_num_type else totals.cumsum(0)
    )


# ---- Optimizers


def adam_w(var, m, v, b1p, b2p, lr, wd, b1, b2, eps, g, maximize):
    g = -g if maximize else g
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    step = lr * (m / (1 - b1p * b1)) / ((v / (1 - b2p * b2)).sqrt() + eps)
    return var * (1 - lr * wd) - step, m, v


def adam(var, m, v, b1p, b2p, lr, b1, b2, eps, g, nesterov):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    rate = lr * math.sqrt(1 - b2p) / (1 - b1p)
    return var - rate * (b1 * m + (1 - b1) * g if nesterov else m) / (v.sqrt() + eps), m, v


def bert_adam(var, m, v, lr, b1, b2, eps, g, limit, norm, wd):
    g = g * limit / norm if 0 < limit < norm else g
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return var - lr * (m / (v.sqrt() + eps) + wd * var), m, v


def masked_causal_conv(x, weight, mask=None):
    taps = len(weight)
    padded = F.pad(x, (0, 0, 0, 0, taps - 1, 0))
    y = sum(weight[w] * padded[w:w + len(x)] for w in range(taps))
    return y if mask is None else y * mask.T[..., None]


def gated_delta_rule(q, k, v, state, beta=None, scale=None, actual_seq_lengths=None, ssm_state_indices=None,
                     num_accepted_tokens=None, g=None):
    """Token by token; state t is kept in its slot, and a sequence starts from its last accepted token's."""
    state, out, group, t = state.clone(), torch.empty_like(v), v.size(1) // k.size(1), 0
    for i, count in enumerate(actual_seq_lengths.tolist()):
        start = t if num_accepted_tokens is None else t + int(num_accepted_tokens[i]) - 1
        current = state[ssm_state_indices[start]].clone()
        for t in range(t, t + count):
            for head in range(v.size(1)):
                s, key = current[head], k[t, head // group]
                s *= 1 if g is None else g[t, head].exp()
                s += (1 if beta is None else beta[t, head]) * torch.outer(v[t, head] - s @ key, key)
                out[t, head] = scale * s @ q[t, head // group]
            state[ssm_state_indices[t]] = current
        t += 1
    return out, state


def scatter_list(tensors, indices, updates, mask=None):
    result = [t.clone() for t in tensors]
    for i, begin in enumerate(indices.tolist()):
        if mask is None or mask[i]:
            result[i][:, begin:begin + updates.size(2)] = updates[i]
    return result


def attention_update(lse, parts, update_type):
    """Each part weighed by its share of the whole sum of exponentials."""
    lse, parts = torch.stack(lse), torch.stack(parts)
    out = (parts * lse.softmax(0)[..., None]).sum(0)
    return out, lse.exp().sum(0).log() if update_type else lse.new_empty(0)


def scatter_cache(key, value, key_cache, value_cache, slots, cache_mode):
    result = []
    for rows, cache in ((key, key_cache.clone()), (value, value_cache.clone())):
        for row, slot in zip(rows, slots.tolist(), strict=True):
            if slot < 0:
                continue
            if cache_mode == "Norm":
                cache[slot // 4, slot % 4] = row
            else:
                cache[slot // 4, :, slot % 4] = row.reshape(cache.size(1), cache.size(3))
        result.append(cache)
    return tuple(result)


def top_k_top_p(logits, p, k):
    result = logits.clone()
    for i, row in enumerate(result):
        if k is not None:
            row[row < row.sort(descending=True).values[min(int(k[i]), len(row)) - 1]] = -math.inf
        if p is not None:
            tail, probabilities = 0.0, row.softmax(0)
            for place in row.sort().indices.tolist()[:-1]:
                tail += float(probabilities[place])
                if tail > 1 - p[i]:
                    break
                row[place] = -math.inf
    return result
