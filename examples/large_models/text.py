"""Text for these examples, as batches of {"input_ids", "labels"}, each (B, T) int64, labels one token ahead."""

import argparse
import sys
import sysconfig
from pathlib import Path

import torch
from torch.utils.data import Dataset

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the package gpt, which other examples use too

BYTES = 256  # the vocabulary if every byte is a token


class Windows(Dataset):
    """A long text, one dimension of token ids, cut into sequences."""

    def __init__(self, ids: torch.Tensor, seq_len: int):
        if len(ids) <= seq_len:
            raise ValueError(f"a text of {len(ids)} tokens is too short for sequences of {seq_len}")
        self.ids, self.seq_len = ids, seq_len

    def __len__(self) -> int:
        return (len(self.ids) - 1) // self.seq_len

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        window = self.ids[index * self.seq_len : (index + 1) * self.seq_len + 1]
        return {"input_ids": window[:-1], "labels": window[1:]}


def byte_text(seq_len: int) -> Windows:
    """Some source text of Python's standard library, its bytes as tokens: needs no tokenizer and no download."""
    folder = Path(sysconfig.get_path("stdlib"))
    content = b"".join((folder / f"{name}.py").read_bytes() for name in ("argparse", "typing", "inspect", "pickle"))
    return Windows(torch.tensor(list(content)), seq_len)


def wikitext(seq_len: int) -> tuple[Windows, int]:
    """WikiText-103 in GPT-2's tokens, and their number; from the network or the caches of its libraries."""
    from datasets import load_dataset
    from transformers import GPT2Tokenizer

    tokenizer = GPT2Tokenizer.from_pretrained("gpt2")
    dataset = load_dataset("wikitext", "wikitext-103-v1", split="train")
    tokens = dataset.map(
        lambda batch: {"ids": tokenizer(batch["text"])["input_ids"]}, batched=True, remove_columns=["text"]
    )
    # Articles follow each other, so that no sequence needs padding.
    ids = torch.tensor([token for row in tokens["ids"] for token in row])
    return Windows(ids, seq_len), len(tokenizer)


def stdlib_text(seq_len: int, vocab_size: int, work_dir: Path, megabytes: float) -> tuple[Windows, int]:
    """The source of Python's standard library, in tokens of a BPE tokenizer trained on it; kept in ``work_dir``."""
    from gpt import data

    size = int(megabytes * 1e6)
    data.prepare(work_dir, vocab_size, size)
    return Windows(data.load(work_dir, vocab_size, size).train, seq_len), vocab_size


def arguments(description: str, **defaults: int | float) -> argparse.ArgumentParser:
    """The options that these scripts share. The defaults are a model that trains in seconds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    values = {
        "hidden_size": 128,
        "num_layers": 4,
        "seq_len": 64,
        "batch_size": 8,
        "steps": 20,
        "lr": 1e-3,
    } | defaults
    for name, default in values.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser
