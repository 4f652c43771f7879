"""Train a multi-layer perceptron on one NPU to tell two intertwined spirals apart.

python examples/mlp.py                  on npu:0
python examples/mlp.py --device cpu     the same on the host
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def spirals(n_points: int, seed: int) -> TensorDataset:
    """Points (n, 2) of two spirals that make one and a half turns, with noise, and the spiral each is from (n)."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(n_points) % 2
    radius = 0.1 + torch.rand(n_points, generator=generator)
    angle = 3 * math.pi * radius + math.pi * label
    point = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    return TensorDataset(point + 0.02 * torch.randn(n_points, 2, generator=generator), label)


@torch.no_grad()
def accuracy(model: nn.Module, dataset: TensorDataset, device: torch.device) -> float:
    points, labels = (t.to(device) for t in dataset.tensors)
    return (model(points).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("npu", "cpu"), default="npu")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    if args.device == "npu":
        import torch_npu  # noqa: F401  (makes the device known to torch)

        torch.npu.set_device(0)
    device = torch.device(args.device)

    torch.manual_seed(0)
    w = args.width
    model = nn.Sequential(nn.Linear(2, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train, test = spirals(2048, seed=1), spirals(512, seed=2)
    loader = DataLoader(train, batch_size=128, shuffle=True, pin_memory=args.device == "npu")

    print(f"{'epoch':>5}  {'loss':>8}  {'test accuracy':>13}")
    for epoch in range(1, args.epochs + 1):
        total = torch.zeros((), device=device)
        for points, labels in loader:
            points, labels = points.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = F.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if epoch == 1 or epoch % 5 == 0 or epoch == args.epochs:
            print(f"{epoch:5d}  {total.item() / len(loader):8.4f}  {accuracy(model, test, device):13.3f}", flush=True)
    if args.device == "npu":
        print(f"peak HBM: {torch.npu.max_memory_allocated() / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
