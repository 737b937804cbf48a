"""Any legal protobuf text to messages: what google.protobuf.text_format.Parse reads, several times as fast.

One regular expression takes a whole field (`name: value`, `name {`, `}`) at a time, and `_Reader.take`
loops over its matches and sets fields of messages. Whatever that loop does not know at a glance
(hexadecimal numbers, lists, adjacent strings, unknown fields ...) goes to `_Reader.slow`, which is
complete. Unknown fields are skipped as `allow_unknown_field=True` skips them.

Two deviations, both on purpose: bytes that are not UTF-8 become U+FFFD and are counted, and text that
breaks off at the end of the file leaves what was complete.

Source: google/protobuf/text_format.py, classes _Parser and Tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise
from operator import length_hint
from typing import Any

from tfplace.read.binary.wire import DeviceBlock
from tfplace.read.protos import RunMetadata, message_class
from tfplace.read.text.kinds import MESSAGE, STRING, TEXTUAL, Field, Kind, kinds_of, unescape
from tfplace.read.text.skip import Skipper
from tfplace.read.text.syntax import (
    CLOSERS,
    CLOSING,
    EXPLAIN,
    FULL,
    PLAIN,
    Fault,
    Item,
    field_name,
    list_elements,
    string_bodies,
)

_CUT = re.compile(rb"\n[ \t\r]*(?:[}>]|[A-Za-z_][0-9A-Za-z_]*[ \t]*[:{<])")
_REPLACED = re.compile('"[^"\\n]*\ufffd[^"\\n]*"')
_CHUNK = 1 << 18  # bytes of text whose matches are held at once
_LONGEST = 1 << 21  # a chunk beyond that has no line ends: matched one by one
_DEEPEST = 100  # nested messages; protobuf's own limit for the wire format
# what is left of these when the text breaks off inside is as good as the complete parts it holds
_CONTAINERS = {"RunMetadata", "StepStats", "DeviceStepStats", "GraphDef", "FunctionDefLibrary"}
_CONTAINERS |= {"RunMetadata.FunctionGraphs"}

Progress = Callable[[int, int], None]
Frame = tuple[Any, Kind, int, str]
"""An open message: itself, its kind, its highest field number so far, what ends it ('}*' for a list's element).
An open list of messages: the message that holds it, _LIST, its state (see below), ']'."""

_LIST = Kind("list")
_FIRST, _AFTER, _NEXT = range(3)  # in a list: nothing yet; after an element; after a comma


class TextError(Exception):
    """Text that no parser takes.

    Attributes:
        line: Counted from 1.
        column: Counted from 1, in characters.
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line, self.column = line, column


@dataclass
class TextResult:
    """What a text held.

    Attributes:
        message: The root message, without its node_stats.
        data: The node_stats in wire format.
        blocks: Where those of each DeviceStepStats are in `data`.
        mangled: Strings with bytes that are not UTF-8, replaced by U+FFFD.
        cut_line: Line in which the text breaks off; 0 where it is complete.
    """

    message: Any
    data: bytearray = field(default_factory=bytearray)
    blocks: list[DeviceBlock] = field(default_factory=list)
    mangled: int = 0
    cut_line: int = 0


def parse_text(data: bytes, root: Any, progress: Progress | None = None, only: str = "") -> TextResult:
    """Read text into `root`, a message of the private pool; node_stats go to `TextResult.blocks`.

    Args:
        data: UTF-8.
        root: The message.
        progress: Called with bytes done and bytes in all.
        only: The one field that the root may have; empty: any, and unknown ones are skipped.

    Raises:
        TextError: The text is not legal for that message type, and not because it was cut off.
    """
    reader = _Reader(root, only)
    for start, end in _chunks(data):
        try:
            text = str(data[start:end], "utf-8")
        except UnicodeDecodeError:
            text = str(data[start:end], "utf-8", "replace")
            reader.result.mangled += len(_REPLACED.findall(text))
        try:
            reader.read(text)
        except Fault as fault:
            line = data.count(b"\n", 0, start) + text.count("\n", 0, fault.start) + 1
            if not (fault.may_be_cut and end == len(data) and fault.end >= len(text)):
                column = fault.start - text.rfind("\n", 0, fault.start)
                raise TextError(fault.reason, line, column) from None
            reader.result.cut_line = line
            break
        if progress:
            progress(end, len(data))
    if reader.stack or reader.skipper.stack:
        reader.result.cut_line = reader.result.cut_line or data.count(b"\n") + 1
    reader.unwind()
    return reader.result


def _chunks(data: bytes) -> Iterator[tuple[int, int]]:
    """Cut text before lines that begin a field or end a message: no field spans such a cut."""
    start = 0
    while start < len(data):
        found = _CUT.search(data, start + _CHUNK)
        end = found.start() + 1 if found else len(data)
        yield start, end
        start = end


class _Reader:
    """Reads chunk after chunk; what is open stays open in between."""

    def __init__(self, root: Any, only: str) -> None:
        self.only = only
        self.result = TextResult(root)
        self.block = DeviceBlock()
        self.frame: Frame = (root, all_kinds()[root.DESCRIPTOR.full_name], 0, "")
        self.stack: list[Frame] = []
        self.lists: list[Field] = []
        self.skipper = Skipper()

    def read(self, text: str) -> None:
        """Read whole fields.

        Raises:
            Fault: With its place in `text`.
        """
        syntax = FULL if "#" in text else PLAIN
        first = syntax.gap.match(text)
        start = first.end() if first else 0
        total, current = 0, None

        def one_by_one() -> Iterator[Item]:
            nonlocal current
            for current in syntax.item.finditer(text, start):
                yield current.groups("")  # type: ignore[misc]

        if len(text) < _LONGEST:
            found = syntax.item.findall(text, start)
            total, items = len(found), iter(found)
        else:
            items = one_by_one()
        try:
            if self.skipper.stack:
                self.skipper.skip(items)
            self.take(items)
        except (Fault, ValueError, TypeError) as error:
            fault = error if isinstance(error, Fault) else Fault(str(error))
            if total:
                index = total - length_hint(items) - 1
                current = next(islice(syntax.item.finditer(text, start), index, None))
            fault.locate(text, current)
            raise fault from None

    def take(self, items: Iterator[Item]) -> None:
        """Set the fields that the items state; the loop that everything waits for."""
        message, kind, last, closer = self.frame
        stack = self.stack
        try:
            for item in items:
                name, decimal, plain, brace, word, raw, bracket, illegal = item
                known: tuple[Any, ...] | None = None
                value: Any = None
                if decimal:
                    known, value = kind.ints.get(name), int(decimal)
                elif brace:
                    if (brace == closer or brace[0] == closer) and not name:
                        if kind.finish:
                            kind.finish(self, message, stack[-1][0])
                        message, kind, last, closer = stack.pop()
                        continue
                    opened = kind.opens.get(name)
                    if opened and (opened.number > last or opened.number < 0) and brace in CLOSERS:
                        stack.append((message, kind, opened.number if opened.number > last else last, closer))
                        message, kind, last, closer = opened.open(message), opened.inner, 0, CLOSERS[brace]
                        continue
                elif word:
                    known = kind.words.get(name)
                    value = known[2].get(word) if known else None
                elif not (raw or bracket or illegal):
                    known = kind.strings.get(name)
                    value = plain.encode("utf-8") if known and known[2] else plain
                if known and value is not None:
                    if known[0] > last:
                        last = known[0]
                        setattr(message, known[1], value)
                        continue
                    if known[0] < 0:
                        getattr(message, known[1]).append(value)
                        continue
                self.frame = (message, kind, last, closer)
                self.slow(item, items)
                message, kind, last, closer = self.frame
        finally:
            self.frame = (message, kind, last, closer)

    def slow(self, item: Item, items: Iterator[Item]) -> None:
        """Take an item of any shape."""
        written, decimal, plain, brace, word, raw, bracket, illegal = item
        name, colon = written, False
        if written.endswith(":"):
            name, colon = field_name(written), True
        kind = self.frame[1]
        if illegal:
            raise Fault(EXPLAIN)
        if brace[:1] in CLOSING or bracket[:1] == "]":
            self.close(written, brace or bracket)
        elif kind is _LIST:
            self.open_element(written, brace)
        elif self.only and not self.stack and name != self.only:
            raise Fault(f"{name!r} is not expected here", may_be_cut=False)
        elif name not in kind.fields:
            self.skipper.start(item, name, colon)
            if self.skipper.stack:
                self.skipper.skip(items)
        elif brace or bracket:
            self.open(kind.fields[name], brace or bracket)
        else:
            self.scalar(kind.fields[name], colon, decimal or word, raw or '"' + plain + '"')

    def close(self, written: str, token: str) -> None:
        """End a message, an element of a list, or a list; the token may hold the separator behind it."""
        message, kind, state, closer = self.frame
        if written or token[0] != closer[:1] or (kind is _LIST and state != _AFTER):
            wanted = "a value" if written else f"'{closer[:1]}'" if closer and kind is not _LIST else "no closing brace"
            raise Fault(f"expected {wanted}, found {token[0]!r}", may_be_cut=False)
        if kind.finish:
            kind.finish(self, message, self.stack[-1][0])
        self.frame = self.stack.pop()
        if kind is _LIST:
            self.lists.pop()
        elif closer.endswith("*"):
            if token.endswith(";"):
                raise Fault("expected ',' or ']' after an element of a list", may_be_cut=False)
            self.frame = (*self.frame[:2], _NEXT if token.endswith(",") else _AFTER, "]")

    def open(self, field: Field, token: str) -> None:
        """Begin a message, or a list of messages."""
        message, kind, last, closer = self.frame
        if field.literal != MESSAGE or (token == "[" and field.number >= 0):
            raise Fault(f"{field.attr!r} takes one value, found {token!r}", may_be_cut=False)
        if field.number >= 0 and field.is_set(message):
            raise Fault(f"{field.attr!r} is already set", may_be_cut=False)
        self.stack.append((message, kind, max(last, field.number), closer))
        if token == "[":
            self.lists.append(field)
            self.frame = (message, _LIST, _FIRST, "]")
        else:
            self.frame = (field.open(message), field.inner, 0, CLOSERS[token])

    def open_element(self, written: str, token: str) -> None:
        """Begin a message in a list."""
        message, _, state, _ = self.frame
        if written or token not in CLOSERS or state == _AFTER:
            raise Fault("expected ',' or ']'" if state == _AFTER else "expected '{'", may_be_cut=False)
        self.stack.append(self.frame)
        self.frame = (self.lists[-1].open(message), self.lists[-1].inner, 0, CLOSERS[token] + "*")

    def scalar(self, field: Field, colon: bool, literal: str, strings: str) -> None:
        """Set or append the value, or append a list of values, of a field that is no message."""
        message, kind, last, closer = self.frame
        listed = strings[0] == "["
        elements = list_elements(strings) if listed else [literal or strings]
        if listed and field.number >= 0:
            raise Fault(f"{field.attr!r} takes one value, found a list", may_be_cut=False)
        if field.literal == MESSAGE and not (listed and not elements):
            raise Fault(f"expected '{{' after {field.attr!r}")
        if not colon and field.literal != MESSAGE:
            raise Fault(f"expected ':' after {field.attr!r}")
        values = [self.value(field, element) for element in elements]
        if field.number < 0:
            getattr(message, field.attr).extend(values)
            return
        if field.is_set(message):
            raise Fault(f"{field.attr!r} is already set", may_be_cut=False)
        setattr(message, field.attr, values[0])
        self.frame = (message, kind, max(last, field.number), closer)

    def value(self, field: Field, literal: str) -> Any:
        """Return the value of one literal, strings with their quotes.

        Raises:
            ValueError: It does not fit the field.
        """
        if field.literal not in TEXTUAL:
            return field.parse(literal)
        if literal[0] not in "\"'":
            raise ValueError(f"expected a string for {field.attr!r}, found {literal[:40]!r}")
        body = literal[1:-1]
        alone = literal[0] not in body and "\\" not in body
        joined = body.encode("utf-8") if alone else b"".join(map(unescape, string_bodies(literal)))
        if field.literal != STRING:
            return joined
        try:
            return joined.decode("utf-8")
        except UnicodeDecodeError:
            self.result.mangled += 1
            return joined.decode("utf-8", "replace")

    def unwind(self) -> None:
        """Drop what is incomplete where the text broke off: the outermost open message that is no container."""
        frames = [frame for frame in (*self.stack, self.frame) if frame[1] is not _LIST]
        for place, ((parent, holder, *_), (_, kind, *_)) in enumerate(pairwise(frames)):
            if kind.name in _CONTAINERS:
                continue
            for member in holder.fields.values():
                if member.inner is kind and not member.entry:
                    if member.number < 0:
                        del getattr(parent, member.attr)[-1]
                    else:
                        parent.ClearField(member.attr)
            del frames[place + 1 :]
            break
        for message, kind, *_ in frames:
            if kind.name == "DeviceStepStats":
                _finish_device(self, message, None)


def _finish_entry(name: str, is_message: bool) -> Callable[[Any, Any, Any], None]:
    def finish(reader: Any, entry: Any, parent: Any) -> None:
        if len(reader.stack) > _DEEPEST:
            raise Fault(f"messages nested more than {_DEEPEST} deep", may_be_cut=False)
        if is_message:
            getattr(parent, name)[entry.key].CopyFrom(entry.value)
        else:
            getattr(parent, name)[entry.key] = entry.value

    return finish


def _finish_event(reader: Any, event: Any, parent: Any) -> None:
    data = reader.result.data
    reader.block.starts.append(len(data))
    data += event.SerializeToString()
    reader.block.ends.append(len(data))


def _finish_device(reader: Any, device: Any, parent: Any) -> None:
    reader.block.name, reader.block.thread_names = device.device, dict(device.thread_names)
    reader.result.blocks.append(reader.block)
    reader.block = DeviceBlock()


@cache
def all_kinds() -> dict[str, Kind]:
    """Return every message type of a trace by its full name, with what is to be done when a message is complete."""
    kinds: dict[str, Kind] = {}
    kinds_of(RunMetadata.DESCRIPTOR, kinds)
    for holder in kinds.values():
        for member in holder.fields.values():
            if member.is_map:
                member.make_apart(message_class(member.inner.name))
                member.inner.finish = _finish_entry(member.attr, member.inner.fields["value"].literal == MESSAGE)
    device = kinds["tensorflow.DeviceStepStats"]
    device.finish = _finish_device
    device.fields["node_stats"].make_apart(message_class("NodeExecStats"))
    device.fields["node_stats"].inner.finish = _finish_event
    return kinds
