"""Lanes: slices put side by side so that on each lane they nest, or do not touch at all.

Perfetto drops the later of two slices that overlap in part on one thread, by however little, and says nothing.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from tfplace.model.rows import order_by

Int = npt.NDArray[np.int64]


def by_number(numbers: Int) -> Int:
    """Return a stable order by small numbers such as tracks, which numpy counts instead of comparing."""
    small = len(numbers) and int(numbers.max()) < 1 << 15
    return np.argsort(numbers.astype(np.int16) if small else numbers, kind="stable")


def split_lanes(start: Int, end: Int, may_nest: bool) -> Int:
    """Return the number of each slice's lane: 0 where it fits, else the lowest one that has room.

    Args:
        start, end: int64[N], nanoseconds; in any order.
        may_nest: A slice may lie within another on its lane, as calls do on one thread. Without it slices of one lane
            share no moment; a slice of no length counts as one nanosecond long, so that it has a place of its own.

    Returns:
        int64[N].
    """
    lane = np.zeros(len(start), dtype=np.int64)
    if len(start) < 2:
        return lane
    order = order_by(start, -end)
    begin, finish = start[order], end[order]
    if not may_nest:
        finish = np.maximum(finish, begin + 1)
    # a cluster begins where everything before it has ended; most hold one slice and need no thought
    reach = np.maximum.accumulate(finish)
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = begin[1:] >= reach[:-1]
    crowded = ~(opens & np.append(opens[1:], True))
    rows = np.flatnonzero(crowded)
    choose = _nested if may_nest else _apart
    lane[order[rows]] = choose(begin[rows].tolist(), finish[rows].tolist())
    return lane


def _apart(begins: list[int], ends: list[int]) -> list[int]:
    """Give each slice the lowest lane that is free at its start."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = []
    count = 0
    for begin, end in zip(begins, ends, strict=True):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def _nested(begins: list[int], ends: list[int]) -> list[int]:
    """Give each slice the lowest lane on which nothing open ends before it does."""
    stacks: list[list[int]] = []
    lanes = []
    for begin, end in zip(begins, ends, strict=True):
        for stack in stacks:
            while stack and stack[-1] <= begin:
                stack.pop()
        lane = next((n for n, stack in enumerate(stacks) if not stack or end <= stack[-1]), len(stacks))
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(end)
        lanes.append(lane)
    return lanes
