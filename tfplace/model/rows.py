"""Table values as Python values (int, float, bool, str and None) and rows as numbers, quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionDtype


def python_values(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a column with None for null; Python objects in it stay as they are."""
    if isinstance(series.dtype, ExtensionDtype):
        values: list[Any] = series.array.to_numpy(dtype=object, na_value=None).tolist()
        return values
    return series.tolist()


def python_rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples, in the table's column order."""
    return list(zip(*(python_values(frame[column]) for column in frame.columns), strict=True))


def python_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts."""
    names = [str(column) for column in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in python_rows(frame)]


_NARROW = 1 << 20
_WIDEST = 1 << 62


def number_rows(*columns: pd.Series[Any] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number the distinct rows of some columns, in order of first appearance; nulls equal each other."""
    code, width = _codes(columns[0])
    for column in columns[1:]:
        part, distinct = _codes(column)
        if width * distinct >= _WIDEST:
            code, seen = pd.factorize(code)
            width = max(len(seen), 1)
        code, width = code * distinct + part, width * distinct
    return pd.factorize(code)[0].astype(np.int64)


def _codes(column: pd.Series[Any] | npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Return numbers that stand for the values, and a bound that none of them reaches."""
    if isinstance(column, pd.Series) and isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64) + 1, len(column.cat.categories) + 1
    if isinstance(column, np.ndarray) and column.dtype.kind == "i" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < _NARROW:
            return (column - low).astype(np.int64, copy=False), high - low + 1
    part, distinct = pd.factorize(column)
    return part.astype(np.int64) + 1, len(distinct) + 1


def first_rows(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each number of `number_rows` stands first, by number."""
    first = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return first


def order_by(first: npt.NDArray[np.int64], *ties: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the order by `first`, then by `ties`, as np.lexsort does; fast where runs of it are in order already."""
    order = np.argsort(first, kind="stable")
    same = first[order[1:]] == first[order[:-1]]
    tied = np.append(False, same) | np.append(same, False) if len(order) else same
    rows = order[tied]
    order[tied] = rows[np.lexsort((*(tie[rows] for tie in reversed(ties)), first[rows]))]
    return order
