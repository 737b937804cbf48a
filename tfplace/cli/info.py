"""`tfplace info`: what a trace holds, before any analysis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tfplace.cli.work import read_trace
from tfplace.model.select import step_numbers
from tfplace.model.trace import Trace
from tfplace.report.output import STDOUT, write_output
from tfplace.report.plain import align, wrap
from tfplace.report.values import plain_column, records
from tfplace.report.wording import count_of
from tfplace.units import format_bytes, format_ns

SCHEMA = "tfplace.info/1"
_MAX_STEPS = 20


def run_info(traces: Sequence[str], format_: str, accelerator: str | None) -> None:
    """Carry out `tfplace info`."""
    facts = trace_facts(read_trace(traces, accelerator))
    text = json.dumps(facts, indent=2, allow_nan=False) if format_ == "json" else render_facts(facts)
    write_output(text, STDOUT)


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Return what the trace holds, as plain values; unknown is None."""
    graphs = trace.nodes.groupby("graph", dropna=False, sort=False).size()
    kinds = trace.events.groupby("kind", dropna=False, sort=True, observed=True).size()
    return {
        "schema": SCHEMA,
        "sources": list(trace.source),
        "format": trace.format,
        "tf_version": trace.tf_version,
        "tf_era": trace.tf_era,
        "simulated": trace.simulated,
        "has_graphs": trace.has_graphs,
        "has_times": trace.has_times,
        "has_device_times": trace.has_device_times,
        "devices": records(trace.devices[["name", "kind", "role", "task", "model", "memory_bytes"]]),
        "graphs": {str(name): int(count) for name, count in graphs.items()},
        "counts": {name: len(trace.table(name)) for name in ("nodes", "edges", "outputs", "events", "copies", "steps")},
        "events": {str(kind): int(count) for kind, count in kinds.items()},
        "copies": _copies(trace),
        "steps": _steps(trace),
        "notes": [{"slug": note.slug, "text": note.text, "count": note.count} for note in trace.notes],
    }


def _copies(trace: Trace) -> list[dict[str, Any]]:
    groups = trace.copies.groupby("direction", dropna=False, sort=True)
    table = groups.agg(count=("event_id", "size"), bytes=("num_bytes", "sum"), sized=("num_bytes", "count"))
    rows = records(table.reset_index())
    return [
        {
            "direction": row["direction"],
            "count": row["count"],
            "bytes": row["bytes"] if row["sized"] else None,
            "unknown_sizes": row["count"] - row["sized"],
        }
        for row in rows
    ]


def _steps(trace: Trace) -> list[dict[str, Any]]:
    starts, ends = plain_column(trace.steps["start_ns"]), plain_column(trace.steps["end_ns"])
    boundaries = plain_column(trace.steps["boundary"])
    return [
        {
            "step": number,
            "time_us": None if start is None or end is None else (end - start) / 1000,
            "boundary": boundary,
        }
        for number, start, end, boundary in zip(step_numbers(trace), starts, ends, boundaries, strict=True)
    ]


def render_facts(facts: dict[str, Any]) -> str:
    """Return the facts as plain text."""
    lines: list[str] = []
    sources = facts["sources"]
    lines += wrap(f"{sources[0]} and {len(sources) - 1} more files" if len(sources) > 3 else ", ".join(sources))
    version = facts["tf_version"] or (f"not stated ({facts['tf_era']} by its content)" if facts["tf_era"] else None)
    holds = [
        _HELD_SIMULATED.get(key, name) if facts["simulated"] else name for key, name in _HOLDS.items() if facts[key]
    ]
    rows = [
        ("format", facts["format"]),
        ("TensorFlow", version or "not stated"),
        ("holds", ", ".join(holds) or "nothing that can be used"),
        *([("simulated", facts["simulated"])] if facts["simulated"] is not None else []),
        *((name, f"{count:,}") for name, count in facts["counts"].items()),
    ]
    lines += align(("", ""), rows, (False, False), indent="  ")[1:]
    lines += _devices(facts) + _graphs_and_events(facts) + _copy_lines(facts) + _step_lines(facts)
    if facts["notes"]:
        lines += ["", "notes"]
        for note in facts["notes"]:
            count = f", {note['count']:,}" if note["count"] is not None else ""
            lines += wrap(f"{note['text']} ({note['slug']}{count})", "  - ", "    ")
    return "\n".join(lines) + "\n"


_HOLDS = {
    "has_graphs": "partition graphs",
    "has_times": "step times",
    "has_device_times": "accelerator times",
}
_HELD_SIMULATED = {"has_device_times": "times of simulated accelerators (not a GPU's)"}


def _devices(facts: dict[str, Any]) -> list[str]:
    heads = ("device", "kind", "role", "task", "model", "memory")
    rows = [
        (d["name"] or "?", d["kind"] or "?", d["role"] or "?", d["task"] or "", d["model"] or "",
         "" if d["memory_bytes"] is None else format_bytes(d["memory_bytes"]))
        for d in facts["devices"]
    ]  # fmt: skip
    return ["", *align(heads, rows, (False,) * len(heads), indent="  ")] if rows else ["", "  no device named"]


def _graphs_and_events(facts: dict[str, Any]) -> list[str]:
    lines = []
    for head, table in (("nodes of graph", facts["graphs"]), ("events", facts["events"])):
        rows = [(name, f"{count:,}") for name, count in table.items()]
        if rows:
            lines += ["", *align((head, "count"), rows, (False, True), indent="  ")]
    return lines


def _copy_lines(facts: dict[str, Any]) -> list[str]:
    rows = [
        (row["direction"] or "?", f"{row['count']:,}", "?" if row["bytes"] is None else format_bytes(row["bytes"]))
        for row in facts["copies"]
    ]
    return ["", *align(("copies", "count", "bytes"), rows, (False, True, True), indent="  ")] if rows else []


def _step_lines(facts: dict[str, Any]) -> list[str]:
    steps = facts["steps"]
    rows = [
        (
            str(step["step"]),
            "?" if step["time_us"] is None else format_ns(step["time_us"] * 1000),
            step["boundary"] or "?",
        )
        for step in steps[:_MAX_STEPS]
    ]
    if not rows:
        return ["", "  no step"]
    lines = ["", *align(("step", "time", "cut by"), rows, (True, True, False), indent="  ")]
    left = len(steps) - len(rows)
    return [*lines, f"  and {count_of(left, 'more step')}: tfplace show TRACE steps"] if left else lines
