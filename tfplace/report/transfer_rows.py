"""Transfers as a report lists them: one row per distinct edge or copy, and the totals of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tfplace.analyze.analysis import Analysis
from tfplace.report.model import DIRECTIONS
from tfplace.report.values import number, plain_column

_SEEN = ("memcpy", "both")
_GROUP = ("edge_name", "tensor_name", "direction", "src_device_id", "dst_device_id")
_FIRST = (
    *("category", "variable_id", "producer_node_id", "send_node_id"),
    *("consumer_node_ids", "src_memory", "dst_memory", "rows_only"),
)

_COLUMNS = (*_GROUP, *_FIRST, "num_bytes", "start_ns", "end_ns", "exposed_ns", "step_id", "evidence")

Row = dict[str, Any]
Columns = dict[str, list[Any]]


def transfer_rows(analysis: Analysis, times: bool) -> list[dict[str, Any]]:
    """Return the report's transfers, most bytes per step first, then by name.

    Copies of one edge become one row over all steps. Copies without a known edge become one row per name and size.
    Control edges carry nothing and are left out.

    Args:
        analysis: Of the trace.
        times: Show the times of copies; false where they are not an accelerator's.
    """
    names = _Names(analysis)
    frame = analysis.transfers
    frame = frame[frame["category"].fillna("unknown") != "control"]
    columns = {name: plain_column(frame[name]) for name in _COLUMNS}
    starts = dict(zip(*(plain_column(analysis.trace.steps[c]) for c in ("step_id", "start_ns")), strict=True))
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    sizes = [None if edge else size for edge, size in zip(columns["edge_name"], columns["num_bytes"], strict=True)]
    for row, key in enumerate(zip(*(columns[name] for name in _GROUP), sizes, strict=True)):
        groups[key].append(row)
    merged = [_merge(columns, rows, starts, analysis.step_count) for rows in groups.values()]
    return sorted((names.describe(row, times) for row in merged), key=_order)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    per_step = row["bytes_per_step"]
    return (per_step is None, -(per_step or 0), row["tensor"] or "", row["edge"] or "", row["direction"] or "",
            row["src_device"] or "", row["dst_device"] or "", row["bytes"] or 0)  # fmt: skip


def _merge(columns: Columns, rows: list[int], starts: dict[int, int | None], steps: int) -> Row:
    """Return one row for the copies (and pairs without a copy) of one edge, or of one name and size."""
    evidence, step_ids = columns["evidence"], columns["step_id"]
    begins, ends = columns["start_ns"], columns["end_ns"]
    seen = [row for row in rows if evidence[row] in _SEEN]
    counted = seen or rows
    per_step = steps if any(step_ids[row] is not None for row in rows) else 1  # where no step is cut, once for all
    joined = any(evidence[row] == "both" for row in rows)
    return {
        **{name: columns[name][rows[0]] for name in _GROUP},
        **{name: next((columns[name][row] for row in rows if columns[name][row] is not None), None) for name in _FIRST},
        "num_bytes": _mean(columns["num_bytes"][row] for row in counted),
        "count_per_step": len(counted) / per_step,
        "duration_ns": _mean(_minus(ends[row], begins[row]) for row in seen),
        "exposed_ns": _mean(columns["exposed_ns"][row] for row in seen),
        "offset_ns": _mean(_minus(begins[row], starts.get(step_ids[row])) for row in seen),
        "copies": len(seen),
        "evidence": "both" if joined else "memcpy" if seen else "send_recv",
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _minus(end: int | None, start: int | None) -> int | None:
    return None if end is None or start is None else end - start


class _Names:
    """Ids to the names that people know."""

    def __init__(self, analysis: Analysis) -> None:
        trace = analysis.trace
        self._devices = plain_column(trace.devices["name"])
        self._nodes = plain_column(trace.nodes["name"])
        self._ops = plain_column(trace.nodes["op"])
        self._lines = plain_column(trace.nodes["source"])
        self._variables = plain_column(analysis.variables["name"])

    def describe(self, row: dict[str, Any], times: bool) -> dict[str, Any]:
        size = None if row["num_bytes"] is None else round(row["num_bytes"])
        count = number(row["count_per_step"])
        per_step = None if size is None or count is None else round(row["num_bytes"] * count)
        clock = row if times else {}
        producer = row["producer_node_id"]
        return {
            "tensor": row["tensor_name"],
            "edge": None if row["evidence"] == "memcpy" else row["edge_name"],  # else it is only the copy's own word
            "direction": row["direction"],
            "src_device": _at(self._devices, row["src_device_id"]),
            "dst_device": _at(self._devices, row["dst_device_id"]),
            "bytes": size,
            "count_per_step": count,
            "bytes_per_step": per_step,
            "category": row["category"] or "unknown",
            "variable": _at(self._variables, row["variable_id"]),
            "rows_only": bool(row["rows_only"]),
            "producer": _at(self._nodes, producer),
            "producer_op": _at(self._ops, producer),
            "consumers": [_at(self._nodes, node) for node in row["consumer_node_ids"] or ()],
            "consumer_ops": [_at(self._ops, node) for node in row["consumer_node_ids"] or ()],
            "time_us": _micros(clock.get("duration_ns")),
            "exposed_us": _micros(clock.get("exposed_ns")),
            "start_us": _micros(clock.get("offset_ns")),
            "src_memory": row["src_memory"],
            "dst_memory": row["dst_memory"],
            "evidence": row["evidence"],
            "copies_seen": row["copies"],
            "source": _at(self._lines, producer) or _at(self._lines, row["send_node_id"]),
        }


def _micros(nanoseconds: float | None) -> int | float | None:
    return None if nanoseconds is None else number(nanoseconds / 1000)


def _at(names: list[Any], index: int | None) -> Any:
    return None if index is None else names[int(index)]


def bus_totals(analysis: Analysis, times: bool) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return what the bus carried in a step, {direction: {count, bytes, time_us, unknown_sizes}}, and the evidence.

    Copies are counted where the trace has any, each once; else the Send / Recv pairs. Where it has neither graphs nor
    copies all values are None: nothing was seen, which is not nothing.
    """
    frame = analysis.transfers
    frame = frame[frame["category"].fillna("unknown") != "control"]
    seen = frame[frame["evidence"].isin(_SEEN)]
    if len(seen):
        evidence, frame, steps = "memcpy", seen, analysis.step_count
    elif analysis.trace.has_graphs or len(frame):
        evidence, steps = "send_recv", analysis.step_count if frame["step_id"].notna().any() else 1
    else:
        return {way: dict.fromkeys(("count", "bytes", "time_us", "unknown_sizes")) for way in DIRECTIONS}, None
    totals = {}
    for way in DIRECTIONS:
        rows = frame[frame["direction"] == way.upper()]
        known = rows["num_bytes"].notna()
        total = int(rows["num_bytes"].sum()) if known.any() or rows.empty else None
        time = float((rows["end_ns"] - rows["start_ns"]).sum()) if times and evidence == "memcpy" else None
        totals[way] = {
            "count": number(len(rows) / steps),
            "bytes": None if total is None else number(total / steps),
            "time_us": None if time is None else number(time / steps / 1000),
            "unknown_sizes": number(int((~known).sum()) / steps),
        }
    return totals, evidence
