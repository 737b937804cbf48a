"""step_stats from canonical text to columns, by numpy; `gate` makes sure that the text is canonical.

Source: tensorflow/core/framework/step_stats.proto.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from tfplace.read.binary.content import Ints
from tfplace.read.binary.parts import Memory, Outputs, Parts
from tfplace.read.protos import DATA_TYPES, StepStats, message_class
from tfplace.read.raw import RawStepStats
from tfplace.read.text.gate import Lines, NotCanonical
from tfplace.read.text.linekeys import LineKeys
from tfplace.read.text.tokenizer import TextError, parse_text

_CHUNK = 1 << 19  # bytes at once: the arrays of a chunk stay in the processor's cache
_SHAPE_DEPTH = 4  # dev_stats, node_stats, output, tensor_description, shape
_ENUM_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]{0,8})")


@cache
def _keys() -> LineKeys:
    return LineKeys(StepStats.DESCRIPTOR)


class _Types(dict[bytes, int]):
    """DataType as written to its number."""

    def __init__(self) -> None:
        super().__init__()
        for number, name in enumerate(DATA_TYPES):
            self[f"DT_{name}".encode()] = number
            if number:
                self[f"DT_{name}_REF".encode()] = number + 100

    def __missing__(self, key: bytes) -> int:
        if not _ENUM_NUMBER.fullmatch(key):
            raise NotCanonical
        return int(key)


class _Shapes(dict[str, "str | None"]):
    """The text inside `shape { }` to '[32,?]'; None for unknown rank."""

    def __missing__(self, key: str) -> str | None:
        try:
            shape = parse_text(key.encode("latin-1"), message_class("TensorShapeProto")()).message
        except TextError:
            raise NotCanonical from None
        dims = ",".join("?" if dim.size == -1 else str(dim.size) for dim in shape.dim)
        text = self[key] = None if shape.unknown_rank else f"[{dims}]"
        return text


class _Reader:
    """Reads chunk after chunk of StepStats."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.device_names: list[str] = []
        self.thread_names: list[dict[int, str]] = []
        self.devices: list[Ints] = [np.empty(0, np.int64)]
        self.types, self.shapes = _Types(), _Shapes()

    def read(self, text: bytes, indent: int, goes_on: bool) -> None:
        """Read whole DeviceStepStats; the first one goes on from the chunk before, or not.

        Raises:
            NotCanonical: The text is not as protobuf writes it.
        """
        lines = Lines(text, indent, _keys())
        first = len(self.device_names) - goes_on
        devices = self._find(lines, "StepStats", "dev_stats")
        number = np.zeros(len(lines.code), np.int64)
        number[devices] = first + np.arange(len(devices))
        self._devices(lines, number, first + len(devices), goes_on)
        events = self._find(lines, "DeviceStepStats", "node_stats")
        self.devices.append(number[lines.parent[events]])
        row = np.full(len(lines.code), -1, np.int64)
        row[events] = np.arange(len(events))
        for name, column in self.parts.new_rows(len(events)).items():
            self._column(lines, ("NodeExecStats", name), row, column)
        names = self._texts(lines, ("NodeExecStats", "node_name"), row, len(events))
        labels = self._texts(lines, ("NodeExecStats", "timeline_label"), row, len(events))
        self.parts.add(names, labels, self._outputs(lines, row), self._memory(lines, row))

    def _devices(self, lines: Lines, number: Ints, count: int, goes_on: bool) -> None:
        """Enter names and thread names of the devices."""
        known = len(self.device_names)
        self.device_names += [""] * (count - known)
        self.thread_names += [{} for _ in range(count - known)]
        for line in self._find(lines, "DeviceStepStats", "device").tolist():
            device = int(number[lines.parent[line]])
            if goes_on and device < known and self.device_names[device]:
                raise NotCanonical  # a second name
            self.device_names[device] = self._text(lines, line)
        entries = self._find(lines, "DeviceStepStats", "thread_names").tolist()
        keys, names = dict.fromkeys(entries, 0), dict.fromkeys(entries, "")
        for line in self._find(lines, "DeviceStepStats.ThreadNamesEntry", "key").tolist():
            keys[int(lines.parent[line])] = int(lines.value[line])
        for line in self._find(lines, "DeviceStepStats.ThreadNamesEntry", "value").tolist():
            names[int(lines.parent[line])] = self._text(lines, line)
        for line in entries:
            self.thread_names[int(number[lines.parent[line]])][keys[line]] = names[line]

    def _outputs(self, lines: Lines, row: Ints) -> Outputs:
        """Return the outputs of the events."""
        outputs = self._find(lines, "NodeExecStats", "output")
        count = len(outputs)
        place = np.full(len(lines.code), -1, np.int64)  # message line -> number of the output that it belongs to
        place[outputs] = np.arange(count)
        tensors = self._find(lines, "NodeOutput", "tensor_description")
        place[tensors] = place[lines.parent[tensors]]
        allocations = self._find(lines, "TensorDescription", "allocation_description")
        place[allocations] = place[lines.parent[allocations]]
        num_bytes = np.full(count, -1, np.int64)
        num_bytes[place[allocations]] = 0
        shape: list[str | None] = [None] * count
        shapes = self._find(lines, "TensorDescription", "shape")
        inside = zip(
            place[lines.parent[shapes]].tolist(),
            (lines.end[shapes] + 1).tolist(),
            lines.closed(shapes, _SHAPE_DEPTH).tolist(),
            strict=True,
        )
        for at, begin, end in inside:
            shape[at] = self.shapes[lines.latin[begin:end]]
        dtype = np.zeros(count, np.int64)
        types = self._find(lines, "TensorDescription", "dtype")
        words = zip(lines.begin[types].tolist(), lines.end[types].tolist(), strict=True)
        dtype[place[lines.parent[types]]] = [self.types[lines.data[begin:end]] for begin, end in words]
        return Outputs(
            row=row[lines.parent[outputs]],
            slot=self._column(lines, ("NodeOutput", "slot"), place, np.zeros(count, np.int64)),
            dtype=dtype,
            shape=shape,
            num_bytes=self._column(lines, ("AllocationDescription", "requested_bytes"), place, num_bytes),
            allocator=self._texts(lines, ("AllocationDescription", "allocator_name"), place, count),
        )

    def _memory(self, lines: Lines, row: Ints) -> Memory:
        """Return what allocators had in use after the events."""
        entries = self._find(lines, "NodeExecStats", "memory")
        count = len(entries)
        place = np.full(len(lines.code), -1, np.int64)
        place[entries] = np.arange(count)
        return Memory(
            row=row[lines.parent[entries]],
            allocator=self._texts(lines, ("AllocatorMemoryUsed", "allocator_name"), place, count),
            num_bytes=self._column(
                lines, ("AllocatorMemoryUsed", "allocator_bytes_in_use"), place, np.zeros(count, np.int64)
            ),
        )

    def _find(self, lines: Lines, kind: str, name: str) -> Ints:
        """Return the lines that set the field."""
        return np.flatnonzero(lines.code == _keys().code[kind, name])

    def _column(self, lines: Lines, field: tuple[str, str], place: Ints, column: Ints) -> Ints:
        """Enter the values of an integer field into a column, where `place` of the parent says; -1 is nowhere."""
        found = self._find(lines, *field)
        at = place[lines.parent[found]]
        column[at[at >= 0]] = lines.value[found[at >= 0]]
        return column

    def _texts(self, lines: Lines, field: tuple[str, str], place: Ints, count: int) -> Ints:
        """Return the numbers of the texts of a string field, likewise."""
        found = self._find(lines, *field)
        found = found[place[lines.parent[found]] >= 0]
        at = place[lines.parent[found]]
        begin, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
        begin[at], size[at] = lines.begin[found], lines.end[found] - lines.begin[found]
        texts = self.parts.texts.take(lines, begin, size)
        if lines.unescaped:
            for line, where in zip(found.tolist(), at.tolist(), strict=True):
                if line in lines.unescaped:
                    texts[where] = self.parts.texts.number(lines.unescaped[line])
        return texts

    def _text(self, lines: Lines, line: int) -> str:
        if line in lines.unescaped:
            return lines.unescaped[line]
        return self.parts.texts.decode(lines.latin[lines.begin[line] : lines.end[line]])


