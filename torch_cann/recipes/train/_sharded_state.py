"""Slices of parameters that one rank updates, and the state of an optimizer over them as if it were over the whole."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_cann.recipes.train._gradient_reducer import Bucket, Slot
from torch_cann.recipes.train.compression import CompressedCommunicator

# State that an optimizer keeps per parameter, not per number; for a parameter without dimensions shapes do not tell.
_PER_PARAMETER = {"step", "mu_product"}


@dataclass
class Piece:
    """Numbers ``start`` to ``stop`` of a flattened parameter; ``data`` views the shard's memory."""

    slot: Slot
    start: int
    stop: int
    data: nn.Parameter

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(-1)[self.start : self.stop]


class Shard:
    """This rank's slice of a bucket: its parameters, cut where slice or parameter ends."""

    def __init__(self, bucket: Bucket, slice_index: int, ranks: int):
        self.bucket = bucket
        length = bucket.numel // ranks
        self.begin = slice_index * length
        self.flat = bucket.zeros(length)
        self.pieces: list[Piece] = []
        for slot in bucket.slots:
            start = max(self.begin, slot.offset)
            stop = min(self.begin + length, slot.offset + slot.param.numel())
            if start < stop:
                data = nn.Parameter(self.flat[start - self.begin : stop - self.begin])
                self.pieces.append(Piece(slot, start - slot.offset, stop - slot.offset, data))

    def place(self, piece: Piece) -> slice:
        """Where a piece is in ``flat``."""
        start = piece.slot.offset + piece.start - self.begin
        return slice(start, start + piece.stop - piece.start)

    @torch.no_grad()
    def load_values(self) -> None:
        """The parameters may have been changed since the last step, by load_state_dict of the model."""
        for piece in self.pieces:
            piece.data.copy_(piece.of(piece.slot.param))

    def load_gradients(self) -> None:
        """From the parameters' whole gradients."""
        for piece in self.pieces:
            grad = piece.slot.param.grad
            piece.data.grad = None if grad is None else piece.of(grad)

    def take_gradients(self, has_grad: list[bool]) -> None:
        """From the bucket's slice of the averaged gradients."""
        for piece in self.pieces:
            grad = self.bucket.grad_shard
            piece.data.grad = grad[self.place(piece)] if grad is not None and has_grad[piece.slot.index] else None


def gather_state(
    shards: list[Shard], inner: torch.optim.Optimizer, communicator: CompressedCommunicator
) -> dict[int, dict[str, Any]]:
    """State of every parameter, by its number, tensors on the host. Collective."""
    mine: dict[int, dict[str, Any]] = {}
    for shard in shards:
        for piece in shard.pieces:
            if piece.data in inner.state:
                mine[piece.slot.number] = {
                    key: value.dtype if _is_sliced(value, piece) else _on_host(value)
                    for key, value in inner.state[piece.data].items()
                }
    everybody: list[Any] = [None] * communicator.layout.size
    dist.all_gather_object(everybody, mine, group=communicator.scheduler.process_group)
    state: dict[int, dict[str, Any]] = {}
    for theirs in everybody:
        for number, values in theirs.items():
            state.setdefault(number, {}).update(values)
    for shard in shards:
        kinds = sorted(
            {
                (key, str(value))
                for slot in shard.bucket.slots
                for key, value in state.get(slot.number, {}).items()
                if isinstance(value, torch.dtype)
            }
        )
        for key, dtype in kinds:
            _gather_one(shard, inner, communicator, state, key, getattr(torch, dtype.removeprefix("torch.")))
    return dict(sorted(state.items()))


def _gather_one(
    shard: Shard,
    inner: torch.optim.Optimizer,
    communicator: CompressedCommunicator,
    state: dict[int, dict[str, Any]],
    key: str,
    dtype: torch.dtype,
) -> None:
    """Replaces ``state[number][key]``, so far the dtype, by the whole tensor, for all parameters of a bucket."""
    part = torch.zeros_like(shard.flat, dtype=dtype)
    for piece in shard.pieces:
        value = inner.state.get(piece.data, {}).get(key)
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            part[shard.place(piece)] = value
    whole = part.new_empty(shard.bucket.numel)
    communicator.start_all_gather(whole, part).wait()
    whole = whole.cpu()
    for slot in shard.bucket.slots:
        if state.get(slot.number, {}).get(key) == dtype:
            state[slot.number][key] = slot.of(whole).clone()


def shard_state(shards: list[Shard], inner: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Of an optimizer's state over whole parameters what ``inner``, which steps the pieces, needs."""
    piece_of = {piece.data: piece for shard in shards for piece in shard.pieces}
    state, groups, number = {}, [], 0
    for group, saved in zip(inner.param_groups, state_dict["param_groups"], strict=True):
        numbers = []
        for data in group["params"]:
            piece = piece_of[data]
            values = state_dict["state"].get(piece.slot.number)
            if values is not None:
                state[number] = {key: _cut(value, key, piece) for key, value in values.items()}
            numbers.append(number)
            number += 1
        groups.append({**saved, "params": numbers})
    return {"state": state, "param_groups": groups}


def _cut(value: Any, key: str, piece: Piece) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if key in _PER_PARAMETER or value.shape != piece.slot.param.shape:
        return value.clone()
    return piece.of(value).clone()


def _is_sliced(value: Any, piece: Piece) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == piece.data.shape


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
