"""Which steps of a training loop are profiled."""

from torch.profiler import ProfilerAction

__all__ = ["ProfilerAction", "Schedule"]


class Schedule:
    """Step number -> action: skip ``skip_first``, then rounds of ``wait``, ``warmup`` and ``active`` steps.

    Args:
        active: steps that are recorded, the only number that must be above 0.
        repeat: rounds; 0 for no end.
        skip_first_wait: above 0, the first round has no ``wait``.

    Raises:
        ValueError: a number is below its least value.
    """

    def __init__(
        self, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
    ) -> None:
        numbers = {"wait": wait, "warmup": warmup, "repeat": repeat, "skip_first": skip_first}
        for name, value in {**numbers, "skip_first_wait": skip_first_wait, "active": active}.items():
            least = 1 if name == "active" else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"profiler schedule: {name} must be a whole number from {least}, but is {value!r}")
        self.wait, self.active, self.warmup = wait, active, warmup
        self.repeat, self.skip_first, self.skip_first_wait = repeat, skip_first, skip_first_wait

    def __call__(self, step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"a step's number must be 0 or more, but is {step}")
        step -= self.skip_first
        if step < 0:
            return ProfilerAction.NONE
        if self.skip_first_wait:
            step += self.wait
        length = self.wait + self.warmup + self.active
        if self.repeat and step >= self.repeat * length:
            return ProfilerAction.NONE
        place = step % length
        if place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == length - 1 else ProfilerAction.RECORD
