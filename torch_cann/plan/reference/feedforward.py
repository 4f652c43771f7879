"""The dense feedforward part of a layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torch_cann.plan.device_ops import Gated
from torch_cann.plan.layout import Layout, Model
from torch_cann.plan.reference.weights import Column, Groups, Row, Weight


def activate(y: Tensor, gated: bool, fused: bool) -> Tensor:
    """The nonlinearity between the two products: y [tokens, inner], twice as wide if gated -> [tokens, inner]"""
    if not gated:
        return nn.functional.gelu(y)
    if fused:
        return Gated.apply(y)
    gate, value = y.chunk(2, dim=-1)
    return nn.functional.silu(gate) * value


class Feedforward(nn.Module):
    """x [tokens / tp, hidden] -> the same; ``ffn`` is its inner width."""

    def __init__(self, model: Model, layout: Layout, groups: Groups, ffn: int) -> None:
        super().__init__()
        self.gated, self.fused, self.groups = model.gated, layout.fused_gated, groups
        inner = ffn // layout.tp
        self.up = Weight(inner * (2 if model.gated else 1), model.hidden, layout=layout)
        self.down = Weight(model.hidden, inner, layout=layout)

    def forward(self, x: Tensor) -> Tensor:
        y = Column.apply(x, self.up.value, self.up, self.groups.tp)
        if self.up.layout.recompute_activation:
            return checkpoint(self.contract, y, use_reentrant=True, preserve_rng_state=False)
        return self.contract(y)

    def contract(self, y: Tensor) -> Tensor:
        return Row.apply(activate(y, self.gated, self.fused), self.down.value, self.down, self.groups.tp)
