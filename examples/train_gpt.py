"""Train a small GPT on the source text of Python's standard library.

torchrun --nproc-per-node 2 examples/train_gpt.py                      data parallel (DDP) on two NPUs
torchrun --nproc-per-node 2 examples/train_gpt.py --parallel fsdp2     parameters, gradients and optimizer state sharded
python examples/train_gpt.py                                           one NPU
python examples/train_gpt.py --device cpu                              the same on the host

A run saves a checkpoint when it ends; --stop-at ends it early and --resume goes on from there, under any of the above.
The batch is the sum over all ranks, so that the number of cards does not change what is learned.
"""

import argparse
import json
import math
import os
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpt import data
from gpt.model import GPT, GPTConfig, generate
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", choices=("npu", "cpu"), default="npu")
    add("--parallel", choices=("ddp", "fsdp2"), default="ddp", help="how torchrun's processes share the work")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="autocast to this type")
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=5)
    add("--width", type=int, default=320)
    add("--vocab-size", type=int, default=2048)
    add("--corpus-mb", type=float, default=8, help="megabytes of source text")
    add("--seq-len", type=int, default=128)
    add("--batch-size", type=int, default=8, help="sequences in a step, over all ranks")
    add("--steps", type=int, default=400)
    add("--warmup", type=int, default=40)
    add("--lr", type=float, default=2e-3)
    add("--weight-decay", type=float, default=0.1)
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--seed", type=int, default=0)
    add("--log-every", type=int, default=10)
    add("--eval-every", type=int, default=50)
    add("--eval-sequences", type=int, default=64)
    add("--stop-at", type=int, help="save and stop after this step; the schedule is still that of --steps")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--sample-tokens", type=int, default=160)
    add("--prompt", default="    def __init__(self")
    add("--work-dir", type=Path, default=Path("build/train_gpt"), help="the tokens are kept here")
    add("--checkpoint", type=Path, help="default: checkpoint.pt in the work dir")
    add("--log-file", type=Path, help="append losses here, one JSON object a line")
    return parser.parse_args()


