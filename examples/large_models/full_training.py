"""Everything together: DDP, mixed precision, schedule, checkpoints, WikiText-103 in GPT-2's tokens.

torchrun --nproc-per-node 8 examples/large_models/full_training.py --data wikitext --hidden-size 4096 --num-layers 32
torchrun --nproc-per-node 2 examples/large_models/full_training.py

The text is WikiText if the libraries datasets and transformers can get it, else the source of Python's standard library
with a tokenizer that is trained on the spot; --data names one of them. --resume goes on from the newest checkpoint.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import Windows, arguments, stdlib_text, wikitext
from torch.utils.data import DataLoader, DistributedSampler


def load_text(args) -> tuple[Windows, int]:
    """The text and the size of its vocabulary. The first rank loads first, and the others find what it has cached."""
    rank = dist.get_rank()
    choice = [args.data]
    for turn in (0, 1):
        if turn == (0 if rank == 0 else 1):
            result, choice[0] = _load(choice[0], args)
        if turn == 0:
            dist.broadcast_object_list(choice, src=0)  # also holds the others back until the first is done
    if rank == 0:
        print(f"Text: {choice[0]}, {len(result[0]):,} sequences, vocabulary {result[1]:,}", flush=True)
    return result


def _load(choice: str, args) -> tuple[tuple[Windows, int], str]:
    if choice != "stdlib":
        try:
            return wikitext(args.seq_len), "wikitext"
        except (ImportError, OSError) as error:  # not installed, or no network
            if choice == "wikitext":
                raise
            print(f"No WikiText here ({type(error).__name__}), so the standard library's source", flush=True)
    return stdlib_text(args.seq_len, args.vocab_size, args.work_dir, args.corpus_mb), "stdlib"


def save(path: Path, model, optimizer, scheduler, scaler, step: int) -> None:
    partial = path.with_suffix(".partial")
    torch.save(
        {
            "step": step,
            "model_state_dict": model.module.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(),
            "scheduler_state_dict": scheduler.state_dict(),
            "scaler_state_dict": scaler.state_dict(),
        },
        partial,
    )
    partial.replace(path)  # a reader finds a whole file or none
    print(f"Saved {path}", flush=True)


def resume(folder: Path, model, optimizer, scheduler, scaler) -> int:
    found = sorted(folder.glob("checkpoint_*.pt"), key=lambda path: int(path.stem.split("_")[1]))
    if not found:
        raise SystemExit(f"--resume: there is no checkpoint_*.pt in {folder}")
    state = torch.load(found[-1], map_location="cpu", weights_only=True)
    model.module.load_state_dict(state["model_state_dict"])
    optimizer.load_state_dict(state["optimizer_state_dict"])
    scheduler.load_state_dict(state["scheduler_state_dict"])
    scaler.load_state_dict(state["scaler_state_dict"])
    return state["step"]


def parse_args():
    parser = arguments(__doc__)
    parser.add_argument("--data", choices=("auto", "wikitext", "stdlib"), default="auto")
    parser.add_argument("--vocab-size", type=int, default=2048, help="of the tokenizer that is trained on the spot")
    parser.add_argument("--corpus-mb", type=float, default=2)
    parser.add_argument("--num-heads", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--work-dir", type=Path, default=Path("build/full_training"), help="tokens and checkpoints")
    return parser.parse_args()


def main() -> None:
    # 1. Processes and cards
    args = parse_args()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="hccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    args.work_dir.mkdir(parents=True, exist_ok=True)

    # 2. Data: each rank its own part
    dataset, vocab_size = load_text(args)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    dataloader = DataLoader(
        dataset, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=True, drop_last=True
    )

    # 3. and 4. The model, the same on all ranks
    model = GPTModel(vocab_size, args.hidden_size, args.num_layers, args.num_heads, max_length=args.seq_len).npu()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[torch.npu.current_device()], bucket_cap_mb=25)

    # 5. and 6. Optimizer, schedule, loss scale
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    scaler = torch.amp.GradScaler("npu")
    global_step = resume(args.work_dir, model, optimizer, scheduler, scaler) if args.resume else 0

    # 7. Training; a resumed run goes on where the other stopped in the sequence of batches
    while global_step < args.steps:
        epoch, done = divmod(global_step, len(dataloader))
        sampler.set_epoch(epoch)  # another order in every epoch
        for index, batch in enumerate(dataloader):
            if index < done:
                continue
            input_ids = batch["input_ids"].npu(non_blocking=True)
            labels = batch["labels"].npu(non_blocking=True)
            with torch.autocast("npu", dtype=torch.float16):
                loss = language_model_loss(model(input_ids), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            global_step += 1
            if rank == 0 and global_step % args.log_every == 0:
                lr = scheduler.get_last_lr()[0]
                print(f"Step {global_step}, Loss: {loss.item():.4f}, LR: {lr:.6f}", flush=True)
            if rank == 0 and global_step % args.save_every == 0:
                path = args.work_dir / f"checkpoint_{global_step}.pt"
                save(path, model, optimizer, scheduler, scaler, global_step)
            if global_step == args.steps:
                break

    # 8. End
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
