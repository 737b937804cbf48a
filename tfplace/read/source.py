"""The bytes of a file or of standard input, without compression and byte order mark."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from typing import NamedTuple

from tfplace.errors import UnreadableTraceError
from tfplace.names import printable
from tfplace.read import formats

_GZIP = b"\x1f\x8b"
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class Source(NamedTuple):
    """What was read.

    Attributes:
        data: The bytes.
        suffix: ' (gzip)' for a compressed file, else empty.
        cut: Where the compressed data break off; empty where they do not.
    """

    data: bytes
    suffix: str
    cut: str


def read_source(path: str) -> Source:
    """Read a file, or standard input for '-'.

    Raises:
        UnreadableTraceError: There is no such file, or it cannot be read or decompressed.
    """
    return unpack(_read(path), path)


def unpack(data: bytes, path: str) -> Source:
    """Decompress, and take off byte order marks.

    Args:
        data: The file.
        path: Its name, for messages.

    Raises:
        UnreadableTraceError: The compression is damaged.
    """
    suffix, cut = "", ""
    if data.startswith(_GZIP):
        size = len(data)
        data, complete = _decompress(data, printable(path))
        suffix, cut = " (gzip)", "" if complete else f"byte {size:,} of its compressed data"
        if data.startswith(_GZIP):
            raise UnreadableTraceError(f"{printable(path)} is {formats.GZIP_TWICE.name}.", formats.GZIP_TWICE.hint)
    return Source(_plain_text(data), suffix, cut)


def _read(path: str) -> bytes:
    name = printable(path)
    try:
        if path == "-":
            return sys.stdin.buffer.read() if sys.stdin else b""
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableTraceError(f"{name} is a folder, not a file.", "Name the trace inside it.")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UnreadableTraceError(f"{name} is a device or a socket, not a file.", formats.GIVE_A_TRACE)
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise UnreadableTraceError(f"There is no file {name}.", "Check the path; names are case-sensitive.") from None
    except PermissionError:
        raise UnreadableTraceError(
            f"{name} cannot be read: permission denied.", "Ask its owner for read permission."
        ) from None
    except OSError as error:
        raise UnreadableTraceError(f"{name} cannot be read: {error.strerror or error}.") from error
    except ValueError:  # a null character in the name
        raise UnreadableTraceError(f"There is no file {name}: no file has such a name.") from None
    except MemoryError:
        raise UnreadableTraceError(f"{name} does not fit in memory.", "Give tfplace fewer steps at once.") from None


def _decompress(data: bytes, name: str) -> tuple[bytes, bool]:
    """Return the decompressed bytes of all members, and whether they are complete.

    Raises:
        UnreadableTraceError: The compression is damaged.
    """
    pieces: list[bytes] = []
    rest = data
    while rest.startswith(_GZIP):
        stream = zlib.decompressobj(wbits=31)
        try:
            pieces.append(stream.decompress(rest))
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            raise UnreadableTraceError(
                f"{name} is damaged: its gzip data do not decompress ({reason}).", "Copy the original again."
            ) from None
        except MemoryError:
            raise UnreadableTraceError(f"{name} does not fit in memory when decompressed.") from None
        if not stream.eof:
            return b"".join(pieces), False
        rest = stream.unused_data
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), True


def _plain_text(data: bytes) -> bytes:
    """Take off byte order marks; Windows' own UTF-16 becomes UTF-8."""
    encoding = _UTF16.get(data[:2])
    if encoding:
        try:
            return data[2 : len(data) & ~1].decode(encoding).encode("utf-8")
        except UnicodeDecodeError:
            return data
    return data.removeprefix(b"\xef\xbb\xbf")
