"""Part of a file, to be read eight bytes at a time, and the texts in it, each made once.

A million rows have a few thousand different names and labels. Which of them are equal is found by a hash over their
words, a batch at a time, so that Python makes no million strings.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tfplace.model.rows import first_rows, number_rows
from tfplace.read.raw import Numbers

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_ROOM = 64  # bytes behind the content, for whole words
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_LONG = 512  # longer texts are looked at one by one
_HALF = np.uint64(32)
# unknown outside this process: nobody can make a file whose different texts hash alike
_SEED, _FACTOR = (np.uint64(int.from_bytes(os.urandom(8), "little") | 1) for _ in range(2))


class Content:
    """Part of a file.

    Attributes:
        data: The bytes.
        latin: The same, a character a byte: a slice of it costs least.
        octets: uint8, the same with zeros behind.
        words: uint64, the 8 bytes from every position on.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.latin = data.decode("latin-1")
        self.octets = np.zeros(len(data) + _ROOM, np.uint8)
        self.octets[: len(data)] = np.frombuffer(data, np.uint8)
        self.words: Words = np.lib.stride_tricks.as_strided(
            self.octets[:8].view("<u8"), shape=(len(self.octets) - 7,), strides=(1,), writeable=False
        )


class Texts:
    """UTF-8 to the numbers of texts; bytes that are not UTF-8 become U+FFFD and are counted."""

    def __init__(self) -> None:
        self._numbers = Numbers()
        self.mangled = 0

    def take(self, content: Content, begin: Ints, size: Ints) -> Ints:
        """Return the numbers of the texts at these places."""
        same = number_rows(_hashes(content.words, begin, size))
        long = np.flatnonzero(size > _LONG)
        if len(long):
            same[long] = int(same.max()) + 1 + np.arange(len(long))
            same = number_rows(same)
        first = first_rows(same)
        places = zip(begin[first].tolist(), (begin + size)[first].tolist(), strict=True)
        texts = [content.latin[a:b] for a, b in places]
        if not content.latin.isascii():
            times = np.bincount(same).tolist()
            texts = [t if t.isascii() else self.decode(t, n) for t, n in zip(texts, times, strict=True)]
        return self._numbers.of(texts)[same]

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self._numbers[text]

    def distinct(self) -> list[str]:
        """Return all texts by number."""
        return list(self._numbers)

    def decode(self, latin: str, times: int = 1) -> str:
        """Return the text of bytes decoded as Latin-1, which stands so many times in the file."""
        data = latin.encode("latin-1")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.mangled += times
            return data.decode("utf-8", "replace")


def _hashes(words: Words, begin: Ints, size: Ints) -> Ints:
    """Return a hash of the bytes at each place; of long ones, of their beginning only."""
    count = np.minimum(size + 7 >> 3, _LONG >> 3).astype(np.int16)
    order = np.argsort(-count, kind="stable")  # those with most words first: what goes on is always at the front
    at, size = begin[order], size[order]
    mixed = size.astype(np.uint64) * _SEED
    going_on = len(order) - np.cumsum(np.bincount(count))
    active = int(going_on[0]) if len(order) else 0
    for number in range(len(going_on) - 1):
        following = int(going_on[number + 1])
        word = words[at[:active] + 8 * number]
        word[following:] &= _LOW_BYTES[np.minimum(size[following:active] - 8 * number, 8)]
        word ^= mixed[:active]
        word *= _FACTOR
        mixed[:active] = word ^ (word >> _HALF)
        active = following
    hashes = np.empty(len(order), np.int64)
    hashes[order] = mixed.view(np.int64)
    return hashes
