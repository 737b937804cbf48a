"""From analyses and outcomes of rules to the one Report that every format shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.rule import Outcome
from tfplace.diagnose.rules import order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.trace import Note
from tfplace.names import strip_suffix
from tfplace.report.answers import answer_questions
from tfplace.report.model import Report
from tfplace.report.transfer_rows import bus_totals, transfer_rows
from tfplace.report.values import number, plain_column, records
from tfplace.report.verdict import state_verdict

_VERDICTS = ("unnecessary", "unknown", "justified", "harmless", "on-device")
_TOP = "(top level)"
_MAX_SCOPE_DEPTH = 4
_RUNTIME_NAMES = ("_arg_", "_retval_", "_send_", "_recv_")


def summarize(analysis: Analysis, outcomes: Sequence[Outcome], thresholds: Thresholds | None = None) -> Report:
    """Compute the Report.

    Args:
        analysis: Of the trace.
        outcomes: What became of each rule.
        thresholds: What the rules compared with; names the bus speed that estimates rest on.

    Returns:
        The Report; times of a simulated GPU, or of a CPU that plays one, are left out.
    """
    times = has_gpu_times(analysis)
    per_step, evidence = bus_totals(analysis, times)
    draft = Report(
        trace=_trace_facts(analysis, times, (thresholds or Thresholds()).bus_gbps),
        devices=_devices(analysis),
        placement=_placement(analysis),
        totals={"per_step": per_step, "evidence": evidence, **_step_times(analysis, times)},
        variables=_variables(analysis),
        transfers=transfer_rows(analysis, times),
        findings=order_findings(outcomes),
        rules=list(outcomes),
        verdict="",
        answers={},
        notes=_notes(analysis),
    )
    return replace(draft, answers=answer_questions(analysis, draft), verdict=state_verdict(draft))


def has_gpu_times(analysis: Analysis) -> bool:
    """Tell whether the trace has times of a real accelerator: not simulated, not a CPU that plays one."""
    trace = analysis.trace
    real = (analysis.accelerators["kind"] != "CPU").any()
    return bool(trace.has_device_times and trace.simulated is None and real)


def _trace_facts(analysis: Analysis, times: bool, bus_gbps: float) -> dict[str, Any]:
    trace = analysis.trace
    numbers = plain_column(trace.steps["step_num"])
    accelerators = analysis.accelerators
    step_name = trace.context.get("step_name")
    return {
        "source": ", ".join(trace.source),
        "format": trace.format,
        "tf_version": trace.tf_version,
        "simulated": trace.simulated,
        "steps": len(numbers),
        "traced_steps": [position if value is None else value for position, value in enumerate(numbers, start=1)],
        "sources": list(trace.source),
        "tf_era": trace.tf_era,
        "has_graphs": trace.has_graphs,
        "has_times": trace.has_times,
        "has_gpu_times": times,
        "accelerators": plain_column(accelerators["name"]),
        "cpu_as_accelerator": bool(len(accelerators) and (accelerators["kind"] == "CPU").all()),
        "bus_gbps": number(bus_gbps),
        "step_name": step_name if isinstance(step_name, str) else None,
    }


def _devices(analysis: Analysis) -> list[dict[str, Any]]:
    columns = ["name", "kind", "task", "model", "role", "memory_bytes"]
    return records(analysis.trace.devices[columns])


def _placement(analysis: Analysis) -> list[dict[str, Any]]:
    """Nodes per device: how many, of which ops, under which name scopes; the unplaced last, with device None."""
    names = plain_column(analysis.trace.devices["name"])
    scopes = _scopes(analysis)
    counts: dict[int | None, Counter[str]] = {}
    for row in records(analysis.placement):
        counts.setdefault(row["device_id"], Counter())[row["op"] or "(op unknown)"] += row["nodes"]
    rows = []
    for device in sorted(counts, key=lambda key: (key is None, key or 0)):
        ops = dict(sorted(counts[device].items(), key=lambda item: (-item[1], item[0])))
        by_scope = dict(sorted(scopes.get(device, Counter()).items(), key=lambda item: (-item[1], item[0])))
        name = None if device is None else names[device]
        rows.append({"device": name, "nodes": sum(ops.values()), "ops": ops, "scopes": by_scope})
    return rows


def _scopes(analysis: Analysis) -> dict[int | None, Counter[str]]:
    """Count nodes per device and name scope, at the first depth where scopes differ."""
    nodes = analysis.trace.nodes
    devices = plain_column(nodes["device_id"])
    paths = [_own_name(name or "").split("/")[:-1] for name in plain_column(nodes["name"])]
    depth = _telling_depth([path for path in paths if path])
    result: dict[int | None, Counter[str]] = {}
    for device, path in zip(devices, paths, strict=True):
        result.setdefault(device, Counter())["/".join(path[:depth]) or _TOP] += 1
    return result


def _own_name(name: str) -> str:
    """Return 'conv1/w' for 'conv1/w/_5' and 'conv1/w/ctrl/_6', the names of the ends of an edge of conv1/w.

    The runtime's own nodes (feeds, fetches) have no scope: ''.
    """
    if name.startswith(_RUNTIME_NAMES):
        return ""
    while (shorter := strip_suffix(name)) != name:
        name = shorter.removesuffix("/ctrl")
    return name


def _telling_depth(paths: list[list[str]]) -> int:
    """Return the least depth at which the paths do not all start alike."""
    for depth in range(1, _MAX_SCOPE_DEPTH):
        if len({tuple(path[:depth]) for path in paths}) > 1:
            return depth
    return _MAX_SCOPE_DEPTH


def _step_times(analysis: Analysis, times: bool) -> dict[str, Any]:
    """Shares and times of a step; None where the times are not an accelerator's."""
    cpu_only = analysis.accelerators.empty
    step = analysis.step_time_ns if times or cpu_only else None
    busy = analysis.gpu_busy_share if times else None
    exposed = analysis.exposed_copy_ns if times else None
    return {
        "gpu_busy_share": number(busy),
        "step_time_us": None if step is None else number(step / 1000),
        "exposed_copy_us": None if exposed is None else number(exposed / 1000),
    }


