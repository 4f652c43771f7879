"""Gradient checkpointing: activations inside layers are computed again in backward instead of being kept.

python examples/large_models/checkpointed_transformer.py
"""

import torch
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import BYTES, arguments, byte_text
from torch.utils.data import DataLoader


def train(checkpointing: bool, args) -> tuple[list[float], float]:
    """Losses, and the peak of what a step adds to the memory of parameters, gradients and optimizer, MiB."""
    torch.manual_seed(0)
    model = GPTModel(BYTES, args.hidden_size, args.num_layers, checkpointing=checkpointing).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    dataloader = DataLoader(byte_text(args.seq_len), args.batch_size, pin_memory=True)
    losses, peak = [], 0.0
    for _, batch in zip(range(args.steps), dataloader, strict=False):
        before = torch.npu.memory_allocated()
        torch.npu.reset_peak_memory_stats()
        loss = language_model_loss(model(batch["input_ids"].npu()), batch["labels"].npu())
        loss.backward()
        peak = max(peak, (torch.npu.max_memory_allocated() - before) / 2**20)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.item())
    return losses, peak


def main() -> None:
    args = arguments(__doc__, steps=5, seq_len=256).parse_args()
    for checkpointing in (False, True):
        losses, peak = train(checkpointing, args)
        name = "checkpointed" if checkpointing else "plain"
        print(f"{name}: losses {[round(loss, 4) for loss in losses]}, peak of a step {peak:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
