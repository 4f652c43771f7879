"""torchrun --max-restarts: a rank is killed, all are started anew, and training goes on from the checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, signal, sys, torch, torch_npu
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder = sys.argv[1]
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
first, path = 0, os.path.join(folder, "checkpoint.pt")
if os.path.exists(path):
    saved = torch.load(path, map_location="npu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
model = DistributedDataParallel(model)
for step in range(first, 8):
    torch.manual_seed(100 * step + rank)
    loss = model(torch.randn(8, 64).npu()).square().mean()
    if rank == 1 and step == 5 and attempt == int(os.environ["KILL_AT_ATTEMPT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
if rank == 0:
    with open(os.path.join(folder, "result"), "w") as file:
        file.write(f"{attempt} {first} {model.module.weight.double().sum().item()!r} {loss.item()!r}")
dist.destroy_process_group()
"""


def train(folder, kill_at_attempt: int) -> list[str]:
    """Attempt that got through, step it began with, and what it arrived at."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", KILL_AT_ATTEMPT=str(kill_at_attempt))
    done = subprocess.run(
        [*command, str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return (folder / "result").read_text(encoding="utf-8").split()


def test_training_goes_on_from_the_checkpoint_after_a_rank_was_killed(tmp_path) -> None:
    undisturbed = train(tmp_path / "undisturbed", kill_at_attempt=-1)
    killed = train(tmp_path / "killed", kill_at_attempt=0)
    assert undisturbed[:2] == ["0", "0"]
    assert killed[:2] == ["1", "5"]
    assert killed[2:] == undisturbed[2:]
