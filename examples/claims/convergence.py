"""Trains the small model on real text by several loops of workload.py, from several seeds, and prints the final losses.

torchrun --nproc-per-node 2 examples/claims/convergence.py '[{"loop": "plain"}, {"loop": "recipes", "precision": "bf16"}]'

The argument is a list of workload.py's options. The answer is one JSON object: for each of them the loss on text that
was held back, in float32 with the trained weights, for each seed. A seed gives initial weights and the order of text.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch import nn
from workload import build, loss_of, options, train

CHARACTERS = 256
TOKENS, BATCH = 64, 8  # of a sequence; sequences of a rank in a step
HELD_BACK = 128  # sequences


def text() -> torch.Tensor:
    """Bytes of modules of Python's standard library, as int64."""
    files = sorted(Path(os.__file__).parent.glob("[a-m]*.py"))
    return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()


def windows(data: torch.Tensor, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` inputs and targets (count, TOKENS), from anywhere in ``data``."""
    starts = torch.randint(len(data) - TOKENS - 1, (count, 1), generator=generator)
    window = data[starts + torch.arange(TOKENS + 1)]
    return window[:, :-1].contiguous(), window[:, 1:].contiguous()


@torch.no_grad()
def loss_with(weights: dict[str, torch.Tensor], inputs: torch.Tensor, target: torch.Tensor) -> float:
    """The loss of a plain float32 model that has ``weights``."""
    model = build("tiny", None, CHARACTERS, "npu")
    model.load_state_dict(weights)
    return loss_of(model(inputs.npu()), target.npu()).item()


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters, put together where they are sharded."""
    return {n: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach() for n, p in model.named_parameters()}


def final_loss(given: dict, seed: int, steps: int, data: torch.Tensor) -> float:
    """Of one loop, one seed."""
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    args = options().parse_args(["--model", "tiny", "--rate", "1e-3", *words])
    torch.manual_seed(seed)
    model = build("tiny", None, CHARACTERS, "cpu")
    split = len(data) * 9 // 10
    own = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    train(args, model, [windows(data[:split], BATCH, own) for _ in range(steps)])
    held_back = windows(data[split:], HELD_BACK, torch.Generator().manual_seed(0))
    return loss_with(whole(model), *held_back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", type=json.loads)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()

    dist.init_process_group("hccl")
    torch.npu.set_device(dist.get_node_local_rank())
    data = text()
    losses = [[final_loss(loop, seed, args.steps, data) for loop in args.loops] for seed in range(args.seeds)]
    if dist.get_rank() == 0:
        print(json.dumps({"losses": [list(of_loop) for of_loop in zip(*losses, strict=True)]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
