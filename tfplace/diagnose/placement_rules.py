"""Rules about where ops are: why on the host, held by what, asked for where, hidden by what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.analysis import Analysis
from tfplace.diagnose import advice, facts, words
from tfplace.diagnose.facts import Row
from tfplace.diagnose.rule import Finding, Skip
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records
from tfplace.names import parse_device

_INPUT_REASONS = frozenset({"input-pipeline", "feed-or-fetch"})
_COMPUTED = ("activation", "shape", "unknown")


def cpu_reason(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Say why the step's other nodes run on the host, what they take from a device and send to one."""
    facts.require_accelerator(analysis)
    reasons = analysis.reasons
    if reasons.empty and analysis.trace.nodes["device_id"].isna().all():
        raise Skip(facts.why_no_graphs(analysis) or "the trace names no device for any node")
    reasons = facts.where(reasons, ~facts.has_value(reasons, "reason", _INPUT_REASONS))
    if reasons.empty:
        return
    ids = reasons["node_id"].tolist()
    taken, sent = _crossing_here(analysis, ids)
    busy = set(reasons.loc[~reasons["harmless"], "node_id"].tolist())
    busy |= set(ids).intersection(facts.consumers_of(taken))
    both = pd.concat([taken, sent]).drop_duplicates("transfer_id")
    cost = facts.cost_of(analysis, thresholds, both)
    hosts = words.devices(analysis, [analysis.flow.device[n] for n in ids])
    where = f"{words.plural(len(ids), 'node')} of this step {'runs' if len(ids) == 1 else 'run'} on {hosts}"
    them = "it" if len(ids) == 1 else "them"
    if not busy:
        title = f"{where}: harmless, no GPU gives to or takes from {them}."
    elif len(both):
        title = f"{where}: {words.size(facts.bytes_per_step(analysis, both))} a step cross between {them} and a GPU."
    elif len(ids) == 1:
        title = f"{where}; its value reaches a GPU, as a variable, constant, input or gradient."
    else:
        title = f"{where}; values of {len(busy)} of them reach a GPU, as variables, constants, input or gradients."
    told = (
        f" {facts.sentence(cost.words)} Other rules speak of variables, constants, input, gradients and fetches."
        if len(both)
        else ""
    )
    yield Finding(
        rule="cpu-reason",
        severity=facts.severity_of(analysis, thresholds, cost.ns) if len(both) else "info",
        title=title,
        detail="Counted without the input pipeline and the runtime's own nodes. A node is harmless when no GPU gives "
        f"it a value or takes one from it: then leave it where it is.{told}",
        fix=advice.cpu_reason(analysis, by_strategy="strategy-request" in set(reasons["reason"]))
        if busy
        else "Nothing to change.",
        evidence=_reason_lines(analysis, reasons, busy, taken, sent),
        cost_ns_per_step=cost.ns if len(both) else None,
        cost_basis=cost.basis if len(both) else None,
        bytes_per_step=facts.bytes_per_step(analysis, both) if len(both) else None,
        confidence=cost.confidence if len(both) else "graph",
        subjects=tuple(analysis.flow.name[n] for n in sorted(busy)[:100]),
    )


