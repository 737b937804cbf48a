"""Rules about input: feeds, datasets, staging, prefetching, and the memory that it comes from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.origins import is_client_end, is_resource, trace_origin
from tfplace.diagnose import advice, facts, words
from tfplace.diagnose.facts import Cost, Row
from tfplace.diagnose.rule import BelowLimit, Finding, Skip
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records
from tfplace.units import format_bytes

_SLICES = frozenset({"Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd", "DynamicSlice"})
_MAX_WALK = 200  # nodes looked at around one feed or one Stage


def _is_feed(analysis: Analysis, row: Row) -> bool:
    """Tell whether an input comes from the caller (feed, argument), not from an input pipeline."""
    flow, producer = analysis.flow, row["producer_node_id"]
    if producer is None:  # a feed of TF 1.x by its name, or an argument that was copied before the function ran
        return str(row["tensor_name"]).startswith(("_arg_", "_recv_")) or row["join"] == "order"
    origin = trace_origin(flow, producer, row["producer_slot"] or 0).node
    return flow.op[origin] in ops.FEEDS or is_client_end(flow, origin)


def _inputs(analysis: Analysis, *, fed: bool) -> pd.DataFrame:
    rows = facts.crossings(analysis, "H2D", category="input")
    return facts.where(rows, [_is_feed(analysis, row) == fed for row in python_records(rows)])


def _require_weight(
    analysis: Analysis, thresholds: Thresholds, rows: pd.DataFrame, cost: Cost, least_share: float
) -> None:
    """Raise BelowLimit where input copies are not worth a finding: by exposed time if measured, else by bytes."""
    share = facts.share_of_step(analysis, cost.ns) if cost.basis == "measured" else None
    if share is not None:
        if share < least_share:
            raise BelowLimit(f"{share:.1%} of the step not hidden, below the limit of {least_share:.0%}")
        return
    total, least = facts.bytes_per_step(analysis, rows), thresholds.untimed_input_bytes
    if total is not None and total < least:
        raise BelowLimit(f"{words.size(total)} a step, below the limit of {words.size(least)}")


def feed_copied(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find arguments and feeds that are copied to a device in every step, with nothing to hide the copy."""
    facts.require_transfers(analysis)
    rows = _inputs(analysis, fed=True)
    if rows.empty:
        return
    cost = facts.cost_of(analysis, thresholds, rows)
    _require_weight(analysis, thresholds, rows, cost, thresholds.feed_exposed_share)
    names = facts.distinct(rows["tensor_name"].tolist())
    pieces = facts.count_per_step(analysis, rows)
    total = facts.bytes_per_step(analysis, rows)
    yield Finding(
        rule="feed-copied",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(len(names), 'feed')} ({words.listing(map(words.feed_name, names))}) "
        f"{'is' if len(names) == 1 else 'are'} copied to {words.devices(analysis, rows['dst_device_id'].tolist())} in "
        f"every step: {words.size(total)} a step.",
        detail=f"The program hands the data over at each call, so the copy starts only inside the step: {cost.words}, "
        f"in {words.plural(pieces, 'piece')}. First used by {words.nodes(analysis, facts.consumers_of(rows))}.",
        fix=advice.feed_copied(analysis),
        evidence=words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def whole_dataset_fed(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find feeds of a whole data set of which the step uses only a part."""
    facts.require_transfers(analysis)
    rows = _inputs(analysis, fed=True)
    rows = facts.where(rows, rows["num_bytes"] >= thresholds.dataset_bytes)
    for name, group in rows.groupby("tensor_name", sort=True):
        if group["num_bytes"].nunique() != 1:
            continue  # another size in each step: a batch, not the same set
        whole = int(group["num_bytes"].iloc[0])
        slices = _slices_of(analysis, facts.consumers_of(group))
        used = [analysis.flow.value_bytes(n, 0) for n in slices]
        if not used or None in used:
            continue
        part = sum(size or 0 for size in used)
        if part >= thresholds.dataset_part_share * whole:
            continue
        cost = facts.cost_of(analysis, thresholds, group)
        total = facts.bytes_per_step(analysis, group)
        yield Finding(
            rule="whole-dataset-fed",
            severity=facts.severity_of(analysis, thresholds, cost.ns),
            title=f"{words.feed_name(str(name))} ({format_bytes(whole)}) is fed whole in every step, but the step uses "
            f"{format_bytes(part)} of it ({part / whole:.1%}).",
            detail=f"The feed crosses the bus, then {words.nodes(analysis, slices)} takes a part of it: {cost.words}. "
            f"In 1,000 steps that is {format_bytes(1000 * (total or 0))}.",
            fix=advice.whole_dataset_fed(analysis),
            evidence=words.transfer_lines(analysis, group, timed=facts.has_real_times(analysis)),
            **cost.fields(total),
            subjects=(str(name),),
        )


def _slices_of(analysis: Analysis, consumers: list[int]) -> list[int]:
    """Return the slices and gathers that take the value; [] where any other op uses the whole of it."""
    flow = analysis.flow
    stack, seen, slices = list(consumers), set(consumers), []
    while stack and len(seen) < _MAX_WALK:
        node = stack.pop()
        if flow.op[node] in _SLICES:
            slices.append(node)
        elif flow.op[node] in ops.SIZE_KEEPING and flow.successors(node):
            fresh = [n for n in flow.successors(node) if n not in seen]
            seen.update(fresh)
            stack += fresh
        else:
            return []
    return sorted(slices)


def input_not_staged(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find batches of an input pipeline that are copied inside the step, with nothing to hide the copy."""
    facts.require_transfers(analysis)
    rows = _inputs(analysis, fed=False)
    if rows.empty:
        return
    cost = facts.cost_of(analysis, thresholds, rows)
    _require_weight(analysis, thresholds, rows, cost, thresholds.input_exposed_share)
    total = facts.bytes_per_step(analysis, rows)
    names = facts.distinct(rows["tensor_name"].tolist())
    yield Finding(
        rule="input-not-staged",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"The input ({words.listing(map(words.name, names))}) is copied to "
        f"{words.devices(analysis, rows['dst_device_id'].tolist())} inside every step: {words.size(total)} a step.",
        detail=f"The batch is ready on the host, but its copy starts only when the step asks for it: {cost.words}."
        + _hidden(analysis, rows)
        + f" First used by {words.nodes(analysis, facts.consumers_of(rows))}.",
        fix=advice.input_not_staged(analysis),
        evidence=words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
        **cost.fields(total),
        subjects=tuple(names),
    )


def _hidden(analysis: Analysis, rows: pd.DataFrame) -> str:
    if not facts.has_real_times(analysis) or rows["exposed_ns"].isna().any():
        return " Whether kernels hide it, this trace cannot tell."
    whole = float((rows["end_ns"] - rows["start_ns"]).sum())
    return f" Kernels hide {1 - float(rows['exposed_ns'].sum()) / whole:.0%} of it." if whole else ""


def pageable_copy(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find large copies from or to pageable host memory, which go through a staging buffer."""
    facts.require_transfers(analysis)
    rows = facts.crossings(analysis, "H2D", "D2H")
    pageable, pinned = (
        facts.has_value(rows, "src_memory", [kind]) | facts.has_value(rows, "dst_memory", [kind])
        for kind in ("pageable", "pinned")
    )
    if not pageable.any() and not pinned.any():
        raise Skip("the trace does not record whether host memory is pinned or pageable")
    large = (rows["num_bytes"] >= thresholds.pageable_bytes).fillna(False).astype(bool)
    slow = facts.where(rows, pageable & large)
    best = None
    timed = facts.has_real_times(analysis) and bool(facts.seen(rows).all())
    if timed:
        best = _best_gbps(facts.where(rows, pinned & large))
        slow = facts.where(slow, _slow_or_exposed(slow, best, thresholds))
    if slow.empty:
        return
    cost, speeds = _saving(analysis, thresholds, slow, best, timed=timed)
    share = facts.share_of_step(analysis, cost.ns)
    if not cost.ns:
        return
    if share is not None and share < thresholds.pageable_saving_share:
        least = thresholds.pageable_saving_share
        raise BelowLimit(f"pinned memory would save {share:.2%} of the step, below the limit of {least:.1%}")
    total = facts.bytes_per_step(analysis, slow)
    count = facts.count_per_step(analysis, slow)
    names = facts.distinct(slow["tensor_name"].tolist())
    yield Finding(
        rule="pageable-copy",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"{words.plural(count, 'large copy', 'large copies')} a step "
        f"{'uses' if count == 1 else 'use'} pageable host memory: {words.size(total)} a step{speeds}.",
        detail="The driver copies pageable memory through a buffer of its own, and the copy cannot run beside the "
        f"kernels: {cost.words}.",
        fix=advice.pageable_copy(analysis, _kinds(analysis, slow)),
        evidence=words.transfer_lines(analysis, slow, timed=timed),
        **cost.fields(total),
        subjects=tuple(names),
    )


def _kinds(analysis: Analysis, rows: pd.DataFrame) -> list[str]:
    """Return what the copies carry, most bytes first."""
    sizes = rows["num_bytes"].astype("Int64").fillna(0).groupby(rows["category"].fillna("unknown"), observed=True).sum()
    return [str(kind) for kind in sizes.sort_values(ascending=False, kind="stable").index]


def _durations(rows: pd.DataFrame) -> pd.Series[float]:
    durations: pd.Series[float] = (rows["end_ns"] - rows["start_ns"]).astype("float64")
    return durations


def _best_gbps(pinned: pd.DataFrame) -> float | None:
    """Return the fastest large pinned copy in GB/s (bytes per nanosecond); null where there is none."""
    durations = _durations(pinned)
    speeds = pinned["num_bytes"].astype("float64")[durations > 0] / durations[durations > 0]
    return float(speeds.max()) if len(speeds) else None


def _slow_or_exposed(rows: pd.DataFrame, best: float | None, thresholds: Thresholds) -> pd.Series[bool]:
    durations = _durations(rows)
    bare = rows["exposed_ns"].astype("Float64").astype("float64").fillna(durations)  # no kernel timed: none hides it
    exposed: pd.Series[bool] = bare >= thresholds.pageable_exposed_share * durations
    if best is None:
        return exposed
    speeds = rows["num_bytes"].astype("float64") / durations.replace(0, np.nan)
    either: pd.Series[bool] = exposed | (speeds < thresholds.pageable_speed_share * best)
    return either


def _saving(
    analysis: Analysis, thresholds: Thresholds, slow: pd.DataFrame, best: float | None, *, timed: bool
) -> tuple[Cost, str]:
    """Return what pinned memory would save per step, and the speeds in words."""
    bus = thresholds.bus_gbps
    if not timed:
        total = facts.per_step(analysis, slow) or 0.0
        ns = facts.bus_ns(total, thresholds.pageable_gbps) - facts.bus_ns(total, bus)
        text = f"pinned memory would save {facts.about(ns)} a step"
        speeds = f"{thresholds.pageable_gbps:g} GB/s pageable, {bus:g} GB/s pinned"
        return Cost(ns, "estimated", f"{text} ({speeds}; estimate)", "graph"), ""
    durations = _durations(slow)
    pinned = slow["num_bytes"].astype("float64") / (best or bus)
    exposed = slow["exposed_ns"].astype("Float64").astype("float64").fillna(durations)
    ns = float(np.minimum((durations - pinned).clip(lower=0), exposed).sum()) / analysis.step_count
    reached = float(slow["num_bytes"].astype("float64").sum() / durations.sum()) if durations.sum() else 0.0
    against = f"the best pinned copy here reached {best:.1f} GB/s" if best else f"a bus of {bus:g} GB/s is assumed"
    joined = "joined" if (slow["evidence"] == "both").any() else "timed"
    text = f"pinned memory would save {facts.about(ns)} a step ({against})"
    return Cost(ns, "estimated", text, joined), f", at {reached:.1f} GB/s"


def prefetch_ineffective(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find input that is staged on a device, yet its copies are not hidden, or its dataset ends on the host."""
    facts.require_accelerator(analysis)
    flow = analysis.flow
    iterators = [n for n, op in enumerate(flow.op) if "IteratorGetNext" in op and flow.on_device[n]]
    staged = [n for n, op in enumerate(flow.op) if op == "GeneratorDataset" and flow.on_device[n]]
    if not iterators and not staged:
        return
    after = _host_datasets_after(analysis, staged)
    generators = [n for n, op in enumerate(flow.op) if op == "GeneratorDataset" and not flow.on_device[n]]
    rows = facts.crossings(analysis, "H2D")
    rows = facts.where(rows, [_may_be_staged(analysis, row) for row in python_records(rows)])
    cost = facts.cost_of(analysis, thresholds, rows)
    share = facts.share_of_step(analysis, cost.ns) if cost.basis == "measured" else None
    exposed = share is not None and share >= thresholds.prefetch_exposed_share
    if not exposed and not after and not generators:
        if not facts.has_real_times(analysis) or (len(rows) and share is None):
            raise Skip("the iterator is on a GPU, but neither its dataset nor the time of its copies is in the trace")
        return
    causes = []
    if exposed:
        causes.append(f"{share:.0%} of the step is input copies with no kernel beside them ({cost.words})")
    if after:
        late = words.nodes(analysis, after)
        causes.append(f"the dataset {late} on the host comes after the copy to the GPU, which undoes it")
    if generators:
        causes.append(f"the generator {words.nodes(analysis, generators)} makes the data in Python, in pageable memory")
    total = facts.bytes_per_step(analysis, rows) if len(rows) else None
    yield Finding(
        rule="prefetch-ineffective",
        severity=facts.severity_of(analysis, thresholds, cost.ns),
        title=f"The input is prefetched to {words.devices(analysis, [flow.device[n] for n in iterators + staged])}, "
        f"but {words.plural(len(causes), 'thing')} {'keeps' if len(causes) == 1 else 'keep'} it from helping.",
        detail=facts.sentence("; ".join(causes)),
        fix=advice.prefetch_ineffective(analysis),
        evidence=(
            *(words.node(analysis, n) for n in (iterators + staged)[:5]),
            *words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
        ),
        **cost.fields(total),
        subjects=tuple(flow.name[n] for n in iterators + staged),
    )


def _may_be_staged(analysis: Analysis, row: Row) -> bool:
    """Tell whether a copy may be staged input: input of a pipeline, or a copy that no op and no edge explains."""
    if row["category"] == "input":
        return not _is_feed(analysis, row)
    return row["category"] in (None, "unknown") and not row["consumer_node_ids"] and row["send_node_id"] is None


def _host_datasets_after(analysis: Analysis, staged: list[int]) -> list[int]:
    """Return datasets on the host that take from a dataset on a device."""
    flow = analysis.flow
    stack, seen = list(staged), set(staged)
    while stack:
        for follower in flow.successors(stack.pop()):
            if follower not in seen and ops.DATASETS.search(flow.op[follower]):
                seen.add(follower)
                stack.append(follower)
    return sorted(n for n in seen if "Dataset" in flow.op[n] and not flow.on_device[n])


def staging_misuse(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find staging areas that are filled and emptied for the same batch in one step, so nothing runs ahead."""
    flow = analysis.flow
    puts = [n for n, op in enumerate(flow.op) if ops.STAGE_PUTS.match(op)]
    if not puts:
        if not analysis.trace.has_graphs and not len(flow):
            raise Skip(facts.why_no_graphs(analysis) or "the trace holds no nodes")
        return
    facts.require_graphs(analysis)
    for put in puts:
        feeds = _feeds_of(analysis, put)
        gets = _gets_after(analysis, put)
        if not feeds and not gets:
            continue
        rows = facts.crossings(analysis, "H2D", category="input")
        rows = facts.with_consumer_in(rows, [put])
        cost = facts.cost_of(analysis, thresholds, rows)
        causes = []
        if feeds:
            causes.append(f"its value is fed in the same run ({words.nodes(analysis, feeds)})")
        if gets:
            causes.append(f"{words.nodes(analysis, gets)} waits for it in the same step")
        yield Finding(
            rule="staging-misuse",
            severity=facts.severity_of(analysis, thresholds, cost.ns),
            title=f"The staging area {words.name(flow.name[put])} on {words.devices(analysis, [flow.device[put]])} "
            f"gains nothing: {words.plural(len(causes), 'reason')}.",
            detail=f"Staging helps when batch k+1 is put while batch k is computed, but {' and '.join(causes)}. "
            f"{facts.sentence(cost.words)}",
            fix=advice.staging_misuse(analysis),
            evidence=(
                *(f"{words.node(analysis, n)} -> {words.node(analysis, put)}" for n in feeds[:5]),
                *(f"{words.node(analysis, put)} -> {words.node(analysis, n)}" for n in gets[:5]),
                *words.transfer_lines(analysis, rows, timed=facts.has_real_times(analysis)),
            ),
            **cost.fields(facts.bytes_per_step(analysis, rows) if len(rows) else None),
            subjects=(flow.name[put],),
        )


def _feeds_of(analysis: Analysis, put: int) -> list[int]:
    """Return the feeds or arguments of this run that a Stage takes its value from."""
    flow = analysis.flow
    stack, seen, feeds = [put], {put}, []
    while stack and len(seen) < _MAX_WALK:
        for node in flow.predecessors(stack.pop()):
            if node in seen:
                continue
            seen.add(node)
            if (flow.op[node] in ops.FEEDS and not is_resource(flow, node)) or is_client_end(flow, node):
                feeds.append(node)
            elif not ops.INPUTS.match(flow.op[node]):
                stack.append(node)
    return sorted(feeds)


def _gets_after(analysis: Analysis, put: int) -> list[int]:
    """Return the Unstage nodes of the same staging area that can only run after this Stage."""
    flow = analysis.flow
    area = (flow.attrs[put].get("container", ""), flow.attrs[put].get("shared_name", ""))
    stack, seen, gets = [put], {put}, []
    while stack:
        node = stack.pop()
        for follower in (*flow.successors(node), *flow.control_outputs(node)):
            if follower in seen:
                continue
            seen.add(follower)
            attrs = flow.attrs[follower]
            same = (attrs.get("container", ""), attrs.get("shared_name", "")) == area
            if ops.STAGE_GETS.match(flow.op[follower]) and same:
                gets.append(follower)
            else:
                stack.append(follower)
    return sorted(gets)
