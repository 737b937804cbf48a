"""The regular expressions of protobuf text, and what to say of text that they do not match.

Source: google/protobuf/text_format.py, class Tokenizer.
"""

from __future__ import annotations

import re

_IDENTIFIER = r"[A-Za-z_][0-9A-Za-z_+-]*"
# text_format takes a lone letter of any other script for a word
_WORD = rf"{_IDENTIFIER}|[^\W\d\x00-\x7f]"
_NUMBER = r"(?:[0-9+-]|\.[0-9])[0-9A-Za-z_.+-]*"
# a string ends at the first quote that an even number of backslashes precedes; written without a loop over
# characters, because Python's regular expressions keep memory for every turn of such a loop
_STRING = "|".join(rf"{q}(?:[^{q}\n]*(?<!\\)(?:\\\\)*\\{q})*[^{q}\n]*(?<!\\)(?:\\\\)*{q}" for q in ('"', "'"))


class Syntax:
    """The patterns of text, with or without comments in it.

    Attributes:
        item: One field, or the beginning or end of one; `Item` names its groups. It matches everywhere: its last
            group takes what is not legal.
        gap: What may stand between any two pieces.
        name: The name of a field.
        element: A value that is no message.
    """

    def __init__(self, gap: str) -> None:
        dotted = rf"{_IDENTIFIER}(?:{gap}\.{gap}{_IDENTIFIER})*"
        dotted_3 = rf"{_IDENTIFIER}(?:{gap}\.{gap}{_IDENTIFIER}){{2}}"
        brackets = rf"\[{gap}(?:{dotted_3}{gap}/{gap}{dotted}|{dotted}){gap}\]"
        # text_format takes a number, or again such a letter, for the name of an unknown field
        odd_name = rf"(?:[0-9][0-9A-Za-z_.+-]*|[^\W\x00-\x7f]|{brackets})(?={gap}[:{{<])"
        name = rf"(?:{_IDENTIFIER}|{odd_name})"
        strings = rf"(?:{_STRING})(?:{gap}(?:{_STRING}))*"
        element = rf"(?:{_WORD}|{_NUMBER}|{strings})"
        listed = rf"\[{gap}(?:{element}{gap}(?:,{gap}{element}{gap})*)?\]"
        end = rf"{gap}(?:[,;]{gap})?"
        self.gap, self.name, self.element = re.compile(gap), re.compile(name), re.compile(element)
        self.item = re.compile(
            rf"""(?:({name}(?:{gap}:)?){gap})?(?:"""
            rf"""(-?(?:0|[1-9][0-9]*))(?![0-9A-Za-z_.+-]){end}"""  # 2 plain decimal
            rf"""|"([^"\\\n]*)"{gap}(?!["'\s\#])(?:[,;]{gap})?"""  # 3 plain string, alone
            rf"""|([{{<]|[}}>](?:{gap}[,;])?){gap}"""  # 4 brace, a closing one with its separator
            rf"""|({_WORD}|{_NUMBER}){end}"""  # 5 word or unusual number
            rf"""|({strings}|{listed}){end}"""  # 6 any other strings, a list of scalars
            rf"""|(\[(?={gap}[{{<])|\](?:{gap}[,;])?){gap}"""  # 7 start and end of a list of messages
            rf"""|(.))""",  # 8 nothing legal
            re.DOTALL,
        )


FULL = Syntax(r"\s*(?:#[^\n]*(?:\n\s*|\Z))*")
PLAIN = Syntax(r"\s*")
"""The same for text without any '#', in less time."""

STRING_ONLY = re.compile(_STRING)
Item = tuple[str, str, str, str, str, str, str, str]
"""Name with its colon, plain decimal, plain string, brace, word, raw, bracket, illegal."""

_PLAIN = 3  # the group of a plain string, without its quotes
CLOSERS = {"{": "}", "<": ">"}
CLOSING = ("}", ">")
EXPLAIN = ""


class Fault(Exception):
    """What is wrong with an item, and between which characters of the text.

    Attributes:
        may_be_cut: Text that breaks off here would look just so.
        at_name: It is the name of the item that is wrong, not its value.
    """

    def __init__(self, reason: str, may_be_cut: bool = True, at_name: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.may_be_cut, self.at_name = reason, may_be_cut, at_name
        self.start = self.end = 0

    def locate(self, text: str, item: re.Match[str] | None) -> None:
        """Fill in where it is; for an item that is nothing legal, also what is wrong."""
        if item is None:
            return
        group = 1 if self.at_name else item.lastindex or 0
        self.start, self.end = item.start(group) - (group == _PLAIN), item.end(group)
        if self.reason == EXPLAIN:
            self.reason, self.start, self.end = explain(text, item.start())


def field_name(text: str) -> str:
    """Return the name in `name  # comment \n  :`."""
    found = FULL.name.match(text)
    return found.group() if found else text.rstrip(":")


def list_elements(text: str) -> list[str]:
    """Return the elements of `[a, "b" "c"]` as written; adjacent strings are one element."""
    elements = []
    position = _skip_gap(text, 1)
    while text[position] != "]":
        found = FULL.element.match(text, position)
        if not found:  # only for text that is no list
            break
        elements.append(found.group())
        position = _skip_gap(text, found.end())
        if text[position] == ",":
            position = _skip_gap(text, position + 1)
    return elements


def string_bodies(text: str) -> list[str]:
    """Return what stands between the quotes of each of some adjacent strings."""
    bodies = []
    position = 0
    while found := STRING_ONLY.match(text, position):
        bodies.append(found.group()[1:-1])
        position = _skip_gap(text, found.end())
    return bodies


def explain(text: str, position: int) -> tuple[str, int, int]:
    """Say why no field starts at `position`, where `Syntax.item` found nothing legal.

    Returns:
        The reason, and where the piece of text that is wrong begins and ends (the same for a missing one).
    """
    name = FULL.name.match(text, position)
    if not name:
        return "expected a field name", position, _piece_end(text, position)
    position = _skip_gap(text, name.end())
    if text[position : position + 1] != ":":
        return f"expected ':' or '{{' after {name.group()[:80]!r}", position, _piece_end(text, position)
    position = _skip_gap(text, position + 1)
    reason = "expected a value"
    if text[position : position + 1] == "[":
        position, reason = _explain_list(text, position)
    while found := STRING_ONLY.match(text, position):
        position = _skip_gap(text, found.end())
    if text[position : position + 1] in ("'", '"'):
        reason = "a string without its closing quote"
    return reason, position, _piece_end(text, position)


def _explain_list(text: str, position: int) -> tuple[int, str]:
    """Return where the list is wrong, and what should be there."""
    while text[position : position + 1] in ("[", ","):
        position = _skip_gap(text, position + 1)
        found = FULL.element.match(text, position)
        if not found:
            return position, "expected a value"
        position = _skip_gap(text, found.end())
    return position, "expected ',' or ']'"


def _skip_gap(text: str, position: int) -> int:
    found = FULL.gap.match(text, position)
    return found.end() if found else position


def _piece_end(text: str, position: int) -> int:
    """Return where the word at `position` ends; an open string ends with its line."""
    if text[position : position + 1] in ("'", '"'):
        end = text.find("\n", position)
        return len(text) if end < 0 else end
    found = FULL.element.match(text, position)
    return found.end() if found else min(position + 1, len(text))
