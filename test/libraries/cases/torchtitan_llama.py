"""torchtitan: its debug Llama with packed attention, FSDP2 and, with --tensor-parallel, tensor parallelism.

Text and tokenizer, which its repository has and its wheel has not, are made here.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.distributed.tensor import DTensor

_WORDS = "the quick brown fox jumps over the lazy dog while some other animals sleep in the warm shade".split()


def make_assets() -> None:
    """tests/assets of torchtitan's repository, in the current folder."""
    text = Path("tests/assets/c4_test")
    text.mkdir(parents=True)
    with open(text / "data.json", "w") as file:
        for number in range(200):
            words = (_WORDS[(number + place) % len(_WORDS)] for place in range(40))
            file.write(json.dumps({"text": " ".join(words)}) + "\n")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<bos>", "<eos>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    Path("tests/assets/tokenizer").mkdir()
    tokenizer.save("tests/assets/tokenizer/tokenizer.json")
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "add_eos_token": True}
    Path("tests/assets/tokenizer/tokenizer_config.json").write_text(json.dumps(names))


def main() -> None:
    if not hasattr(torch.distributed, "set_timeout"):  # torchtitan 0.3.0 is ahead of PyTorch 2.13.0
        torch.distributed.set_timeout = torch.distributed.distributed_c10d._set_pg_timeout
    tensor_parallel = "2" if "--tensor-parallel" in sys.argv else "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_assets()
        from torchtitan.config import ConfigManager

        options = {
            "module": "llama3", "config": "llama3_debugmodel_varlen_attn", "training.steps": "6",
            "training.seq-len": "64", "training.local-batch-size": "2", "validator.steps": "1",
            "parallelism.tensor-parallel-degree": tensor_parallel, "parallelism.spmd-backend": "partial_dtensor",
        }  # fmt: skip
        config = ConfigManager().parse_args([part for k, v in options.items() for part in (f"--{k}", v)])
        trainer = config.build()
        assert trainer.device.type == "npu", trainer.device
        losses = []
        log = trainer.metrics_processor.log

        def log_and_keep(step, loss, *args, **kwargs):
            losses.append(float(loss))
            return log(step, loss, *args, **kwargs)

        trainer.metrics_processor.log = log_and_keep
        trainer.train()
        parameter = next(trainer.model_parts[0].parameters())
        assert isinstance(parameter, DTensor) and parameter.device.type == "npu", parameter
        assert len(losses) == 6 and losses[-1] < losses[0], losses
        print(parameter.placements, losses[0], losses[-1])
        trainer.close()
        os.chdir("/")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
