"""Text that is on every machine: the source of Python's standard library, as tokens of a BPE trained on the spot."""

import hashlib
import os
import platform
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VALIDATION_EVERY = 20  # one file in so many is held out
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "pydoc_data"}


@dataclass
class Corpus:
    tokenizer: Tokenizer
    train: torch.Tensor  # token ids, int64, one dimension
    valid: torch.Tensor

    def unigram_entropy(self) -> float:
        """Entropy in nats of the held-out tokens' frequencies: no model that ignores context can have a lower loss."""
        p = torch.bincount(self.valid).double()
        p = p[p > 0] / p.sum()
        return float(-(p * p.log()).sum())

    def train_batch(self, step: int, batch_size: int, seq_len: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets (B, T) of a step: a function of its number, so that a resumed run sees the same text."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(len(self.train) - seq_len, (batch_size,), generator=generator)
        return _windows(self.train, starts, seq_len)

    def valid_batch(self, batch_size: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Windows spread evenly over the held-out text."""
        starts = torch.linspace(0, len(self.valid) - seq_len - 1, batch_size).long()
        return _windows(self.valid, starts, seq_len)


def _windows(ids: torch.Tensor, starts: torch.Tensor, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    if len(ids) <= seq_len:
        raise ValueError(f"a text of {len(ids)} tokens is too short for sequences of {seq_len}; take more text")
    index = starts[:, None] + torch.arange(seq_len + 1)
    window = ids[index]
    return window[:, :-1], window[:, 1:]


def _read_stdlib(max_bytes: int) -> tuple[list[str], list[str]]:
    """Training and held-out files, at most max_bytes in all.

    The files are taken in the order of a hash of their path: a fixed order in which a cap cuts off no whole topic.
    """
    root = Path(sysconfig.get_path("stdlib"))
    names = [p.relative_to(root) for p in root.rglob("*.py") if p.is_file()]
    names = [n for n in names if not SKIPPED_FOLDERS.intersection(n.parts)]
    names.sort(key=lambda n: hashlib.sha256(n.as_posix().encode()).digest())
    train, valid, size = [], [], 0
    for i, name in enumerate(names):
        data = (root / name).read_bytes()
        if size + len(data) > max_bytes:
            break
        size += len(data)
        (valid if i % VALIDATION_EVERY == 0 else train).append(data.decode("utf-8", errors="replace"))
    if not train or not valid:
        raise RuntimeError(f"{len(names)} source files found in {root}, {size} bytes used: too little to train on")
    return train, valid


def _train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _encode(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    end = tokenizer.token_to_id("<|end|>")
    ids = [torch.tensor([*encoding.ids, end]) for encoding in tokenizer.encode_batch(texts)]
    return torch.cat(ids)


def _cache_path(work_dir: Path, vocab_size: int, max_bytes: int) -> Path:
    return work_dir / f"stdlib-{platform.python_version()}-{max_bytes}-bpe{vocab_size}.pt"


def prepare(work_dir: Path, vocab_size: int, max_bytes: int) -> None:
    """Train the tokenizer and encode the text, unless work_dir has them from an earlier run. One process calls this."""
    path = _cache_path(work_dir, vocab_size, max_bytes)
    if path.exists():
        return
    work_dir.mkdir(parents=True, exist_ok=True)
    train, valid = _read_stdlib(max_bytes)
    tokenizer = _train_tokenizer(train, vocab_size)
    content = {
        "tokenizer": tokenizer.to_str(),
        "train": _encode(tokenizer, train),
        "valid": _encode(tokenizer, valid),
    }
    partial = path.with_suffix(f".{os.getpid()}")
    torch.save(content, partial)
    partial.replace(path)  # a reader finds the whole file or none


def load(work_dir: Path, vocab_size: int, max_bytes: int) -> Corpus:
    """What prepare() left in work_dir."""
    content = torch.load(_cache_path(work_dir, vocab_size, max_bytes), weights_only=True)
    return Corpus(Tokenizer.from_str(content["tokenizer"]), content["train"], content["valid"])
