"""The rule ping-pong: data that leaves a GPU for host work and comes back within the step."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tfplace.analyze import intervals, ops
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.placement import main_dtype
from tfplace.diagnose import advice, facts, words
from tfplace.diagnose.facts import Cost
from tfplace.diagnose.islands import Island, Islands, find_islands
from tfplace.diagnose.rule import Finding
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records

_PLUMBING = ops.SIZE_KEEPING | {"Const", "NoOp"}

_STITCH = "Or write it with `tf.gather`, `tf.concat` or `tf.tensor_scatter_nd_update`, which stay on the GPU."
_INSTEAD = {
    "DynamicStitch": _STITCH,
    "ParallelDynamicStitch": _STITCH,
    "DynamicPartition": "Or write it with `tf.boolean_mask` or `tf.gather`, which have GPU kernels.",
    "Unique": "Or make the ids unique in the input pipeline, before the step.",
    "UniqueV2": "Or make the ids unique in the input pipeline, before the step.",
    "LookupTableFindV2": "Look the keys up in the input pipeline, before the step.",
    "LookupTableFind": "Look the keys up in the input pipeline, before the step.",
    "Where": "Or keep the mask and multiply by it, so that no indices are needed.",
}
_RANDOM_KEYS = frozenset({"StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg", "StatelessRandomGetAlg"})
"""Ops that make the key and counter of random ops from a seed: their kernels take and give host memory.

Source: tensorflow/core/kernels/stateless_random_ops_v2.cc.
"""
_INSTEAD_ANY = "Replace it by ops that run on the GPU, or cast to a type for which it has a GPU kernel."


@dataclass
class _Group:
    """Islands that do the same kind of work.

    Attributes:
        kinds: Op types that matter, sorted.
        booked: True where the work is booked on a GPU but its kernels take host memory.
        islands: The pieces.
        world: All islands, with their transfers.
    """

    kinds: tuple[str, ...]
    booked: bool
    islands: list[Island]
    world: Islands

    @property
    def nodes(self) -> list[int]:
        """All nodes of the islands, by id."""
        return sorted({n for island in self.islands for n in island.nodes})

    @property
    def down(self) -> pd.DataFrame:
        """The transfers into the islands, each once."""
        rows: pd.DataFrame = self.world.down.iloc[sorted({row for island in self.islands for row in island.into})]
        return rows

    @property
    def up(self) -> pd.DataFrame:
        """The transfers out of the islands, each once."""
        rows: pd.DataFrame = self.world.up.iloc[sorted({row for island in self.islands for row in island.out})]
        return rows


def ping_pong(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find data that goes GPU -> host work -> GPU within a step, grouped by the kind of host work."""
    facts.require_transfers(analysis)
    world = find_islands(analysis, round(thresholds.island_nodes))
    grouped: dict[tuple[tuple[str, ...], bool], list[Island]] = defaultdict(list)
    for island in world.found:
        grouped[_kind(analysis, island)].append(island)
    for (kinds, booked), members in sorted(grouped.items()):
        finding = _describe(analysis, thresholds, _Group(kinds, booked, members, world))
        if finding is not None:
            yield finding


def _kind(analysis: Analysis, island: Island) -> tuple[tuple[str, ...], bool]:
    """Return the op types of an island that matter, and whether they are booked on a GPU."""
    flow = analysis.flow
    on_host = [n for n in island.nodes if not flow.on_device[n]]
    members = on_host or island.nodes
    counts = Counter(flow.op[n] for n in members)
    telling = {op: count for op, count in counts.items() if op and op not in _PLUMBING} or counts
    return tuple(sorted(telling)), not on_host


