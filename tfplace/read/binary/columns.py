"""NodeExecStats in wire format to columns, a batch at a time, by numpy.

All messages of a batch are walked in lockstep: each turn takes the next field of every message
that has one. Sub-messages are walked the same way. The few messages that need protobuf's own rules
(a sub-message given twice is merged, groups, five-byte tags ...) are re-encoded by protobuf first.

Source: tensorflow/core/framework/step_stats.proto, NodeExecStats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfplace.read.binary.content import Content, Ints, Texts, Words
from tfplace.read.binary.parts import NONE, Memory, Outputs, Parts
from tfplace.read.binary.wire import DeviceBlock, WireError
from tfplace.read.protos import lenient_class
from tfplace.read.raw import TIME_FIELDS, RawStepStats

_BATCH = 1 << 15  # messages at once: their columns stay in the processor's cache
_BATCH_BYTES = 1 << 23
_TIME_TAGS = dict(zip(TIME_FIELDS, (n << 3 for n in (2, 3, 4, 5, 9, 13, 14, 15, 16, 17)), strict=True))
_NAME, _OUTPUT, _LABEL, _THREAD = 1 << 3 | 2, 7 << 3 | 2, 8 << 3 | 2, 10 << 3
_MEMORY, _ALLOCATOR_NAME, _IN_USE = 6 << 3 | 2, 1 << 3 | 2, 5 << 3
_SLOT, _TENSOR = 1 << 3, 3 << 3 | 2
_DTYPE, _SHAPE, _ALLOCATION = 1 << 3, 2 << 3 | 2, 4 << 3 | 2
_REQUESTED, _ALLOCATOR = 1 << 3, 3 << 3 | 2

_TOPS = np.uint64(0x8080808080808080)
_LOWS = np.uint64(0x7F7F7F7F7F7F7F7F)
# (1 << 8k) * _COUNT has k + 1 in its highest byte
_COUNT = np.uint64(0x0102030405060708)


class Fields(NamedTuple):
    """All fields of many messages; those of one message are in order.

    Attributes:
        row: int64[F], number of the message.
        tag: int64[F], field number and wire type.
        value: int64[F], the varint: the value, or the length.
        begin: int64[F], where the content begins.
    """

    row: Ints
    tag: Ints
    value: Ints
    begin: Ints

    def pick(self, tag: int) -> Fields:
        """Return the fields with that tag."""
        chosen = np.flatnonzero(self.tag == tag)
        return Fields(*(column[chosen] for column in self))

    def by_row(self) -> Fields:
        """Return the fields sorted by message."""
        order = np.argsort(self.row, kind="stable")
        return Fields(*(column[order] for column in self))

    def put(self, tag: int, column: Ints, begin: Ints | None = None) -> None:
        """Enter the values of the fields with that tag into a column by row, and where their contents begin.

        A field given twice counts as given last, as protobuf has it.
        """
        chosen = np.flatnonzero(self.tag == tag)
        column[self.row[chosen]] = self.value[chosen]
        if begin is not None:
            begin[self.row[chosen]] = self.begin[chosen]


class Shapes(dict[bytes, "str | None"]):
    """TensorShapeProto in wire format to '[32,?]'; None for unknown rank."""

    def __missing__(self, key: bytes) -> str | None:
        shape = lenient_class("TensorShapeProto").FromString(key)
        dims = ",".join("?" if dim.size == -1 else str(dim.size) for dim in shape.dim)
        text = self[key] = None if shape.unknown_rank else f"[{dims}]"
        return text


def scan(words: Words, begin: Ints, end: Ints) -> tuple[Fields, Ints]:
    """Return the fields of the messages between `begin` and `end`, and the numbers of those that it cannot take.

    Args:
        words: The 8 bytes from every position on; at least 16 bytes follow the last message.
        begin: int64[N].
        end: int64[N].
    """
    rows = np.flatnonzero(begin < end)
    at, limit = begin[rows], end[rows]
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    odd: list[Ints] = []
    while rows.size:
        tag, body, bad = _tags(words, at)
        value, content = _varints(words, body)
        wire = tag & 7
        after = np.where(wire == 0, content, content + value)
        if (wire & 5).any():
            after = np.where(wire == 1, body + 8, np.where(wire == 5, body + 4, after))
            bad |= ((wire & 5) != 0) & (wire != 1) & (wire != 5)
        bad |= (after > limit) | (after < content) | (tag < 8)
        if bad.any():
            odd.append(rows[bad])
            kept = np.flatnonzero(~bad)
            rows, tag, value, content, after, limit = (
                column[kept] for column in (rows, tag, value, content, after, limit)
            )
        found.append((rows, tag, value, content))
        more = np.flatnonzero(after < limit)
        rows, at, limit = rows[more], after[more], limit[more]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)] or [NONE] * 4
    return Fields(*columns), np.concatenate([NONE, *odd])


def _tags(words: Words, at: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return the tags, where they end, and which are longer than two bytes."""
    head = words[at]
    tag = (head & 0xFF).view(np.int64)
    long = tag > 0x7F
    if not long.any():
        return tag, at + 1, long
    second = ((head >> 8) & 0xFF).view(np.int64)
    tag = np.where(long, (tag & 0x7F) | (second << 7), tag)
    return tag, at + 1 + long, long & (second > 0x7F)


