"""Copies arguments to a device so that everything but the device stays as it was.

``Tensor.to`` keeps neither the storage behind a partial view, nor two arguments' common storage, nor lazy conjugate and
negative bits. Here whole storages are copied once and the views are made anew, for the device under test and for the
CPU reference alike, so both see the same offsets, strides and aliasing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class OnHost:
    """An argument that stays where it is: some operators want a tensor on the CPU on every device."""

    value: Any


class Transfer:
    """One copy of a tree of arguments to one device; an instance must not be used for a second call of an operator."""

    def __init__(self, device: str) -> None:
        self._device = device
        # Whether a tensor, device or generator was among what has been copied.
        self.found_device = False
        self._storages: dict[int, torch.Tensor] = {}
        # Tensors are remembered by identity, so an argument passed twice stays one tensor.
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, tree: Any) -> Any:
        """The tree with every tensor, device and generator on the target device."""
        return pytree.tree_map(self._leaf, tree)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor | torch.device | torch.Generator) or (isinstance(leaf, str) and leaf == "cpu"):
            self.found_device = True
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in self._tensors:
                self._tensors[id(leaf)] = (leaf, self._tensor(leaf))
            return self._tensors[id(leaf)][1]
        if isinstance(leaf, OnHost):
            return leaf.value
        if isinstance(leaf, torch.device):
            return torch.device(self._device) if leaf.type == "cpu" else leaf
        if isinstance(leaf, torch.Generator):
            return torch.Generator(self._device).manual_seed(leaf.initial_seed())
        if isinstance(leaf, slice):
            return slice(self._leaf(leaf.start), self._leaf(leaf.stop), self._leaf(leaf.step))
        return self._device if isinstance(leaf, str) and leaf == "cpu" else leaf

    @torch.no_grad()
    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            # clone: on the CPU itself .to() would hand back the sample, and an in-place check would spoil it
            moved = tensor.detach().clone().to(self._device)
        else:
            moved = self._strided(tensor.detach())
        return moved.requires_grad_(tensor.requires_grad)

    def _strided(self, tensor: torch.Tensor) -> torch.Tensor:
        conjugate, negative = tensor.is_conj(), tensor.is_neg()
        plain = tensor.conj() if conjugate else tensor
        plain = torch._neg_view(plain) if negative else plain
        if plain.dtype.is_complex is False and plain.untyped_storage().nbytes() % plain.element_size():
            raise RuntimeError(f"a storage of {plain.untyped_storage().nbytes()} bytes is not whole {plain.dtype}")
        view = self._bytes(plain).view(plain.dtype)
        view = view.as_strided(plain.size(), plain.stride(), plain.storage_offset()).detach()
        view = torch._neg_view(view) if negative else view
        return view.conj() if conjugate else view

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        """The whole storage behind ``tensor`` on the device, as a tensor of bytes."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = flat.clone().to(self._device)
        return self._storages[key]


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
