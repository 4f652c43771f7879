"""Mixed precision with the names a script for CUDA uses: transfer_to_npu makes them mean the NPU.

python examples/large_models/mixed_precision.py
"""

import torch
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import BYTES, arguments, byte_text
from torch.utils.data import DataLoader
from torch_npu.contrib import transfer_to_npu  # noqa: F401  torch.cuda is torch.npu from here on

from torch.cuda.amp import GradScaler, autocast  # isort: skip  after transfer_to_npu, which replaces them


def main() -> None:
    args = arguments(__doc__).parse_args()
    torch.manual_seed(0)
    dataloader = DataLoader(byte_text(args.seq_len), args.batch_size, shuffle=True, pin_memory=True)
    model = GPTModel(BYTES, args.hidden_size, args.num_layers).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scaler = GradScaler()
    for step, batch in zip(range(args.steps), dataloader, strict=False):
        input_ids, labels = batch["input_ids"].npu(), batch["labels"].npu()
        with autocast():  # float16 where that is safe
            logits = model(input_ids)
            loss = language_model_loss(logits, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        # Clipping wants gradients in their own scale.
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # left out if a gradient overflowed
        scaler.update()
        if step % 5 == 0:
            print(f"Step {step}, Loss: {loss.item():.4f}, {logits.dtype}, scale {scaler.get_scale():.0f}", flush=True)


if __name__ == "__main__":
    main()
