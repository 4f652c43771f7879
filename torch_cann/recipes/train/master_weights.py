"""Float32 masters of 16-bit parameters: what the optimizer updates, so that small updates are not lost."""

from collections.abc import Iterable

import torch
from torch import nn


class MasterWeights:
    """Pairs of a 16-bit parameter of the model and the float32 master in its place in the optimizer.

    The parameters are cast in place and stay the same objects; the float32 memory they had becomes the master's.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], optimizer: torch.optim.Optimizer, dtype: torch.dtype
    ) -> None:
        """Casts those of ``parameters`` to ``dtype``, and puts masters into ``optimizer`` for those that it has."""
        owned = {p for group in optimizer.param_groups for p in group["params"]}
        self.master_of: dict[nn.Parameter, nn.Parameter] = {}
        for parameter in parameters:
            if parameter in owned:
                self.master_of[parameter] = nn.Parameter(parameter.detach(), parameter.requires_grad)
            parameter.data = parameter.data.to(dtype)
            parameter.grad = None
        for group in optimizer.param_groups:
            group["params"] = [self.master_of.get(p, p) for p in group["params"]]
        for parameter, master in self.master_of.items():
            if parameter in optimizer.state:
                optimizer.state[master] = optimizer.state.pop(parameter)

    def take_gradients(self) -> None:
        """Moves the parameters' gradients to the masters, as float32."""
        for parameter, master in self.master_of.items():
            if parameter.grad is not None:
                master.grad = parameter.grad.float()
                parameter.grad = None

    @torch.no_grad()
    def write_back(self) -> None:
        """Rounds the masters into the parameters."""
        for parameter, master in self.master_of.items():
            parameter.copy_(master)
