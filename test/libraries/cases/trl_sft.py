"""trl: supervised fine-tuning of a tiny Llama with LoRA, on token ids that are given."""

import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from transformers_trainer import CONFIG


def tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {"<pad>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, CONFIG["vocab_size"])}}
    core = Tokenizer(WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")


def main() -> None:
    torch.manual_seed(0)
    rows = [{"input_ids": [(i + j) % CONFIG["vocab_size"] for j in range(24)]} for i in range(64)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(folder, max_steps=10, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=1,
                              report_to=[], disable_tqdm=True, bf16=True, save_strategy="no",
                              dataset_kwargs={"skip_prepare_dataset": True})
        trainer = SFTTrainer(LlamaForCausalLM(LlamaConfig(**CONFIG)), arguments, train_dataset=Dataset.from_list(rows),
                             processing_class=tokenizer(),
                             peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] and trainer.args.device.type == "npu", losses
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
