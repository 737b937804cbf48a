"""What a file is, told by its content and never by its name."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tfplace.errors import TfplaceError, UnreadableTraceError, UnsupportedFormatError
from tfplace.names import printable
from tfplace.read import formats
from tfplace.read.binary.kinds import binary_kind
from tfplace.read.binary.wire import LENGTH, WireError, fields

_ROOTS = {
    **dict.fromkeys(("step_stats", "cost_graph", "partition_graphs", "function_graphs"), "RunMetadata"),
    "dev_stats": "StepStats",
    **dict.fromkeys(("node", "library", "versions"), "GraphDef"),
}
_JSON_ROOTS = _ROOTS | dict.fromkeys(("stepStats", "costGraph", "partitionGraphs", "functionGraphs"), "RunMetadata")
_JSON_ROOTS["devStats"] = "StepStats"
_GAP = re.compile(rb"(?:\s|#[^\n]*(?:\n|\Z))*")
_FIRST = re.compile(rb"(?:\s|#[^\n]*(?:\n|\Z))*([A-Za-z_]\w*)\s*(?::\s*)?([{<\[])?")
_ROOT_LINE = re.compile(rb"^(%s)\s*:?\s*[{<\[]" % "|".join(_ROOTS).encode(), re.MULTILINE)
_HEAD = 1 << 16
_REPLACEMENT = "\ufffd".encode()


class Content(NamedTuple):
    """What a file holds.

    Attributes:
        kind: RunMetadata, StepStats or GraphDef.
        encoding: text, binary or JSON.
        data: The bytes to decode; they differ from the file's where text was inside a JSON string.
        parsed: The JSON object, for JSON.
    """

    kind: str
    encoding: str
    data: bytes
    parsed: Any = None


def detect(data: bytes, source: str) -> Content:
    """Return what the bytes of a file are.

    Args:
        data: The file, decompressed, without byte order mark.
        source: Its name, for messages.

    Raises:
        UnreadableTraceError: It is empty, or was one of these and is damaged.
        UnsupportedFormatError: It is something else; the message says what, where that is known.
    """
    name = printable(source)
    if not data:
        raise UnreadableTraceError(f"{name} is empty (0 bytes).", formats.EMPTY_HINT)
    known = formats.by_magic(data) or _records(data)
    if known:
        raise _unsupported(name, known)
    begin = _GAP.match(data).end()  # type: ignore[union-attr]  # matches the empty string, too
    body = data[begin : begin + 4096]
    if body[:1] in (b"{", b"[", b'"') and body[:3] != b'"""' and _is_text(data):
        return _detect_json(data, name)
    kind = _text_kind(data)
    if kind:
        return Content(kind, "text", data)
    binary = binary_kind(data)
    if isinstance(binary, str):
        return Content(binary, "binary", data)
    raise _explain(data, body, binary, name)


def _unsupported(name: str, known: formats.Format) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"{name} is {known.name}.", known.hint)


def _is_text(data: bytes) -> bool:
    head = data[:4096]
    if any(byte < 9 or (13 < byte < 32 and byte != 27) for byte in head):
        return False
    return head.decode("utf-8", "replace").count("\ufffd") <= 1 + len(head) // 16


def _text_kind(data: bytes) -> str | None:
    """Return what text holds, by the first known name outside all braces."""
    first = _FIRST.match(data, 0, len(data))
    if not first:
        return None
    kind = _ROOTS.get(first[1].decode())
    if kind and first[2]:
        return kind
    if not _is_text(data):
        return None
    later = _ROOT_LINE.search(data, 0, 1 << 20)  # behind a field that is new
    return _ROOTS[later[1].decode()] if later else None


def _explain(data: bytes, body: bytes, binary: formats.Format | None, name: str) -> TfplaceError:
    """Return the error that says best what this is."""
    if _is_text(data):
        return _explain_text(data, body, name)
    if binary and binary is not formats.OTHER_PROTOBUF:
        return _unsupported(name, binary)
    if data.count(_REPLACEMENT, 0, _HEAD) > 8:
        what = formats.MANGLED.name
        if re.search(rb"/(?:host|device):", data[:_HEAD]):
            what = what.replace("a binary file", "an XSpace (xplane)")
        return UnreadableTraceError(f"{name} is {what}.", formats.MANGLED.hint)
    if binary:
        return _unsupported(name, binary)
    return UnsupportedFormatError(
        f"{name} is binary, but no trace: it begins with the bytes {data[:8].hex(' ')}.", formats.GIVE_A_TRACE
    )


def _explain_text(data: bytes, body: bytes, name: str) -> TfplaceError:
    if not body:
        return UnreadableTraceError(f"{name} is empty: blanks and comments only.", formats.EMPTY_HINT)
    begin = data[:_HEAD].lstrip()
    known = formats.by_text(begin) or formats.by_text(body)
    if known:
        return _unsupported(name, known)
    first = begin[:400].split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return UnsupportedFormatError(
        f"{name} is text, but no trace: it begins with '{printable(first, 60)}'.", formats.GIVE_A_TRACE
    )