def _varints(words: Words, at: Ints) -> tuple[Ints, Ints]:
    """Return the varints at these positions, as signed numbers, and where they end."""
    word = words[at]
    long = np.flatnonzero(word & 0x80)
    value = (word & 0x7F).view(np.int64)  # most are lengths, of one byte
    end = at + 1
    if long.size:
        value[long], end[long] = _long_varints(words, at[long], word[long])
    return value, end


def _long_varints(words: Words, at: Ints, word: Words) -> tuple[Ints, Ints]:
    """Return varints of any length; `word` is what stands at the positions."""
    stop = ~word & _TOPS
    last = stop & (~stop + np.uint64(1))  # the top bit of the first byte without one; 0 where all 8 have it
    value = word & (last - np.uint64(1)) & _LOWS
    value = ((value & 0x7F007F007F007F00) >> 1) | (value & 0x007F007F007F007F)
    value = ((value & 0x3FFF00003FFF0000) >> 2) | (value & 0x00003FFF00003FFF)
    value = ((value & 0x0FFFFFFF00000000) >> 4) | (value & 0x000000000FFFFFFF)
    size = (((last >> 7) * _COUNT) >> 56).view(np.int64)
    if not size.all():
        longest = np.flatnonzero(size == 0)
        tail = words[at[longest] + 8]
        ninth, tenth = tail & 0x7F, (tail >> 8) & 1
        longer = (tail & 0x80) != 0
        value[longest] |= ninth << 56
        value[longest] |= np.where(longer, tenth << 63, 0).astype(np.uint64)
        size[longest] = 9 + longer
    return value.view(np.int64), at + size


class _Batch(Content):
    """Some consecutive messages."""

    def __init__(self, data: bytes | bytearray | memoryview, begin: Ints, end: Ints) -> None:
        super().__init__(bytes(data))
        self.begin, self.end = begin, end

    def reencoded(self, rows: Ints) -> _Batch:
        """Return the batch with these messages written anew by protobuf.

        Raises:
            WireError: One of them is no NodeExecStats; its offset is that in the batch.
        """
        begin, end, data = self.begin.copy(), self.end.copy(), bytearray(self.data)
        for row in np.unique(rows).tolist():
            try:
                event = lenient_class("NodeExecStats").FromString(self.data[begin[row] : end[row]])
            except DecodeError:
                raise WireError(int(begin[row])) from None
            event.DiscardUnknownFields()
            begin[row] = len(data)
            data += event.SerializeToString()
            end[row] = len(data)
        return _Batch(data, begin, end)


def _read_outputs(batch: _Batch, events: Fields, shapes: Shapes, texts: Texts) -> tuple[Outputs, Ints]:
    """Return the outputs of the events, and the numbers of the events that protobuf must write anew first."""
    given = events.pick(_OUTPUT).by_row()
    count = len(given.row)
    odd = []

    def inner(holder: Fields, tag: int, of: Ints) -> tuple[Fields, Ints]:
        """Return the one sub-message with that tag in each message, and the numbers of the outputs they are in."""
        found = holder.pick(tag).by_row()
        odd.append(given.row[of[found.row[1:][found.row[1:] == found.row[:-1]]]])  # given twice
        return found, of[found.row]

    def walk(messages: Fields, of: Ints) -> Fields:
        table, strange = scan(batch.words, messages.begin, messages.begin + messages.value)
        odd.append(given.row[of[strange]])
        return table

    everyone = np.arange(count)
    slot, dtype, requested = (np.zeros(count, np.int64) for _ in range(3))
    requested -= 1
    output = walk(given, everyone)
    output.put(_SLOT, slot)
    tensors, of_tensor = inner(output, _TENSOR, everyone)
    tensor = walk(tensors, of_tensor)
    dtype[of_tensor] = _spread(tensor, _DTYPE, len(of_tensor))
    dims, of_shape = inner(tensor, _SHAPE, of_tensor)
    allocations, of_allocation = inner(tensor, _ALLOCATION, of_tensor)
    allocation = walk(allocations, of_allocation)
    requested[of_allocation] = _spread(allocation, _REQUESTED, len(of_allocation))
    size, begin = np.zeros(len(of_allocation), np.int64), np.zeros(len(of_allocation), np.int64)
    allocation.put(_ALLOCATOR, size, begin)
    shape: list[str | None] = [None] * count
    allocator = np.full(count, texts.number(""))
    bad = np.unique(np.concatenate(odd))
    if not len(bad):
        places = zip(of_shape.tolist(), dims.begin.tolist(), (dims.begin + dims.value).tolist(), strict=True)
        for at, first, last in places:
            try:
                shape[at] = shapes[batch.data[first:last]]
            except DecodeError:
                raise WireError(first) from None
        allocator[of_allocation] = texts.take(batch, begin, size)
    slot, dtype = slot.astype(np.int32).astype(np.int64), dtype.astype(np.int32).astype(np.int64)
    return Outputs(given.row, slot, dtype, shape, requested, allocator), bad


