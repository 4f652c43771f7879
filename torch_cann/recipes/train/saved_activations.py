"""What autograd saves for backward, kept smaller or elsewhere: 16 or 8 bits, or the host's memory."""

import weakref
from collections.abc import Hashable

import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

COMPRESSIONS = ("bfloat16", "int8")
# Numbers that share a scale: 4 bytes for 256 add 1.6 %.
_GROUP = 256


class _Packed:
    """A saved tensor in its smaller form. Several nodes of the graph that saved the same tensor share one."""

    def __init__(self, tensor: torch.Tensor, compression: str | None, offload: bool) -> None:
        self._shape, self._dtype, self._device = tensor.shape, tensor.dtype, tensor.device
        self._storage = StorageWeakRef(tensor.untyped_storage())  # keeps its address from being used again
        parts = [tensor]
        if compression == "bfloat16" and tensor.element_size() > 2:
            parts = [tensor.to(torch.bfloat16)]
        elif compression == "int8":
            parts = _quantise(tensor)
        self._quantised = compression == "int8"
        self._parts = [_to_host(part) for part in parts] if offload else parts

    def unpack(self) -> torch.Tensor:
        parts = [part.to(self._device, non_blocking=True) for part in self._parts]
        if self._quantised:
            flat = (parts[0].float() * parts[1]).flatten()[: self._shape.numel()]
            return flat.view(self._shape).to(self._dtype)
        return parts[0].to(self._dtype)


def _quantise(tensor: torch.Tensor) -> list[torch.Tensor]:
    """[int8 (groups, 256), float32 (groups, 1)]; what is not finite makes its group's scale, and so the group, so."""
    flat = tensor.reshape(-1)
    groups = F.pad(flat, (0, -flat.numel() % _GROUP)).view(-1, _GROUP).float()
    scale = groups.abs().amax(1, keepdim=True) / 127
    return [(groups / scale).nan_to_num(0).round().to(torch.int8), scale]


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class SavedActivations:
    """Makes contexts for forward passes of ``model``; what is saved inside is compressed, offloaded, or both.

    Only activations: floating point tensors of at least ``min_bytes`` that are no parameter or buffer, nor of the shape
    of one or its transpose, as 16-bit copies of weights are.

    "bfloat16" halves what is float32 and leaves what has 16 bits; gradients keep about 3 digits. "int8" keeps 8 bits
    with a scale for each 256 neighbours: an activation is off by at most 1/254 of the largest of these.
    """

    def __init__(
        self, model: nn.Module, compression: str | None = None, offload: bool = False, min_bytes: int = 4096
    ) -> None:
        self._compression, self._offload, self._min_bytes = compression, offload, min_bytes
        self._held = weakref.WeakValueDictionary[Hashable, _Packed]()
        self._model = model

    def context(self) -> torch.autograd.graph.saved_tensors_hooks:
        """For the forward pass. Backward may run outside."""
        weights = [*self._model.parameters(), *self._model.buffers()]
        self._own_storages = {w.untyped_storage()._cdata for w in weights if w.device.type != "meta"}
        self._own_shapes = {shape for w in weights for shape in (tuple(w.shape), tuple(w.shape)[::-1])}
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _is_activation(self, tensor: torch.Tensor) -> bool:
        return (
            type(tensor) is torch.Tensor
            and tensor.layout == torch.strided
            and tensor.is_floating_point()
            and tensor.numel() * tensor.element_size() >= self._min_bytes
            and tensor.untyped_storage()._cdata not in self._own_storages
            and tuple(tensor.shape) not in self._own_shapes
        )

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | _Packed:
        if not self._is_activation(tensor):
            return tensor
        storage = tensor.untyped_storage()._cdata
        key = (storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version)
        packed = self._held.get(key)
        if packed is None:
            packed = self._held[key] = _Packed(tensor, self._compression, self._offload)
        return packed

    @staticmethod
    def _unpack(saved: torch.Tensor | _Packed) -> torch.Tensor:
        return saved.unpack() if isinstance(saved, _Packed) else saved
