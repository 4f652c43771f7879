"""DynamicMemoryAllocator: a limit on the card's memory, with a reserve for the step that needs more."""

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_cann.recipes.train import _checks
from torch_cann.recipes.train._device import device_module, resolve_device

Result = TypeVar("Result")


class DynamicMemoryAllocator:
    """Caps what this process takes of a card, and holds part of that back until it is needed.

        allocator = DynamicMemoryAllocator(0.9, 0.1)
        loss = allocator.run(training_step, batch)

    The limit is ``max_memory_utilization - emergency_buffer`` of the card's memory. When run()'s function runs out of
    memory, the buffer is added to the limit, caches are freed and the function is called once more. After ``calm_runs``
    runs that would have fitted without, the buffer is held back again. The buffer is a limit, not a block: nothing is
    allocated for it, and it cannot be fragmented.

    Args:
        max_memory_utilization: share of the card's memory, above 0, at most 1.
        emergency_buffer: the part of that share that is held back; less than it.
        device: the card; None is the current one.
        calm_runs: see above.

    Raises:
        TypeError, ValueError: for an argument out of its range, or a device without a memory limit.
    """

    def __init__(
        self,
        max_memory_utilization: float = 0.9,
        emergency_buffer: float = 0.1,
        *,
        device: torch.device | str | int | None = None,
        calm_runs: int = 100,
    ) -> None:
        _checks.number("max_memory_utilization", max_memory_utilization, 0, 1, open_low=True)
        _checks.number("emergency_buffer", emergency_buffer, 0)
        if emergency_buffer >= max_memory_utilization:
            raise ValueError(
                f"emergency_buffer must be less than max_memory_utilization {max_memory_utilization}, of which it is a "
                f"part, but is {emergency_buffer}"
            )
        self.device = resolve_device(device)
        if self.device.type == "cpu":
            raise ValueError("the CPU's memory cannot be limited: device must be a card")
        self.max_memory_utilization = float(max_memory_utilization)
        self.emergency_buffer = float(emergency_buffer)
        self._module = device_module(self.device)
        self._calm_runs = _checks.whole("calm_runs", calm_runs, 1)
        self._calm = 0
        self._retries = self._failures = 0
        self._previous = self._module.get_per_process_memory_fraction(self.device)
        self._set_limit(buffered=True)

    def _set_limit(self, buffered: bool) -> None:
        self.buffered = buffered
        share = self.max_memory_utilization - (self.emergency_buffer if buffered else 0.0)
        self._module.set_per_process_memory_fraction(share, self.device)

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """``function(*args, **kwargs)``; called a second time, with the buffer, if it runs out of the card's memory.

        So it must be able to start over: zero gradients in it, not before. Random states are those of the first call.

        Raises:
            torch.OutOfMemoryError: if the second call runs out too, with a note of what was tried.
        """
        states = torch.get_rng_state(), self._module.get_rng_state(self.device)
        self._module.reset_peak_memory_stats(self.device)
        try:
            result = function(*args, **kwargs)
            self._hold_back_again()
            return result
        except torch.OutOfMemoryError as error:
            if not self.buffered:
                self._failures += 1
                error.add_note(f"the emergency buffer was in use already: {self.report()}")
                raise
        # Outside the except clause, whose traceback holds the failed call's tensors.
        return self._run_again(function, args, kwargs, states)

    def _run_again(self, function: Callable[..., Result], args: Any, kwargs: Any, states: Any) -> Result:
        gc.collect()
        self._module.empty_cache()
        self._set_limit(buffered=False)
        self._retries += 1
        self._calm = 0
        torch.set_rng_state(states[0])
        self._module.set_rng_state(states[1], self.device)
        try:
            return function(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            self._failures += 1
            error.add_note(f"tried again with the emergency buffer, in vain: {self.report()}")
            raise

    def _hold_back_again(self) -> None:
        if self.buffered:
            return
        limit = (self.max_memory_utilization - self.emergency_buffer) * self._capacity()
        self._calm = self._calm + 1 if self._module.max_memory_allocated(self.device) < limit else 0
        if self._calm >= self._calm_runs:
            self._module.empty_cache()
            self._set_limit(buffered=True)

    def _capacity(self) -> int:
        return self._module.mem_get_info(self.device)[1]

    def report(self) -> dict[str, Any]:
        """Bytes of the card and of this process on it, and what happened so far."""
        module = self._module
        share = self.max_memory_utilization - (self.emergency_buffer if self.buffered else 0.0)
        return {
            "capacity": self._capacity(),
            "limit": int(share * self._capacity()),
            "allocated": module.memory_allocated(self.device),
            "reserved": module.memory_reserved(self.device),
            "peak_allocated": module.max_memory_allocated(self.device),
            "buffer_held_back": self.buffered,
            "retries": self._retries,
            "failures": self._failures,
        }

    def close(self) -> None:
        """Puts the limit back to what it was before."""
        self._module.set_per_process_memory_fraction(self._previous, self.device)
