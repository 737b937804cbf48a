"""Graphs from canonical text, by the repetition in it: equal attributes are read once.

A graph is thousands of nodes with a few hundred different attributes. Here the text is cut at its
indentation into nodes, and these into blocks such as `attr { ... }`; each different block goes once
through `textproto`, and the wire format of a graph is put together from the results. This holds for
whatever the blocks contain: no token of protobuf text spans lines, so a sequence of complete fields
is legal, and means what it means, wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tfplace.read.binary.wire import LENGTH, write_varint
from tfplace.read.protos import message_class
from tfplace.read.text.gate import NotCanonical
from tfplace.read.text.kinds import MESSAGE, Kind
from tfplace.read.text.tokenizer import TextError, all_kinds, parse_text

_PARTED = {"GraphDef", "NodeDef", "FunctionDef", "FunctionDefLibrary", "RunMetadata.FunctionGraphs"}
_UNKNOWN = re.compile(
    rb'(?: *(?:[A-Za-z_]\w*(?: \{|: (?:"[^"\\\n]*"|-?(?:0|[1-9][0-9]{0,17})|[A-Za-z_]\w*))|\})\n){1,64}'
)
_SHORT = 1 << 10  # up to that, tags with their lengths are made in advance


class _Leaf(NamedTuple):
    """A block of text that is read once, with the type of the message that holds it."""

    holder: str
    text: bytes


class _Tree(NamedTuple):
    """A message that is put together: its tag, its parts in wire format or yet to be, the insides of its attributes."""

    tag: int
    parts: list[Any]
    attributes: list[bytes]


@cache
def _heads(tag: int) -> list[bytes]:
    return [bytes([tag]) + write_varint(size) for size in range(_SHORT)]


def _field(tag: int, content: bytes) -> bytes:
    """Return a field in wire format; its tag holds number and wire type, and is one byte."""
    size = len(content)
    return (_heads(tag)[size] if size < _SHORT else bytes([tag]) + write_varint(size)) + content


@cache
def _line(indent: int) -> re.Pattern[bytes]:
    return re.compile(rb"%b([A-Za-z_]\w*)(?: (\{)|: [^\n]*)\n" % (b" " * indent))


@cache
def _node_head(indent: int) -> re.Pattern[bytes]:
    """Match name, op, inputs and device of a node, as far as they are there and without escapes."""
    one = rb'(?:%b%b: "([^"\\\n]*)"\n)?'
    pad = b" " * indent
    inputs = rb'((?:%binput: "[^"\\\n]*"\n)*)' % pad
    return re.compile(one % (pad, b"name") + one % (pad, b"op") + inputs + one % (pad, b"device"))


_INPUT = re.compile(rb'"([^"]*)"')


# an attribute that is one string, or a list of strings: most of those that differ from node to node
_TEXT_ATTRIBUTE = re.compile(
    rb' *key: "([^"\\\n]*)"\n( *)value \{\n(?: *s: "([^"\\\n]*)"\n| *list \{\n((?: *s: "[^"\\\n]*"\n)+) *\}\n)\2\}\n'
)


class GraphText:
    """Reads graphs from text; `message` gives them when all text was added."""

    def __init__(self) -> None:
        self.mangled = 0
        self._leaves: dict[_Leaf, bytes] = {}
        self._attributes: dict[bytes, bytes] = {}
        self._trees: list[Any] = []

    def add(self, data: bytes, begin: int, end: int, holder: str = "RunMetadata") -> None:
        """Add lines that are fields of a RunMetadata, or another type, without indentation.

        Raises:
            NotCanonical: The text is not as protobuf writes it.
        """
        self._trees += self._parts(all_kinds()[f"tensorflow.{holder}"], data, begin, end, 0)

    def is_single(self, holder: str, name: str) -> bool:
        """Tell whether a known field may come only once."""
        field = all_kinds()[f"tensorflow.{holder}"].fields.get(name)
        return field is not None and field.number >= 0

    def wire(self) -> bytes:
        """Return everything added, in wire format.

        Raises:
            NotCanonical: A block is not legal by itself.
        """
        try:
            self._read_leaves()
            self._read_attributes()
        except TextError:
            raise NotCanonical from None
        return self._join(self._trees)

    def _parts(self, kind: Kind, data: bytes, begin: int, end: int, indent: int) -> list[Any]:
        """Cut the fields of a message into parts."""
        parts: list[Any] = []
        line, closing = _line(indent), b"\n" + b" " * indent + b"}\n"
        last = 0
        while begin < end:
            found = line.match(data, begin, end)
            if not found:
                raise NotCanonical
            stop = found.end()
            if found[2]:
                stop = data.find(closing, stop - 1, end) + len(closing)
                if stop < found.end():
                    raise NotCanonical
            field = kind.fields.get(found[1].decode())
            number = field.descriptor.number if field else last
            if field and (number < last or (number == last and field.number >= 0)):
                raise NotCanonical
            last = number
            if field and found[2] and field.literal == MESSAGE and field.inner.name in _PARTED:
                inside = (data, found.end(), stop - len(closing) + 1, indent + 2)
                tree = _Tree(number << 3 | LENGTH, [], [])
                if field.inner.name != "NodeDef" or not self._cut_node(tree, *inside):
                    tree.parts.extend(self._parts(field.inner, *inside))
                parts.append(tree)
            elif field or not _is_plain(data, begin, stop):
                leaf = _Leaf(kind.name, data[begin:stop])
                self._leaves[leaf] = b""
                parts.append(leaf)
            begin = stop
        return parts

    def _cut_node(self, tree: _Tree, data: bytes, begin: int, end: int, indent: int) -> bool:
        """Fill in a node: its names, its attributes, and what may follow these; or return that it looks otherwise."""
        pad = b" " * indent
        head = _node_head(indent).match(data, begin, end)
        place = head.end() if head else begin
        first, last = pad + b"attr {\n", pad + b"}\n"
        rest = data.find(b"\n" + pad + b"experimental_", place - 1, end) + 1 or end
        if not head or (place < end and not (data.startswith(first, place) and data.endswith(last, place, rest))):
            return False
        if place < rest:
            attributes = data[place + len(first) : rest - len(last)].split(last + first)
            self._attributes.update(dict.fromkeys(attributes, b""))
            tree.attributes.extend(attributes)
        tree.parts.append(_head_wire(head))
        if rest < end:
            kind = all_kinds()["tensorflow.NodeDef"]
            tree.parts.extend(self._parts(kind, data, rest, end, indent))
        return True

    def _read_leaves(self) -> None:
        for leaf in self._leaves:
            self._leaves[leaf] = self._read(leaf.text, leaf.holder).SerializeToString()

    def _read_attributes(self) -> None:
        """Read the different attributes, thousands at once, each in a node of its own."""
        others = []
        for inside in self._attributes:
            found = _TEXT_ATTRIBUTE.fullmatch(inside)
            if found:
                self._attributes[inside] = _attribute_wire(found)
            else:
                others.append(inside)
        for some in _portions(others):
            text = b"".join(b"node {\nattr {\n" + inside + b"}\n}\n" for inside in some)
            graph = self._read(text, "GraphDef", only="node")
            if len(graph.node) != len(some) or len(graph.ListFields()) > 1:  # a brace in one closed what is around it
                raise NotCanonical
            for inside, node in zip(some, graph.node, strict=True):
                fields = node.ListFields()
                if len(fields) != 1 or fields[0][0].name != "attr" or len(node.attr) != 1:
                    raise NotCanonical
                self._attributes[inside] = node.SerializeToString()

    def _read(self, text: bytes, kind: str, only: str = "") -> Any:
        result = parse_text(text, message_class(kind)(), only=only)
        if result.cut_line:
            raise NotCanonical
        self.mangled += result.mangled
        return result.message

    def _join(self, parts: list[Any]) -> bytes:
        pieces: list[bytes] = []
        for part in parts:
            if isinstance(part, _Tree):
                body = self._join(part.parts) + b"".join(map(self._attributes.__getitem__, part.attributes))
                pieces.append(_field(part.tag, body))
            elif isinstance(part, _Leaf):
                pieces.append(self._leaves[part])
            else:
                pieces.append(part)
        return b"".join(pieces)


def _head_wire(found: re.Match[bytes]) -> bytes:
    """Return NodeDef.name (1), op (2), input (3) and device (4) in wire format."""
    name, op, inputs, device = found.groups()
    pieces = [_field(0x0A, name)] if name is not None else []
    if op is not None:
        pieces.append(_field(0x12, op))
    if inputs:
        pieces += [_field(0x1A, one) for one in _INPUT.findall(inputs)]
    if device is not None:
        pieces.append(_field(0x22, device))
    return b"".join(pieces)


def _attribute_wire(found: re.Match[bytes]) -> bytes:
    """Return NodeDef.attr (5) in wire format; its entry has key (1) and value (2): s (2), or list (1) of s (2)."""
    key, _, text, listed = found.groups()
    if listed is None:
        value = _field(0x12, text)
    else:
        value = _field(0x0A, b"".join([_field(0x12, one) for one in _INPUT.findall(listed)]))
    return _field(0x2A, _field(0x0A, key) + _field(0x12, value))


def _portions(texts: list[bytes]) -> Iterator[list[bytes]]:
    """Yield runs of a few megabytes."""
    some: list[bytes] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size > 1 << 22:
            yield some
            some, size = [], 0
    if some:
        yield some


def _is_plain(data: bytes, begin: int, end: int) -> bool:
    """Tell whether this is one complete field of the plainest form, so that an unknown one can be passed over."""
    place = begin
    while place < end:
        found = _UNKNOWN.match(data, place, end)
        if not found:
            return False
        place = found.end()
    text = np.frombuffer(data, np.uint8, end - begin, begin)
    last = text[np.flatnonzero(text == ord("\n")) - 1]
    depth = np.cumsum((last == ord("{")).astype(np.int64) - (last == ord("}")))
    return bool(depth[-1] == 0 and (depth[:-1] > 0).all())
