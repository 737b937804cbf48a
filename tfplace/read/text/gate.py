"""The strict gate: is every byte of these lines canonical text of that message type?

Canonical text is what `str(message)` and text_format.MessageToString write: one `key: value`, `key {` or
`}` a line, two more spaces for every level, fields in the order of their numbers, plain decimal numbers,
one string in double quotes. Anything else, however legal, raises `NotCanonical` and is for `textproto`.

Source: google/protobuf/text_format.py, class _Printer.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tfplace.read.binary.content import Content, Ints
from tfplace.read.text.kinds import BOOL, ENUM, INT, MESSAGE, STRING, unescape
from tfplace.read.text.linekeys import NOT_A_KEY, LineKeys

_DEEPEST = 12
_BLANK = 0x2020202020202020
_ZEROS = 0x3030303030303030
_TOPS = 0x8080808080808080
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_TEN = np.array([1, 10**8, 10**16], np.uint64)
_ESCAPED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NEWLINE, _QUOTE, _MINUS, _ZERO, _BACKSLASH = b'\n"-0\\'
_OPEN, _CLOSE = b"{}"
_TRUE, _FALSE = (int.from_bytes(word, "little") for word in (b"true", b"false"))


class NotCanonical(Exception):
    """The text is not written as protobuf writes it; it may well be legal."""


def _demand(condition: bool | np.bool_) -> None:
    if not condition:
        raise NotCanonical


class Lines(Content):
    """Text of whole messages that passed the gate; closing lines are left out of the arrays.

    Attributes:
        code: int16[N], the field (see `LineKeys`) that each line sets.
        parent: int64[N], the line that opens the message which holds it; -1 outside all.
        begin: int64[N], where the value begins; a string's behind its quote.
        end: int64[N], where the value ends; a string's before its quote.
        value: int64[N], integers and bools; unsigned ones wrap.
        unescaped: Strings that hold escapes, by line.
    """

    def __init__(self, text: bytes, indent: int, keys: LineKeys) -> None:
        super().__init__(text)
        level, opens = self._structure(indent)
        key = keys.find(self.octets, self.words, self.begin)
        _demand((key != NOT_A_KEY).all())
        self._meaning(level, opens, key, keys)
        self.begin += keys.key_size[key]
        _demand((self.begin[opens] == self.end[opens]).all())
        literal = keys.literal[self.code]
        self.value = np.zeros(len(key), np.int64)
        self.unescaped: dict[int, str] = {}
        self._integers(np.flatnonzero(literal == INT), keys)
        self._bools(np.flatnonzero(literal == BOOL))
        self._strings(np.flatnonzero(literal == STRING))
        _demand(np.isin(literal, (INT, BOOL, STRING, ENUM, MESSAGE)).all())

    def _structure(self, indent: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Split into lines, check braces and indentation; return level and 'opens a message' of the lines kept."""
        data, words = self.octets, self.words
        ends = np.flatnonzero(data[: len(self.data)] == _NEWLINE)
        _demand(len(ends) > 0 and ends[-1] == len(self.data) - 1)
        begins = np.concatenate([[0], ends[:-1] + 1])
        last = data[ends - 1]
        opens, closes = last == _OPEN, last == _CLOSE
        level = np.cumsum(opens.astype(np.int64) - closes)
        _demand(level[-1] == 0)
        level -= opens
        _demand(level.min() >= 0 and level.max() <= _DEEPEST)
        width = indent + 2 * level
        begin = begins + width
        _demand((ends[closes] - begin[closes] == 1).all())
        for place in range(-(-int(width.max()) // 8)):
            deep = np.flatnonzero(width > 8 * place)
            blank = (words[begins[deep] + 8 * place] ^ _BLANK) & _LOW_BYTES[np.minimum(width[deep] - 8 * place, 8)]
            _demand(not blank.any())
        kept = np.flatnonzero(~closes)
        self.begin, self.end = begin[kept], ends[kept]
        shut = np.flatnonzero(closes)
        self._shut, self._shut_level = begins[shut], level[shut]
        return level[kept], opens[kept]

    def _meaning(self, level: Ints, opens: npt.NDArray[np.bool_], key: Ints, keys: LineKeys) -> None:
        """Find every line's parent and field, from the outermost level inwards; check order and repetition."""
        self.code = np.zeros(len(key), np.int16)
        self.parent = np.full(len(key), -1, np.int64)
        holders = np.empty(0, np.int64)
        for depth in range(int(level.max()) + 1):
            here = np.flatnonzero(level == depth)
            if depth:
                self.parent[here] = holders[np.searchsorted(holders, here) - 1]
                kinds = keys.child[self.code[self.parent[here]]]
            else:
                kinds = np.zeros(len(here), np.int64)
            code = self.code[here] = keys.fields[kinds, key[here]]
            _demand(code.all() and ((keys.literal[code] == MESSAGE) == opens[here]).all())
            parent, order = self.parent[here], keys.order[code]
            ahead = order[1:] - order[:-1] + keys.repeated[code[1:]] > 0
            _demand((ahead | (parent[1:] != parent[:-1])).all())
            holders = here[opens[here]]

    def closed(self, lines: Ints, depth: int) -> Ints:
        """Return where the lines begin that close the messages which these lines open, all of them that deep."""
        shut: Ints = self._shut[self._shut_level == depth]
        found: Ints = shut[np.searchsorted(shut, self.begin[lines])]
        return found

    def _integers(self, lines: Ints, keys: LineKeys) -> None:
        """Read plain decimal numbers, eight digits at a time."""
        data, words, code = self.octets, self.words, self.code[lines]
        begin, end = self.begin[lines], self.end[lines]
        negative = data[begin] == _MINUS
        begin = begin + negative
        size = end - begin
        _demand(((size > 0) & (size < 20) & ((data[begin] != _ZERO) | (size == 1))).all())
        total = np.zeros(len(lines), np.uint64)
        for place in range(-(-int(size.max(initial=0)) // 8)):
            more = np.flatnonzero(size > 8 * place)
            unused = 8 - np.minimum(size[more] - 8 * place, 8)
            digits = (words[end[more] - 8 * (place + 1)] ^ _ZEROS) & ~_LOW_BYTES[unused]
            _demand(not (((digits + 0x7676767676767676) | digits) & _TOPS).any())
            digits = (digits * 2561) >> 8
            digits = ((digits & 0x00FF00FF00FF00FF) * 6553601) >> 16
            digits = ((digits & 0x0000FFFF0000FFFF) * 42949672960001) >> 32
            total[more] += digits * _TEN[place]
        _demand((total <= np.where(negative, keys.lowest[code], keys.highest[code])).all())
        number = total.view(np.int64)
        self.value[lines] = np.where(negative, -number, number)

    def _bools(self, lines: Ints) -> None:
        word, size = self.words[self.begin[lines]], self.end[lines] - self.begin[lines]
        true = ((word & _LOW_BYTES[4]) == _TRUE) & (size == 4)
        _demand((true | (((word & _LOW_BYTES[5]) == _FALSE) & (size == 5))).all())
        self.value[lines] = true

    def _strings(self, lines: Ints) -> None:
        """Check that each is one string in double quotes."""
        data = self.octets[: len(self.data)]
        self.begin[lines] += 1
        self.end[lines] -= 1
        begin, end = self.begin[lines], self.end[lines]
        _demand((begin <= end).all())
        quotes = np.flatnonzero(data == _QUOTE)
        escapes = np.flatnonzero(data == _BACKSLASH)
        if len(escapes):
            holding = np.unique(np.searchsorted(self.end, escapes))
            escaped = lines[np.isin(lines, holding)]
            _demand(len(escaped) == len(holding))
            for line in escaped.tolist():
                self._unescape(line)
            plain = ~np.isin(lines, escaped)
            begin, end = begin[plain], end[plain]
            quotes = quotes[~np.isin(np.searchsorted(self.end, quotes), escaped)]
        _demand(len(quotes) == 2 * len(begin))
        _demand((quotes[::2] == begin - 1).all() and (quotes[1::2] == end).all())

    def _unescape(self, line: int) -> None:
        begin, end = int(self.begin[line]), int(self.end[line])
        _demand(_ESCAPED.fullmatch(self.data, begin - 1, end + 1) is not None)
        try:
            self.unescaped[line] = unescape(self.data[begin:end].decode("utf-8")).decode("utf-8")
        except ValueError:
            raise NotCanonical from None
