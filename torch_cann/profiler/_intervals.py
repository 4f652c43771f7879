"""Sets of times as sorted lists of intervals (start, end) that do not touch; ns."""

from collections.abc import Iterable

Intervals = list[tuple[int, int]]


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The time in any of ``intervals``, which may overlap and come in any order."""
    joined: Intervals = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def difference(a: Intervals, b: Intervals) -> Intervals:
    """The time in ``a`` that is not in ``b``."""
    left: Intervals = []
    first = 0
    for start, end in a:
        while first < len(b) and b[first][1] <= start:
            first += 1
        for hole_start, hole_end in b[first:]:
            if hole_start >= end:
                break
            if hole_start > start:
                left.append((start, hole_start))
            start = hole_end
        if start < end:
            left.append((start, end))
    return left


def length(intervals: Intervals) -> int:
    return sum(end - start for start, end in intervals)
