"""The bytes of Perfetto's trace packets: one field at a time, and a column of packets at once.

A packet made by itself costs Python microseconds, and a timeline has two for each of half a million slices; numpy makes
what is alike in them side by side, as one row of bytes to a packet.

Source: https://protobuf.dev/programming-guides/encoding/. A varint may be longer than it needs to be, so those of one
    column have one width; Perfetto's own writer pads the sizes of messages in the same way.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tfplace.read.binary.wire import LENGTH, VARINT, write_varint
from tfplace.report.timeline.model import Int

Bytes = npt.NDArray[np.uint8]

_REMEMBERED = 100_000

pack_double = struct.Struct("<d").pack
"""Returns the eight bytes of a double."""

_SMALL = [write_varint(value) for value in range(128)]
_64_BITS = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Return a number as a varint; a negative one as int64 has it, in ten bytes."""
    return _SMALL[value] if 0 <= value < len(_SMALL) else write_varint(value & _64_BITS)


@cache
def tag(field: int, wire: int) -> bytes:
    """Return what stands before a field's value."""
    return varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    """Return a field that holds a number, a truth value or an enum."""
    return tag(field, VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message made of these fields."""
    content = b"".join(parts)
    return tag(field, LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field that holds text."""
    return message(field, value.encode())


def varints(values: Int) -> Bytes:
    """Return uint8[N, W]: numbers that are not negative, all as wide as the largest needs."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    digits = values[:, None] >> (7 * np.arange(width)) & 0x7F
    digits[:, :-1] |= 0x80
    return digits.astype(np.uint8)


def doubles(values: npt.NDArray[np.float64]) -> Bytes:
    """Return uint8[N, 8]."""
    return np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(-1, 8)


def fixed(values: Int) -> Bytes:
    """Return uint8[N, 8]."""
    return np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)


def beside(*columns: Bytes | bytes) -> Bytes:
    """Return these columns side by side; bytes are a column of which every row is the same."""
    count = next(len(column) for column in columns if isinstance(column, np.ndarray))
    return np.hstack([column if isinstance(column, np.ndarray) else _same(column, count) for column in columns])


def _same(data: bytes, count: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(data, dtype=np.uint8), (count, len(data)))


def rows(*columns: Bytes | bytes) -> list[bytes]:
    """Return each row of these columns side by side."""
    whole = beside(*columns)
    made: list[bytes] = whole.view(f"V{whole.shape[1]}").ravel().tolist()
    return made


class Dictionary:
    """Texts that packets call by number, each of which is written once, before the first packet that does.

    Beyond some number of them it forgets all; a text that comes again then has two numbers, and both are good.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self._last: dict[int, int] = {}
        self._new = bytearray()

    def number(self, kind: int, value: str) -> int:
        """Return the number of a text among those of its kind, which is a field of InternedData."""
        found = self._known.get((kind, value))
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[kind, value] = self._last[kind] = self._last.get(kind, 0) + 1
            self._new += message(kind, integer(1, found), text(2, value))
        return found

    def take(self) -> bytes:
        """Return the entries that were added since the last call."""
        new = bytes(self._new)
        self._new.clear()
        return new


class Attachments:
    """Bytes of one size that belong to some rows of a column, none or many to a row."""

    def __init__(self, row: Int, data: Bytes, count: int) -> None:
        """Take for each of `row`, which are some of `count` rows, the bytes at the same place in `data`."""
        order = np.argsort(row, kind="stable")
        self._data = data[order].tobytes()
        self._bounds: Int = np.searchsorted(row[order], np.arange(count + 1)) * data.shape[1]

    def of(self, begin: int, end: int) -> list[bytes]:
        """Return the bytes of each of these rows."""
        data = self._data
        return [data[start:stop] for start, stop in pairwise(self._bounds[begin : end + 1].tolist())]
