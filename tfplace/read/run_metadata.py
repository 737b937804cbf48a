"""A file with RunMetadata, StepStats or a GraphDef to a RawTrace; told by content, whatever its name."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import EncodeError

from tfplace.errors import UnreadableTraceError
from tfplace.model.trace import Note
from tfplace.names import printable
from tfplace.read import formats
from tfplace.read.binary.file import read_binary
from tfplace.read.binary.wire import WireError
from tfplace.read.context import binary_context, text_context
from tfplace.read.decoded import Decoded, Progress
from tfplace.read.detect import Content, detect
from tfplace.read.protos import message_class
from tfplace.read.raw import RawGraph, RawTrace
from tfplace.read.source import Source, read_source, unpack
from tfplace.read.tables.recorded import recorded_functions
from tfplace.read.text.file import read_text
from tfplace.read.text.tokenizer import TextError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_raw(path: str, progress: Progress | None = None) -> RawTrace:
    """Read one file.

    Args:
        path: A file, or '-' for standard input. Text, binary or JSON, each also in gzip.
        progress: Called as progress(done, total) in bytes while the file is decoded.

    Raises:
        UnreadableTraceError: It cannot be read, holds nothing, or is damaged beyond use.
        UnsupportedFormatError: It is another kind of file; the message says which.
    """
    return _raw_from_source(read_source(path), path, progress)


def raw_from_bytes(data: bytes, source: str = "-", progress: Progress | None = None) -> RawTrace:
    """Read the content of a file.

    Args:
        data: Text, binary or JSON, each also in gzip.
        source: What to call it in messages and reports.
        progress: Called as progress(done, total) in bytes while it is decoded.

    Raises:
        UnreadableTraceError: It holds nothing, or is damaged beyond use.
        UnsupportedFormatError: It is something else; the message says what.
    """
    return _raw_from_source(unpack(data, source), source, progress)


def _raw_from_source(source: Source, path: str, progress: Progress | None) -> RawTrace:
    if source.cut and not source.data:
        raise UnreadableTraceError(
            f"{printable(path)} breaks off at {source.cut}, before any content.", "Copy the original again."
        )
    content = detect(source.data, path)
    with _no_collection():
        try:
            decoded, context, notes = _decode(content, progress)
        except TextError as error:
            raise UnreadableTraceError(
                f"{printable(path)} is no legal text of a {content.kind}: {error}.",
                "Write it again, by str(run_metadata) or as binary.",
            ) from None
        except WireError as error:
            raise UnreadableTraceError(
                f"{printable(path)} is damaged: {error}.", "Copy the original again, in binary mode."
            ) from None
        except json_format.ParseError as error:
            raise UnreadableTraceError(
                f"{printable(path)} is no {content.kind} in JSON: {printable(error, 300)}.",
                "Write it again, by google.protobuf.json_format.MessageToJson.",
            ) from None
    decoded.cut = decoded.cut or source.cut
    _demand_content(decoded, context, path)
    return RawTrace(
        source=path,
        format=f"{content.kind} {content.encoding}{source.suffix}",
        step_stats=decoded.step_stats,
        graphs=_graphs(decoded),
        context=context,
        notes=_notes(decoded, path) + notes,
    )


def raw_from_message(message: Any, source: str = "-", format: str = "RunMetadata binary") -> RawTrace:
    """Return the RawTrace of a RunMetadata message, of the private pool or TensorFlow's own.

    Args:
        message: RunMetadata.
        source: What to call it in reports.
        format: What to call its format.

    Raises:
        UnreadableTraceError: It cannot be serialized.
    """
    try:
        data = message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise UnreadableTraceError(f"{printable(source)} cannot be serialized: {printable(error, 300)}.") from error
    with _no_collection():
        decoded = read_binary(data, "RunMetadata")
    context, notes = binary_context(data)
    return RawTrace(source, format, decoded.step_stats, _graphs(decoded), context, _notes(decoded, source) + notes)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from walking millions of new rows again and again; there are no cycles in them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _decode(content: Content, progress: Progress | None) -> tuple[Decoded, dict[str, Any], list[Note]]:
    """Return what the file holds, and the context."""
    if content.encoding == "text":
        data = content.data.replace(b"\r\n", b"\n") if b"\r" in content.data else content.data
        return read_text(data, content.kind, progress), *text_context(data)
    if content.encoding == "JSON":
        data = _json_to_wire(content)
        return read_binary(data, content.kind, progress), {}, []
    context: tuple[dict[str, Any], list[Note]] = ({}, [])
    if content.kind == "RunMetadata":
        context = binary_context(content.data)
    return read_binary(content.data, content.kind, progress), *context


def _json_to_wire(content: Content) -> bytes:
    """Return the message that the JSON mapping stands for.

    Raises:
        json_format.ParseError: It does not fit the message.
    """
    message = message_class(content.kind)()
    try:
        json_format.ParseDict(_mended(content.parsed), message, ignore_unknown_fields=True)
        return bytes(message.SerializeToString())
    except (ValueError, TypeError, AttributeError, RecursionError, EncodeError) as error:
        raise json_format.ParseError(str(error)) from error


def _mended(value: Any) -> Any:
    r"""Replace lone surrogates, which JSON can write as \ud800 and UTF-8 cannot hold."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(one) for key, one in value.items()}
    return value