def _detect_json(data: bytes, name: str) -> Content:
    text = data.decode("utf-8", "replace")
    head = text[: 1 << 20]
    stripped = text.lstrip()
    bare_list = stripped.startswith("[") and re.match(r'\[\s*\{[^{}]*"ph"\s*:', stripped)
    if bare_list or '"traceEvents"' in head or '"schemaVersion"' in text[:_HEAD]:
        raise _unsupported(name, formats.of_timeline(head))
    parsed = _parse(text, name)
    for _ in range(3):  # JSON in a JSON string, as json.dump(MessageToJson(...)) writes it
        if not isinstance(parsed, str):
            break
        inner = parsed.encode("utf-8", "replace")
        if not parsed.lstrip().startswith(("{", "[", '"')):
            kind = _text_kind(inner)
            if kind:
                return Content(kind, "text", inner)
            raise UnsupportedFormatError(
                f"{name} is a JSON string that holds no trace: '{printable(parsed, 60)}'.", formats.GIVE_A_TRACE
            )
        parsed = _parse(parsed, name)
    if not isinstance(parsed, dict):
        raise UnsupportedFormatError(f"{name} is a JSON {type(parsed).__name__}, not a trace.", formats.GIVE_A_TRACE)
    for key in parsed:
        if key in _JSON_ROOTS:
            return Content(_JSON_ROOTS[key], "JSON", data, parsed)
    raise _other_json(parsed, head, name)


def _other_json(parsed: dict[str, Any], head: str, name: str) -> TfplaceError:
    """Return the error that says what a JSON object is."""
    if not parsed:
        return UnreadableTraceError(f"{name} is empty: a JSON object without fields.", formats.EMPTY_HINT)
    if "traceEvents" in parsed or "schemaVersion" in parsed:
        kineto = "schemaVersion" in parsed
        return _unsupported(name, formats.KINETO if kineto else formats.of_timeline(head))
    if any(key.startswith("memoryProfile") for key in parsed):
        return _unsupported(name, formats.MEMORY_PROFILE)
    if "nbformat" in parsed:
        return _unsupported(name, formats.NOTEBOOK)
    keys = ", ".join(printable(key, 40) for key in list(parsed)[:3]) + (", ..." if len(parsed) > 3 else "")
    return UnsupportedFormatError(f"{name} is JSON, but no trace: its keys are {keys}.", formats.GIVE_A_TRACE)


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno:,}, column {error.colno:,}"
        end = "breaks off" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else "is not legal"
        raise UnreadableTraceError(f"{name} is JSON that {end} at {where}: {error.msg}.", "Write it again.") from None
    except RecursionError:
        raise UnreadableTraceError(f"{name} is JSON nested too deep for any trace.") from None
    except ValueError as error:  # a number of thousands of digits
        raise UnreadableTraceError(f"{name} is JSON that cannot be read: {error}.") from None


def _records(data: bytes) -> formats.Format | None:
    """Return what a file of TFRecords is.

    Each record: its length (8 bytes), a checksum (4), the data, a checksum (4).
    Source: tensorflow/core/lib/io/record_writer.h
    """
    place, records = 0, []
    while place + 12 <= len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        if size > len(data) - place - 12:
            break
        records.append((place + 12, place + 12 + size))
        place += size + 16
    first = data[records[0][0] : records[0][1]] if records else b""
    if b"brain.Event:" not in first[:64]:
        return formats.TFRECORD if len(records) > 1 and place == len(data) else None
    sizes = [size for begin, end in records for size in _run_metadata_sizes(data, begin, end)]
    held = f"{len(sizes) or 'no'} RunMetadata in it"
    if sizes and not any(sizes):
        held += ", which is empty" if len(sizes) == 1 else ", all empty"
    return formats.Format(f"{formats.EVENTS.name} with {held}", formats.EVENTS.hint)


def _run_metadata_sizes(data: bytes, begin: int, end: int) -> list[int]:
    """Return the sizes of the RunMetadata in an Event.

    Event.tagged_run_metadata = 8 (TaggedRunMetadata.run_metadata = 2), or since 2.0 a summary value (Event.summary = 5,
    value = 1) of the plugin graph_run_metadata..., whose tensor (8) holds it as string_val (8).
    Source: tensorflow/core/util/event.proto, summary.proto, tensor.proto
    """
    try:
        sizes = []
        for found in fields(data, begin, end):
            if found.number == 8 and found.wire == LENGTH:
                parts = {part.number: part.end - part.begin for part in fields(data, found.begin, found.end)}
                sizes.append(parts.get(2, 0))
            elif found.number == 5 and found.wire == LENGTH:
                sizes += _summary_sizes(data, found.begin, found.end)
        return sizes
    except WireError:
        return []


def _summary_sizes(data: bytes, begin: int, end: int) -> list[int]:
    sizes = []
    for value in fields(data, begin, end):
        if value.wire != LENGTH or b"graph_run_metadata" not in data[value.begin : value.end]:
            continue
        size = 0
        for part in fields(data, value.begin, value.end):
            if part.number == 8 and part.wire == LENGTH:
                inner = fields(data, part.begin, part.end)
                size = sum(one.end - one.begin for one in inner if one.number == 8 and one.wire == LENGTH)
        sizes.append(size)
    return sizes
