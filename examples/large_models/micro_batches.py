"""A batch in micro-batches through a model that is split over the cards of one process.

python examples/large_models/micro_batches.py --cards 4

Kernels are queued and the host does not wait for them, so while the second card works on the first micro-batch, the
first card begins with the second. Gradients of the micro-batches add up, and activations are those of one micro-batch
at a time.
"""

import torch
import torch.nn as nn
import torch_npu  # noqa: F401
from model import GPTModel, language_model_loss
from text import BYTES, arguments, byte_text
from torch.utils.data import DataLoader


class SplitGPT(nn.Module):
    """Embedding on the first card, layers spread over all, head on the last."""

    def __init__(self, model: GPTModel, num_devices: int):
        super().__init__()
        if len(model.layers) % num_devices:
            raise ValueError(f"{len(model.layers)} layers cannot be spread evenly over {num_devices} cards")
        per_device = len(model.layers) // num_devices
        self.embedding = model.embedding.npu(0)
        self.positions = model.positions.npu(0)
        self.groups = nn.ModuleList(
            model.layers[i * per_device : (i + 1) * per_device].npu(i) for i in range(num_devices)
        )
        self.norm = model.norm.npu(num_devices - 1)
        self.lm_head = model.lm_head.npu(num_devices - 1)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.embedding(input_ids) + self.positions(positions)
        for device_id, layers in enumerate(self.groups):
            x = x.npu(device_id)
            for layer in layers:
                x = layer(x)
        return self.lm_head(self.norm(x))


class PipelineParallel:
    def __init__(self, model: nn.Module, num_microbatches: int = 4):
        self.model = model
        self.num_microbatches = num_microbatches

    def forward_backward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Adds the gradients of the batch's mean loss to the parameters; returns that loss."""
        losses = []
        # tensor_split, unlike slices of batch // micro-batches, loses no sample of a batch that does not divide.
        for ids, targets in zip(
            input_ids.tensor_split(self.num_microbatches), labels.tensor_split(self.num_microbatches), strict=True
        ):
            logits = self.model(ids.npu(0))
            loss = language_model_loss(logits, targets.to(logits.device)) * (len(ids) / len(input_ids))
            loss.backward()
            losses.append(loss.detach())  # .item() here would make the host wait, and with it all other cards
        return torch.stack(losses).sum()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--cards", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataloader = DataLoader(byte_text(args.seq_len), args.batch_size, shuffle=True, pin_memory=True)
    model = SplitGPT(GPTModel(BYTES, args.hidden_size, args.num_layers), args.cards)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    pipeline = PipelineParallel(model, args.micro_batches)
    for step, batch in zip(range(args.steps), dataloader, strict=False):
        loss = pipeline.forward_backward(batch["input_ids"], batch["labels"])
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"Step {step}, Loss: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