def _graphs(decoded: Decoded) -> list[RawGraph]:
    """Return the graphs in file order."""
    if decoded.kind == "StepStats":
        return []
    if decoded.kind == "GraphDef":
        return [RawGraph("graph", "graph:0", decoded.message)]
    graphs = [
        RawGraph("partition", f"partition:{i}", graph) for i, graph in enumerate(decoded.message.partition_graphs)
    ]
    for number, function in enumerate(decoded.message.function_graphs):
        for i, graph in enumerate(function.partition_graphs):
            graphs.append(RawGraph("partition", f"function:{number}/partition:{i}", graph))
        for role in ("pre", "post"):
            if function.HasField(f"{role}_optimization_graph"):
                graph = getattr(function, f"{role}_optimization_graph")
                graphs.append(RawGraph(role, f"function:{number}/{role}", graph))
    return graphs


def _held(decoded: Decoded) -> tuple[int, int]:
    """Return how many events and how many graphs with nodes there are."""
    events = len(decoded.step_stats.node_name) if decoded.step_stats else 0
    return events, sum(1 for graph in _graphs(decoded) if graph.graph.node or graph.graph.library.function)


def _demand_content(decoded: Decoded, context: dict[str, Any], path: str) -> None:
    """Raise UnreadableTraceError for a trace in which there is nothing to report on.

    A step that XLA compiled as a whole leaves neither events nor graphs on a CPU; capture still stored what ran.
    """
    if any(_held(decoded)) or recorded_functions(context):
        return
    if decoded.cut:
        raise UnreadableTraceError(
            f"{printable(path)} breaks off at {decoded.cut}, before its first complete event or node.",
            "Copy the original again.",
        )
    raise UnreadableTraceError(f"{printable(path)} holds no events and no graphs.", formats.EMPTY_HINT)


def _notes(decoded: Decoded, path: str) -> list[Note]:
    notes = []
    if decoded.cut:
        events, graphs = _held(decoded)
        kept = f"{events:,} events" + (f" and {graphs:,} graphs" if graphs else "")
        if decoded.kind == "GraphDef":
            kept = f"{len(decoded.message.node):,} nodes"
        text = f"{printable(path)} breaks off at {decoded.cut}: {kept} before it were read, the rest is missing."
        notes.append(Note("truncated", text))
    if decoded.mangled:
        text = f"{decoded.mangled:,} strings hold bytes that are not UTF-8; U+FFFD stands for them."
        notes.append(Note("invalid-utf8", text, decoded.mangled))
    return notes
