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


def number_rows(*columns: pd.Series[Any] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number the distinct rows of some columns, in order of first appearance; nulls equal each other."""
    code, _ = pd.factorize(columns[0])
    for column in columns[1:]:
        part, distinct = pd.factorize(column)
        code, _ = pd.factorize((code.astype(np.int64) + 1) * (len(distinct) + 1) + part + 1)
    if len(columns) == 1 and (code < 0).any():
        code, _ = pd.factorize(code + 1)
    return code.astype(np.int64)


def first_rows(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each number of `number_rows` stands first, by number."""
    first = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return first
