"""What tfplace's own capture stores beside RunMetadata, where other tools pass over it.

In text: comment lines `# tfplace: ...`, whose rests are one JSON object over several lines, or one object a line, to
be merged. In binary: field 20100 of RunMetadata, the same object in UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tfplace.model.trace import Note
from tfplace.read.binary.wire import LENGTH, WireError, fields

CONTEXT_FIELD = 20100
_MARK = b"# tfplace:"
_LINE = re.compile(rb"^[ \t]*# tfplace:[ ]?([^\r\n]*)", re.MULTILINE)


def text_context(data: bytes) -> tuple[dict[str, Any], list[Note]]:
    """Return the context in text, {} where there is none, and a note if it is damaged."""
    if _MARK not in data:
        return {}, []
    pieces = []
    place = data.find(_MARK)
    while place >= 0:  # a search for the mark is much faster than the pattern, which decides
        found = _LINE.match(data, data.rfind(b"\n", 0, place) + 1)
        if found:
            pieces.append(found[1])
        place = data.find(_MARK, place + len(_MARK))
    return _parse(b"".join(pieces)) if pieces else ({}, [])


def binary_context(data: bytes) -> tuple[dict[str, Any], list[Note]]:
    """Return the context in a binary RunMetadata, likewise."""
    try:
        held = [
            data[found.begin : found.end]
            for found in fields(data, 0, len(data))
            if found.number == CONTEXT_FIELD and found.wire == LENGTH
        ]
    except WireError:
        return {}, []
    return _parse(held[-1]) if held else ({}, [])


def _merged(text: str) -> dict[str, Any]:
    """Return the one object, or the union of the objects, that the text holds.

    Raises:
        ValueError: It holds anything else.
    """
    decoder, place, context = json.JSONDecoder(), 0, dict[str, Any]()
    while place < len(text):
        part, place = decoder.raw_decode(text, place)
        if not isinstance(part, dict):
            raise ValueError("not an object")
        context.update(part)
        place += len(text[place:]) - len(text[place:].lstrip())
    return context


def _parse(data: bytes) -> tuple[dict[str, Any], list[Note]]:
    try:
        return _merged(data.decode()), []
    except (ValueError, RecursionError):
        pass
    text = "What tfplace stored about the capture is damaged: names, source lines and step times of it are missing."
    return {}, [Note("context-damaged", text)]
