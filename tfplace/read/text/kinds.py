"""What the text reader knows of each message type, prepared for dictionary look-ups."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from google.protobuf import text_encoding, text_format

INT, FLOAT, BOOL, ENUM, STRING, BYTES, MESSAGE = range(7)
TEXTUAL = (STRING, BYTES)

# google.protobuf.descriptor.FieldDescriptor.TYPE_* -> how its text is read; (signed, 64 bits) for integers
_LITERAL = {1: FLOAT, 2: FLOAT, 3: INT, 4: INT, 5: INT, 8: BOOL, 9: STRING, 11: MESSAGE, 12: BYTES, 13: INT, 14: ENUM}
_INTEGER = {3: (True, True), 4: (False, True), 5: (True, False), 13: (False, False)}
_BOOLS = {"true": True, "t": True, "True": True, "false": False, "f": False, "False": False}
_ODD_ESCAPE = re.compile(r"\\[^0-7nrtabfvxXuU\"'\\]")


def _adder(name: str) -> Callable[[Any], Any]:
    def add(holder: Any) -> Any:
        return getattr(holder, name).add()

    return add


def _opener(name: str) -> Callable[[Any], Any]:
    def open_(holder: Any) -> Any:
        message = getattr(holder, name)
        message.SetInParent()
        return message

    return open_


class Field:
    """One field of a message type.

    Attributes:
        attr: Its name.
        number: Its number; -1 for a repeated one. Members of a oneof share the number 1, so that any second one
            is looked at again.
        literal: INT, FLOAT ... MESSAGE.
        inner: The `Kind` of a message field; NOTHING for others.
        open: Makes a new message for this field of the message given.
        entry: Whether messages are made apart from their holder, and entered into it when complete: those of maps.
    """

    __slots__ = ("attr", "descriptor", "entry", "inner", "literal", "number", "oneof", "open")

    def __init__(self, descriptor: Any, kind: Kind | None) -> None:
        self.attr: str = descriptor.name
        self.descriptor = descriptor
        self.literal = _LITERAL[descriptor.type]
        self.inner = kind or NOTHING
        self.entry = False
        self.oneof: str = descriptor.containing_oneof.name if descriptor.containing_oneof else ""
        repeated = descriptor.is_repeated if hasattr(descriptor, "is_repeated") else descriptor.label == 3
        self.number: int = -1 if repeated else 1 if self.oneof else descriptor.number
        self.open: Callable[[Any], Any] = _adder(self.attr) if repeated else _opener(self.attr)

    @property
    def is_map(self) -> bool:
        """Whether this is a map field."""
        return self.literal == MESSAGE and bool(self.descriptor.message_type.GetOptions().map_entry)

    def make_apart(self, make: Callable[[], Any]) -> None:
        """Make messages of this field by `make`, for a Kind whose `finish` enters them into their holder."""
        self.entry = True
        self.open = lambda holder: make()

    def is_set(self, message: Any) -> bool:
        """Tell whether text may not set this singular field any more, as google.protobuf.text_format decides it."""
        if self.oneof:
            return message.WhichOneof(self.oneof) is not None
        if self.literal == MESSAGE:
            return bool(message.HasField(self.attr))
        value = getattr(message, self.attr)
        return bool(value) or (self.literal == FLOAT and str(value) == "-0.0")

    def parse(self, literal: str) -> Any:
        """Return the value of a literal that is not a string.

        Raises:
            ValueError: The literal does not fit the field.
        """
        if self.literal == INT:
            signed, long = _INTEGER[self.descriptor.type]
            return text_format.ParseInteger(literal, is_signed=signed, is_long=long)
        if self.literal == FLOAT:
            return text_format.ParseFloat(literal)
        if self.literal == BOOL:
            return text_format.ParseBool(literal)
        if self.literal == ENUM:
            return text_format.ParseEnum(self.descriptor, literal)
        raise ValueError("expected a string")


class Kind:
    """A message type by its name in the package (`NodeDef.AttrEntry`): its fields by the text that announces them.

    The key of a scalar ends in ':' (`size:`); a message may go without (`dim` and `dim:`).

    Attributes:
        fields: Every field by its name.
        ints: Decimal integers: key -> (number, attribute).
        strings: Strings: key -> (number, attribute, whether it is one of bytes).
        words: Enums and bools: key -> (number, attribute, {word: value}).
        opens: Messages: key -> Field.
        finish: Called with the reader, the message and its holder when one is complete; None for most types.
    """

    __slots__ = ("fields", "finish", "ints", "name", "opens", "strings", "words")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, Field] = {}
        self.ints: dict[str, tuple[int, str]] = {}
        self.strings: dict[str, tuple[int, str, bool]] = {}
        self.words: dict[str, tuple[int, str, dict[str, Any]]] = {}
        self.opens: dict[str, Field] = {}
        self.finish: Callable[[Any, Any, Any], None] | None = None

    def add(self, field: Field) -> None:
        """Enter one field into the look-up tables."""
        key, name = field.attr + ":", field.attr
        self.fields[name] = field
        if field.literal == INT:
            self.ints[key] = (field.number, name)
        elif field.literal in TEXTUAL:
            self.strings[key] = (field.number, name, field.literal == BYTES)
        elif field.literal == BOOL:
            self.words[key] = (field.number, name, _BOOLS)
        elif field.literal == ENUM:
            values = {value.name: value.number for value in field.descriptor.enum_type.values}
            self.words[key] = (field.number, name, values)
        elif field.literal == MESSAGE:
            self.opens[name] = self.opens[key] = field


NOTHING = Kind("")


def kinds_of(root: Any, known: dict[str, Kind]) -> Kind:
    """Return the Kind of a message descriptor, entering it and all below into `known` by full name."""
    if root.full_name in known:
        return known[root.full_name]
    kind = known[root.full_name] = Kind(root.full_name.partition(".")[2])
    for descriptor in root.fields:
        inner = descriptor.message_type
        kind.add(Field(descriptor, kinds_of(inner, known) if inner else None))
    return kind


def unescape(body: str) -> bytes:
    """Return the bytes that the inside of a quoted string stands for.

    Raises:
        ValueError: An escape is malformed.
    """
    if "\\" not in body:
        return body.encode("utf-8")
    if not _ODD_ESCAPE.search(body):
        return bytes(text_encoding.CUnescape(body))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of escapes that it does not know, and keeps them
        return bytes(text_encoding.CUnescape(body))
