"""deepspeed: ZeRO in bf16 on all ranks of the launcher, the stages that the arguments name.

Stage 3 adds norms of gradients in float64, which hccl refuses to reduce on 910B, as on hardware; Ascend910_95 can.
"""

import sys

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator


def train(stage: int) -> tuple[float, float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": True},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    assert engine.device.type == "npu", engine.device
    x = torch.randn(8, 16, device=engine.device, dtype=torch.bfloat16)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(20):
        loss = (engine(x) - y).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def main() -> None:
    assert get_accelerator().device_name() == "npu", get_accelerator()
    deepspeed.init_distributed()
    assert torch.distributed.get_backend() == "hccl"
    for stage in map(int, sys.argv[1:]):
        first, last = train(stage)
        assert last < first, (stage, first, last)
        print("stage", stage, first, last)


if __name__ == "__main__":
    main()
