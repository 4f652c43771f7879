"""lightning: Trainer.fit() with an accelerator for npu, which Lightning lets others register."""

import lightning as L
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, TensorDataset


class NPUAccelerator(Accelerator):
    """What a plugin for Lightning does; Lightning itself knows no npu."""

    def setup_device(self, device: torch.device) -> None:
        torch.npu.set_device(device)

    def get_device_stats(self, device: torch.device) -> dict:
        return torch.npu.memory_stats(device)

    def teardown(self) -> None:
        torch.npu.empty_cache()

    @staticmethod
    def parse_devices(devices: int) -> int:
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device("npu", index) for index in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        return torch.npu.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.npu.is_available()

    @staticmethod
    def name() -> str:
        return "npu"


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.losses: list[float] = []

    def training_step(self, batch, index):
        x, y = batch
        assert x.device.type == "npu"
        loss = (self.net(x) - y).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    L.seed_everything(0)
    x = torch.randn(64, 16)
    model = Model()
    strategy = SingleDeviceStrategy(device=torch.device("npu:0"), accelerator=NPUAccelerator())
    trainer = L.Trainer(strategy=strategy, devices=1, max_epochs=3, logger=False,
                        plugins=[LightningEnvironment()],  # no look for MPI
                        enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(model, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
    assert model.losses[-1] < model.losses[0], model.losses
    print(model.losses[0], model.losses[-1])


if __name__ == "__main__":
    main()
