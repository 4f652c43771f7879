"""Counting floating-point operations of what runs between two calls."""

from torch.utils.flop_counter import FlopCounterMode

from torch_cann.utils._error_code import ErrCode, pta_error

__all__ = ["FlopsCounter"]


class FlopsCounter:
    """Counts matrix products, convolutions and attention, as torch.utils.flop_counter does, of this thread.

    Example::

        counter = FlopsCounter()
        counter.start()
        model(x)
        counter.stop()
        recorded, traversed = counter.get_flops()
    """

    def __init__(self) -> None:
        self._mode: FlopCounterMode | None = None
        self._paused_at: int | None = None
        self._excluded = 0
        self._total = 0

    def start(self) -> None:
        """Counts from 0. Raises RuntimeError when counting already."""
        if self._mode is not None:
            raise RuntimeError("FlopsCounter.start() was called already: call stop() first" + pta_error(ErrCode.PARAM))
        self._paused_at, self._excluded, self._total = None, 0, 0
        self._mode = FlopCounterMode(display=False)
        self._mode.__enter__()

    def stop(self) -> None:
        """Ends counting; get_flops() answers for what ran until now."""
        if self._mode is None:
            raise RuntimeError("FlopsCounter.stop() without start()" + pta_error(ErrCode.PARAM))
        self.resume()
        self._mode.__exit__(None, None, None)
        self._total, self._mode = self._mode.get_total_flops(), None

    def pause(self) -> None:
        """From here on operations are seen, but not recorded."""
        if self._mode is not None and self._paused_at is None:
            self._paused_at = self._mode.get_total_flops()

    def resume(self) -> None:
        if self._mode is not None and self._paused_at is not None:
            self._excluded += self._mode.get_total_flops() - self._paused_at
            self._paused_at = None

    def get_flops(self) -> list[int]:
        """[recorded, traversed]: the second includes what ran while paused."""
        traversed = self._total if self._mode is None else self._mode.get_total_flops()
        paused = 0 if self._paused_at is None else traversed - self._paused_at
        return [traversed - self._excluded - paused, traversed]
