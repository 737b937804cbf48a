"""The trace file: a RunMetadata that any TensorFlow tool reads, with our context riding along.

Text files carry the context in comment lines at the top, `# tfplace: {json object}`, one per top-level
key or group of keys: the context is all of them merged. Binary files carry it as one length-delimited
field of RunMetadata, number `CONTEXT_FIELD`, holding the same as UTF-8 JSON; parsers that do not know
the field pass over it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfplace.errors import OutputError

CONTEXT_FIELD = 20100  # high and outside 19000-19999, which protobuf keeps for itself
COMMENT = "# tfplace: "
_CHUNK = 1 << 20
_LENGTH_DELIMITED = 2


def write_trace(path: str, run_metadata: Any, context: Mapping[str, Any]) -> int:
    """Write one trace: the whole file or, where that fails, none.

    Args:
        path: Ends in .pb or .pbtxt, either with .gz.
        run_metadata: tensorflow.RunMetadata message.
        context: As described in `context.py`; must be JSON.

    Returns:
        Bytes written.

    Raises:
        OutputError: Disk full, folder read-only or gone.
    """
    name = path.lower()
    data = _as_text(run_metadata, context) if ".pbtxt" in name[-9:] else _as_binary(run_metadata, context)
    if name.endswith(".gz"):
        data = gzip.compress(data, compresslevel=1, mtime=0)
    write_atomically(path, data)
    return len(data)


def write_atomically(path: str, data: bytes) -> None:
    """Put `data` under `path` by way of a temporary file in the same folder."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                for start in range(0, len(data), _CHUNK):
                    file.write(data[start : start + _CHUNK])
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        # after os.replace it is gone; after anything else, Ctrl-C included, it must not stay
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _as_text(run_metadata: Any, context: Mapping[str, Any]) -> bytes:
    lines = [COMMENT + json.dumps(part, ensure_ascii=True, allow_nan=False) for part in _parts(context)]
    # str() is nine times faster than text_format.MessageToString and gives the same text
    return ("\n".join(lines) + "\n" + str(run_metadata)).encode()


def _parts(context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the context in pieces that a person can read: all scalars first, then one list or dict each."""
    yield {key: value for key, value in context.items() if not isinstance(value, list | dict)}
    yield from ({key: value} for key, value in context.items() if isinstance(value, list | dict))


def _as_binary(run_metadata: Any, context: Mapping[str, Any]) -> bytes:
    payload = json.dumps(context, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    tag = _varint(CONTEXT_FIELD << 3 | _LENGTH_DELIMITED)
    return bytes(run_metadata.SerializeToString()) + tag + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
