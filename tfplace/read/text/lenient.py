"""Messages from bytes of which some strings are not UTF-8."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from tfplace.read.protos import lenient_class, message_class


def parse_lenient(name: str, data: bytes) -> tuple[Any, int]:
    """Return the message `tensorflow.<name>`, and in how many strings U+FFFD stands for bytes that are not UTF-8.

    Raises:
        DecodeError: The bytes are no such message.
    """
    message = message_class(name)()
    try:
        message.ParseFromString(data)
    except DecodeError:
        twin = lenient_class(name).FromString(data)
        mangled = _mend(twin, message.DESCRIPTOR)
        if not mangled:
            raise
        message = message_class(name).FromString(twin.SerializeToString())
        return message, mangled
    return message, 0


def _mend(twin: Any, descriptor: Any) -> int:
    """Make the strings of a lenient message UTF-8; return how many were not."""
    mended = 0
    for field, value in twin.ListFields():
        strict = descriptor.fields_by_name[field.name]
        if field.message_type:
            inner = value if hasattr(value, "append") or hasattr(value, "add") else [value]
            mended += sum(_mend(message, strict.message_type) for message in inner)
        elif strict.type == FieldDescriptor.TYPE_STRING:
            if isinstance(value, bytes):
                fixed = _utf8(value)
                mended += fixed != value
                setattr(twin, field.name, fixed)
                continue
            fixed_list = [_utf8(one) for one in value]
            mended += sum(one != old for one, old in zip(fixed_list, value, strict=True))
            value[:] = fixed_list
    return mended


def _utf8(value: bytes) -> bytes:
    return value.decode("utf-8", "replace").encode("utf-8")