def _crossing_here(analysis: Analysis, ids: list[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return transfers of computed values that these host nodes take from a device, and that they send to one."""
    rows = facts.crossings(analysis, "H2D", "D2H")
    rows = facts.where(rows, rows["category"].fillna("unknown").isin(_COMPUTED))
    taken = facts.with_consumer_in(facts.where(rows, rows["direction"] == "D2H"), ids)
    sent = facts.where(rows, (rows["direction"] == "H2D") & facts.has_value(rows, "producer_node_id", ids))
    return taken, sent


def _reason_lines(
    analysis: Analysis, reasons: pd.DataFrame, busy: set[int], taken: pd.DataFrame, sent: pd.DataFrame
) -> tuple[str, ...]:
    """Return one line per reason: how many nodes, how many harmless, what crosses, examples; most bytes first.

    The examples begin with the nodes that a GPU gives to or takes from.
    """
    lines = []
    ends = {*facts.consumers_of(taken), *facts.distinct(sent["producer_node_id"].tolist())}
    for reason, rows in reasons.groupby("reason", sort=True):
        ids = rows["node_id"].tolist()
        down = facts.per_step(analysis, facts.with_consumer_in(taken, ids)) or 0.0
        up = facts.per_step(analysis, facts.where(sent, facts.has_value(sent, "producer_node_id", ids))) or 0.0
        idle = len(set(ids) - busy)
        parts = ["all harmless" if idle == len(ids) else f"{idle} harmless"]
        parts += [f"{words.size(down)} a step taken from a GPU"] * bool(down)
        parts += [f"{words.size(up)} a step sent to a GPU"] * bool(up)
        examples = words.nodes(analysis, sorted(ids, key=lambda n: (n not in ends, n not in busy, n)))
        why = words.name(str(rows["detail"].iloc[0]), 200)
        text = f"{reason}: {words.plural(len(ids), 'node')} ({', '.join(parts)}): {examples}; {why}"
        lines.append((-(down + up), -len(ids), text))
    return words.cut([text for _, _, text in sorted(lines)])


def colocated_to_cpu(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find nodes that could run on a device but share a colocation group with one that cannot."""
    facts.require_accelerator(analysis)
    facts.require_graphs(analysis)
    reasons = analysis.reasons
    held = reasons[reasons["reason"] == "colocation"]
    groups: dict[str, list[Row]] = defaultdict(list)
    names = analysis.trace.nodes["colocation_group"].astype("object").tolist()
    for row in python_records(held):
        group = names[row["node_id"]]
        groups[group if isinstance(group, str) else analysis.flow.name[row["node_id"]]].append(row)
    for group, rows in sorted(groups.items()):
        ids = [row["node_id"] for row in rows]
        moved = facts.crossings(analysis, "H2D", "D2H")
        read = facts.with_consumer_in(moved, ids)["transfer_id"]
        sent = facts.has_value(moved, "producer_node_id", ids)
        moved = facts.where(moved, sent | facts.has_value(moved, "transfer_id", read))
        cost = facts.cost_of(analysis, thresholds, moved)
        if not len(moved) and all(row["harmless"] for row in rows):
            continue
        yield Finding(
            rule="colocated-to-cpu",
            severity=facts.severity_of(analysis, thresholds, cost.ns),
            title=f"{words.plural(len(rows), 'node')} could run on a GPU but must stay with "
            f"{words.name(group)} on {words.devices(analysis, [analysis.flow.device[n] for n in ids])}: "
            f"{words.size(facts.bytes_per_step(analysis, moved))} a step cross for it.",
            detail=f"TensorFlow places a colocation group (loc:@{words.name(group)}) as one, and one member holds it "
            f"on the host: {words.name(rows[0]['detail'], 300)}. {facts.sentence(cost.words)}",
            fix=advice.colocated_to_cpu(analysis),
            evidence=words.cut([f"{words.node(analysis, r['node_id'])}: {r['detail']}" for r in rows]),
            **cost.fields(facts.bytes_per_step(analysis, moved)),
            subjects=tuple(analysis.flow.name[n] for n in ids),
        )


def request_not_honoured(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find nodes that asked for a device and were placed on the host."""
    facts.require_accelerator(analysis)
    nodes = analysis.trace.nodes
    known = nodes[nodes["requested_device"].notna()]
    if known.empty:
        missing = "the trace does not record requested devices (function_graphs of tf.function do, or tfplace's own)"
        raise Skip(facts.why_no_graphs(analysis) or missing)
    asked = {text: _asks_for_device(analysis, text) for text in known["requested_device"].unique().tolist()}
    bound = _bound_to_variables(analysis)
    moved = [
        node
        for node, request in zip(known["node_id"].tolist(), known["requested_device"].tolist(), strict=True)
        if asked[request] and analysis.flow.device[node] >= 0 and not analysis.flow.on_device[node]
        and analysis.flow.op[node] not in ops.BOOKKEEPING and node not in bound
    ]  # fmt: skip
    if not moved:
        return
    why = {row["node_id"]: str(row["detail"]) for row in python_records(analysis.reasons)}
    rows = facts.crossings(analysis, "H2D")
    rows = facts.where(rows, facts.has_value(rows, "producer_node_id", moved))
    cost = facts.cost_of(analysis, thresholds, rows)
    requests = nodes["requested_device"]
    lines = [
        f"{words.node(analysis, n)}: asked for {words.name(requests.iloc[n])}, got "
        f"{words.device(analysis, analysis.flow.device[n])}, {why.get(n, 'the trace does not tell why')}"
        for n in moved
    ]
    yield Finding(
        rule="request-not-honoured",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(moved), 'node')} asked for a GPU and {'was' if len(moved) == 1 else 'were'} placed "
        f"on {words.devices(analysis, [analysis.flow.device[n] for n in moved])}.",
        detail="Soft placement moved them without an error. "
        + (
            f"What they send to a GPU costs {cost.words}."
            if len(rows)
            else "Harmless here: nothing they make is sent to a GPU."
        ),
        fix=advice.request_not_honoured(analysis),
        evidence=words.cut(lines),
        **cost.fields(facts.bytes_per_step(analysis, rows)),
        subjects=tuple(analysis.flow.name[n] for n in moved[:100]),
    )


def _bound_to_variables(analysis: Analysis) -> set[int]:
    """Return the nodes that read or write a variable: they go where it is, whatever was asked for them."""
    variables = analysis.variables
    return {n for column in ("readers", "writers") for nodes in variables[column].tolist() for n in nodes or ()}


def _asks_for_device(analysis: Analysis, request: str) -> bool:
    """Tell whether a requested device is an accelerator, also where a logical CPU plays one."""
    parsed = parse_device(request)
    if not request or parsed.type is None:
        return False
    accelerators = analysis.accelerators
    if parsed.kind not in accelerators["kind"].tolist():
        return parsed.kind in ("GPU", "TPU")
    if parsed.kind != "CPU":
        return True
    same = accelerators["kind"] == "CPU"
    return parsed.ordinal is not None and parsed.ordinal in accelerators.loc[same, "ordinal"].dropna().tolist()
