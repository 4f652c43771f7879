"""accelerate: a training loop of its own under accelerate launch, with DDP or, where the launcher says so, FSDP."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    assert accelerator.device.type == "npu", accelerator.device
    torch.manual_seed(0)
    inputs = torch.randn(64, 16)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = accelerator.prepare(model)
    optimizer, loader = accelerator.prepare(torch.optim.AdamW(model.parameters(), lr=1e-2), loader)
    losses = []
    for _ in range(4):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    assert losses[-1] < losses[0], losses
    accelerator.print(accelerator.distributed_type, accelerator.num_processes, losses[0], losses[-1])
    accelerator.end_training()


if __name__ == "__main__":
    main()
