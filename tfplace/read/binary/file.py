"""Binary RunMetadata, StepStats or GraphDef: node_stats go straight to columns, graphs become messages."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from tfplace.read.binary.columns import read_blocks
from tfplace.read.binary.wire import LENGTH, DeviceBlock, WireError, WireField, device_block, fields, whole_part
from tfplace.read.decoded import Decoded, Progress
from tfplace.read.protos import message_class
from tfplace.read.text.lenient import parse_lenient

_STEP_STATS, _DEV_STATS = 1, 1


def read_binary(data: bytes, kind: str, progress: Progress | None = None) -> Decoded:
    """Read the wire format.

    Args:
        data: The whole file.
        kind: RunMetadata, StepStats or GraphDef.
        progress: Called with bytes done and bytes in all.

    Raises:
        WireError: It is damaged, and not because it was cut off.
    """
    cut = ""
    if not all(found.whole for found in fields(data, 0, len(data))):
        cut = f"byte {len(data):,}"
        data = whole_part(data, 0, len(data), kind)
    steps, graphs = _split(data, kind)
    message, mangled = _read_graphs(data, kind, graphs)
    decoded = Decoded(kind, message, mangled=mangled, cut=cut)
    if steps or kind == "StepStats":
        blocks: list[DeviceBlock] = []
        for begin, end in steps:
            for found in _whole_fields(data, begin, end):
                if found.number == _DEV_STATS and found.wire == LENGTH:
                    blocks.append(device_block(data, found.begin, found.end))
        if cut and blocks and not blocks[-1].name and not blocks[-1].starts:
            del blocks[-1]
        total = len(data)
        decoded.step_stats, mangled = read_blocks(data, blocks, progress and (lambda done: progress(done, total)))
        decoded.mangled += mangled
    return decoded


def _whole_fields(data: bytes, begin: int, end: int) -> list[WireField]:
    found = list(fields(data, begin, end))
    if found and not found[-1].whole:
        raise WireError(found[-1].begin)
    return found


def _split(data: bytes, kind: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return where StepStats are, and where the fields are that hold graphs."""
    if kind == "StepStats":
        return [(0, len(data))], []
    steps, graphs = [], []
    start = 0
    for found in fields(data, 0, len(data)):
        if kind == "RunMetadata" and found.number == _STEP_STATS and found.wire == LENGTH:
            steps.append((found.begin, found.end))
        elif kind == "GraphDef" or found.number in (3, 4):
            graphs.append((start, found.end))
        start = found.end
    return steps, graphs


def _read_graphs(data: bytes, kind: str, graphs: list[tuple[int, int]]) -> tuple[Any, int]:
    """Return the message that these fields make, and how many of its strings were not UTF-8.

    Raises:
        WireError: One of them is damaged.
    """
    message = message_class(kind)()
    try:
        for begin, end in graphs:
            message.MergeFromString(data[begin:end])
        return message, 0
    except DecodeError:
        message = message_class(kind)()
    mangled = 0
    for begin, end in graphs:
        try:
            part, count = parse_lenient(kind, data[begin:end])
        except DecodeError:
            raise WireError(begin) from None
        message.MergeFrom(part)
        mangled += count
    return message, mangled
