"""How a pipeline over the cards of one server scales: PipelineParallel in one process, dry, on the cards' own clocks.

python examples/claims/pipeline.py --model 1b --stages 4

prints seconds and samples of a step as one JSON object, and the balance: the stages' mean number of weights to multiply
with over the largest, which is what a schedule without any bubble would reach.
"""

import argparse
import json
import os

os.environ |= {"TORCH_CANN_DRY_RUN": "1", "TORCH_CANN_SIMULATE": "1"}  # before the device is touched

import torch
import torch_npu  # noqa: F401
from cann.recipes.train import PipelineParallel
from torch import nn
from workload import SHAPES, build, loss_of


def marks(cards: int) -> list[torch.npu.Event]:
    """An event on every card, when all of them have finished."""
    for card in range(cards):
        torch.npu.synchronize(card)
    events = [torch.npu.Event(enable_timing=True) for _ in range(cards)]
    for card, event in enumerate(events):
        event.record(torch.npu.current_stream(card))
    return events


def balance(pipeline: PipelineParallel) -> float:
    """Mean over largest of what the stages multiply with; an embedding only looks up."""
    weights = [
        sum(p.numel() for m in stage.modules() if not isinstance(m, nn.Embedding) for p in m.parameters(recurse=False))
        for stage in pipeline.stage_modules()
    ]
    return sum(weights) / len(weights) / max(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="1b")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--layers", type=int, help="instead of the model's own number")
    parser.add_argument("--micro-batches", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--schedule", default="1F1B")
    args = parser.parse_args()

    model = build(args.model, args.layers).to_empty(device="npu:0")
    pipeline = PipelineParallel(model, args.stages, args.micro_batches, schedule=args.schedule, loss_fn=loss_of)
    tokens = torch.zeros(args.micro_batches, args.sequence, dtype=torch.long)
    for _ in range(2):  # the first step also allocates
        begin = marks(args.stages)
        with torch.autocast("npu", torch.bfloat16):
            pipeline.train_step(tokens, tokens)
        end = marks(args.stages)
    seconds = max(a.elapsed_time(b) for a, b in zip(begin, end, strict=True)) / 1e3
    print(json.dumps({"seconds": seconds, "samples": args.micro_batches, "balance": balance(pipeline)}))


if __name__ == "__main__":
    main()
