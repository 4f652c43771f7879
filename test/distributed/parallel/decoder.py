"""A decoder of two blocks that all the ways to split a model can split, and its training in one process."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH, LAYERS, STEPS = 32, 16, 4, 16, 8, 4, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        # The number of heads follows from the width of the projections, of which a rank may hold a part.
        q, k, v = (
            projection(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Token ids (B, T) to logits (B, T, VOCABULARY). A stage lacks blocks and has None for ends that are elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed: nn.Module | None = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleDict({str(index): Block() for index in range(LAYERS)})
        self.norm: nn.Module | None = nn.LayerNorm(WIDTH)
        self.head: nn.Module | None = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x):
        x = self.embed(x) if self.embed else x
        for block in self.blocks.values():
            x = block(x)
        x = self.norm(x) if self.norm else x
        return self.head(x) if self.head else x


def stage_of(model: Decoder, index: int, stages: int) -> Decoder:
    """Strips `model` to part `index` of `stages` equal ones. LAYERS must be a multiple of `stages`."""
    each = LAYERS // stages
    for layer in range(LAYERS):
        if layer // each != index:
            del model.blocks[str(layer)]
    if index > 0:
        model.embed = None
    if index < stages - 1:
        model.norm = model.head = None
    return model


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """STEPS batches of token ids and the ids that follow them, (BATCH, LENGTH) each."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (STEPS, BATCH, LENGTH + 1), generator=generator)
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in ids]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """SGD in a group of its own for DTensors, since no list operator takes both kinds."""
    kinds: dict[type, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        kinds.setdefault(type(parameter.data), []).append(parameter)
    return torch.optim.SGD([{"params": parameters} for parameters in kinds.values()], lr=0.5, momentum=0.9)


def one_process() -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and weights of training on the CPU."""
    model = Decoder()
    optimizer = optimizer_of(model)
    losses = []
    for ids, targets in batches():
        loss = loss_of(model(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


def check_weights(model: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    """Each parameter, put together if it is a DTensor, is that of one process. A stage may hold some of them."""
    from torch.distributed.tensor import DTensor

    found = dict(model.named_parameters())
    assert found and found.keys() <= expected.keys()
    for name, parameter in found.items():
        whole = parameter.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        torch.testing.assert_close(
            whole.cpu(), expected[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
