"""transformers: Trainer with a tiny Llama in fp32, bf16 and fp16, a checkpoint resumed, generation.

Alone, or on several cards under torchrun or accelerate launch.
"""

import math
import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

CONFIG = dict(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64)


class Counting(Dataset):
    """Sequences that count up, so that there is something to learn."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(32) + index) % CONFIG["vocab_size"]
        return {"input_ids": ids, "labels": ids}


def train(folder: str, steps: int, resume: bool = False, **precision: bool) -> float:
    set_seed(0)
    arguments = TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=8, learning_rate=5e-3, logging_steps=1, save_steps=5,
        report_to=[], disable_tqdm=True, **precision,
    )
    trainer = Trainer(LlamaForCausalLM(LlamaConfig(**CONFIG)), arguments, train_dataset=Counting())
    assert arguments.device.type == "npu", arguments.device
    trainer.train(resume_from_checkpoint=resume)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] * 0.9 and all(map(math.isfinite, losses)), losses
    parameter = next(trainer.model.parameters())
    assert parameter.device.type == "npu"
    return losses[-1]


def main() -> None:
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    for name in ("fp32", "bf16", "fp16"):
        precision = {} if name == "fp32" else {name: True}
        with tempfile.TemporaryDirectory() as folder:
            print(name, train(folder, 10, **precision))
            if alone and name == "fp32":
                print("resumed", train(folder, 15, resume=True))
    if alone:
        model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to("npu").eval()
        tokens = model.generate(torch.ones(2, 4, dtype=torch.long, device="npu"), max_new_tokens=8, do_sample=True)
        beams = model.generate(torch.ones(2, 4, dtype=torch.long, device="npu"), max_new_tokens=8, num_beams=2)
        assert tokens.device.type == beams.device.type == "npu" and tokens.shape == (2, 12)


if __name__ == "__main__":
    main()
