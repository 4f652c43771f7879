"""Data parallel: every card has the whole model, HCCL averages the gradients.

torchrun --nproc-per-node 2 examples/large_models/data_parallel.py
torchrun --nproc-per-node 8 examples/large_models/data_parallel.py --hidden-size 4096 --num-layers 32
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import BYTES, arguments, byte_text
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    args = arguments(__doc__).parse_args()
    # LOCAL_RANK, not the rank: on the second server rank 8 has card 0.
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="hccl")
    rank = dist.get_rank()
    torch.manual_seed(0)

    dataset = byte_text(args.seq_len)
    sampler = DistributedSampler(dataset, shuffle=True)  # each rank sees its own part
    dataloader = DataLoader(dataset, args.batch_size, sampler=sampler, pin_memory=True, drop_last=True)

    model = GPTModel(BYTES, args.hidden_size, args.num_layers).npu()
    model = nn.parallel.DistributedDataParallel(
        model,
        device_ids=[torch.npu.current_device()],
        bucket_cap_mb=25,  # gradients travel in groups of this size, each as soon as backward has filled it
        gradient_as_bucket_view=True,  # gradients are parts of these groups: no copy
        broadcast_buffers=False,  # no buffers that training changes; newer PyTorch: forward_sync_buffers
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    step = 0
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for batch in dataloader:
            input_ids = batch["input_ids"].npu(non_blocking=True)
            labels = batch["labels"].npu(non_blocking=True)
            loss = language_model_loss(model(input_ids), labels)
            optimizer.zero_grad()
            loss.backward()  # DDP starts all_reduces while this runs
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if rank == 0 and step % 5 == 0:
                print(f"Epoch {epoch}, Step {step}, Loss: {loss.item():.4f}", flush=True)
            step += 1
            if step == args.steps:
                dist.destroy_process_group()
                return


if __name__ == "__main__":
    main()
