"""The recipes under npu-plan: no memory behind tensors, no arithmetic, and no value that would be asked for."""

import os
import subprocess
import sys

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


def test_the_recipes_run_dry(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "npu_plan", "run", "--soc", "Ascend910B2", str(script)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    assert "fits" in done.stdout
