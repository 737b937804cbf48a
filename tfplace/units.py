"""Sizes, times and dtypes: the one place that knows bytes per element and how a number is written for people."""

from __future__ import annotations

import math
import re

_DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e5m2fnuz": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
    "qint16": 2,
    "quint16": 2,
    "qint32": 4,
    # TensorFlow keeps these one to a byte in memory
    "float4_e2m1fn": 1,
    "int4": 1,
    "uint4": 1,
    "int2": 1,
    "uint2": 1,
}

_SHAPE = re.compile(r"\[((?:\d+(?:,\d+)*)?)\]")

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_TIME_UNITS = (("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9))


def dtype_bytes(dtype: str | None) -> int | None:
    """Return the bytes of one element; null for string, resource, variant and unknown types.

    Args:
        dtype: 'float32', also as a reference: 'float32_ref'.

    Source: tensorflow/core/framework/types.cc (DataTypeSize).
    """
    return _DTYPE_BYTES.get(dtype.removesuffix("_ref")) if dtype else None


def parse_shape(shape: str | None) -> tuple[int, ...] | None:
    """Return the sizes of '[32,10]'; () for '[]'; null where the rank or any dimension is unknown."""
    match = _SHAPE.fullmatch(shape) if shape else None
    if match is None:
        return None
    return tuple(int(size) for size in match[1].split(",")) if match[1] else ()


def shape_elements(shape: str | None) -> int | None:
    """Return the number of elements of '[32,10]'; 1 for '[]'; null where it is not fully known."""
    sizes = parse_shape(shape)
    return None if sizes is None else math.prod(sizes)


def shape_bytes(dtype: str | None, shape: str | None) -> int | None:
    """Return the size in bytes of a dense tensor; null where dtype or shape do not tell."""
    width, count = dtype_bytes(dtype), shape_elements(shape)
    return None if width is None or count is None else width * count


def format_bytes(num_bytes: float | None) -> str:
    """Return a size for people in decimal units: '400 B', '9.6 kB', '393 kB', '4.3 MB', '1.07 GB'; 'unknown'."""
    if num_bytes is None:
        return "unknown"
    value, sign, unit = abs(num_bytes), "-" if num_bytes < 0 else "", 0
    if value < 999.5:
        return f"{sign}{value:.0f} B"
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 2 if unit >= 3 else 1
    return f"{sign}{_significant(value, digits)} {_BYTE_UNITS[unit]}"


def format_ns(nanoseconds: float | None) -> str:
    """Return a duration for people: '400 ns', '9.6 us', '342 us', '1.25 ms', '2.5 s'; 'unknown'."""
    if nanoseconds is None:
        return "unknown"
    value, sign = abs(nanoseconds), "-" if nanoseconds < 0 else ""
    for unit, scale in _TIME_UNITS:
        scaled = value / scale
        if scaled < 999.5 or unit == "s":
            return f"{sign}{scaled:.0f} ns" if unit == "ns" else f"{sign}{_significant(scaled, 2)} {unit}"
    raise AssertionError("the last unit always fits")


def format_us(microseconds: float | None) -> str:
    """Return a duration given in microseconds, as `format_ns` does."""
    return "unknown" if microseconds is None else format_ns(microseconds * 1e3)


def format_ms(milliseconds: float | None) -> str:
    """Return a duration given in milliseconds, as `format_ns` does."""
    return "unknown" if milliseconds is None else format_ns(milliseconds * 1e6)


def _significant(value: float, digits: int) -> str:
    """Return about three significant digits, at most `digits` decimals: 1.07, 12.3, 393."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.{digits}f}"
