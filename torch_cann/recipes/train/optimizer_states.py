"""Optimizer state between steps: in bfloat16, or in the host's memory."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from torch_cann.recipes.train import _checks

FORMS = ("float32", "bfloat16", "host")


def round_stochastically(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """float32 to bfloat16, up or down with probabilities that make the mean exact.

    Rounding to nearest would freeze a running average: with a decay of 0.999 a step changes it by less than half of
    bfloat16's last place.
    """
    bits = tensor.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    rounded = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded, tensor).to(torch.bfloat16)


class CompactOptimizerState:
    """Keeps the float32 tensors of ``optimizer.state`` in a smaller form between its steps; they are whole inside.

    It lowers what is held while activations are, not the peak inside the step itself.

    Args:
        form: "bfloat16", rounded stochastically from a generator of its own; or "host", in pinned memory.
        seed: of the generator.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, form: str, seed: int = 0) -> None:
        self._form = _checks.one_of("form", form, FORMS[1:])
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        optimizer.register_step_pre_hook(self._widen)
        optimizer.register_step_post_hook(self._narrow)

    def _widen(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim():
                    if self._form == "host" and value.device != parameter.device:
                        state[key] = value.to(parameter.device, non_blocking=True)
                    elif value.dtype == torch.bfloat16 and parameter.dtype == torch.float32:
                        state[key] = value.float()

    def _narrow(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for state in optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim() and value.dtype == torch.float32:
                    state[key] = self._narrowed(value)

    def _narrowed(self, value: torch.Tensor) -> torch.Tensor:
        if self._form == "host":
            if isinstance(value, DTensor):
                raise NotImplementedError("optimizer_state='host' does not take sharded states; use 'bfloat16'")
            return value.to("cpu") if value.device.type != "cpu" else value
        if isinstance(value, DTensor):
            local = round_stochastically(value.to_local(), self._generator(value.device))
            return DTensor.from_local(
                local, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
            )
        return round_stochastically(value, self._generator(value.device))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The generators' states by device; the optimizer's own state dict has the rest."""
        return {str(device): generator.get_state() for device, generator in self._generators.items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for device, generator_state in state.items():
            self._generator(torch.device(device)).set_state(generator_state)
