"""What the host did: which op ran while no kernel did, and which threads were busy. Observations, not causes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.intervals import Intervals, covered, length, union
from tfplace.units import format_ns

_WORTH_NAMING = 0.1  # of the idle time
_RUNTIME = ("", "_SOURCE", "_SINK", "NoOp", "RunGraph")


def host_work_while_idle(analysis: Analysis) -> str | None:
    """Return 'IteratorGetNext (3.1 ms a step)': the host op that ran longest in the time without kernels.

    Returns:
        None where no host op covers at least a tenth of the idle time, or host times are missing.
    """
    trace = analysis.trace
    timed = trace.steps.dropna(subset=["start_ns", "end_ns"])
    kernels = trace.events[trace.events["kind"] == "kernel"]
    hosts = trace.devices.loc[trace.devices["role"] == "host", "device_id"]
    work = trace.events[(trace.events["kind"] == "op") & trace.events["device_id"].isin(hosts)]
    work = work[work["op"].notna() & ~work["op"].isin(_RUNTIME)]
    if timed.empty or work.empty:
        return None
    busy = union(kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy())
    steps = union(timed["start_ns"].to_numpy(dtype="int64"), timed["end_ns"].to_numpy(dtype="int64"))
    idle = length(steps) - int(covered(*steps, busy).sum())
    starts, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    bare = (ends - starts) - covered(starts, ends, busy)
    by_op = work.assign(bare=bare).groupby("op")["bare"].sum().sort_values(ascending=False, kind="stable")
    op = str(by_op.index[0])
    alone = _outside(work[work["op"] == op]["start_ns"], work[work["op"] == op]["end_ns"], busy)
    if idle <= 0 or alone < _WORTH_NAMING * idle:
        return None
    return f"{op} ({format_ns(round(alone / analysis.step_count))} a step)"


def busy_threads(analysis: Analysis, most: int = 3) -> list[tuple[str, float]]:
    """Return the threads that used most CPU time in the traced steps, each with its share of a step.

    Threads of one name are added up, so a share may be above 1.

    Returns:
        [('python:MainThread', 0.92), ...]; [] where capture stored no CPU times of threads.
    """
    chosen = set(analysis.trace.steps["step_num"].dropna().astype("int64").tolist())
    stored = analysis.trace.context.get("steps")
    used: Counter[str] = Counter()
    steps = 0
    for step in stored if isinstance(stored, list) else []:
        threads = step.get("threads") if isinstance(step, dict) else None
        if not isinstance(threads, dict) or (chosen and step.get("num") not in chosen):
            continue
        steps += 1
        used.update({str(name): ns for name, ns in threads.items() if type(ns) is int and ns > 0})
    step_ns = analysis.step_time_ns
    return [(name, ns / steps / step_ns) for name, ns in used.most_common(most)] if step_ns else []


def _outside(starts: object, ends: object, busy: Intervals) -> int:
    """Return the length of the union of intervals that `busy` does not cover."""
    merged = union(np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64))
    return length(merged) - int(covered(*merged, busy).sum())
