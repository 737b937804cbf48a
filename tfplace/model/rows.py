"""Table values as Python values: int, float, bool, str and None, quickly."""

from __future__ import annotations

from typing import Any

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
