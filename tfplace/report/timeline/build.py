"""From an Analysis to its Timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.rule import Finding
from tfplace.errors import UsageError
from tfplace.model.rows import order_by
from tfplace.model.select import step_numbers
from tfplace.model.trace import Trace
from tfplace.report.timeline.counters import bus_counters, busy_counters, disjoint, memory_counters
from tfplace.report.timeline.flows import find_arrows
from tfplace.report.timeline.limits import DEFAULT_MAX_EVENTS, limit_events
from tfplace.report.timeline.marks import (
    ABOUT,
    FINDINGS,
    OwnSlice,
    describe,
    finding_places,
    own_slices,
    short_title,
    step_windows,
)
from tfplace.report.timeline.model import NONE, Int, Mark, Slices, Timeline, Track
from tfplace.report.timeline.texts import EventTexts, slice_text
from tfplace.report.timeline.tracks import OWN_PID, Group, device_processes, event_groups, lay_out


def build_timeline(
    analysis: Analysis, findings: Sequence[Finding] = (), max_events: int | None = DEFAULT_MAX_EVENTS
) -> Timeline:
    """Lay out everything that has a time.

    Args:
        analysis: What was worked out; of some steps only, where only these are wanted.
        findings: Marked where they speak of something that has a time.
        max_events: Most events to draw; null = all. Beyond it whole steps are left out, transfers never.

    Raises:
        UsageError: The trace has no times at all.
    """
    trace = analysis.trace
    if trace.events.empty:
        raise UsageError(
            "the trace has no times, so there is nothing to draw.",
            "`tfplace report` says what its graphs tell. More runs of the step (`tfplace record --steps 3`), or "
            "RunOptions(trace_level=FULL_TRACE) in a TF 1.x session, give times.",
        )
    texts = EventTexts(analysis)
    step_names = [str(number) for number in step_numbers(trace)]
    pids, names = device_processes(trace)
    names[OWN_PID] = short_title(trace).replace("/", " ")
    own = own_slices(analysis, texts, step_names)
    zero = own[0].start
    found = finding_places(analysis, findings)
    groups, group = _groups(trace, pids, own, bool(found))
    slices = _slices(trace, texts, own, zero)
    layout = lay_out(groups, group, slices.start, slices.end, names)
    slices = replace(slices, track=layout.track)
    slices = slices.take(order_by(slices.start, slices.track, -slices.end))
    findings_track = next((n for n, track in enumerate(layout.tracks) if track.name == FINDINGS.name), 0)
    timeline = Timeline(
        title=describe(trace),
        processes=layout.processes,
        tracks=layout.tracks,
        slices=slices,
        arrows=find_arrows(analysis, texts, slices),
        counters=[
            *bus_counters(analysis, pids, zero),
            *busy_counters(analysis, pids, _working_times(trace), zero),
            *memory_counters(analysis, pids, zero),
        ],
        marks=[Mark(start - zero, findings_track, text) for start, text in found],
        step_names=step_names,
        render=texts.render,
    )
    if max_events is None:
        return timeline
    smaller, left_out = limit_events(timeline, _transfers_and_own(trace, slices), max_events)
    return _explain(smaller, left_out, texts) if left_out else timeline


def _groups(
    trace: Trace, pids: dict[int, int], own: Sequence[OwnSlice], with_findings: bool
) -> tuple[list[Group], Int]:
    """Return all groups, and that of each event and then of each own bar."""
    of_event, groups = event_groups(trace, pids)
    places = {group: number for number, group in enumerate(groups)}
    of_own = [places.setdefault(one.group, len(places)) for one in own]
    if with_findings:
        places.setdefault(FINDINGS, len(places))
    return list(places), np.concatenate([of_event, np.array(of_own, dtype=np.int64)])


def _slices(trace: Trace, texts: EventTexts, own: Sequence[OwnSlice], zero: int) -> Slices:
    """Return events, then own bars; tracks not yet set."""
    events = trace.events
    start = events["start_ns"].to_numpy(dtype=np.int64)
    queued = start - events["scheduled_ns"].fillna(1 << 62).to_numpy(dtype=np.int64)
    mine = {
        "start": [one.start for one in own],
        "end": [one.end for one in own],
        "text": [texts.add(one.text) for one in own],
        "step": [one.step for one in own],
    }
    count = len(own)

    def both(of_events: Int, name: str) -> Int:
        return np.concatenate([of_events, np.array(mine.get(name, [NONE] * count), dtype=np.int64)])

    return Slices(
        start=both(start, "start") - zero,
        end=both(events["end_ns"].to_numpy(dtype=np.int64), "end") - zero,
        track=np.zeros(len(events) + count, dtype=np.int64),
        text=both(texts.of_event, "text"),
        step=both(events["step_id"].fillna(NONE).to_numpy(dtype=np.int64), "step"),
        queued=both(np.where(queued >= 0, queued, NONE), "queued"),
        event=both(np.arange(len(events)), "event"),
    )


def _working_times(trace: Trace) -> list[tuple[int, int]]:
    """Return the steps' windows, each as long as its kernels run: the host may be ahead of the GPU."""
    kernels = trace.events[trace.events["kind"] == "kernel"]
    last: pd.Series[int] = kernels.groupby("step_id")["end_ns"].max()
    windows = step_windows(trace)
    return disjoint([(start, max(end, int(last.get(step, end)))) for step, (start, end) in windows.items()])


def _transfers_and_own(trace: Trace, slices: Slices) -> np.ndarray:
    is_copy = np.append((trace.events["kind"] == "memcpy").to_numpy(dtype=bool), True)
    return is_copy[slices.event]  # event -1 is the last place: the timeline's own


def _explain(timeline: Timeline, left_out: tuple[str, ...], texts: EventTexts) -> Timeline:
    """Say on the timeline itself what it leaves out: bars below the one that says what it is of."""
    slices = timeline.slices
    about = next(n for n, track in enumerate(timeline.tracks) if track == Track(OWN_PID, track.tid, ABOUT.name))
    row = int(np.flatnonzero(slices.track == about)[0])
    copies = slices.take(np.array([row] * len(left_out)))
    numbers = [texts.add(slice_text(note, "left out", [("kind", "left out")])) for note in left_out]
    copies = replace(copies, text=np.array(numbers, dtype=np.int64))
    merged = Slices(*(np.insert(getattr(slices, f), row + 1, getattr(copies, f)) for f in Slices.__dataclass_fields__))
    moved = np.arange(len(slices)) + np.where(np.arange(len(slices)) > row, len(left_out), 0)
    arrows = timeline.arrows
    arrows = replace(arrows, source=moved[arrows.source], target=moved[arrows.target])
    return replace(timeline, slices=merged, arrows=arrows, left_out=left_out)
