"""Lanes: slices side by side so that they nest, or share no moment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.report.timeline.lanes import split_lanes


def lanes(spans, may_nest=False):
    start, end = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    return split_lanes(start, end, may_nest).tolist()


@pytest.mark.parametrize(
    ("spans", "apart", "nested"),
    [
        ([(0, 10), (10, 20)], [0, 0], [0, 0]),
        ([(0, 10), (9, 20)], [0, 1], [0, 1]),
        ([(0, 10), (2, 5)], [0, 1], [0, 0]),
        ([(2, 5), (0, 10)], [1, 0], [0, 0]),  # in any order
        ([(0, 10), (0, 10)], [0, 1], [0, 0]),
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0], [0, 1, 0]),
        ([(0, 4), (4, 4), (4, 9)], [0, 1, 0], [0, 0, 0]),  # no length: a place of its own
        ([(0, 10), (1, 9), (2, 8), (5, 20)], [0, 1, 2, 3], [0, 0, 0, 1]),
    ],
)
def test_lanes_by_hand(spans, apart, nested):
    assert lanes(spans) == apart
    assert lanes(spans, may_nest=True) == nested


def test_no_slices_have_no_lanes():
    nothing = np.zeros(0, dtype=np.int64)
    assert split_lanes(nothing, nothing, may_nest=False).tolist() == []


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), min_size=1)


@given(SPANS)
def test_slices_apart_share_no_moment_and_need_no_more_lanes_than_overlap(spans):
    found = lanes(spans)
    longer = [(start, max(end, start + 1)) for start, end in spans]
    for number, (lane, (start, end)) in enumerate(zip(found, longer, strict=True)):
        for other, (begin, stop) in zip(found[:number], longer[:number], strict=True):
            assert lane != other or end <= begin or stop <= start
    most = max(sum(begin <= moment < end for begin, end in longer) for moment in range(50))
    assert max(found) + 1 == most


@given(SPANS)
def test_nested_slices_never_overlap_in_part(spans):
    found = lanes(spans, may_nest=True)
    for number, (lane, (start, end)) in enumerate(zip(found, spans, strict=True)):
        for other, (begin, stop) in zip(found[:number], spans[:number], strict=True):
            apart = end <= begin or stop <= start
            within = (begin <= start and end <= stop) or (start <= begin and stop <= end)
            assert lane != other or apart or within
