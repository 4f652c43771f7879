"""torch_npu.contrib.module: layers that hardware has fused kernels for, from PyTorch's operators here."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torch_cann._refused import refused
from torch_cann.contrib.function import dropout_with_byte_mask, matmul_transpose

__all__ = [
    "BiLSTM",
    "ChannelShuffle",
    "DropoutWithByteMask",
    "FastBatchNorm1d",
    "FastBatchNorm2d",
    "FastBatchNorm3d",
    "FastSyncBatchNorm",
    "Focus",
    "LabelSmoothingCrossEntropy",
    "LinearA8W8Quant",
    "LinearQuant",
    "LinearWeightQuant",
    "Mish",
    "ModulatedDeformConv",
    "MultiheadAttention",
    "NpuCachedDropout",
    "NpuDropPath",
    "NpuFairseqDropout",
    "NpuPreGenDropout",
    "PSROIPool",
    "Prefetcher",
    "QuantConv2d",
    "ROIAlign",
    "SiLU",
    "Swish",
]

globals().update(refused(__name__))

# The counter of batches is int32 on hardware, for want of fast int64; the results are the same.
FastBatchNorm1d, FastBatchNorm2d, FastBatchNorm3d = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
FastSyncBatchNorm = nn.SyncBatchNorm
Matmul_transpose = matmul_transpose


class Mish(nn.Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.mish(x)


class SiLU(nn.Module):
    """x * sigmoid(x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(x)


Swish = SiLU


class BiLSTM(nn.Module):
    """An LSTM in both directions: (steps, batch, input_size) -> (steps, batch, 2 * hidden_size)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, bidirectional=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.lstm(inputs)[0]


class ChannelShuffle(nn.Module):
    """Channels of two (n, c, h, w) tensors taken in turn.

    Args:
        in_channels: channels of both together.
        groups: 2.
        split_shuffle: True gives the halves as two tensors, False all as one.
    """

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True) -> None:
        super().__init__()
        if groups != 2 or in_channels % 2:
            raise ValueError(f"ChannelShuffle takes 2 groups of equal size, but got {groups} for {in_channels}")
        self.split_shuffle = split_shuffle

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> Any:
        shuffled = torch.stack((x1, x2), 2).flatten(1, 2)
        return shuffled.chunk(2, 1) if self.split_shuffle else shuffled


class LabelSmoothingCrossEntropy(nn.Module):
    """Cross entropy against labels that are sure by 1 - ``smooth_factor``; the mean over the batch."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__()
        self.num_classes, self.smooth_factor = num_classes, smooth_factor

    def forward(self, pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """``pred``: (n, num_classes) scores, ``target``: (n,) classes."""
        off = self.smooth_factor / (self.num_classes - 1)
        labels = torch.full_like(pred, off).scatter_(1, target[:, None].long(), 1.0 - self.smooth_factor)
        return -(labels * torch.log_softmax(pred, -1)).sum(-1).mean()


class DropoutWithByteMask(nn.Module):
    """torch.nn.Dropout; ``max_seed`` is accepted."""

    def __init__(self, p: float = 0.5, inplace: bool = False, max_seed: int = 2**10 - 1) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input1: torch.Tensor) -> torch.Tensor:
        return dropout_with_byte_mask(input1, self.p, self.training, self.inplace)


class NpuCachedDropout(nn.Module):
    """Dropout. On hardware the masks are drawn ahead, on another stream."""

    def __init__(self, p: float, module_name: str | None = None) -> None:
        super().__init__()
        self.p, self.module_name = p, module_name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, self.p, self.training)

    @classmethod
    def enable_dropout_ensemble(cls, model: nn.Module) -> None:
        """Would draw the masks of all such layers of ``model`` ahead; they are drawn when needed here."""


NpuFairseqDropout = NpuPreGenDropout = NpuCachedDropout


class NpuDropPath(nn.Module):
    """Stochastic depth (Huang et al., 2016): whole samples become 0 with probability ``drop_prob``, the others grow."""

    def __init__(self, drop_prob: float | None = None) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.drop_prob or not self.training:
            return x
        keep = 1 - self.drop_prob
        return x * x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(keep).div_(keep)

    @classmethod
    def enable_droppath_ensemble(cls, model: nn.Module) -> None:
        """Would draw the masks of all such layers of ``model`` ahead; they are drawn when needed here."""


def autopad(k: int | list[int], p: int | list[int] | None = None) -> int | list[int]:
    """Padding that keeps the size of an image for kernels of size ``k``, unless ``p`` is given."""
    if p is not None:
        return p
    return k // 2 if isinstance(k, int) else [size // 2 for size in k]


class Conv(nn.Module):
    """Convolution, batch normalisation and, if ``act``, SiLU."""

    def __init__(
        self, c1: int, c2: int, k: int = 1, s: int = 1, p: int | None = None, g: int = 1, act: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, autopad(k, p), groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.SiLU() if act is True else act if isinstance(act, nn.Module) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


def fast_slice(x: torch.Tensor) -> torch.Tensor:
    """(n, c, h, w) -> (n, 4c, h/2, w/2): the four pixels of each 2 x 2 square become channels."""
    return torch.cat([x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)], 1)


class Focus(nn.Module):
    """Squares of 2 x 2 pixels into channels, then Conv, as in YOLOv5."""

    def __init__(
        self, c1: int, c2: int, k: int = 1, s: int = 1, p: int | None = None, g: int = 1, act: bool = True
    ) -> None:
        super().__init__()
        self.conv = Conv(c1 * 4, c2, k, s, p, g, act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(fast_slice(x))


class Prefetcher:
    """Batches of a loader, copied to the card on a stream of their own while the one before is in use.

    Args:
        loader: an iterable of tuples (input, target); inputs are made float, as hardware wants them.
    """

    def __init__(self, loader: Any, stream: torch.Stream | None = None) -> None:
        self.loader: Iterator[Any] = iter(loader)
        self.stream = torch.npu.Stream() if stream is None else stream
        self._preload()

    def _preload(self) -> None:
        batch = next(self.loader, None)
        if batch is None:
            self._next = (None, None)
            return
        with torch.npu.stream(self.stream):
            image, target = (part.npu(non_blocking=True) for part in batch)
            self._next = (image.float(), target)

    def next(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The next batch; (None, None) after the last."""
        torch.npu.current_stream().wait_stream(self.stream)
        batch = self._next
        if batch[0] is not None:
            self._preload()
        return batch
