"""Texts are told apart by all of their bytes, whatever their length, and equal ones have one number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfplace.read.binary.content import Content, Texts


def numbers(texts: list[bytes], known: Texts | None = None) -> tuple[list[str], Texts]:
    """Return the texts as read, and what read them."""
    known = known or Texts()
    size = np.array([len(text) for text in texts], dtype=np.int64)
    begin = np.cumsum(size) - size
    found = known.take(Content(b"".join(texts)), begin, size)
    distinct = known.distinct()
    return [distinct[number] for number in found.tolist()], known


@given(st.lists(st.text(alphabet="ab\u00e9", max_size=40), max_size=60))
def test_texts_are_read_as_they_stand(texts: list[str]) -> None:
    read, known = numbers([text.encode() for text in texts])
    assert read == texts
    assert sorted(known.distinct()) == sorted(set(texts))


def test_one_byte_anywhere_makes_another_text() -> None:
    """Around the words of eight bytes, and around the length from which texts are looked at one by one."""
    texts = [b"x" * length for length in (0, 1, 7, 8, 9, 16, 511, 512, 513, 520, 2000)]
    texts += [text[:-1] + b"y" for text in texts if text] + [b"y" + text[1:] for text in texts if text]
    read, known = numbers(texts + texts)
    assert read == [text.decode() for text in texts + texts]
    assert len(known.distinct()) == len(set(texts))


def test_zeros_at_the_end_count() -> None:
    assert numbers([b"a", b"a\0", b"a\0\0", b"", b"\0"])[0] == ["a", "a\0", "a\0\0", "", "\0"]


def test_no_texts_at_all() -> None:
    assert numbers([])[0] == []


def test_damaged_texts_are_counted_as_often_as_they_stand() -> None:
    read, known = numbers([b"a\xff", b"ok", b"a\xff", "\u00e9".encode()])
    assert read == ["a\ufffd", "ok", "a\ufffd", "\u00e9"]
    assert known.mangled == 2
    assert numbers([b"a\xff"], known)[1].mangled == 3
