"""Statistics of the caching allocator as a table."""

from collections.abc import Callable, Iterator
from typing import Any

_COLUMNS = (("current", "Cur Usage"), ("peak", "Peak Usage"), ("allocated", "Tot Alloc"), ("freed", "Tot Freed"))
_POOLS = (("all", ""), ("large_pool", "  from large pool"), ("small_pool", "  from small pool"))


def _size(value: int) -> str:
    """Bytes in the unit that leaves at most five digits before the point."""
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 10000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


_BYTES: tuple[tuple[str, str], ...] = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "NPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
)
_COUNTS: tuple[tuple[str, str], ...] = (
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "NPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_OVERSIZE: tuple[tuple[str, str], ...] = (
    ("oversize_allocations", "Oversize allocations"),
    ("oversize_segments", "Oversize NPU segments"),
)


def _row(title: str, stat: dict[str, int], show: Callable[[int], str]) -> str:
    return f" {title:<22} | " + " | ".join(f"{show(stat[key]):>12}" for key, _ in _COLUMNS) + " "


def _rows(stats: dict[str, Any], abbreviated: bool) -> Iterator[list[str]]:
    """Groups of lines, to be separated by a rule."""
    for metrics, show in ((_BYTES, _size), (_COUNTS, str)):
        for key, title in metrics:
            pools = _POOLS[:1] if abbreviated else _POOLS
            yield [_row(suffix or title, stats[key][pool], show) for pool, suffix in pools]
    for key, title in _OVERSIZE:
        yield [_row(title, stats[key], str)]


def render(stats: dict[str, Any], device: int, abbreviated: bool) -> str:
    """``stats`` is the nested dictionary of memory_stats_as_nested_dict()."""
    header = f" {'Metric':<22} | " + " | ".join(f"{title:>12}" for _, title in _COLUMNS) + " "
    width = len(header)
    rule, double_rule = "-" * width, "=" * width
    lines = [
        double_rule,
        f"PyTorch NPU memory summary, device ID {device}".center(width),
        rule,
        f" NPU OOMs: {stats['num_ooms']} | allocation retries: {stats['num_alloc_retries']}".ljust(width),
        double_rule,
        header,
    ]
    for group in _rows(stats, abbreviated):
        lines += [rule, *group]
    return "\n".join(f"|{line}|" for line in (*lines, double_rule)) + "\n"
