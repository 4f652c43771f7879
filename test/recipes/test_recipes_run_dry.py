"""The recipes under npu-plan: no memory behind tensors, no arithmetic, and no value that would be asked for."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import torch, torch_npu
from cann.recipes.train import AutoMixedPrecision, GradientAccumulation, MemoryOptimizer

def block():
    return torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256))

model = torch.nn.Sequential(*(block() for _ in range(4))).npu()
optimizer = torch.optim.AdamW(model.parameters())
amp = AutoMixedPrecision(opt_level="O2", monitor_interval=0, clip_norm=1.0)
amp.prepare(model, optimizer)
memory = MemoryOptimizer(checkpointing=0.5, activation_compression="int8")
model, optimizer = memory.prepare(model, optimizer)
accumulation = GradientAccumulation(2)
for _ in range(4):
    batch = torch.randn(4096, 256, device="npu")
    for part, weight in accumulation.weighted(accumulation.split(batch), model):
        with amp.autocast(), memory.activations():
            loss = (model(part) - part).square().mean() * weight
        amp.backward(loss)
    amp.step(optimizer)
    optimizer.zero_grad()
"""


TRAINER = """
import torch, torch_npu
import torch.distributed as dist
from cann.recipes.train import AdvancedTrainer

def block():
    return torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256))

dist.init_process_group("hccl")
torch.npu.set_device(dist.get_node_local_rank())
with torch.device("meta"):
    model = torch.nn.Sequential(*(block() for _ in range(4)))
batch = torch.zeros(64, 256)
trainer = AdvancedTrainer(
    model,
    torch.optim.AdamW(model.parameters()),
    [(batch, batch)] * 3,
    amp_config={"opt_level": "O2", "dtype": "bfloat16", "monitor_interval": 1},
    parallel_config={"strategy": "fsdp"},
    memory_config={"checkpointing": True},
    clip_norm=1.0,
    console=False,
)
trainer.train(log_interval=100)
"""


def plan(script: Path, text: str, *options: str) -> str:
    """What npu-plan says of a script."""
    script.write_text(text)
    command = [sys.executable, "-m", "npu_plan", "run", "--soc", "Ascend910B2", *options, str(script)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    return done.stdout


def test_the_recipes_run_dry(tmp_path: Path) -> None:
    assert "fits" in plan(tmp_path / "train.py", SCRIPT)


def test_a_trainer_runs_dry_without_assumptions(tmp_path: Path) -> None:
    """Norms and sizes of updates, which a dry run does not know, are not looked at before a record needs them."""
    said = plan(tmp_path / "train.py", TRAINER, "--nnodes", "1", "--nproc-per-node", "8", "--no-mirror-check")
    assert "fits" in said and "ssumed" not in said and "unknown" not in said