def _describe(analysis: Analysis, thresholds: Thresholds, group: _Group) -> Finding | None:
    flow = analysis.flow
    own = [n for n in group.nodes if flow.op[n] in group.kinds]
    down, up = group.down, group.up
    if group.booked:
        own, down = _with_siblings(analysis, group, own, down)
    both = _all([down, up])
    cost = _cost(analysis, thresholds, group, both)
    if cost.basis == "measured" and not cost.ns:
        return None  # the GPU had other work all the while
    total = facts.bytes_per_step(analysis, both)
    downs, ups = facts.count_per_step(analysis, down), facts.count_per_step(analysis, up)
    when = "the step" if analysis.step_count == 1 else "each step"
    hint = _kernel_hint(analysis, group, own)
    copies = f"{words.plural(downs, 'copy', 'copies')} down and {facts.count_text(ups)} up in {when}"
    return Finding(
        rule="ping-pong",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{_subject(analysis, group, own, both)}: {copies}, {words.size(total)}.",
        detail=_detail(analysis, group, own, cost),
        fix=advice.random_keys(analysis, hint, total)
        if _RANDOM_KEYS.issuperset(group.kinds)
        else advice.ping_pong(analysis, _instead(analysis, group, own, hint), hint),
        evidence=_evidence(analysis, group, own, down, up),
        **cost.fields(total),
        subjects=tuple(flow.name[n] for n in own),
    )


def _all(frames: list[pd.DataFrame]) -> pd.DataFrame:
    together: pd.DataFrame = pd.concat(frames).drop_duplicates("transfer_id").sort_values("transfer_id")
    return together


def _with_siblings(
    analysis: Analysis, group: _Group, own: list[int], down: pd.DataFrame
) -> tuple[list[int], pd.DataFrame]:
    """Add nodes of the same op that take device data in host memory too, though their result stays on the host."""
    flow = analysis.flow
    rows = facts.crossings(analysis, "D2H")
    takers = [n for n in facts.consumers_of(rows) if flow.op[n] in group.kinds and flow.on_device[n]]
    devices = {flow.device[n] for n in own}
    everyone = sorted({*own, *(n for n in takers if flow.device[n] in devices)})
    return everyone, _all([down, facts.with_consumer_in(rows, everyone)])


def _subject(analysis: Analysis, group: _Group, own: list[int], both: pd.DataFrame) -> str:
    flow = analysis.flow
    kinds = words.listing([words.name(kind, 40) for kind in group.kinds], 3)
    count = words.plural(len(own), f"{kinds} node")
    if not group.booked:
        on_device = {d for d in (*both["src_device_id"].tolist(), *both["dst_device_id"].tolist()) if not pd.isna(d)}
        accelerators = sorted(on_device & set(analysis.accelerators["device_id"].tolist()))
        hosts = words.devices(analysis, [flow.device[n] for n in own])
        return f"Data leaves {words.devices(analysis, accelerators)} for {count} on {hosts} and comes back"
    same = sum(1 for n in range(len(flow)) if flow.op[n] in group.kinds and flow.on_device[n])
    where = words.devices(analysis, [flow.device[n] for n in own])
    if same == len(own):
        which = f"All {count}" if len(own) > 1 else f"The only {kinds} node"
    else:
        which = f"{len(own)} of {same} {kinds} nodes"
    verb = "took their" if len(own) > 1 else "took its"
    return f"{which}, though placed on {where}, {verb} inputs in host memory, so data goes down and up around each"


def _detail(analysis: Analysis, group: _Group, own: list[int], cost: Cost) -> str:
    kinds = words.listing([words.name(kind, 40) for kind in group.kinds], 3)
    if group.booked:
        cause = (
            f"Placement alone does not show this: the nodes are booked on the GPU, but the {kinds} kernel of the "
            "TensorFlow that ran takes its data from host memory, so a copy down is put before each and a copy up "
            "after it."
        )
    else:
        why = python_records(facts.where(analysis.reasons, facts.has_value(analysis.reasons, "node_id", own)))
        reasons = facts.distinct(row["detail"] for row in why) or ["the trace does not tell why"]
        cause = f"Why it is on the host: {words.listing((words.name(r, 200) for r in reasons), 3)}."
    return (
        f"{cause} What this costs is the wait, not the bytes: the GPU has to finish, send, and start again. "
        f"{facts.sentence(cost.words)}"
    )


def _instead(analysis: Analysis, group: _Group, own: list[int], hint: str) -> str:
    reasons = facts.where(analysis.reasons, facts.has_value(analysis.reasons, "node_id", own))["reason"]
    if len(reasons) and (reasons == "strategy-request").all():
        return advice.STRATEGY_SUM
    if hint.endswith("let it run there."):
        return ""  # nothing to replace
    return next((_INSTEAD[kind] for kind in group.kinds if kind in _INSTEAD), _INSTEAD_ANY)


