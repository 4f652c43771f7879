"""One process trains a GPT that is split over four NPUs: each card holds a quarter of the blocks.

python examples/model_parallel.py                  four cards
python examples/model_parallel.py --cards 1        the same model on one
python examples/model_parallel.py --device cpu     no card

The batch passes through the cards in micro-batches whose gradients add up, so a card's activations stay small.
"""

import argparse
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from gpt import data
from gpt.model import EMBEDDING_SCALE, GPT, GPTConfig, rotary_angles


class SplitGPT(nn.Module):
    """A GPT with its embedding on the first card, its norm and head on the last and its blocks spread over all."""

    def __init__(self, config: GPTConfig, devices: list[torch.device]):
        super().__init__()
        if config.n_layer % len(devices):
            raise ValueError(f"{config.n_layer} blocks cannot be spread evenly over {len(devices)} cards")
        per_device = config.n_layer // len(devices)
        whole = GPT(config)
        self.devices = devices
        self.pairs = whole.pairs
        # A weight lives on one card, so input and output embedding are not tied as in the whole model.
        whole.head.weight = nn.Parameter(whole.tokens.weight.detach().clone())
        self.tokens = whole.tokens.to(devices[0])
        self.stages = nn.ModuleList(
            whole.blocks[i * per_device : (i + 1) * per_device].to(device) for i, device in enumerate(devices)
        )
        self.norm = whole.norm.to(devices[-1])
        self.head = whole.head.to(devices[-1])

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V), on the last card."""
        x_BTC = self.tokens(ids_BT.to(self.devices[0])) * EMBEDDING_SCALE
        for device, stage in zip(self.devices, self.stages, strict=True):
            x_BTC = x_BTC.to(device)  # autograd brings the gradient back the same way
            angle_TR = rotary_angles(ids_BT.shape[1], self.pairs, device)
            for block in stage:
                x_BTC = block(x_BTC, angle_TR.cos(), angle_TR.sin())
        return self.head(self.norm(x_BTC))


def train_step(
    model: SplitGPT,
    optimizer: torch.optim.Optimizer,
    ids_BT: torch.Tensor,
    targets_BT: torch.Tensor,
    micro_batches: int,
) -> float:
    """One update from the whole batch; returns its mean loss."""
    optimizer.zero_grad()
    total = torch.zeros((), device=model.devices[-1])
    for ids, targets in zip(ids_BT.chunk(micro_batches), targets_BT.chunk(micro_batches), strict=True):
        logits_BTV = model(ids)
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), targets.to(logits_BTV.device).flatten())
        loss = loss * (len(ids) / len(ids_BT))
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", choices=("npu", "cpu"), default="npu")
    add("--cards", type=int, default=4)
    add("--layers", type=int, default=8)
    add("--heads", type=int, default=4)
    add("--width", type=int, default=128)
    add("--vocab-size", type=int, default=1024)
    add("--corpus-mb", type=float, default=2)
    add("--seq-len", type=int, default=64)
    add("--batch-size", type=int, default=16)
    add("--micro-batches", type=int, default=4)
    add("--steps", type=int, default=60)
    add("--lr", type=float, default=2e-3)
    add("--work-dir", type=Path, default=Path("build/model_parallel"), help="the tokens are kept here")
    args = parser.parse_args()
    if args.device == "npu":
        import torch_npu  # noqa: F401  (makes the device known to torch)

        if torch.npu.device_count() < args.cards:
            raise SystemExit(f"--cards {args.cards}: this process sees {torch.npu.device_count()} NPUs")
        devices = [torch.device("npu", i) for i in range(args.cards)]
    else:
        devices = [torch.device("cpu")] * args.cards

    where = (args.work_dir, args.vocab_size, int(args.corpus_mb * 2**20))
    data.prepare(*where)
    corpus = data.load(*where)
    torch.manual_seed(0)
    model = SplitGPT(GPTConfig(args.vocab_size, args.layers, args.heads, args.width), devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"unigram entropy: {corpus.unigram_entropy():.3f} nats per token\n{'step':>5}  {'train loss':>10}")
    for step in range(args.steps):
        loss = train_step(
            model, optimizer, *corpus.train_batch(step, args.batch_size, args.seq_len, 0), args.micro_batches
        )
        if step == 0 or (step + 1) % 10 == 0 or step + 1 == args.steps:
            print(f"{step + 1:5d}  {loss:10.4f}", flush=True)

    for i, (device, stage) in enumerate(zip(devices, model.stages, strict=True)):
        millions = sum(p.numel() for p in stage.parameters()) / 1e6
        peak = f", peak HBM {torch.npu.max_memory_allocated(device) / 2**20:.1f} MiB" if device.type == "npu" else ""
        print(f"{device} (stage {i}): {len(stage)} blocks, {millions:.2f} M parameters{peak}")


if __name__ == "__main__":
    main()
