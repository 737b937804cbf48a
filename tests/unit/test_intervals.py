from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfplace.analyze.intervals import covered, length, union


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_union_merges_overlap_and_touch_and_drops_empty() -> None:
    starts, ends = union(ints(10, 0, 5, 30, 40), ints(20, 6, 8, 30, 50))
    assert starts.tolist() == [0, 10, 40]
    assert ends.tolist() == [8, 20, 50]
    touching = union(ints(0, 5), ints(5, 9))
    assert (touching[0].tolist(), touching[1].tolist()) == ([0], [9])


def test_union_of_nothing_is_nothing() -> None:
    assert length(union(ints(), ints())) == 0


def test_covered_counts_the_part_under_cover() -> None:
    cover = union(ints(10, 30), ints(20, 40))
    # before all, over the first's start, inside, over the hole, after all
    assert covered(ints(0, 5, 12, 15, 50), ints(5, 15, 18, 35, 60), cover).tolist() == [0, 5, 6, 10, 0]


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(spans, spans)
def test_intervals_agree_with_counting_each_nanosecond(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    marks = {moment for start, size in second for moment in range(start, start + size)}
    by = union(ints(*(s for s, _ in second)), ints(*(s + n for s, n in second)))
    assert length(by) == len(marks)
    got = covered(ints(*(s for s, _ in first)), ints(*(s + n for s, n in first)), by)
    assert got.tolist() == [len(marks & set(range(s, s + n))) for s, n in first]