def _variables(analysis: Analysis) -> list[dict[str, Any]]:
    names = plain_column(analysis.trace.devices["name"])
    rows = []
    for row in records(analysis.variables):
        device = row["device_id"]
        rows.append(
            {
                "name": row["name"],
                "device": None if device is None else names[device],
                "requested_device": row["requested_device"],
                "dtype": row["dtype"],
                "shape": parse_shape(row["shape"]),
                "bytes": row["num_bytes"],
                "verdict": row["verdict"],
                "reason": row["reason"],
                "copied_each_step": row["copied_each_step"],
                "read_bytes_per_step": row["read_bytes_per_step"],
                "written_bytes_per_step": row["written_bytes_per_step"],
                "destinations": [names[device] for device in row["destinations"] or ()],
                "source": row["source"],
                "kind": row["kind"],
                "named": row["named"],
                "rows_only": row["rows_only"],
                "has_gpu_kernel": row["has_gpu_kernel"],
                "read_by": len(row["readers"] or ()),
                "written_by": len(row["writers"] or ()),
                "read_bytes_by_destination": _by_destination(row, names),
                "readers": [_node(analysis, node, names) for node in row["readers"] or ()],
                "writers": [_node(analysis, node, names) for node in row["writers"] or ()],
            }
        )
    return sorted(rows, key=_variable_order)


def _by_destination(row: dict[str, Any], names: list[Any]) -> dict[str, int | None] | None:
    """Return {device: bytes per step}; None where it is not known whether the value crosses at all."""
    if row["read_bytes_per_step"] is None and not row["destinations"]:
        return None
    return {names[d]: size for d, size in zip(row["destinations"], row["destination_bytes"], strict=True)}


def _node(analysis: Analysis, node: int, names: list[Any]) -> dict[str, str | None]:
    device = analysis.flow.device[node]
    op = analysis.flow.op[node]
    return {"node": analysis.flow.name[node], "op": op or None, "device": names[device] if device >= 0 else None}


def _variable_order(row: dict[str, Any]) -> tuple[Any, ...]:
    crossing = (row["read_bytes_per_step"] or 0) + (row["written_bytes_per_step"] or 0)
    rank = _VERDICTS.index(row["verdict"]) if row["verdict"] in _VERDICTS else len(_VERDICTS)
    return (-crossing, rank, -(row["bytes"] or 0), row["name"] or "")


def parse_shape(text: str | None) -> list[int | None] | None:
    """Return '[32,?]' as [32, None]; None where the rank is unknown."""
    if text is None:
        return None
    sizes = [part.strip() for part in text.strip().strip("[]").split(",")]
    return [int(size) if size.lstrip("-").isdigit() and int(size) >= 0 else None for size in sizes if size]


def _notes(analysis: Analysis) -> list[Note]:
    """Notes of reading and of analysis, each once, in order."""
    return list(dict.fromkeys((*analysis.trace.notes, *analysis.notes)))