def _read_memory(batch: _Batch, events: Fields, texts: Texts) -> tuple[Memory, Ints]:
    """Return what allocators had in use, and the numbers of the events that protobuf must write anew first."""
    given = events.pick(_MEMORY).by_row()
    table, strange = scan(batch.words, given.begin, given.begin + given.value)
    in_use, size, begin = (np.zeros(len(given.row), np.int64) for _ in range(3))
    table.put(_IN_USE, in_use)
    table.put(_ALLOCATOR_NAME, size, begin)
    return Memory(given.row, texts.take(batch, begin, size), in_use), given.row[strange]


def _spread(table: Fields, tag: int, count: int) -> Ints:
    column = np.zeros(count, np.int64)
    table.put(tag, column)
    return column


def _read_batch(parts: Parts, shapes: Shapes, batch: _Batch) -> None:
    """Add the columns of a batch.

    Raises:
        WireError: A message is damaged.
    """
    count = len(batch.begin)
    events, odd = scan(batch.words, batch.begin, batch.end)
    outputs, odd_outputs = _read_outputs(batch, events, shapes, parts.texts)
    memory, odd_memory = _read_memory(batch, events, parts.texts)
    if len(odd) or len(odd_outputs) or len(odd_memory):
        _read_batch(parts, shapes, batch.reencoded(np.concatenate([odd, odd_outputs, odd_memory])))
        return
    numbers = parts.new_rows(count)
    for name, tag in _TIME_TAGS.items():
        events.put(tag, numbers[name])
    events.put(_THREAD, numbers["thread_id"])
    numbers["thread_id"] &= 0xFFFFFFFF
    texts = []
    for tag in (_NAME, _LABEL):
        size, begin = np.zeros(count, np.int64), np.zeros(count, np.int64)
        events.put(tag, size, begin)
        texts.append(parts.texts.take(batch, begin, size))
    parts.add(texts[0], texts[1], outputs, memory)


def read_blocks(
    data: bytes | bytearray, blocks: Sequence[DeviceBlock], progress: Callable[[int], None] | None = None
) -> tuple[RawStepStats, int]:
    """Return the columns of all node_stats, and how many strings held bytes that are not UTF-8.

    Args:
        data: What the blocks' starts and ends refer to; they ascend.
        blocks: One per DeviceStepStats.
        progress: Called with the offset in `data` up to which all is read.

    Raises:
        WireError: A message is damaged.
    """
    shapes = Shapes()
    starts = np.concatenate([NONE, *(np.array(block.starts, np.int64) for block in blocks)])
    ends = np.concatenate([NONE, *(np.array(block.ends, np.int64) for block in blocks)])
    parts = Parts(len(starts))
    for first, last in _batches(starts, ends):
        base, end = int(starts[first]), int(ends[last - 1])
        try:
            _read_batch(
                parts, shapes, _Batch(memoryview(data)[base:end], starts[first:last] - base, ends[first:last] - base)
            )
        except WireError as error:
            raise WireError(base + error.offset) from None
        if progress:
            progress(end)
    columns = parts.finish(
        [block.name for block in blocks],
        [block.thread_names for block in blocks],
        np.repeat(np.arange(len(blocks)), [len(block.starts) for block in blocks]),
    )
    return columns, parts.texts.mangled


def _batches(starts: Ints, ends: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of messages, limited in number and in bytes."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(ends, starts[first] + _BATCH_BYTES, "right"))
        last = min(max(last, first + 1), first + _BATCH, len(starts))
        yield first, last
        first = last
