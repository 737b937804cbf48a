"""Table values as plain Python: what JSON, CSV and people get."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tfplace.report.values import compact, number, plain_column, plain_value, records


@pytest.mark.parametrize(
    ("values", "dtype", "plain"),
    [
        ([1, None], "Int64", [1, None]),
        ([1, 2], "int64", [1, 2]),
        ([1.5, float("nan")], "float64", [1.5, None]),
        ([1.5, None], "Float64", [1.5, None]),
        (["a", None], "string", ["a", None]),
        ([True, None], "boolean", [True, None]),
        ([True, False], "bool", [True, False]),
        ([(1, 2), None, {"a": (1,)}], "object", [[1, 2], None, {"a": [1]}]),
    ],
)
def test_columns_become_plain(values, dtype, plain):
    got = plain_column(pd.Series(values, dtype=dtype))
    assert got == plain
    assert [type(value) for value in got] == [type(value) for value in plain]


def test_odd_values_become_plain():
    assert plain_value(np.int64(3)) == 3
    assert type(plain_value(np.int64(3))) is int
    assert plain_value(float("inf")) is None
    assert plain_value(pd.NA) is None
    assert plain_value({2: {"b", "a"}}) == {"2": ["a", "b"]}
    assert plain_value(b"x") == "b'x'"


def test_records_keep_the_order_of_columns():
    frame = pd.DataFrame({"b": [1], "a": ["x"]})
    assert [list(row.items()) for row in records(frame)] == [[("b", 1), ("a", "x")]]
    assert records(pd.DataFrame()) == []


def test_compact_text_of_a_value():
    assert [compact(v) for v in (None, True, 3, 2.5, "x", [1, "\u00fc"])] == [
        "",
        "true",
        "3",
        "2.5",
        "x",
        '[1, "\u00fc"]',
    ]


def test_whole_numbers_have_no_point():
    assert [number(v) for v in (2.0, 2.5, 1 / 3, None, float("nan"))] == [2, 2.5, 0.333333, None, None]
    assert type(number(2.0)) is int
