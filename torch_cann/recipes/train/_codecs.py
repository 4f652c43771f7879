"""What travels instead of a float32 gradient: 16-bit numbers, 8-bit numbers with scales, or only the largest.

A codec sums flat tensors over a channel, as steps (topology.Steps). Residuals keep what a codec lost on this rank;
added to the next gradient, nothing is lost in the long run (Seide et al. 2014; Karimireddy et al. 2019).
"""

from collections.abc import Hashable
from typing import Protocol

import torch
import torch.nn.functional as F

from torch_cann.recipes.train.topology import Channel, Steps

# Numbers that share a scale. Smaller loses less and sends more: 4 bytes for 256 are 1.6 %.
INT8_BLOCK = 256


class Residual:
    """What was lost for one part of one bucket; does nothing if ``store`` is None."""

    def __init__(self, store: dict[Hashable, torch.Tensor] | None, key: Hashable):
        self._store, self._key = store, key

    def part(self, name: str) -> "Residual":
        return Residual(self._store, (self._key, name))

    def add_to(self, flat: torch.Tensor) -> None:
        if self._store is not None and self._key in self._store:
            # From a checkpoint it is on the host.
            self._store[self._key] = self._store[self._key].to(flat.device)
            flat += self._store[self._key]

    def keep(self, wanted: torch.Tensor, sent: torch.Tensor) -> None:
        """Remembers ``wanted - sent``. If an overflow makes that infinite, what was remembered before stays.

        The loss scaler skips such a step, but a residual that is not finite would spoil every later one.
        """
        if self._store is None:
            return
        lost = wanted - sent
        before = self._store.get(self._key)
        if before is None:
            before = torch.zeros_like(lost)
        self._store[self._key] = torch.where(lost.isfinite().all(), lost, before)


class Codec(Protocol):
    collectives: int  # of reduce(), one after another
    feedback: bool  # whether residuals are kept unless the user says otherwise

    def reduce(self, flat: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        """``flat`` becomes the sum over the channel, the same bits on every rank."""
        ...

    def reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        """``shard`` becomes slice ``channel.rank`` of the sum. ``flat`` is a multiple of ``channel.size`` long."""
        ...


class Cast:
    """Numbers of another dtype; None: as they are. Sums are made in that dtype, so scale down before."""

    collectives, feedback = 1, False

    def __init__(self, dtype: torch.dtype | None):
        self._dtype = dtype

    def _encode(self, flat: torch.Tensor, residual: Residual) -> torch.Tensor:
        if self._dtype is None or flat.element_size() <= self._dtype.itemsize:
            return flat
        residual.add_to(flat)
        wire = flat.to(self._dtype)
        residual.keep(flat, wire)
        return wire

    def reduce(self, flat: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        wire = self._encode(flat, residual)
        yield channel.all_reduce(wire)
        if wire is not flat:
            flat.copy_(wire)

    def reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        wire = self._encode(flat, residual)
        received = shard if wire is flat else shard.new_empty(shard.shape, dtype=wire.dtype)
        yield channel.reduce_scatter(received, wire)
        if received is not shard:
            shard.copy_(received)


class Int8:
    """8-bit numbers, a float32 scale for each block of them: 3.9 times fewer bytes than float32.

    Every rank collects its slice from all and sums it in float32; reduce() then quantises the sums and distributes
    them, with a residual of its own for that second loss.
    """

    collectives, feedback = 2, True

    @staticmethod
    def _encode(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, m) numbers to (n, bytes) uint8, and the numbers that those stand for."""
        length = rows.shape[1]
        blocks = F.pad(rows.float(), (0, -length % INT8_BLOCK)).unflatten(1, (-1, INT8_BLOCK))
        scale = blocks.abs().amax(-1, keepdim=True) / 127
        # A block of zeros has scale 0, one with an overflow an infinite scale: 0 / 0 and inf / inf become 0, and the
        # latter decodes to 0 * inf = nan, which the loss scaler sees.
        quantised = (blocks / scale).nan_to_num(0).round().clamp(-127, 127).to(torch.int8)
        decoded = (quantised.float() * scale).flatten(1)[:, :length].to(rows.dtype)
        wire = torch.cat((quantised.flatten(1).view(torch.uint8), scale.flatten(1).view(torch.uint8)), 1)
        return wire, decoded

    @staticmethod
    def _decode(wire: torch.Tensor, length: int) -> torch.Tensor:
        """(n, bytes) uint8 to (n, length) float32."""
        blocks = -(-length // INT8_BLOCK)
        quantised, scale = wire.split((blocks * INT8_BLOCK, blocks * 4), 1)
        numbers = quantised.contiguous().view(torch.int8).unflatten(1, (blocks, INT8_BLOCK)).float()
        return (numbers * scale.contiguous().view(torch.float32).unsqueeze(-1)).flatten(1)[:, :length]

    def reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        residual.add_to(flat)
        wire, decoded = self._encode(flat.view(channel.size, -1))
        residual.keep(flat, decoded.flatten())
        received = torch.empty_like(wire)
        yield channel.all_to_all(received, wire)
        shard.copy_(self._decode(received, shard.numel()).sum(0))

    def reduce(self, flat: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        shard = flat.new_empty(flat.numel() // channel.size)
        yield from self.reduce_scatter(flat, shard, channel, residual)
        second = residual.part("sums")
        second.add_to(shard)
        wire, decoded = self._encode(shard.view(1, -1))
        second.keep(shard, decoded.flatten())
        received = wire.new_empty(channel.size, wire.shape[1])
        yield channel.all_gather(received, wire)
        flat.copy_(self._decode(received, shard.numel()).flatten())


class TopK:
    """The ``ratio`` of the numbers that are largest by magnitude, each with its index: 8 bytes. The rest stays 0.

    What is sent grows with the number of ranks, so it pays up to about ``1 / ratio`` of them.
    """

    collectives, feedback = 1, True

    def __init__(self, ratio: float):
        self._ratio = ratio

    def reduce(self, flat: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        residual.add_to(flat)
        k = max(1, round(self._ratio * flat.numel()))
        index = flat.abs().topk(k, sorted=False).indices
        values = flat[index].float()
        sent = torch.zeros_like(flat).index_copy_(0, index, values.to(flat.dtype))
        residual.keep(flat, sent)
        wire = torch.cat((values.view(torch.uint8), index.int().view(torch.uint8)))
        received = wire.new_empty(channel.size, wire.numel())
        yield channel.all_gather(received, wire)
        flat.zero_()
        for row in received:  # rank by rank, so that every rank sums in the same order
            numbers, index = row.split(4 * k)
            flat.index_add_(0, index.clone().view(torch.int32), numbers.clone().view(torch.float32).to(flat.dtype))

    def reduce_scatter(self, flat: torch.Tensor, shard: torch.Tensor, channel: Channel, residual: Residual) -> Steps:
        yield from self.reduce(flat, channel, residual)
        shard.copy_(flat.view(channel.size, -1)[channel.rank])


def make_codec(compression: str | None, top_k_ratio: float) -> Codec:
    """Raises ValueError for a name that is none of none, fp16, bf16, int8, topk."""
    codecs = {
        "none": lambda: Cast(None),
        "fp16": lambda: Cast(torch.float16),
        "bf16": lambda: Cast(torch.bfloat16),
        "int8": Int8,
        "topk": lambda: TopK(top_k_ratio),
    }
    name = "none" if compression is None else compression
    if name not in codecs:
        raise ValueError(f"compression must be one of {', '.join(codecs)} or None, but is {compression!r}")
    return codecs[name]()
