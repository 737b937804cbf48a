"""Random messages of the trace schema, and random legal ways to write them as protobuf text."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from tfplace.read.protos import message_class

_STRINGS = (
    "",
    "x",
    "MatMul",
    "a b",
    "edge_9_x:MEMCPYDtoH",
    'quo"te',
    "apo'strophe",
    "back\\slash",
    "new\nline",
    "tab\t",
    "naïve ✓",
    "ends in backslash\\",
    "# no comment",
    "{ no: brace }",
    "a, b; c",
    "\x00\x7f",
    "<script>",
    "\u2028",
)
_INTS = (0, 1, 7, 8, 63, 127, 128, 300, 16384, 2**31 - 1)
_WIDE = (2**31, 1486162184520805, 2**53, 2**56, 2**62, 2**63 - 1)
_UNKNOWN = (
    "new_field: 1",
    "new_field: \"text\" 'more'",
    "new_field: [1, 0x2, -3.5e2, inf, A]",
    "new_field { a: 1 b { c: <> } }",
    "new_field <a: 1; b: 2, c: nan>",
    "new_field: { [ext.name]: 3 [type.googleapis.com/foo.Bar] { x: 1 } }",
    "new_field: [{a: 1}, <b: 2>]",
    "12: 5",
    "new_field { 5: 0x10 6 { } }",
    "new-field: -1.5f",
)


def accepted(text: str) -> bool:
    """Tell whether the installed protobuf takes the text; older ones know fewer forms of unknown fields."""
    try:
        text_format.Parse(text, message_class("GraphDef")(), allow_unknown_field=True)
    except text_format.ParseError:
        return False
    return True


_SKIPPED = tuple(text for text in _UNKNOWN if accepted(text))


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def random_message(name: str, rng: random.Random, depth: int = 0) -> Any:
    """Return a message of that type with some fields set."""
    message = message_class(name)()
    _fill(message, rng, depth)
    return message


def _fill(message: Any, rng: random.Random, depth: int) -> None:
    chance = max(0.0, 0.95 - 0.13 * depth)
    fields = list(message.DESCRIPTOR.fields)
    if message.DESCRIPTOR.name == "AttrValue":
        fields = [rng.choice(fields)]
        chance = 1.0 if depth < 7 else 0.0
    for field in fields:
        if rng.random() > chance:
            continue
        if field.message_type and field.message_type.GetOptions().map_entry:
            for _ in range(rng.randint(1, 2)):
                _fill_entry(getattr(message, field.name), field, rng, depth)
        elif field.message_type:
            held = getattr(message, field.name)
            for _ in range(rng.randint(1, 3) if is_repeated(field) else 1):
                inner = held.add() if is_repeated(field) else held
                inner.SetInParent()
                _fill(inner, rng, depth + 1)
        elif is_repeated(field):
            getattr(message, field.name).extend(scalar(field, rng) for _ in range(rng.randint(1, 3)))
        else:
            setattr(message, field.name, scalar(field, rng))


def _fill_entry(entries: Any, field: Any, rng: random.Random, depth: int) -> None:
    key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    if value.message_type:
        _fill(entries[scalar(key, rng)], rng, depth + 1)
    else:
        entries[scalar(key, rng)] = scalar(value, rng)


def scalar(field: Any, rng: random.Random) -> Any:
    """Return a value that fits the field."""
    kind = field.type
    if kind == FieldDescriptor.TYPE_STRING:
        return rng.choice(_STRINGS)
    if kind == FieldDescriptor.TYPE_BYTES:
        return rng.choice(_STRINGS).encode() + rng.choice((b"", b"\xff\xfe", b"\x80"))
    if kind == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == FieldDescriptor.TYPE_ENUM:
        return rng.choice((*(value.number for value in field.enum_type.values), 77, -1))
    if kind in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice((0.0, -0.0, 1.0, 0.5, -2.25, 1e10, float("inf"), float("-inf")))
    wide = _WIDE if kind in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64) else ()
    value = rng.choice(_INTS + wide)
    signed = kind in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_INT32)
    return -value if signed and rng.random() < 0.3 else value


class Writer:
    """Writes a message in one of the many ways that are legal; `odd` is the share of unusual choices."""

    def __init__(self, rng: random.Random, odd: float = 0.3) -> None:
        self.rng, self.odd = rng, odd

    def text(self, message: Any) -> str:
        return self.gap() + self.body(message)

    def chance(self) -> bool:
        return self.rng.random() < self.odd

    def gap(self) -> str:
        if not self.chance():
            return self.rng.choice(("", " ", "\n", "\n  "))
        return self.rng.choice(("\t", "\r\n", " # comment\n", "#\n# two { \" ' \n", "  \n\n", "\v", " #;\n "))

    def space(self) -> str:
        """At least one character."""
        return self.gap() or " "

    def separator(self) -> str:
        return self.rng.choice((self.gap() + ",", self.gap() + ";")) + self.gap() if self.chance() else self.space()

    def body(self, message: Any) -> str:
        parts = []
        fields = message.ListFields()
        if self.chance():
            self.rng.shuffle(fields)
        for field, value in fields:
            parts.extend(self.field(field, value))
            if self.rng.random() < self.odd / 8:
                parts.append(self.rng.choice(_SKIPPED) + self.separator())
        return "".join(parts)

    def field(self, field: Any, value: Any) -> list[str]:
        if field.message_type and field.message_type.GetOptions().map_entry:
            return [
                field.name + self.message(self.entry(field, key, value[key])) + self.separator()
                for key in sorted(value)
            ]
        if field.message_type:
            values = list(value) if is_repeated(field) else [value]
            if is_repeated(field) and self.chance():
                listed = f"{self.gap()},{self.gap()}".join(self.braces(self.body(one)) for one in values)
                colon = self.rng.choice((":", ""))
                return [f"{field.name}{colon}{self.gap()}[{self.gap()}{listed}{self.gap()}]" + self.separator()]
            return [field.name + self.message(self.body(one)) + self.separator() for one in values]
        values = list(value) if is_repeated(field) else [value]
        if is_repeated(field) and self.chance():
            listed = f"{self.gap()},{self.gap()}".join(self.literal(field, one) for one in values)
            return [f"{field.name}{self.gap()}:{self.gap()}[{self.gap()}{listed}{self.gap()}]" + self.separator()]
        return [f"{field.name}{self.colon()}{self.literal(field, one)}{self.separator()}" for one in values]

    def entry(self, field: Any, key: Any, value: Any) -> str:
        inner = field.message_type.fields_by_name
        parts = [f"key{self.colon()}{self.literal(inner['key'], key)}{self.separator()}"]
        if inner["value"].message_type:
            parts.append("value" + self.message(self.body(value)) + self.separator())
        else:
            parts.append(f"value{self.colon()}{self.literal(inner['value'], value)}{self.separator()}")
        if self.chance():
            parts.reverse()
        return "".join(parts)

    def colon(self) -> str:
        return f"{self.gap()}:{self.gap()}" if self.chance() else ": "

    def message(self, body: str) -> str:
        return self.rng.choice((" ", self.gap(), ":", " : ")) + self.braces(body)

    def braces(self, body: str) -> str:
        return f"<{self.gap()}{body}>" if self.chance() else f"{{{self.gap()}{body}}}"

    def literal(self, field: Any, value: Any) -> str:
        kind = field.type
        if kind == FieldDescriptor.TYPE_STRING:
            return self.string(value.encode())
        if kind == FieldDescriptor.TYPE_BYTES:
            return self.string(value)
        if kind == FieldDescriptor.TYPE_BOOL:
            return self.rng.choice(("true", "t", "1", "True") if value else ("false", "f", "0", "False"))
        if kind == FieldDescriptor.TYPE_ENUM:
            names = {one.number: one.name for one in field.enum_type.values}
            return str(value) if self.chance() or value not in names else names[value]
        if kind in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            plain = repr(value)
            return plain + "f" if self.chance() else plain
        return self.integer(value)

    def integer(self, value: int) -> str:
        if not self.chance():
            return str(value)
        sign, size = "-" if value < 0 else "", abs(value)
        return sign + self.rng.choice((f"0x{size:x}", f"0X{size:X}", f"0{size:o}", f"0b{size:b}", f"{size:_}"))

    def string(self, value: bytes) -> str:
        pieces = [value]
        if self.chance() and len(value) > 1:
            cut = self.rng.randrange(len(value))
            pieces = [value[:cut], value[cut:]]
        return self.gap().join(self.quoted(piece) for piece in pieces)

    def quoted(self, value: bytes) -> str:
        quote = "'" if self.chance() else '"'
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = ""
        if text and text.isprintable() and not set(text) & set("\\\"'"):
            return quote + text + quote
        return quote + "".join(self.escaped(byte) for byte in value) + quote

    def escaped(self, byte: int) -> str:
        if 32 <= byte < 127 and chr(byte) not in "\\\"'":
            return chr(byte)
        named = {10: "\\n", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
        return named.get(byte) if byte in named and not self.chance() else f"\\{byte:03o}"


def spoil(text: str, rng: random.Random) -> str:
    """Return text with one to three places changed at random: most results are no longer legal."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        piece = rng.choice(("", *"{}<>[]:,;\"'\\#-0é\n."))
        drop = rng.choice((0, 0, 1, 1, 2, 5, 20))
        text = text[:at] + piece + text[at + drop :]
    return text
