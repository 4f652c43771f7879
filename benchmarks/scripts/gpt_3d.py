"""GPT-3 175B in plain PyTorch: tensor parallel 8, pipeline 16 (1F1B), data parallel by what is left of the world.

    npu-plan run --nnodes 128 --nproc-per-node 8 benchmarks/scripts/gpt_3d.py

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

VOCABULARY = 51200


class Reduced(torch.autograd.Function):
    """Sums over the tensor-parallel ranks in ``forward``, or in ``backward``."""

    @staticmethod
    def forward(ctx, x, group, forward):
        ctx.group = None if forward else group
        if forward:
            x = x.clone()
            dist.all_reduce(x, group=group)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if ctx.group is not None:
            grad = grad.contiguous()
            dist.all_reduce(grad, group=ctx.group)
        return grad, None, None


class Layer(nn.Module):
    def __init__(self, width, heads, group):
        super().__init__()
        size = group.size()
        self.group, self.heads = group, heads // size
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width // size), nn.Linear(width // size, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width // size), nn.Linear(4 * width // size, width, bias=False)

    def forward(self, x_BTC):
        h_BTC = Reduced.apply(self.norm1(x_BTC), self.group, False)
        q_BHTD, k_BHTD, v_BHTD = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(h_BTC).chunk(3, -1)
        )
        y_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
        x_BTC = x_BTC + Reduced.apply(self.out(y_BHTD.transpose(1, 2).flatten(2)), self.group, True)
        h_BTC = Reduced.apply(self.norm2(x_BTC), self.group, False)
        return x_BTC + Reduced.apply(self.down(F.gelu(self.up(h_BTC))), self.group, True)


class Stage(nn.Module):
    def __init__(self, args, mesh):
        super().__init__()
        group, stage = mesh["tp"].get_group(), mesh["pp"].get_local_rank()
        self.first, self.last = stage == 0, stage == args.pp - 1
        shard = VOCABULARY // args.tp
        self.tokens = nn.Embedding(VOCABULARY, args.width) if self.first else None
        self.layers = nn.ModuleList(Layer(args.width, args.heads, group) for _ in range(args.layers // args.pp))
        self.head = nn.Linear(args.width, shard, bias=False) if self.last else None

    def forward(self, x):
        if self.first:
            x = self.tokens(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) if self.last else x


class Pipeline:
    """One forward, one backward: a stage holds at most as many micro-batches as there are stages after it."""

    def __init__(self, args, model, mesh):
        self.args, self.model, self.group = args, model, mesh["pp"].get_group()
        ranks, stage = dist.get_process_group_ranks(self.group), mesh["pp"].get_local_rank()
        self.before = None if model.first else ranks[stage - 1]
        self.after = None if model.last else ranks[stage + 1]
        self.warm = min(args.pp - stage - 1, args.micro_batches)
        self.held = []

    def exchange(self, peer, sent=None, receive=False):
        """Sends and receives in one batch, since neighbours that both send first would wait for each other."""
        if peer is None:
            return None
        shape = (1, self.args.sequence, self.args.width)
        received = torch.empty(shape, device="npu", dtype=torch.bfloat16) if receive else None
        messages = [] if sent is None else [dist.P2POp(dist.isend, sent, peer, self.group)]
        messages += [dist.P2POp(dist.irecv, received, peer, self.group)] if receive else []
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return received

    def forward(self, x):
        if self.model.first:
            x = torch.randint(0, VOCABULARY, (1, self.args.sequence), device="npu")
        else:
            x.requires_grad_()
        y = self.model(x)
        y = y.float().logsumexp(-1).mean() if self.model.last else y
        self.held.append((x, y))
        return y.detach()

    def backward(self, grad):
        x, y = self.held.pop(0)
        y.backward(grad)
        return x.grad

    def step(self):
        for _ in range(self.warm):
            self.exchange(self.after, self.forward(self.exchange(self.before, receive=True)))
        steady = self.args.micro_batches - self.warm
        x = self.exchange(self.before, receive=True) if steady else None
        for i in range(steady):
            grad = self.exchange(self.after, self.forward(x), receive=True)
            x = self.exchange(self.before, self.backward(grad), receive=i + 1 < steady)
        for _ in range(self.warm):
            self.exchange(self.before, self.backward(self.exchange(self.after, receive=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"layers": 96, "width": 12288, "heads": 96, "sequence": 2048}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in {"tp": 8, "pp": 16, "micro-batches": 16}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-gradient-reduction", action="store_true", help="the operators of one rank alone")
    args = parser.parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    data = dist.get_world_size() // (args.tp * args.pp)
    mesh = init_device_mesh("npu", (args.pp, data, args.tp), mesh_dim_names=("pp", "dp", "tp"))
    with torch.device("npu"):
        model = Stage(args, mesh).to(torch.bfloat16)
    pipeline, replicas = Pipeline(args, model, mesh), mesh["dp"].get_group()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    while True:
        started = time.perf_counter()
        pipeline.step()
        for parameter in () if args.no_gradient_reduction else model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, replicas)
        optimizer.step()
        optimizer.zero_grad()
        print(f"a step took the host {time.perf_counter() - started:.3f} s", flush=True)


if __name__ == "__main__":
    main()
