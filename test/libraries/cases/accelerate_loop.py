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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(10):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    epoch = len(losses) // 10
    first, last = sum(losses[:epoch]) / epoch, sum(losses[-epoch:]) / epoch
    assert last < first / 2, losses
    accelerator.print(accelerator.distributed_type, accelerator.num_processes, first, last)
    accelerator.end_training()


if __name__ == "__main__":
    main()