class Trainer:
    """Holds what a run needs: the place of this process among the others, the text, the model and its optimizer."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.rank = int(os.environ.get("RANK", 0))
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        for name in ("batch_size", "eval_sequences"):
            if getattr(args, name) % self.world_size:
                raise SystemExit(
                    f"--{name.replace('_', '-')} {getattr(args, name)} cannot be shared by {self.world_size} ranks"
                )
        self.device = self._init_device()
        self.corpus = self._load_corpus()
        self.model = self._build_model()
        self.optimizer, self.scheduler = self._build_optimizer()
        self.step = 0
        self.rate = self.valid_loss = math.nan
        self.checkpoint = args.checkpoint or args.work_dir / "checkpoint.pt"
        # None: no bar where it cannot be drawn, such as a log file; the table of losses goes there all the same.
        self.bar = tqdm(total=args.steps, disable=True if self.rank else None, dynamic_ncols=True, mininterval=0.5)

    def _init_device(self) -> torch.device:
        backend, device = "gloo", torch.device("cpu")
        if self.args.device == "npu":
            import torch_npu  # noqa: F401  (makes the device known to torch)

            torch.npu.set_device(self.local_rank)
            backend, device = "hccl", torch.device("npu", self.local_rank)
        if "RANK" in os.environ:
            dist.init_process_group(backend, device_id=device if device.type == "npu" else None)
        elif self.args.parallel == "fsdp2":
            raise SystemExit("--parallel fsdp2 needs processes to shard over: start this script with torchrun")
        torch.manual_seed(self.args.seed)
        return device

    def _load_corpus(self) -> data.Corpus:
        where = (self.args.work_dir, self.args.vocab_size, int(self.args.corpus_mb * 2**20))
        if self.local_rank == 0:
            data.prepare(*where)
        if dist.is_initialized():
            dist.barrier()
        return data.load(*where)

    def _build_model(self) -> torch.nn.Module:
        args = self.args
        self.config = GPTConfig(args.vocab_size, args.layers, args.heads, args.width)
        model = GPT(self.config)
        model = model.npu() if args.device == "npu" else model
        self.num_params = model.num_params()
        if not dist.is_initialized():
            return model
        if args.parallel == "ddp":
            device_ids = [self.local_rank] if args.device == "npu" else None
            return DistributedDataParallel(model, device_ids, gradient_as_bucket_view=True)
        mesh = init_device_mesh(args.device, (self.world_size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def _build_optimizer(self):
        args = self.args
        params = list(self.model.parameters())
        groups = [
            {"params": [p for p in params if p.ndim >= 2], "weight_decay": args.weight_decay},
            {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},  # biases and norms
        ]
        optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True)

        def factor(step: int) -> float:
            if step < args.warmup:
                return (step + 1) / args.warmup
            progress = (step - args.warmup) / max(1, args.steps - args.warmup)
            return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))

        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def loss(self, ids_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        ids_BT, targets_BT = ids_BT.to(self.device), targets_BT.to(self.device)
        dtype = getattr(torch, self.args.dtype)
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32):
            logits_BTV = self.model(ids_BT)
            return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())

    def mean_over_ranks(self, value: torch.Tensor) -> float:
        if dist.is_initialized():
            dist.all_reduce(value)
        return value.item() / self.world_size

    def train_step(self) -> torch.Tensor:
        """One update; returns this rank's loss, still on the device."""
        args = self.args
        ids_BT, targets_BT = self.corpus.train_batch(self.step, args.batch_size, args.seq_len, args.seed)
        loss = self.loss(ids_BT[self.rank :: self.world_size], targets_BT[self.rank :: self.world_size])
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.clip)
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> float:
        """Mean loss over windows of the held-out text, nats per token."""
        self.model.eval()
        ids_BT, targets_BT = self.corpus.valid_batch(self.args.eval_sequences, self.args.seq_len)
        ids_BT, targets_BT = ids_BT[self.rank :: self.world_size], targets_BT[self.rank :: self.world_size]
        total = torch.zeros((), device=self.device)
        for ids, targets in zip(ids_BT.split(8), targets_BT.split(8), strict=True):
            total += self.loss(ids, targets) * len(ids)
        self.model.train()
        return self.mean_over_ranks(total / len(ids_BT))

    def train(self) -> None:
        args = self.args
        stop = min(args.stop_at or args.steps, args.steps)
        if self.step >= stop:
            raise SystemExit(
                f"nothing to do: {self.checkpoint} is of step {self.step}, and the run ends at step {stop}"
            )
        self.bar.update(self.step)
        seen, since = self.step, time.perf_counter()
        while self.step < stop:
            loss = self.train_step()
            self.bar.update()
            evaluates = self.step % args.eval_every == 0 or self.step == stop
            if evaluates or self.step % args.log_every == 0:
                # Reading the loss waits for the device, so it is not done in every step.
                train_loss = self.mean_over_ranks(loss)
                self.rate = (self.step - seen) * args.batch_size * args.seq_len / (time.perf_counter() - since)
                self.bar.set_postfix({"loss": f"{train_loss:.3f}", "tokens/s": f"{self.rate:,.0f}", "HBM": self.hbm()})
                if evaluates:
                    self.valid_loss = self.evaluate()
                    self.report(train_loss)
                seen, since = self.step, time.perf_counter()

    def hbm(self) -> str:
        if self.device.type != "npu":
            return "-"
        return f"{torch.npu.memory_allocated() / 2**20:.0f}/{torch.npu.max_memory_allocated() / 2**20:.0f} MiB"

    def report(self, train_loss: float) -> None:
        """A row of the table of losses, and a line of the log file."""
        if self.rank:
            return
        lr = self.scheduler.get_last_lr()[0]
        losses = f"{self.step:6d}  {train_loss:10.3f}  {self.valid_loss:10.3f}"
        self.bar.write(f"{losses}  {lr:8.1e}  {self.rate:8,.0f}  {self.hbm():>14}")
        if self.args.log_file:
            with self.args.log_file.open("a") as f:
                print(json.dumps({"step": self.step, "train": train_loss, "valid": self.valid_loss}), file=f)

    def announce(self) -> None:
        if self.rank:
            return
        args, corpus = self.args, self.corpus
        how = f"{self.world_size} ranks, {args.parallel}" if dist.is_initialized() else "one process"
        self.bar.write(f"{self.num_params / 1e6:.2f} M parameters on {args.device} ({how}), autocast to {args.dtype}")
        self.bar.write(
            f"{len(corpus.train):,} tokens to train on, {len(corpus.valid):,} held out, vocabulary {args.vocab_size}"
        )
        self.bar.write(f"unigram entropy of the held-out tokens: {corpus.unigram_entropy():.3f} nats per token")
        self.bar.write(
            f"{'step':>6}  {'train loss':>10}  {'valid loss':>10}  {'lr':>8}  {'tokens/s':>8}  {'HBM now/peak':>14}"
        )

    def save(self) -> None:
        # Full tensors under the model's own names, whatever the parallelism: each kind of run reads the others' files.
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model, optimizer = get_state_dict(self.model, self.optimizer, options=options)
        if self.rank == 0:
            state = {
                "config": asdict(self.config),
                "model": model,
                "optimizer": optimizer,
                "scheduler": self.scheduler.state_dict(),
                "step": self.step,
            }
            partial = self.checkpoint.with_suffix(".partial")
            torch.save(state, partial)
            partial.replace(self.checkpoint)
            self.bar.write(f"saved {self.checkpoint} at step {self.step}")

    def resume(self) -> None:
        if not self.checkpoint.exists():
            raise SystemExit(f"--resume: there is no {self.checkpoint}; run without --resume first")
        state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        if state["config"] != asdict(self.config):
            raise SystemExit(
                f"{self.checkpoint} holds a model of {state['config']}, but {asdict(self.config)} was asked for"
            )
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(full_state_dict=True),
        )
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]
        if self.rank == 0:
            self.bar.write(f"resumed {self.checkpoint} at step {self.step}")

    def finish(self) -> None:
        """Compare with the unigram entropy and let the model write; every rank takes part, it may hold a shard."""
        args, tokenizer = self.args, self.corpus.tokenizer
        ids = tokenizer.encode(args.prompt).ids
        with torch.autocast(self.device.type, dtype=getattr(torch, args.dtype), enabled=args.dtype != "float32"):
            ids = generate(self.model, ids, args.sample_tokens, args.seq_len, self.device)
        self.bar.close()
        if self.rank == 0:
            entropy = self.corpus.unigram_entropy()
            print(f"\nvalidation loss {self.valid_loss:.3f}, unigram entropy {entropy:.3f} nats per token")
            print(f"--- sample ---\n{tokenizer.decode(ids)}\n--- end ---", flush=True)


def main() -> None:
    args = parse_args()
    trainer = Trainer(args)
    if args.resume:
        trainer.resume()
    trainer.announce()
    trainer.train()
    trainer.save()
    if trainer.step == args.steps:
        trainer.finish()
    trainer.bar.close()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
