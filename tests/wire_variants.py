"""Other legal ways to write a message in protobuf's wire format, and small messages of any kind written by hand."""

from __future__ import annotations

import random
from typing import Any

from tests.text_variants import is_repeated
from tfplace.read.binary.wire import LENGTH, VARINT, fields, write_varint


def field(number: int, value: int | bytes | str) -> bytes:
    """Return one field: a varint, or bytes with their length."""
    if isinstance(value, int):
        return write_varint(number << 3 | VARINT) + write_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | LENGTH) + write_varint(len(content)) + content


def double(number: int, content: bytes = bytes(8)) -> bytes:
    return write_varint(number << 3 | 1) + content


def padded_varint(value: int, rng: random.Random) -> bytes:
    """Return a varint, now and then with a byte too many."""
    data = bytearray(write_varint(value))
    if rng.random() < 0.2 and len(data) < 9:
        data[-1] |= 0x80
        data.append(0)
    return bytes(data)


def unknown_field(rng: random.Random) -> bytes:
    """Return a field that no message of a trace has; also a group."""
    tag = rng.choice((19, 50, 900, 20_000, 300_000)) << 3
    return rng.choice(
        (
            write_varint(tag) + b"\x05",
            write_varint(tag | 1) + b"12345678",
            write_varint(tag | 2) + b"\x03abc",
            write_varint(tag | 3) + b"\x08\x01" + write_varint(tag | 4),
            write_varint(tag | 5) + b"1234",
        )
    )


def rewritten(data: bytes, rng: random.Random, descriptor: Any) -> bytes:
    """Return the same message with long varints, unknown fields, and sub-messages in two pieces (which are merged)."""
    parts = []
    for found in fields(data, 0, len(data)):
        known = descriptor.fields_by_number.get(found.number)
        tag = write_varint(found.number << 3 | found.wire)
        body = data[found.begin : found.end]
        if found.wire == VARINT:
            parts.append(tag + padded_varint(found.value, rng))
        elif found.wire == LENGTH:
            if known is not None and known.message_type:
                body = rewritten(body, rng, known.message_type)
                if not is_repeated(known) and rng.random() < 0.3:
                    cut = rng.choice([0, *(inner.end for inner in fields(body, 0, len(body)))])
                    parts.append(tag + padded_varint(cut, rng) + body[:cut])
                    body = body[cut:]
            parts.append(tag + padded_varint(len(body), rng) + body)
        else:
            parts.append(tag + body)
    if not descriptor.GetOptions().map_entry:  # protobuf drops entries of maps that hold unknown fields
        for _ in range(rng.choice((0, 0, 1, 2))):
            parts.insert(rng.randrange(len(parts) + 1), unknown_field(rng))
    return b"".join(parts)
