"""Rules about variables on the host: what of them is copied, and what comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.origins import updates_from
from tfplace.diagnose import advice, facts, words
from tfplace.diagnose.facts import Row
from tfplace.diagnose.rule import Finding, Skip
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records

_HOST_ONLY = frozenset({"int32", "string", "resource", "variant"})
_SPARSE_UPDATE = ("Sparse", "Scatter")


def _host_variables(analysis: Analysis) -> pd.DataFrame:
    hosts = analysis.trace.devices.loc[analysis.trace.devices["role"] == "host", "device_id"]
    variables = analysis.variables
    return facts.where(variables, facts.has_value(variables, "device_id", hosts.tolist()))


def _require_variables(analysis: Analysis) -> None:
    facts.require_accelerator(analysis)
    if analysis.variables.empty and not analysis.trace.has_graphs:
        missing = "no partition graphs in the trace, and no variable among the timed nodes"
        raise Skip(facts.why_no_graphs(analysis) or missing)


def _carrying(analysis: Analysis, variable_ids: list[int]) -> pd.DataFrame:
    """Return the transfers to devices that carry the value of these variables."""
    rows = facts.crossings(analysis, "H2D")
    return facts.where(rows, facts.has_value(rows, "variable_id", variable_ids))


def _updating(analysis: Analysis, variables: pd.DataFrame) -> pd.DataFrame:
    """Return the transfers to the host whose value an update of these variables takes."""
    writers = {node for nodes in variables["writers"].tolist() for node in nodes or ()}
    rows = facts.crossings(analysis, "D2H")
    rows = facts.where(rows, rows["category"].fillna("unknown") != "variable")
    marks = [
        any(
            u in writers
            for reader in row["consumer_node_ids"] or ()
            for u in updates_from(analysis.flow, reader, row["recv_node_id"])
        )
        for row in python_records(rows[["consumer_node_ids", "recv_node_id"]])
    ]
    return facts.where(rows, marks)


def _variable_lines(analysis: Analysis, variables: list[Row], column: str) -> tuple[str, ...]:
    lines = []
    alike = len({row["reason"] for row in variables}) == 1
    for row in variables:
        known = [f"{row['dtype'] or 'type unknown'} {row['shape'] or 'shape unknown'}"]
        parts = [
            words.name(row["name"]),
            *known[: int(row["named"])],  # a description of an argument holds both already
            words.size(row["num_bytes"]),
            f"on {words.device(analysis, row['device_id'])}",
        ]
        if column == "written_bytes_per_step":
            parts.append(f"takes {words.size(row[column])} of gradients a step")
        elif row["destinations"]:
            parts.append(f"sent to {words.devices(analysis, row['destinations'])}, {words.size(row[column])} a step")
        if row["source"]:
            parts.append(f"made at {words.name(row['source'])}")
        if not alike:
            parts.append(words.name(row["reason"], 200))
        lines.append(", ".join(parts))
    return words.cut(lines)


def _by_bytes(variables: pd.DataFrame, column: str) -> list[Row]:
    return sorted(python_records(variables), key=lambda row: (-(row[column] or 0), row["name"]))


def variable_on_cpu(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find weights on the host whose value is copied to a device in every step, though nothing keeps them there."""
    _require_variables(analysis)
    variables = _host_variables(analysis)
    movable = ~facts.has_value(variables, "dtype", _HOST_ONLY)
    found = facts.where(variables, facts.has_value(variables, "verdict", ["unnecessary"]) & movable)
    if found.empty:
        unknown = facts.where(variables, facts.has_value(variables, "verdict", ["unknown"]) & movable)
        if len(unknown):
            raise Skip(
                f"{words.plural(len(unknown), 'variable')} on the host could not be judged: {unknown['reason'].iloc[0]}"
            )
        return
    rows = _by_bytes(found, "read_bytes_per_step")
    moved = _carrying(analysis, found["variable_id"].tolist())
    total = facts.known_sum(row["read_bytes_per_step"] for row in rows)
    cost = facts.cost_of(analysis, thresholds, moved) if len(moved) else facts.estimate_bytes(thresholds, total)
    share = facts.share_of_step(analysis, cost.ns)
    heavy = (total or 0) >= thresholds.variable_bytes or (share is not None and share >= thresholds.warning_share)
    severity = facts.severity_of(analysis, thresholds, cost.ns) if heavy else "info"
    stored = [row["num_bytes"] for row in rows]
    held = f" ({words.size(sum(stored))})" if None not in stored else ""
    destinations = [d for row in rows for d in row["destinations"] or ()]
    yield Finding(
        rule="variable-on-cpu",
        severity="warning" if heavy and severity == "info" else severity,
        title=f"{words.plural(len(rows), 'variable')}{held} on {words.devices(analysis, found['device_id'].tolist())} "
        f"{'is' if len(rows) == 1 else 'are'} copied to {words.devices(analysis, destinations)} in every step: "
        f"{words.size(total)} a step.",
        detail=f"The copies are inside the step's graph, once per step and GPU, not once per use; {cost.words}. "
        f"{facts.sentence(words.name(rows[0]['reason'], 300))}",
        fix=advice.variable_on_cpu(analysis),
        evidence=_variable_lines(analysis, rows, "read_bytes_per_step"),
        **cost.fields(total),
        subjects=tuple(row["name"] for row in rows),
    )


