"""Rules about single kinds of transfer: constants, fetches, GPU to GPU, loops, debugging; all copies together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.origins import made_of_gradients
from tfplace.diagnose import advice, facts, words
from tfplace.diagnose.facts import Row
from tfplace.diagnose.rule import BelowLimit, Finding, Skip
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records

_SLICES = frozenset({"Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd"})
_FRAME_ENDS = frozenset({"Exit", "RefExit"})
_FRAME_STARTS = frozenset({"Enter", "RefEnter"})


def constant_copied(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find large constants on the host that are sent to a device in every step."""
    facts.require_transfers(analysis)
    rows = facts.crossings(analysis, "H2D", category="constant")
    largest = rows["num_bytes"].max()
    rows = facts.where(rows, rows["num_bytes"] >= thresholds.constant_bytes)
    if rows.empty:
        if pd.isna(largest):
            return
        raise BelowLimit(f"{words.size(largest)} at most, below the limit of {words.size(thresholds.constant_bytes)}")
    names = facts.distinct(rows["tensor_name"].tolist())
    cost = facts.cost_of(analysis, thresholds, rows)
    readers = facts.consumers_of(rows)
    sliced = any(analysis.flow.op[n] in _SLICES for n in readers)
    total = facts.bytes_per_step(analysis, rows)
    yield Finding(
        rule="constant-copied",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(names), 'constant')} on {words.devices(analysis, rows['src_device_id'].tolist())} "
        f"{'is' if len(names) == 1 else 'are'} copied to {words.devices(analysis, rows['dst_device_id'].tolist())} in "
        f"every step: {words.size(total)} a step.",
        detail=f"The value never changes, yet it crosses each time: {cost.words}. It goes to "
        f"{words.nodes(analysis, readers)}." + (" Only a slice of it is used there." if sliced else ""),
        fix=advice.constant_copied(analysis, sliced=sliced),
        evidence=words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def fetch_copied(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find results that the step hands back to the program from a device."""
    facts.require_transfers(analysis)
    rows = facts.crossings(analysis, "D2H", category="fetch")
    if rows.empty:
        return
    names = facts.distinct(rows["tensor_name"].tolist())
    state = facts.distinct(row["tensor_name"] for row in python_records(rows) if _is_state(analysis, row))
    total = facts.bytes_per_step(analysis, rows)
    cost = facts.cost_of(analysis, thresholds, rows)
    severity = facts.severity_of(analysis, thresholds, cost.ns)
    heavy = (total or 0) >= thresholds.fetch_bytes or bool(state)
    if not heavy:
        severity = "info" if (total or 0) <= thresholds.tiny_bytes else severity
    elif severity == "info":
        severity = "warning"
    what = f" Among them gradients, variables or updates: {words.listing(map(words.name, state))}." if state else ""
    yield Finding(
        rule="fetch-copied",
        severity=severity,
        title=f"Every step hands back {words.plural(len(names), 'value')} from "
        f"{words.devices(analysis, rows['src_device_id'].tolist())}: {words.size(total)} a step.",
        detail="A fetched value is copied to the host at the end of the step, and the program waits for it: "
        f"{cost.words}.{what}" + ("" if heavy else " Small results cost the wait, not the bytes."),
        fix=advice.fetch_copied(analysis),
        evidence=words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def _is_state(analysis: Analysis, row: Row) -> bool:
    """Tell whether a fetched value is a gradient, a whole variable, or what an update op hands on: no result."""
    if ops.GRADIENT_NAMES.search(row["tensor_name"]) or (row["variable_id"] is not None and not row["rows_only"]):
        return True
    producer = row["producer_node_id"]
    if producer is None:
        return False
    # without edges a sum of losses looks like a sum of gradients
    gradient = analysis.trace.has_graphs and made_of_gradients(analysis.flow, producer)
    return gradient or bool(ops.UPDATES.match(analysis.flow.op[producer]))


def exposed_copies(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find steps in which the GPU waits for copies because nothing else runs meanwhile."""
    facts.require_transfers(analysis)
    if not facts.has_real_times(analysis):
        raise Skip("no times of a real GPU in the trace")
    share = facts.share_of_step(analysis, analysis.exposed_copy_ns)
    if share is None:
        raise Skip("kernels were not timed, so what they hide is not known")
    if not share or analysis.exposed_copy_ns is None:
        return
    if share < thresholds.exposed_moderate_share:
        raise BelowLimit(f"{share:.1%} of the step, below the limit of {thresholds.exposed_moderate_share:.0%}")
    rows = facts.crossings(analysis, "H2D", "D2H", "P2P", "D2D")
    rows = facts.where(rows, rows["exposed_ns"] > 0)
    by_kind = rows.groupby([rows["category"].fillna("unknown"), "direction"])["exposed_ns"].sum()
    by_kind = by_kind.sort_values(ascending=False, kind="stable")
    kinds = [
        f"{kind} {way} {facts.milliseconds(ns / analysis.step_count)}"
        for (kind, way), ns in zip(by_kind.index.tolist(), by_kind.tolist(), strict=True)
    ]
    copied = facts.per_step(analysis, rows.assign(duration=rows["end_ns"] - rows["start_ns"]), "duration") or 0.0
    hidden = max(0.0, 1 - analysis.exposed_copy_ns / copied) if copied else 0.0
    top = rows.sort_values(["exposed_ns", "transfer_id"], ascending=[False, True])
    readers = facts.consumers_of(top.head(1))
    waited = f" The longest one is read by {words.nodes(analysis, readers)}." if readers else ""
    joined = "joined" if (rows["evidence"] == "both").any() else "timed"
    yield Finding(
        rule="exposed-copies",
        severity="error" if share >= thresholds.exposed_high_share else "warning",
        title=f"{share:.0%} of each step is copying with no kernel beside it: "
        f"{facts.milliseconds(analysis.exposed_copy_ns)} a step (measured).",
        detail=f"By what the copies carry: {words.listing(kinds, 6)} (exposed, per step; copies at the "
        f"same time each count). Kernels hide {hidden:.0%} of "
        f"these copies.{waited}",
        fix=advice.exposed_copies(analysis, *by_kind.index[0]) if len(by_kind) else "",
        evidence=words.transfer_lines(analysis, top.head(200), timed=True),
        cost_ns_per_step=analysis.exposed_copy_ns,
        cost_basis="measured",
        bytes_per_step=facts.bytes_per_step(analysis, rows),
        confidence=joined,
        subjects=tuple(facts.distinct(top["tensor_name"].tolist())[:10]),
    )


def tiny_copies(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find steps with very many small copies, each of which costs a launch however little it moves."""
    facts.require_transfers(analysis)
    rows = facts.crossings(analysis, "H2D", "D2H")
    count = facts.count_per_step(analysis, rows)
    sizes = rows["num_bytes"].dropna()
    if count < thresholds.tiny_count:
        return
    if sizes.empty:
        raise Skip(f"{words.plural(count, 'copy', 'copies')} in a step, but none with a size")
    small = facts.where(rows, rows["num_bytes"] < thresholds.tiny_bytes)
    if float(sizes.median()) >= thresholds.tiny_bytes:
        return
    how_many = facts.count_per_step(analysis, small)
    timed = facts.has_real_times(analysis) and bool(facts.seen(small).all())
    if timed:
        ns = _time_with_gaps(analysis, small, thresholds.tiny_gap_us * 1000)
        basis, text = "measured", f"{facts.milliseconds(ns)} a step with the gaps after them (measured)"
    else:
        ns = how_many * thresholds.copy_latency_us * 1000
        basis = "estimated"
        text = f"{facts.about(ns)} a step at {thresholds.copy_latency_us:g} us each (estimate)"
    share = facts.share_of_step(analysis, ns)
    if share is not None and share < thresholds.tiny_share:
        return
    total = facts.bytes_per_step(analysis, small)
    top = small.groupby("tensor_name").size().sort_values(ascending=False, kind="stable")
    lines = [f"{label}: {words.plural(n, 'copy', 'copies')} a step" for label, n in _size_classes(analysis, rows)]
    lines += [
        f"{words.name(str(n))}: {words.plural(c, 'copy', 'copies')} in all steps" for n, c in top.head(10).items()
    ]
    yield Finding(
        rule="tiny-copies",
        severity=facts.severity_of(analysis, thresholds, ns),
        title=f"{words.plural(how_many, 'small copy', 'small copies')} in "
        f"{'the' if analysis.step_count == 1 else 'each'} step move only {words.size(total)} in all.",
        detail=f"A copy costs about the same however small it is: {text}.",
        fix=advice.tiny_copies(analysis),
        evidence=words.cut(lines),
        cost_ns_per_step=ns,
        cost_basis=basis,
        bytes_per_step=total,
        confidence=("joined" if (small["evidence"] == "both").any() else "timed") if timed else "graph",
        subjects=tuple(str(n) for n in top.index[:10]),
    )


def _time_with_gaps(analysis: Analysis, rows: pd.DataFrame, most_gap_ns: float) -> float:
    """Return per step: duration of the copies plus the idle time after each, until its GPU has work again."""
    events = analysis.trace.events
    work = events[events["kind"].isin(["kernel", "memcpy", "memset"])]
    total = 0.0
    lanes = analysis.trace.events.set_index("event_id")["device_id"]
    for device, group in rows.groupby(lanes.reindex(rows["event_id"].astype("int64")).to_numpy()):
        here = facts.where(work, work["device_id"] == device)
        starts = np.sort(here["start_ns"].to_numpy(np.int64))
        reach = np.maximum.accumulate(here.sort_values("start_ns")["end_ns"].to_numpy(np.int64))
        ends = group["end_ns"].to_numpy(np.int64)
        following = np.searchsorted(starts, ends, side="left")
        idle = np.zeros(len(ends))
        has_next = following < len(starts)
        idle[has_next] = starts[following[has_next]] - ends[has_next]
        running = reach[np.maximum(following - 1, 0)] > ends  # something longer still runs beside it
        idle[running] = 0
        total += float((ends - group["start_ns"].to_numpy(np.int64)).sum() + np.clip(idle, 0, most_gap_ns).sum())
    return total / analysis.step_count


def _size_classes(analysis: Analysis, rows: pd.DataFrame) -> list[tuple[str, float]]:
    limits = [
        (256, "below 256 B"),
        (4000, "256 B to 4 kB"),
        (1_000_000, "4 kB to 1 MB"),
        (float("inf"), "1 MB and more"),
    ]
    sizes = rows["num_bytes"].astype("Float64").fillna(-1).astype("float64")
    found, low = [], 0.0
    for high, label in limits:
        part = facts.where(rows, (sizes >= low) & (sizes < high))
        if len(part):
            found.append((label, facts.count_per_step(analysis, part)))
        low = high
    return found


def gpu_gpu_through_host(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find edges between two GPUs whose data went down to the host and up again."""
    facts.require_accelerator(analysis)
    if len(analysis.accelerators) < 2:
        return
    rows = analysis.transfers
    if not facts.seen(rows).any():
        raise Skip("no GPU copies in the trace, so the way that data between GPUs took was not recorded")
    facts.require_graphs(analysis)
    copied = facts.where(rows, facts.seen(rows) & facts.has_value(rows, "direction", ["D2H", "H2D"]))
    relayed = facts.where(copied, _between_gpus(analysis, copied))
    ways = [set(group["send_node_id"].tolist()) for _, group in relayed.groupby("direction")]
    sends = sorted(set.intersection(*ways)) if len(ways) == 2 else []
    both = facts.where(relayed, facts.has_value(relayed, "send_node_id", sends))
    if both.empty:
        return
    cost = facts.cost_of(analysis, thresholds, both)
    total = facts.bytes_per_step(analysis, both)
    names = facts.distinct(both["tensor_name"].tolist())
    pairs = facts.distinct(
        f"{words.device(analysis, analysis.flow.device[s])} -> "
        f"{words.device(analysis, analysis.flow.device[analysis.flow.recv_of[s]])}"
        for s in map(int, sends)
    )
    yield Finding(
        rule="gpu-gpu-through-host",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(names), 'tensor')} between GPUs ({words.listing(pairs)}) went through host memory: "
        f"{words.size(total)} a step over the bus, each byte twice.",
        detail=f"The edge joins two GPUs, but the trace has a copy down and a copy up in place of one between them: "
        f"{cost.words}.",
        fix=advice.gpu_gpu_through_host(analysis),
        evidence=words.transfer_lines(analysis, both, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def _between_gpus(analysis: Analysis, rows: pd.DataFrame) -> list[bool]:
    """Mark rows whose Send and Recv sit in device memory of two different devices."""
    flow = analysis.flow
    marks: list[bool] = []
    for send, recv in zip(rows["send_node_id"].tolist(), rows["recv_node_id"].tolist(), strict=True):
        known = not pd.isna(send) and not pd.isna(recv)
        marks.append(
            known
            and not flow.host_end(int(send))
            and not flow.host_end(int(recv))
            and flow.device[int(send)] != flow.device[int(recv)]
        )
    return marks


def transfer_in_loop(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find edges inside a while loop that cross once per iteration."""
    facts.require_transfers(analysis)
    flow = analysis.flow
    if not any(op in ops.WHILE_OPS for op in flow.op):
        return
    framed = _in_loop(analysis)
    rows = facts.crossings(analysis, "H2D", "D2H", "P2P")
    rows = facts.where(rows, rows["edge_name"].notna())
    edges = rows.groupby(["edge_name", "direction", "send_node_id"], dropna=False)
    repeats = facts.seen(rows) & (
        edges["transfer_id"].transform("size") >= thresholds.loop_repeats * analysis.step_count
    )
    inside = facts.has_value(rows, "send_node_id", framed)
    if analysis.trace.has_graphs and framed:
        repeats &= inside
    found = facts.where(rows, repeats | (inside & ~facts.seen(rows)))
    if found.empty:
        return
    names = facts.distinct(found["tensor_name"].tolist())
    total = facts.bytes_per_step(analysis, found)
    counted = bool(facts.seen(found).all())
    cost = facts.cost_of(analysis, thresholds, found)
    times = facts.count_per_step(analysis, found)
    much = f"{words.plural(times, 'copy', 'copies')} a step" if counted else "once per iteration"
    yield Finding(
        rule="transfer-in-loop",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(names), 'tensor')} cross{'es' * (len(names) == 1)} the bus inside a loop: {much}, "
        f"{words.size(total)}{'' if counted else ' each time'}.",
        detail="Each iteration waits for the copy before it can go on. "
        + (facts.sentence(cost.words) if counted else "How often the loop runs is not in the trace."),
        fix=advice.transfer_in_loop(analysis),
        evidence=words.transfer_lines(analysis, found, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def _in_loop(analysis: Analysis) -> set[int]:
    """Return the nodes inside a while frame: what an Enter reaches before an Exit, within one partition."""
    flow = analysis.flow
    stack = [n for n, op in enumerate(flow.op) if op in _FRAME_STARTS]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if flow.op[node] in _FRAME_ENDS:
            continue
        for follower in (*(c for c, _, _ in flow.outputs(node)), *flow.control_outputs(node)):
            if follower not in seen:
                seen.add(follower)
                stack.append(follower)
    return {n for n in seen if flow.op[n] not in _FRAME_ENDS}


def debug_op_copies(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find checks, prints, summaries and Python callbacks on the host that take values from a device in every step."""
    facts.require_transfers(analysis)
    flow = analysis.flow
    rows = facts.crossings(analysis, "D2H")
    takers = defaultdict(list)
    for node in _debug_readers(analysis, facts.consumers_of(rows)):
        takers[flow.op[node]].append(node)
    if not takers:
        return
    nodes = sorted(n for members in takers.values() for n in members)
    feeding = [n for n in facts.consumers_of(rows) if n in set(nodes) or set(nodes) & set(flow.successors(n))]
    moved = facts.with_consumer_in(rows, feeding)
    cost = facts.cost_of(analysis, thresholds, moved)
    total = facts.bytes_per_step(analysis, moved)
    yield Finding(
        rule="debug-op-copies",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(nodes), 'node')} for checking or logging ({words.listing(sorted(takers))}) "
        f"take{'s' * (len(nodes) == 1)} values from {words.devices(analysis, moved['src_device_id'].tolist())} "
        f"in every step: {words.size(total)} a step.",
        detail=f"They run on the host, so each step copies for them and waits: {cost.words}.",
        fix=advice.debug_op_copies(analysis),
        evidence=words.transfer_lines(analysis, moved, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(flow.name[n] for n in nodes),
    )


def _debug_readers(analysis: Analysis, consumers: list[int]) -> list[int]:
    """Return the debugging ops on the host among these nodes, or one hop behind them."""
    flow = analysis.flow
    near = facts.distinct([*consumers, *(s for n in consumers if not flow.on_device[n] for s in flow.successors(n))])
    return [n for n in near if ops.DEBUG_OPS.match(flow.op[n]) and not flow.on_device[n]]
