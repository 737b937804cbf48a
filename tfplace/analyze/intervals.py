"""Arithmetic on time intervals as sorted, disjoint numpy arrays of starts and ends (int64 ns)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Intervals = tuple[Ints, Ints]


def union(starts: Ints, ends: Ints) -> Intervals:
    """Return the disjoint, sorted union of intervals that may overlap; empty ones vanish."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.ones(len(starts), dtype=bool)
    opens[1:] = starts[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, len(starts) - 1)
    return starts[first], reach[last]


def length(intervals: Intervals) -> int:
    """Return the total length of disjoint intervals."""
    return int((intervals[1] - intervals[0]).sum())


def covered(starts: Ints, ends: Ints, by: Intervals) -> Ints:
    """Return how much of each interval the disjoint, sorted intervals `by` cover."""
    if not len(by[0]):
        return np.zeros(len(starts), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(by[1] - by[0])])

    def total_until(moments: Ints) -> Ints:
        index = np.searchsorted(by[0], moments, side="right")
        inside = np.clip(moments - by[0][np.maximum(index - 1, 0)], 0, (by[1] - by[0])[np.maximum(index - 1, 0)])
        passed: Ints = before[np.maximum(index - 1, 0)] + np.where(index > 0, inside, 0)
        return passed

    return total_until(ends) - total_until(starts)
