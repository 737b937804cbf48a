"""Sentences and evidence lines of findings: names made safe, numbers with units, fixes in the right order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.facts import Row, count_text, distinct
from tfplace.model.rows import python_records
from tfplace.names import printable
from tfplace.units import format_bytes, format_ns

EVIDENCE_ROWS = 20
_NAME_LENGTH = 80

_SESSION_FEED = re.compile(r"_arg_(?P<arg>.+)_\d+_\d+|_recv_(?P<recv>.+)_\d+", re.DOTALL)
_VERIFY = "To verify: trace the changed program and run `tfplace report` on that trace."


def name(text: str | None, limit: int = _NAME_LENGTH) -> str:
    """Return a name from a trace as it may stand in a sentence: no control characters, not endless."""
    return printable(text or "?", limit)


def feed_name(tensor_name: str) -> str:
    """Return 'images' for '_arg_images_0_0' and '_recv_images_0', as a Session calls the feed of images:0.

    Source: tensorflow/core/common_runtime/graph_execution_state.cc, tensorflow/core/graph/subgraph.cc.
    """
    match = _SESSION_FEED.fullmatch(tensor_name)
    return name(match["arg"] or match["recv"] if match else tensor_name)


def size(num_bytes: float | None) -> str:
    """Return bytes for people, as tables show them."""
    return "an unknown number of bytes" if num_bytes is None else format_bytes(round(num_bytes))


def plural(count: float, noun: str, nouns: str | None = None) -> str:
    """Return '1 copy', '3 copies'."""
    return f"{count_text(count)} {noun if count == 1 else nouns or noun + 's'}"


def listing(items: Iterable[str], most: int = 3) -> str:
    """Return 'a, b and c', or 'a, b, c and 4 more'."""
    names = list(items)
    if len(names) <= most:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "none"
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def device(analysis: Analysis, device_id: int | None) -> str:
    """Return a device's short name."""
    return "an unknown device" if device_id is None else str(analysis.trace.devices["name"].iloc[int(device_id)])


def devices(analysis: Analysis, device_ids: Iterable[int | None]) -> str:
    """Return devices as 'GPU:0 and GPU:1', each once."""
    return listing((device(analysis, d) for d in sorted(distinct(device_ids))), 4) or "an unknown device"


def node(analysis: Analysis, node_id: int) -> str:
    """Return a node as 'fc1/MatMul (MatMul)'."""
    op = analysis.flow.op[node_id]
    return name(analysis.flow.name[node_id]) + (f" ({name(op, 40)})" if op else "")


def nodes(analysis: Analysis, node_ids: Sequence[int], most: int = 3) -> str:
    """Return nodes as a listing."""
    return listing((node(analysis, n) for n in node_ids), most)


def cut(lines: Sequence[str], most: int = EVIDENCE_ROWS) -> tuple[str, ...]:
    """Return evidence lines, at most `most`, with a line that says how many more there are."""
    return tuple(lines) if len(lines) <= most else (*lines[:most], f"... and {len(lines) - most} more")


def fix(analysis: Analysis, tf2: str, tf1: str = "") -> str:
    """Return the fix, TF2 / Keras 3 first, or TF1 first where the trace is of TF1; how to verify last."""
    if not tf1 or tf1 == tf2:
        return f"{tf2[:1].upper()}{tf2[1:]} {_VERIFY}"
    both = [f"TF2 / Keras 3: {tf2}", f"TF1: {tf1}"]
    if analysis.trace.tf_era == "TF1":
        both.reverse()
    return " ".join([*both, _VERIFY])


def transfer_lines(analysis: Analysis, rows: pd.DataFrame, *, timed: bool) -> tuple[str, ...]:
    """Return one evidence line per distinct edge, or copy without an edge: most bytes per step first."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in python_records(rows):
        key = (row["tensor_name"], row["edge_name"], row["direction"], row["src_device_id"], row["dst_device_id"])
        groups.setdefault(key, []).append(row)
    lines = [_transfer_line(analysis, group, timed) for group in groups.values()]
    return cut([line for _, line in sorted(lines)])


def _transfer_line(analysis: Analysis, group: list[Row], timed: bool) -> tuple[tuple[float, str], str]:
    first, steps = group[0], analysis.step_count
    times = len(group) if first["step_id"] is None else len(group) / steps
    sizes = [row["num_bytes"] for row in group if row["num_bytes"] is not None]
    one = sum(sizes) / len(sizes) if sizes else None
    mean = " on average" if len(set(sizes)) > 1 else ""
    parts = [
        name(first["tensor_name"]),
        f"{format_bytes(round(one))}{mean}" if one is not None else "size unknown",
        f"{device(analysis, first['src_device_id'])} -> {device(analysis, first['dst_device_id'])}",
    ]
    if times != 1:
        parts.append(f"{count_text(times)} times a step")
    spans = [r["end_ns"] - r["start_ns"] for r in group if r["start_ns"] is not None]
    if timed and spans:
        parts.append(f"{format_ns(sum(spans) / len(spans))} each")
    kinds = [k for k in (first["src_memory"], first["dst_memory"]) if k in ("pinned", "pageable")]
    parts += kinds[:1]
    readers = distinct(first["consumer_node_ids"] or ())
    if readers:
        parts.append(f"read by {nodes(analysis, readers)}")
    line = next((analysis.line_of(n) for n in (first["producer_node_id"], *readers) if n is not None), None)
    if line is not None:
        parts.append(f"at {name(line)}")
    return (-(one or 0) * times, str(first["tensor_name"])), ", ".join(parts)
