"""Table values as plain Python: what JSON, CSV and people can take."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
from pandas.api.extensions import ExtensionDtype

from tfplace.model.rows import python_values


def plain_column(series: pd.Series[Any]) -> list[Any]:
    """Return the values of a column as int, float, bool, str, list, dict or None.

    Missing values and not-a-number become None; tuples become lists.
    """
    values = python_values(series)
    if series.dtype.kind in "biu" or (isinstance(series.dtype, ExtensionDtype) and series.dtype.kind != "f"):
        return values
    return [plain_value(value) for value in values]


def plain_value(value: Any) -> Any:
    """Return one value as JSON can take it; what JSON has no form for becomes its text."""
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain_value(item) for item in value), key=str)
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int, str)) else str(value)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts of plain values, in the table's column order."""
    columns = [str(name) for name in frame.columns]
    lists = [plain_column(frame[name]) for name in frame.columns]
    if not lists:
        return []
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def compact(value: Any) -> str:
    """Return one plain value as a single line of text; '' for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    return str(value)


def number(value: float | None) -> int | float | None:
    """Return `value` as an int where it is whole, else rounded to 6 significant places after the point; None stays."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else round(float(value), 6)
