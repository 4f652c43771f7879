"""LLaMA-7B on eight cards: FSDP2, bfloat16, gradient accumulation, checkpointed layers.

torchrun --nproc-per-node 8 examples/large_models/llama_7b.py
npu-plan run --nproc-per-node 8 examples/large_models/llama_7b.py

The second says without any card how long a step takes and what fills the memory. Tokens are random: what is measured is
time. Shape suffixes: B batch, T sequence, C hidden size, H heads, D width of a head, R half of it.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch_npu  # noqa: F401
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

MODEL = {"vocab_size": 32000, "hidden_size": 4096, "num_layers": 32, "num_heads": 32, "intermediate_size": 11008}


def rotate(x_BHTD: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
    a_BHTR, b_BHTR = x_BHTD.chunk(2, dim=-1)
    return torch.cat((a_BHTR * cos_TR - b_BHTR * sin_TR, a_BHTR * sin_TR + b_BHTR * cos_TR), dim=-1)


class LlamaLayer(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, intermediate_size: int):
        super().__init__()
        self.num_heads = num_heads
        self.norm1 = nn.RMSNorm(hidden_size, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(4))
        self.norm2 = nn.RMSNorm(hidden_size, eps=1e-6)
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down = nn.Linear(intermediate_size, hidden_size, bias=False)

    def _forward(self, x_BTC: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
        h_BTC = self.norm1(x_BTC)
        q_BHTD, k_BHTD, v_BHTD = (
            project(h_BTC).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for project in (self.q, self.k, self.v)
        )
        q_BHTD, k_BHTD = rotate(q_BHTD, cos_TR, sin_TR), rotate(k_BHTD, cos_TR, sin_TR)
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        x_BTC = x_BTC + self.o(y_BHTD.transpose(1, 2).flatten(2))
        h_BTC = self.norm2(x_BTC)
        return x_BTC + self.down(F.silu(self.gate(h_BTC)) * self.up(h_BTC))

    def forward(self, x_BTC: torch.Tensor, cos_TR: torch.Tensor, sin_TR: torch.Tensor) -> torch.Tensor:
        return checkpoint(self._forward, x_BTC, cos_TR, sin_TR, use_reentrant=False)


class Llama(nn.Module):
    def __init__(self, vocab_size: int, hidden_size: int, num_layers: int, num_heads: int, intermediate_size: int):
        super().__init__()
        self.head_width = hidden_size // num_heads
        self.tokens = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.ModuleList(LlamaLayer(hidden_size, num_heads, intermediate_size) for _ in range(num_layers))
        self.norm = nn.RMSNorm(hidden_size, eps=1e-6)
        self.head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        x_BTC = self.tokens(ids_BT)
        pairs = self.head_width // 2
        frequency_R = 10000.0 ** (-torch.arange(pairs, device=x_BTC.device) / pairs)
        angle_TR = torch.arange(ids_BT.shape[1], device=x_BTC.device)[:, None] * frequency_R
        cos_TR, sin_TR = angle_TR.cos().to(x_BTC.dtype), angle_TR.sin().to(x_BTC.dtype)
        for layer in self.layers:
            x_BTC = layer(x_BTC, cos_TR, sin_TR)
        return self.head(self.norm(x_BTC))

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)


def build(config: dict[str, int]) -> nn.Module:
    """The model, sharded before its memory exists: no card ever holds the whole."""
    with torch.device("meta"):
        model = Llama(**config)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="npu")
    model.reset_parameters()
    return model


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in MODEL.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=4, help="sequences per card and micro-step")
    parser.add_argument("--accumulation-steps", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--warmup-steps", type=int, default=2000)
    parser.add_argument("--max-steps", type=int, default=100_000, help="of the whole training, for the estimate")
    parser.add_argument("--steps", type=int, default=5, help="to run here")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="hccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = build({name: getattr(args, name) for name in MODEL})
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup_steps))
    if rank == 0:
        effective = world_size * args.batch_size * args.accumulation_steps
        print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters, {effective} sequences a step")
    seconds = 0.0
    for _ in range(args.steps):
        torch.npu.synchronize()
        start = time.perf_counter()
        for micro_step in range(args.accumulation_steps):
            # Gradients stay sharded, so they are averaged in every micro-step; only after the last are they waited for.
            model.set_is_last_backward(micro_step == args.accumulation_steps - 1)
            ids = torch.randint(args.vocab_size, (args.batch_size, args.seq_len + 1), device="npu")
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
            (loss / args.accumulation_steps).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        torch.npu.synchronize()
        seconds = time.perf_counter() - start
    if rank == 0:
        hours = args.max_steps * seconds / 3600
        print(f"loss {loss.item():.3f}; the last step took {seconds:.2f} s, so {args.max_steps} take {hours:.1f} hours")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