def table_on_cpu(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find variables on the host of which only gathered rows cross to a device."""
    _require_variables(analysis)
    variables = _host_variables(analysis)
    sent = variables["destinations"].map(bool).astype(bool)
    found = facts.where(variables, variables["rows_only"] & sent & (variables["kind"] != "table"))
    if found.empty:
        return
    rows = _by_bytes(found, "read_bytes_per_step")
    moved = pd.concat([_carrying(analysis, found["variable_id"].tolist()), _updating(analysis, found)])
    moved = moved.drop_duplicates("transfer_id")
    cost = facts.cost_of(analysis, thresholds, moved)
    sent_bytes = facts.known_sum(row["read_bytes_per_step"] for row in rows)
    back_bytes = facts.known_sum(row["written_bytes_per_step"] for row in rows)
    whole = facts.known_sum(row["num_bytes"] for row in rows)
    which = words.name(rows[0]["name"]) if len(rows) == 1 else f"{len(rows)} tables"
    dense = _dense_updates(analysis, rows)
    targets = words.devices(analysis, [d for row in rows for d in row["destinations"]])
    which += f" ({words.size(whole)})" if whole else ""
    update = (
        f" The update {words.nodes(analysis, dense)} is dense: it runs over the whole table on the CPU in each step, "
        "and so do its optimizer slots."
    ) * bool(dense)
    both = ", both ways together" if back_bytes else ""
    yield Finding(
        rule="table-on-cpu",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"Only rows of {which} cross: {words.size(sent_bytes)} a step to {targets}"
        f"{f', {words.size(back_bytes)} of gradient back' if back_bytes else ''}.",
        detail=f"The whole stays on {words.devices(analysis, found['device_id'].tolist())}, where a gather takes the "
        f"rows; {cost.words}{both}.{update}",
        fix=advice.table_on_cpu(analysis, whole, dense=bool(dense)),
        evidence=(
            *_variable_lines(analysis, rows, "read_bytes_per_step"),
            *words.transfer_lines(analysis, moved, timed=facts.has_real_times(analysis)),
        ),
        **cost.fields(None if sent_bytes is None else sent_bytes + (back_bytes or 0)),
        subjects=tuple(row["name"] for row in rows),
    )


def _dense_updates(analysis: Analysis, variables: list[Row]) -> list[int]:
    """Return the updates of these variables that run over all rows."""
    writers = [w for row in variables for w in row["writers"] or ()]
    return [w for w in writers if ops.UPDATES.match(analysis.flow.op[w]) and not _is_sparse(analysis.flow.op[w])]


def _is_sparse(op: str) -> bool:
    return any(part in op for part in _SPARSE_UPDATE)


def update_on_cpu(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find variables on the host whose gradients travel to the host in every step."""
    _require_variables(analysis)
    facts.require_transfers(analysis)
    variables = _host_variables(analysis)
    held = facts.has_value(variables, "dtype", _HOST_ONLY) | facts.has_value(variables, "verdict", ["justified"])
    written = variables["written_bytes_per_step"].fillna(0) > 0
    found = facts.where(variables, written & ~held & ~variables["rows_only"])
    if found.empty:
        return
    rows = _by_bytes(found, "written_bytes_per_step")
    moved = _updating(analysis, found)
    total = facts.known_sum(row["written_bytes_per_step"] for row in rows)
    cost = facts.cost_of(analysis, thresholds, moved) if len(moved) else facts.estimate_bytes(thresholds, total)
    updates = [u for row in rows for u in row["writers"] or () if ops.UPDATES.match(analysis.flow.op[u])]
    both = (total or 0) + sum(row["read_bytes_per_step"] or 0 for row in rows)
    yield Finding(
        rule="update-on-cpu",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"Gradients of {words.plural(len(rows), 'variable')} travel to "
        f"{words.devices(analysis, found['device_id'].tolist())} in every step: {words.size(total)} a step.",
        detail=f"The update runs where the variable is: {words.nodes(analysis, updates)}. "
        f"{facts.sentence(cost.words)} With the variables' own values, {words.size(both)} a step cross for them."
        + _update_time(analysis, updates),
        fix=advice.update_on_cpu(analysis),
        evidence=_variable_lines(analysis, rows, "written_bytes_per_step"),
        **cost.fields(total),
        subjects=tuple(row["name"] for row in rows),
    )


def _update_time(analysis: Analysis, updates: list[int]) -> str:
    """Say how long the updates themselves ran on the host, where that was timed."""
    events = analysis.trace.events
    ran = facts.where(events, (events["kind"] == "op") & facts.has_value(events, "node_id", updates))
    if ran.empty or facts.step_ns(analysis) is None:
        return ""
    spent = float((ran["end_ns"] - ran["start_ns"]).sum()) / analysis.step_count
    return f" The updates themselves ran {facts.milliseconds(spent)} a step on the CPU."


def multi_gpu_parameters(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find variables on the host whose value is copied to two or more devices in every step."""
    _require_variables(analysis)
    variables = _host_variables(analysis)
    several = variables["destinations"].map(lambda ids: len(ids or ()) >= 2).astype(bool)
    found = facts.where(variables, several & ~facts.has_value(variables, "dtype", _HOST_ONLY))
    if found.empty:
        return
    rows = _by_bytes(found, "read_bytes_per_step")
    moved = _carrying(analysis, found["variable_id"].tolist())
    total = facts.known_sum(row["read_bytes_per_step"] for row in rows)
    cost = facts.cost_of(analysis, thresholds, moved) if len(moved) else facts.estimate_bytes(thresholds, total)
    destinations = facts.distinct(d for row in rows for d in row["destinations"])
    yield Finding(
        rule="multi-gpu-parameters",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(rows), 'variable')} on {words.devices(analysis, found['device_id'].tolist())} "
        f"{'is' if len(rows) == 1 else 'are'} copied to each of {words.devices(analysis, destinations)} in every step: "
        f"{words.size(total)} a step.",
        detail=f"{len(destinations)} devices take the same values, each its own copy: "
        f"{cost.words}.{_start_skew(analysis, destinations)} Where the GPUs cannot reach each other directly (no P2P), "
        "parameters on the CPU can be the faster choice: measure both.",
        fix=advice.multi_gpu_parameters(analysis),
        evidence=_variable_lines(analysis, rows, "read_bytes_per_step"),
        **cost.fields(total),
        subjects=tuple(row["name"] for row in rows),
    )


def _start_skew(analysis: Analysis, device_ids: list[int]) -> str:
    """Say how far apart the first kernels of the GPUs start, where kernels were timed."""
    if not facts.has_real_times(analysis):
        return ""
    events = analysis.trace.events
    kernels = facts.where(events, (events["kind"] == "kernel") & facts.has_value(events, "device_id", device_ids))
    first = kernels.groupby(["step_id", "device_id"])["start_ns"].min().unstack()
    if first.shape[1] < 2 or first.empty:
        return ""
    skew = (first.max(axis=1) - first.min(axis=1)).mean()
    return f" The first kernels of these GPUs start {facts.milliseconds(float(skew))} apart."
