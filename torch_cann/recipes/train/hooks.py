"""Calls of the script's own during a run."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

EVENTS = ("train_start", "epoch_start", "step_end", "validation_end", "checkpoint_saved", "train_end")


class Hooks:
    """What to call at which event.

    Args:
        hooks: a dictionary of events to functions, or objects with methods named "on_" and an event; or a list of
            these. Each is called with the trainer and a dictionary of what is new.

    Raises:
        ValueError: for an event that does not exist, or an object without any such method.
    """

    def __init__(self, hooks: Mapping[str, Callable] | Iterable[Any] | None) -> None:
        self._calls: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}
        for hook in [hooks] if isinstance(hooks, Mapping) else list(hooks or ()):
            found = dict(hook) if isinstance(hook, Mapping) else self._methods(hook)
            for event, function in found.items():
                if event not in self._calls:
                    raise ValueError(f"hooks: there is no event {event!r}; there are {', '.join(EVENTS)}")
                self._calls[event].append(function)

    @staticmethod
    def _methods(hook: Any) -> dict[str, Callable[..., Any]]:
        named = {name.removeprefix("on_"): getattr(hook, name) for name in dir(hook) if name.startswith("on_")}
        if not named:
            raise ValueError(
                f"hooks: {type(hook).__name__} has no method for an event; they are named "
                + ", ".join(f"on_{event}" for event in EVENTS)
            )
        return named

    def call(self, event: str, trainer: Any, values: dict[str, Any]) -> None:
        for function in self._calls[event]:
            function(trainer, values)
