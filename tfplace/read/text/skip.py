"""Skips fields that the schema does not have, as strictly as google.protobuf.text_format does.

Source: google/protobuf/text_format.py, _Parser._SkipFieldContents and what it calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import text_format

from tfplace.read.text.kinds import unescape
from tfplace.read.text.syntax import CLOSERS, CLOSING, EXPLAIN, Fault, Item, list_elements, string_bodies

_FIRST, _AFTER, _NEXT = "]0", "]1", "]2"  # an open list: nothing yet, after an element, after a comma


class Skipper:
    """What is open inside a field that is being skipped; empty between such fields.

    Attributes:
        stack: What ends each open message, or the state of each open list.
    """

    def __init__(self) -> None:
        self.stack: list[str] = []

    def start(self, item: Item, name: str, colon: bool) -> None:
        """Take the first item of an unknown field of a known message."""
        _, decimal, _, brace, word, raw, bracket, _ = item
        if not name:
            raise Fault("expected a field name", may_be_cut=False)
        if name.startswith("["):
            raise Fault("extensions are not part of any trace", may_be_cut=False, at_name=True)
        if brace:
            self.stack.append(CLOSERS[brace])
        elif not colon:
            raise Fault(f"expected ':' or '{{' after {name[:80]!r}")
        elif bracket:
            self.stack.append(_FIRST)
        else:
            _check(decimal, word, raw)

    def skip(self, items: Iterator[Item]) -> None:
        """Take items until the field ends, or there are no more.

        Raises:
            Fault, ValueError: The text is not legal.
        """
        stack = self.stack
        for name, decimal, _, brace, word, raw, bracket, illegal in items:
            if illegal:
                raise Fault(EXPLAIN)
            if brace == stack[-1] and not name:
                stack.pop()
                if not stack:
                    return
                if stack[-1][0] == "]":
                    stack[-1] = _AFTER
            elif stack[-1][0] == "]":
                self._in_list(name, brace, bracket)
                if not stack:
                    return
            elif brace or bracket:
                self._bracket(name, brace or bracket)
                if not stack:
                    return
            elif not name.endswith(":"):
                raise Fault(f"expected ':' or '{{' after {name[:80]!r}" if name else "expected a field name")
            elif word or raw:
                _check(decimal, word, raw)

    def _bracket(self, name: str, token: str) -> None:
        """Begin a message or a list, or end a message whose separator is in the token."""
        if token in CLOSERS and name:
            self.stack.append(CLOSERS[token])
        elif token == "[" and name.endswith(":"):
            self.stack.append(_FIRST)
        elif token[0] in CLOSING and token[0] == self.stack[-1] and not name:
            self.stack.pop()
            if self.stack and self.stack[-1][0] == "]":
                if token.endswith(";"):
                    raise Fault("expected ',' or ']' after an element of a list", may_be_cut=False)
                self.stack[-1] = _NEXT
        else:
            raise Fault(f"expected '{self.stack[-1]}' or a field, found {token[0]!r}", may_be_cut=False)

    def _in_list(self, name: str, brace: str, bracket: str) -> None:
        """Take an element or the end of a list of messages."""
        state = self.stack[-1]
        if bracket[:1] == "]" and state == _AFTER and not name:
            self.stack.pop()
        elif brace in CLOSERS and state != _AFTER and not name:
            self.stack.append(CLOSERS[brace])
        else:
            raise Fault("expected ',' or ']'" if state == _AFTER else "expected '{'", may_be_cut=False)


def _check(decimal: str, word: str, raw: str) -> None:
    """Raise ValueError if one of these literals is not legal for a field of any type."""
    literals = list_elements(raw) if raw.startswith("[") else [decimal or word or raw]
    for literal in literals:
        if literal[:1] in ("'", '"'):
            for body in string_bodies(literal):
                unescape(body)
        elif literal and literal[0] in "0123456789+-.":
            _check_number(literal)


def _check_number(literal: str) -> None:
    for signed in (True, False):
        try:
            text_format.ParseInteger(literal, is_signed=signed, is_long=True)
            return
        except ValueError:
            continue
    text_format.ParseFloat(literal)
