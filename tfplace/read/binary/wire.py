"""Protobuf's wire format, walked without parsing: where each message begins and ends, and what is cut off.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)
_FIXED = {FIXED64: 8, FIXED32: 4}

# fields that hold messages which are worth keeping in part, by kind of message
_PARTS: dict[str, dict[int, str]] = {
    "RunMetadata": {1: "StepStats", 3: "GraphDef", 4: "FunctionGraphs"},
    "StepStats": {1: "DeviceStepStats"},
    "DeviceStepStats": {},
    "FunctionGraphs": {1: "GraphDef", 2: "GraphDef", 3: "GraphDef"},
    "GraphDef": {2: "FunctionDefLibrary"},
    "FunctionDefLibrary": {},
}


class WireError(Exception):
    """Bytes that are no protobuf message.

    Attributes:
        offset: Of the first bad byte.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"no protobuf message goes on at byte {offset:,}")
        self.offset = offset


class WireField(NamedTuple):
    """One field: its number, wire type, value (of a varint), where its content begins and ends.

    `whole` is false where the message ends before the field does; `end` is then the end of the message.
    """

    number: int
    wire: int
    value: int
    begin: int
    end: int
    whole: bool


@dataclass
class DeviceBlock:
    """One DeviceStepStats.

    Attributes:
        name: The device.
        thread_names: {thread id: name}.
        starts: Where each NodeExecStats begins, in bytes that are kept elsewhere.
        ends: Where each ends.
    """

    name: str = ""
    thread_names: dict[int, str] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))


def read_varint(data: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return an unsigned varint and where it ends; the value is -1 where the data end first.

    Raises:
        WireError: It is longer than 64 bits.
    """
    value = shift = 0
    for at in range(position, min(end, position + 10)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise WireError(position)
            return value, at + 1
        shift += 7
    if position + 10 <= end:
        raise WireError(position)
    return -1, end


def fields(data: bytes | bytearray, begin: int, end: int) -> Iterator[WireField]:
    """Yield the fields of the message between `begin` and `end`, the last one perhaps not whole.

    Raises:
        WireError: What follows is no field.
    """
    position = begin
    while position < end:
        found = _field(data, position, end)
        if found.wire == GROUP_END:
            raise WireError(position)
        yield found
        if not found.whole:
            return
        position = found.end


def _field(data: bytes | bytearray, position: int, end: int) -> WireField:
    tag, content = read_varint(data, position, end)
    number, wire = tag >> 3, tag & 7
    if tag < 0:
        return WireField(0, LENGTH, 0, end, end, False)
    value = 0
    if wire in (VARINT, LENGTH):
        value, content = read_varint(data, content, end)
    size = value if wire == LENGTH else _FIXED.get(wire, 0)
    if number == 0 or wire > FIXED32 or number >= 1 << 29 or size >= 1 << 31:
        raise WireError(position)
    stop = content + size
    if wire == GROUP:
        stop = _group_end(data, content, end, number)
    if value < 0 or stop > end:
        return WireField(number, wire, max(value, 0), content, end, False)
    return WireField(number, wire, value, content, stop, True)


def _group_end(data: bytes | bytearray, position: int, end: int, number: int) -> int:
    """Return where a group (an obsolete kind of message, never in a trace) ends; beyond `end` if it is cut off."""
    open_groups = [number]
    while position < end:
        tag, content = read_varint(data, position, end)
        if tag >= 0 and tag & 7 == GROUP:
            open_groups.append(tag >> 3)
            position = content
        elif tag >= 0 and tag & 7 == GROUP_END:
            if open_groups.pop() != tag >> 3:
                raise WireError(position)
            position = content
            if not open_groups:
                return position
        else:
            found = _field(data, position, end)
            if not found.whole:
                break
            position = found.end
    return end + 1


def whole_part(data: bytes, begin: int, end: int, kind: str) -> bytes:
    """Return the message of that kind (RunMetadata, GraphDef ...) without what is cut off at its end.

    Raises:
        WireError: It is no message.
    """
    kept = begin
    for found in fields(data, begin, end):
        if found.whole:
            kept = found.end
            continue
        inner = _PARTS[kind].get(found.number)
        if inner and found.wire == LENGTH:
            part = whole_part(data, found.begin, end, inner)
            return data[begin:kept] + bytes([found.number << 3 | LENGTH]) + write_varint(len(part)) + part
    return data[begin:kept]


def write_varint(value: int) -> bytes:
    """Return the varint of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def device_block(data: bytes, begin: int, end: int) -> DeviceBlock:
    """Return where the node_stats of a DeviceStepStats are.

    Raises:
        WireError: It is no whole message.
    """
    block = DeviceBlock()
    starts, ends = block.starts, block.ends
    position = begin
    while position < end:
        # node_stats = 2, with a length of one or two bytes: nearly every field there is
        if data[position] == 0x12 and position + 2 < end:
            size = data[position + 1]
            if size < 0x80:
                start = position + 2
            else:
                size += (data[position + 2] - 1) << 7
                start = position + 3 if data[position + 2] < 0x80 else 0
            if start:
                position = start + size
                starts.append(start)
                ends.append(position)
                continue
        position = _other_field(data, position, end, block)
    if position > end:
        raise WireError(starts[-1])
    return block


def _other_field(data: bytes, position: int, end: int, block: DeviceBlock) -> int:
    """Enter one field of any kind into the block; return where it ends."""
    found = next(fields(data, position, end))
    if not found.whole:
        raise WireError(position)
    if found.wire == LENGTH and found.number == 1:
        block.name = data[found.begin : found.end].decode("utf-8", "replace")
    elif found.wire == LENGTH and found.number == 2:
        block.starts.append(found.begin)
        block.ends.append(found.end)
    elif found.wire == LENGTH and found.number == 3:
        key, name = 0, b""
        for part in fields(data, found.begin, found.end):
            if not part.whole:
                raise WireError(part.begin)
            if part.number == 1 and part.wire == VARINT:
                key = part.value & 0xFFFFFFFF
            elif part.number == 2 and part.wire == LENGTH:
                name = data[part.begin : part.end]
        block.thread_names[key] = name.decode("utf-8", "replace")
    return found.end
