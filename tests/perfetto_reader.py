"""A reader of Perfetto traces that knows nothing of how they are written: protobuf's own parser, then Perfetto's rules.

Source: perfetto/protos/perfetto/trace, as far as a timeline uses it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "Entry": "iid 1 uint64, text 2 string",
    "Annotation": "name 1 uint64, truth 2 bool, whole 4 int64, real 5 double, text 17 uint64",
    "Interned": "category 1 *Entry, name 2 *Entry, key 3 *Entry, text 29 *Entry",
    "Event": "category 3 *uint64, argument 4 *Annotation, type 9 int32, name 10 uint64, track 11 uint64, "
    "value 44 double, flow 47 *fixed64, last_of_flow 48 *fixed64",
    "Counter": "unit 6 string",
    "Descriptor": "uuid 1 uint64, name 2 string, parent 5 uint64, counter 8 Counter, child_ordering 11 int32, "
    "rank 12 int32",
    "Packet": "timestamp 8 uint64, sequence 10 uint32, event 11 Event, interned 12 Interned, flags 13 uint32, "
    "descriptor 60 Descriptor",
    "Trace": "packet 1 *Packet",
}  # fmt: skip
_KINDS = {"uint64": 4, "int64": 3, "int32": 5, "uint32": 13, "bool": 8, "double": 1, "string": 9, "fixed64": 6}

BEGIN, END, INSTANT, COUNT = 1, 2, 3, 4


@cache
def _trace_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tests/perfetto.proto", package="p", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for spec in fields.split(", "):
            label, number, kind = spec.split()
            one = message.field.add(name=label, number=int(number), label=_F.LABEL_OPTIONAL)
            if kind.startswith("*"):
                one.label, kind = _F.LABEL_REPEATED, kind[1:]
            if kind in _KINDS:
                one.type = _KINDS[kind]
            else:
                one.type, one.type_name = _F.TYPE_MESSAGE, f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    return message_factory.GetMessageClass(
        pool.AddSerializedFile(file.SerializeToString()).message_types_by_name["Trace"]
    )


@dataclass(eq=False)
class Bar:
    """A slice, or an instant, which has no end."""

    device: str
    track: str
    start: int
    end: int | None
    name: str
    category: str
    args: dict[str, Any]


@dataclass
class Native:
    """What a file holds.

    Attributes:
        bars: Slices by their beginnings.
        marks: Instants.
        values: (device, counter, unit, moment, value).
        arrows: Pairs of bars.
        below: {device, or null for what has no parent: names by rank}.
    """

    bars: list[Bar] = field(default_factory=list)
    marks: list[Bar] = field(default_factory=list)
    values: list[tuple[str, str, str, int, float]] = field(default_factory=list)
    arrows: list[tuple[Bar, Bar]] = field(default_factory=list)
    below: dict[str | None, list[str]] = field(default_factory=dict)


def read_native(data: bytes) -> Native:
    """Read a trace; an AssertionError says what is wrong with it."""
    trace = _trace_class()()
    assert trace.ParseFromString(data) == len(data)
    return _Reader(trace.packet).read()


class _Reader:
    def __init__(self, packets: Any) -> None:
        self.packets = packets
        self.tracks: dict[int, Any] = {}
        self.texts: dict[str, dict[int, str]] = defaultdict(dict)
        self.open: dict[int, list[Bar]] = defaultdict(list)
        self.flows: dict[int, Bar] = {}
        self.ended: set[int] = set()
        self.found = Native()

    def read(self) -> Native:
        assert self.packets[0].flags == 1, "the state is not cleared first"
        last = 0
        for packet in self.packets:
            assert packet.sequence == 1
            if packet.HasField("descriptor"):
                self.descriptor(packet.descriptor)
            if packet.HasField("interned"):
                self.interned(packet.interned)
            if packet.HasField("event"):
                assert packet.flags == 2, "texts by number, without the flag that says so"
                assert packet.timestamp >= last, "events not in order of time"
                last = packet.timestamp
                self.event(packet.timestamp, packet.event)
        assert not any(self.open.values()), "a slice without an end"
        assert self.ended == set(self.flows), "half an arrow"
        ordered = sorted(self.tracks.values(), key=lambda one: (one.parent, one.rank))
        for one in ordered:
            parent = self.tracks[one.parent].name if one.HasField("parent") else None
            self.found.below.setdefault(parent, []).append(one.name)
        return self.found

    def descriptor(self, one: Any) -> None:
        assert one.uuid not in self.tracks and one.uuid > 0
        assert not one.HasField("parent") or self.tracks[one.parent].child_ordering == 3, "children in no order"
        self.tracks[one.uuid] = one

    def interned(self, new: Any) -> None:
        for kind in ("category", "name", "key", "text"):
            for entry in getattr(new, kind):
                assert entry.iid > 0 and entry.iid not in self.texts[kind], "one number for two texts"
                self.texts[kind][entry.iid] = entry.text

    def event(self, at: int, event: Any) -> None:
        track = self.tracks[event.track]
        device = self.tracks[track.parent].name
        if event.type == COUNT:
            self.found.values.append((device, track.name, track.counter.unit, at, event.value))
            return
        assert not track.HasField("counter")
        if event.type == END:
            bar = self.open[event.track].pop()
            bar.end = at
        else:
            (category,) = event.category
            args = {self.texts["key"][one.name]: self.value(one) for one in event.argument}
            assert len(args) == len(event.argument), "an argument twice"
            name = self.texts["name"][event.name]
            bar = Bar(device, track.name, at, None, name, self.texts["category"][category], args)
            if event.type == BEGIN:
                self.open[event.track].append(bar)
            (self.found.bars if event.type == BEGIN else self.found.marks).append(bar)
        for number in event.flow:
            assert number > 0 and number not in self.flows, "one arrow leaves twice"
            self.flows[number] = bar
        for number in event.last_of_flow:
            assert number not in self.ended, "one arrow arrives twice"
            self.ended.add(number)
            self.found.arrows.append((self.flows[number], bar))

    def value(self, one: Any) -> Any:
        (value,) = [value for what, value in one.ListFields() if what.name != "name"]
        return self.texts["text"][value] if one.HasField("text") else value
