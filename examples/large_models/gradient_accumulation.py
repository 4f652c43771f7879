"""Gradient accumulation: the update of a large batch with the activations of a small one.

python examples/large_models/gradient_accumulation.py --accumulation-steps 4
"""

import torch
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import BYTES, arguments, byte_text
from torch.utils.data import DataLoader


def main() -> None:
    parser = arguments(__doc__, batch_size=4)
    parser.add_argument("--accumulation-steps", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(byte_text(args.seq_len), args.batch_size, shuffle=True, pin_memory=True, drop_last=True)
    model = GPTModel(BYTES, args.hidden_size, args.num_layers).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    updates, total = 0, torch.zeros((), device="npu")
    for i, batch in enumerate(loader):
        logits = model(batch["input_ids"].npu())
        loss = language_model_loss(logits, batch["labels"].npu())
        loss = loss / args.accumulation_steps  # so that the sum of gradients is that of the mean
        loss.backward()
        total += loss.detach()
        if (i + 1) % args.accumulation_steps == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if updates % 5 == 0:
                print(f"Update {updates}, Loss: {total.item():.4f}", flush=True)
            updates, total = updates + 1, torch.zeros_like(total)
        if updates == args.steps:
            break
    print(f"peak memory {torch.npu.max_memory_allocated() / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