def read_canonical(
    data: bytes, spans: Sequence[tuple[int, int]], indent: int, progress: Callable[[int], None] | None = None
) -> tuple[RawStepStats, int]:
    """Return the columns of step_stats, and how many strings held bytes that are not UTF-8.

    Args:
        data: Text.
        spans: Where the lines of StepStats are: `dev_stats {` ... `}`.
        indent: Spaces before `dev_stats`.
        progress: Called with the offset up to which all is read.

    Raises:
        NotCanonical: The text is not as protobuf writes it.
    """
    reader = _Reader()
    margin = b" " * indent
    event_end = b"\n" + margin + b"  }\n"
    for begin, end in spans:
        done, goes_on = begin, False
        while done < end:
            stop = data.find(event_end, done + _CHUNK, end) if done + _CHUNK < end else -1
            stop = stop + len(event_end) if stop >= 0 else end
            head = margin + b"dev_stats {\n" if goes_on else b""
            tail = margin + b"}\n" if stop < end else b""
            reader.read(head + data[done:stop] + tail, indent, goes_on)
            done, goes_on = stop, stop < end
            if progress:
                progress(done)
    columns = reader.parts.finish(reader.device_names, reader.thread_names, np.concatenate(reader.devices))
    return columns, reader.parts.texts.mangled