def _kernel_hint(analysis: Analysis, group: _Group, own: list[int]) -> str:
    """Say what the known TensorFlow does with the op that was caught in host memory."""
    flow, kernels = analysis.flow, analysis.kernels
    node = next((n for n in own if flow.op[n] in _INSTEAD), own[0])
    op, types = flow.op[node], flow.attrs[node]
    has = kernels.has_gpu_kernel(op, types)
    if has is None:
        return ""
    dtype = main_dtype(flow, node)
    shown = words.name(op, 40) + (f" of {words.name(dtype, 20)}" if dtype else "")
    known = f"TensorFlow {kernels.tf_version}" if kernels.tf_version else kernels.name
    if not has:
        return f"{shown} has no GPU kernel in {known} either."
    if kernels.computes_on_host(op, types) is not False:
        return f"{shown} works in host memory in {known} too."
    host = kernels.host_memory_args(op, types)
    kept = f", with only its {words.listing(host, 4)} in host memory" if host else ""
    if group.booked:
        return f"Upgrade TensorFlow: in {known} the GPU kernel of {shown} works in GPU memory{kept}."
    return f"{shown} has a GPU kernel in {known}{kept}: let it run there."


def _evidence(
    analysis: Analysis, group: _Group, own: list[int], down: pd.DataFrame, up: pd.DataFrame
) -> tuple[str, ...]:
    timed = facts.has_real_times(analysis)
    lines = [f"between: {words.nodes(analysis, own, 10)}"]
    lines += [f"down: {line}" for line in words.transfer_lines(analysis, down, timed=timed)]
    lines += [f"up: {line}" for line in words.transfer_lines(analysis, up, timed=timed)]
    return tuple(lines)


def _cost(analysis: Analysis, thresholds: Thresholds, group: _Group, both: pd.DataFrame) -> Cost:
    """Measured: time between a copy down and the copy back in which no kernel ran. Else trips and bytes."""
    if facts.has_real_times(analysis) and facts.seen(both).all():
        idle = _idle_ns(analysis, group)
        if idle is not None:
            text = f"{facts.milliseconds(idle)} of each step passed between a copy down and the copy back"
            text += " with no kernel running" if (analysis.trace.events["kind"] == "kernel").any() else ""
            joined = (both["evidence"] == "both").any()
            return Cost(idle, "measured", f"{text} (measured)", "joined" if joined else "timed")
    # several values may go down, or come up, on one trip: the GPU waits once
    trips = min(facts.count_per_step(analysis, group.down), facts.count_per_step(analysis, group.up))
    moved = facts.estimate(analysis, thresholds, both)
    ns = trips * thresholds.round_trip_us * 1000 + (moved.ns or 0.0)
    text = f"{facts.about(ns)} a step for {words.plural(trips, 'trip')}"
    return Cost(ns, "estimated", f"{text} of {thresholds.round_trip_us:g} us each and their bytes (estimate)", "graph")


def _idle_ns(analysis: Analysis, group: _Group) -> float | None:
    """Return the time per step inside the trips in which no kernel ran on their GPU; null where no trip is whole."""
    trips = _trips(group)
    if not len(trips[0]):
        return None
    events = analysis.trace.events
    devices = facts.distinct(group.up["dst_device_id"].dropna().tolist())
    kernels = facts.where(events, (events["kind"] == "kernel") & facts.has_value(events, "device_id", devices))
    busy = intervals.union(kernels["start_ns"].to_numpy(np.int64), kernels["end_ns"].to_numpy(np.int64))
    merged = intervals.union(*trips)
    idle = intervals.length(merged) - int(intervals.covered(*merged, busy).sum())
    return idle / analysis.step_count


def _trips(group: _Group) -> intervals.Intervals:
    """Return for each copy up: start of the last copy down into its island that ended before it, and its own end."""
    down, up = (_spans(frame) for frame in (group.world.down, group.world.up))
    starts, ends = [], []
    for island in group.islands:
        before = sorted((down[1][row], down[0][row]) for row in island.into)
        moments = [end for end, _ in before]
        for row in island.out:
            last = bisect.bisect_right(moments, up[0][row]) - 1
            if last >= 0:
                starts.append(before[last][1])
                ends.append(up[1][row])
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def _spans(rows: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Return starts and ends; only called where every copy was timed."""
    return rows["start_ns"].fillna(0).astype("int64").tolist(), rows["end_ns"].fillna(0).astype("int64").tolist()
