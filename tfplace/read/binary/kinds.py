"""Which message some bytes are, told by their field numbers and by what is in the fields.

Nearly any bytes parse as nearly any message: protobuf keeps what it does not know. So a message is
taken for a RunMetadata only if it holds devices that hold events, or graphs that hold nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from tfplace.read.binary.wire import FIXED64, LENGTH, VARINT, WireError, WireField, fields
from tfplace.read.formats import (
    INPUT_PIPELINE,
    KERNEL_STATS,
    META_GRAPH,
    OTHER_PROTOBUF,
    OVERVIEW,
    PERFETTO,
    PROFILER_TRACE,
    SAVED_MODEL,
    TF_STATS,
    XSPACE,
    Format,
)

_SAMPLE = 8  # fields of a message that are looked at
_ANY_OF_PROFILER = b"type.googleapis.com/tensorflow.profiler."
_WIRES = {"v": VARINT, "d": FIXED64, "m": LENGTH, "t": LENGTH}


@dataclass
class _Tally:
    """How many texts were met, and how many of them hold control characters; a hostile name or two may."""

    texts: int = 0
    odd: int = 0

    def add(self, data: bytes, found: WireField) -> None:
        """Count a field that should be text; damaged UTF-8 is let pass."""
        text = data[found.begin : min(found.end, found.begin + 256)]
        self.texts += 1
        self.odd += any(byte < 0x20 and byte not in b"\t\n\r\x1b" for byte in text)


Check = Callable[[bytes, int, int, _Tally], bool]


def _shape(kinds: dict[int, str], inner: dict[int, Check] | None = None, need: tuple[int, ...] = ()) -> Check:
    """Return a check of messages.

    Args:
        kinds: Field number -> v (varint), d (double), m (message or packed numbers), t (text).
        inner: Field number -> check of that message.
        need: Field numbers of which one at least must be there; none: the message may be empty.

    A newer version may have added fields, but not more than there were.
    """

    def check(data: bytes, begin: int, end: int, tally: _Tally) -> bool:
        seen: set[int] = set()
        known = unknown = 0
        for found in islice(fields(data, begin, end), _SAMPLE):
            if found.number == 0:  # cut within a tag
                break
            kind = kinds.get(found.number)
            if kind is None:
                unknown += 1
                continue
            if found.wire != _WIRES[kind]:
                return False
            if kind == "t":
                tally.add(data, found)
            if inner and found.number in inner and found.begin < found.end:
                test = _holds if found.whole else _begins
                if not test(inner[found.number], data, found.begin, found.end, tally):
                    return False
            known += 1
            seen.add(found.number)
        return unknown <= known and (not need or bool(seen & set(need)))

    return check


def _holds(check: Check, data: bytes, begin: int, end: int, tally: _Tally) -> bool:
    """Tell whether a complete message passes; also no field of those looked at may be cut."""
    try:
        whole = all(found.whole for found in islice(fields(data, begin, end), _SAMPLE))
        return whole and check(data, begin, end, tally)
    except WireError:
        return False


def _begins(check: Check, data: bytes, begin: int, end: int, tally: _Tally) -> bool:
    """Tell whether a message that is cut off passes as far as it goes."""
    try:
        return begin == end or check(data, begin, end, tally)
    except WireError:
        return False


def _passes(check: Check, data: bytes) -> bool:
    tally = _Tally()
    return _begins(check, data, 0, len(data), tally) and 3 * tally.odd <= tally.texts


_EVENT = _shape(
    {1: "t", 6: "m", 7: "m", 8: "t", 11: "m", 12: "m"} | dict.fromkeys((2, 3, 4, 5, 9, 10, 13, 14, 15, 16, 17), "v"),
)
_DEVICE = _shape({1: "t", 2: "m", 3: "m"}, {2: _EVENT, 3: _shape({1: "v", 2: "t"})}, need=(1, 2))
_STEP_STATS = _shape({1: "m"}, {1: _DEVICE}, need=(1,))
_ATTR = _shape({1: "t", 2: "m"}, need=(1,))
_NODE = _shape({1: "t", 2: "t", 3: "t", 4: "t", 5: "m", 6: "m", 7: "m"}, {5: _ATTR}, need=(1,))
_SIGNATURE = _shape({1: "t", 2: "m", 3: "m"}, need=(1,))
_FUNCTION = _shape({1: "m", 3: "m", 4: "m", 5: "m"}, {1: _SIGNATURE, 3: _NODE}, need=(1,))
_LIBRARY = _shape({1: "m", 2: "m"}, {1: _FUNCTION})
_GRAPH = _shape(
    {1: "m", 2: "m", 3: "v", 4: "m"}, {1: _NODE, 2: _LIBRARY, 4: _shape({1: "v", 2: "v"})}, need=(1, 2, 3, 4)
)
_MAYBE_GRAPH = _shape({1: "m", 2: "m", 3: "v", 4: "m"}, {1: _NODE, 2: _LIBRARY})
_FUNCTION_GRAPHS = _shape({1: "m", 2: "m", 3: "m"}, dict.fromkeys((1, 2, 3), _MAYBE_GRAPH))
_MAYBE_STEP_STATS = _shape({1: "m"}, {1: _DEVICE})
_COST_GRAPH = _shape(
    {1: "m", 2: "m"}, {1: _shape({1: "t", 2: "t", 4: "m", 5: "m"} | dict.fromkeys((3, 6, 7), "v"))}, need=(1,)
)
_RUN_METADATA = _shape(
    {1: "m", 2: "m", 3: "m", 4: "m", 5: "m", 20100: "t"},
    {1: _MAYBE_STEP_STATS, 2: _COST_GRAPH, 3: _MAYBE_GRAPH, 4: _FUNCTION_GRAPHS},
    need=(1, 2, 3, 4, 20100),
)
_PLANE = _shape({1: "v", 2: "t", 3: "m", 4: "m", 5: "m", 6: "m"}, {5: _shape({1: "v", 2: "m"})}, need=(2,))
_XSPACE = _shape({1: "m", 2: "t", 3: "t", 4: "t"}, {1: _PLANE}, need=(1,))
_NAMED = _shape({1: "v", 2: "m"}, {2: _shape({1: "t", 2: "v", 3: "m"}, need=(1,))}, need=(2,))
_PROFILER_TRACE = _shape({1: "m", 4: "m"}, {1: _NAMED}, need=(1,))
_KERNEL = _shape({1: "t", 5: "m", 6: "m", 12: "t"} | dict.fromkeys((2, 3, 4, 7, 8, 9, 10, 11, 13), "v"), need=(5, 6))
_KERNEL_STATS = _shape({1: "m"}, {1: _KERNEL}, need=(1,))
_TF_RECORD = _shape({1: "v", 2: "t", 3: "t", 4: "t", 5: "v", 6: "d"}, need=(3,))
_TF_TABLE = _shape({1: "m"}, {1: _TF_RECORD}, need=(1,))
_TF_STATS = _shape({4: "m", 5: "m", 6: "t"}, {4: _TF_TABLE, 5: _TF_TABLE}, need=(4, 5))
_META_GRAPH = _shape({1: "m", 2: "m", 3: "m"}, {1: _shape({2: "m", 4: "t", 5: "t", 6: "t"}), 2: _GRAPH}, need=(2,))
_SAVED_MODEL = _shape({1: "v", 2: "m"}, {2: _META_GRAPH}, need=(2,))

# TracePacket: every one has the number of its sequence (10), an event its time (8)
_PERFETTO = _shape({1: "m"}, {1: _shape({8: "v", 10: "v", 11: "m", 12: "m", 13: "v", 60: "m"}, need=(10,))}, need=(1,))

# what is left to go by where the rest of a file is damaged
_DAMAGED = _shape({1: "m"}, {1: _STEP_STATS}, need=(1,))

# a StepStats is no RunMetadata: the name of a device, read as a message, is none
_TRACES = (("RunMetadata", _RUN_METADATA), ("StepStats", _STEP_STATS), ("GraphDef", _GRAPH))
_OTHERS = (
    (XSPACE, _XSPACE),
    (PROFILER_TRACE, _PROFILER_TRACE),
    (KERNEL_STATS, _KERNEL_STATS),
    (TF_STATS, _TF_STATS),
    (SAVED_MODEL, _SAVED_MODEL),
    (META_GRAPH, _META_GRAPH),
    (PERFETTO, _PERFETTO),
)


def binary_kind(data: bytes) -> str | Format | None:
    """Return RunMetadata, StepStats or GraphDef, or what else the bytes are; None if they are no protobuf message.

    The last field may be cut off.
    """
    try:
        head = list(islice(fields(data, 0, len(data)), _SAMPLE))
    except WireError:
        return None
    for kind, check in _TRACES:
        if _passes(check, data):
            return kind
    for known, check in _OTHERS:
        if _passes(check, data):
            return known
    if _passes(_DAMAGED, data):
        return "RunMetadata"
    for found in head:
        inside = data[found.begin : min(found.end, found.begin + 4096)]
        if found.wire == LENGTH and _ANY_OF_PROFILER in inside:
            return INPUT_PIPELINE if found.number == 4 and inside.find(_ANY_OF_PROFILER) < 4 else OVERVIEW
    # three fields in a row are hardly an accident
    return OTHER_PROTOBUF if len(head) >= 3 and head[-1].whole else None
