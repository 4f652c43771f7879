"""A model like Llama-7B, FSDP2 over the data-parallel ranks of a mesh and tensor parallel 8 within a server.

    npu-plan run --nnodes 128 --nproc-per-node 8 benchmarks/scripts/llama_fsdp_tp.py

Shape suffixes: B batch, T sequence, C hidden size, H heads, D width of a head.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch_npu  # noqa: F401
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VOCABULARY, WIDTH, FFN, HEAD = 32000, 4096, 11008, 128


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, FFN, bias=False), nn.Linear(WIDTH, FFN, bias=False)
        self.down = nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x_BTC):
        h_BTC = self.norm1(x_BTC)
        q_BHTD, k_BHTD, v_BHTD = (
            project(h_BTC).unflatten(-1, (-1, HEAD)).transpose(1, 2) for project in (self.q, self.k, self.v)
        )
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        x_BTC = x_BTC + self.o(y_BHTD.transpose(1, 2).flatten(2))
        h_BTC = self.norm2(x_BTC)
        return x_BTC + self.down(F.silu(self.gate(h_BTC)) * self.up(h_BTC))


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids_BT):
        x_BTC = self.tokens(ids_BT)
        for layer in self.layers:
            x_BTC = layer(x_BTC)
        return self.head(self.norm(x_BTC))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--tp", type=int, default=8)
    args = parser.parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    mesh = init_device_mesh("npu", (dist.get_world_size() // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Llama(args.layers)
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")}
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], columns | {name: RowwiseParallel() for name in ("o", "down")})
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    model.to_empty(device="npu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    while True:
        started = time.perf_counter()
        ids = torch.randint(0, VOCABULARY, (1, args.sequence), device="npu")
        F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten()).backward()
        print(f"a step took the host {time.perf_counter() - started:.3f} s", flush=True)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
