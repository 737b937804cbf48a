"""The timeline's own tracks: what it is, step windows, findings, and what crosses without a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.rule import Finding
from tfplace.model.rows import python_records
from tfplace.model.trace import Trace
from tfplace.names import printable
from tfplace.report.timeline.model import NONE
from tfplace.report.timeline.texts import EventTexts, slice_text
from tfplace.report.timeline.tracks import OWN_PID, Group
from tfplace.report.wording import count_of, join_words
from tfplace.units import format_bytes

ABOUT = Group(OWN_PID, (0,), "about this timeline", may_nest=True)
STEPS = Group(OWN_PID, (1,), "steps")
FINDINGS = Group(OWN_PID, (2,), "findings", may_nest=True)
UNTIMED = Group(OWN_PID, (3,), "transfers without a time of their own")

_MAX_NAMES = 20
_MAX_MARKED_STEPS = 100
_SEVERITY_COLOURS = {"error": "terrible", "warning": "bad", "info": "good"}


@dataclass(frozen=True)
class OwnSlice:
    """A bar that is not an event of the trace; times are the trace's."""

    group: Group
    start: int
    end: int
    text: str
    step: int = NONE


def short_title(trace: Trace) -> str:
    """Return 'tfplace: trace.pb (simulated)': as long as fits beside a track."""
    played = (trace.devices["role"] == "device") & (trace.devices["kind"] == "CPU")
    note = " (simulated)" if trace.simulated is not None else " (a CPU as accelerator)" if played.any() else ""
    return _files(trace) + note


def _files(trace: Trace) -> str:
    files = [printable(PurePath(one).name or one, 60) for one in trace.source]
    return f"tfplace: {join_words(files, 3) if files else 'trace'}"


def describe(trace: Trace) -> str:
    """Return the title: files, and in words where the times are not a GPU's."""
    words = [_files(trace)]
    if trace.simulated is not None:
        words.append(f"simulated, {printable(trace.simulated, 80)}: times are not a GPU's")
    devices = trace.devices
    played = devices.loc[(devices["role"] == "device") & (devices["kind"] == "CPU"), "name"].tolist()
    if played:
        verb = "plays" if len(played) == 1 else "play"
        words.append(f"{join_words(played, 3)} {verb} the accelerator: times are a CPU's")
    elif not trace.has_device_times:
        words.append("host times only, no GPU kernels or copies traced")
    return ", ".join(words[:1]) + "".join(f" ({word})" for word in words[1:])


def own_slices(analysis: Analysis, texts: EventTexts, step_names: Sequence[str]) -> list[OwnSlice]:
    """Return the bars of the timeline's own tracks; the first, what the timeline is of, spans all others."""
    trace = analysis.trace
    windows = step_windows(trace)
    begin = min([int(trace.events["start_ns"].min()), *(start for start, _ in windows.values())])
    end = max([int(trace.events["end_ns"].max()), *(end for _, end in windows.values())])
    notes = [_with_count(note.text, note.count) for note in (*trace.notes, *analysis.notes)]
    facts: list[tuple[str, Any]] = [
        ("files", join_words(list(trace.source), _MAX_NAMES)),
        ("format", trace.format),
        ("TensorFlow", trace.tf_version),
        ("simulated", trace.simulated),
        *((f"note {number}", note) for number, note in enumerate(notes, 1)),
    ]
    own = [OwnSlice(ABOUT, begin, end, slice_text(describe(trace), "about", facts))]
    cpu_times = trace.steps["cpu_time_ns"].tolist()
    for step, (start, stop) in windows.items():
        cpu = None if pd.isna(cpu_times[step]) else int(cpu_times[step]) / 1000
        args = [("kind", "step"), ("process CPU time us", cpu)]
        own.append(OwnSlice(STEPS, start, stop, slice_text(f"step {step_names[step]}", "step", args), step))
    return own + _untimed(analysis, texts, windows)


def _with_count(text: str, count: int | None) -> str:
    return text if count is None or str(count) in text.replace(",", "") else f"{text} ({count:,})"


def step_windows(trace: Trace) -> dict[int, tuple[int, int]]:
    """Return {step: (start, end)} of the steps that have times."""
    timed = trace.steps.dropna(subset=["start_ns", "end_ns"])
    columns = (timed[name].astype("int64").tolist() for name in ("step_id", "start_ns", "end_ns"))
    return {step: (start, end) for step, start, end in zip(*columns, strict=True)}


def _untimed(analysis: Analysis, texts: EventTexts, windows: dict[int, tuple[int, int]]) -> list[OwnSlice]:
    """Return per step one bar, as long as the step, that names what crosses at a time the trace does not tell."""
    rows = analysis.transfers
    missing = rows["event_id"].isna() & rows["direction"].isin(["H2D", "D2H", "P2P"]) & (rows["category"] != "control")
    of_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in python_records(rows[missing.fillna(False) & rows["step_id"].notna()]):
        of_step[row["step_id"]].append(row)
    traced = len(analysis.trace.copies) > 0
    own = []
    for step, transfers in of_step.items():
        if step not in windows:
            continue
        names = [f"{row['direction']} {texts.transfer_name(row)}" for row in transfers]
        why = "no copy of them was seen" if traced else "copies were not timed"
        title = f"{count_of(len(names), 'transfer')} in this step, {why}: {_sums(transfers)}"
        args: list[tuple[str, Any]] = [(f"transfer {place}", name) for place, name in enumerate(names[:_MAX_NAMES], 1)]
        if len(names) > _MAX_NAMES:
            args.append(("and more", len(names) - _MAX_NAMES))
        own.append(OwnSlice(UNTIMED, *windows[step], slice_text(title, "transfers without a time", args), step))
    return own


def _sums(transfers: Iterable[dict[str, Any]]) -> str:
    """Return '10 H2D 4.3 MB, 2 D2H 8 B (1 of unknown size)'."""
    groups: dict[str, list[int | None]] = defaultdict(list)
    for row in transfers:
        groups[row["direction"]].append(row["num_bytes"])
    words = []
    for way, sizes in sorted(groups.items(), key=lambda item: ("H2D", "D2H", "P2P").index(item[0])):
        known = [size for size in sizes if size is not None]
        unknown = len(sizes) - len(known)
        total = format_bytes(sum(known)) if known else "size not recorded"
        words.append(f"{len(sizes)} {way} {total}" + (f" ({unknown} of unknown size)" if known and unknown else ""))
    return ", ".join(words)


def finding_places(analysis: Analysis, findings: Sequence[Finding]) -> list[tuple[int, str]]:
    """Return (moment in the trace's time, text) of each finding, once per step, where its first subject is timed.

    A finding whose subjects have no time in the trace is not drawn: it is in the report.
    """
    wanted = {subject for finding in findings for subject in finding.subjects}
    places = _places(analysis, wanted)
    marks = []
    for finding in findings:
        first: dict[int, int] = {}
        for subject in finding.subjects:
            for step, start in places.get(subject, {}).items():
                first[step] = min(start, first.get(step, start))
        if not first:
            continue
        args = [("rule", finding.rule), ("severity", finding.severity), ("why", finding.detail), ("fix", finding.fix)]
        text = slice_text(finding.title, f"finding, {finding.severity}", args, _SEVERITY_COLOURS.get(finding.severity))
        marks += [(start, text) for step, start in sorted(first.items())[:_MAX_MARKED_STEPS]]
    return marks


def _places(analysis: Analysis, wanted: set[str]) -> dict[str, dict[int, int]]:
    """Return {name: {step: first moment}}: of its copies where it has any, else of its node's runs."""
    copied: dict[str, dict[int, int]] = {}
    rows = analysis.transfers[analysis.transfers["event_id"].notna() & analysis.transfers["step_id"].notna()]
    variables = analysis.variables["name"].astype("object").to_numpy()
    owner = rows["variable_id"].fillna(NONE).to_numpy(dtype=np.int64)
    named = np.where(owner >= 0, variables[np.maximum(owner, 0)], None) if len(variables) else [None] * len(rows)
    texts = (rows[name].fillna("").tolist() for name in ("tensor_name", "edge_name"))
    columns = zip(*texts, named, rows["step_id"].tolist(), rows["start_ns"].tolist(), strict=True)
    for tensor, edge, variable, step, start in columns:
        for name in (tensor, edge, variable):
            if name in wanted:
                steps = copied.setdefault(name, {})
                steps[step] = min(start, steps.get(step, start))
    run: dict[str, dict[int, int]] = {}
    events = analysis.trace.events
    nodes = {node: name for name in wanted - set(copied) for node in analysis.flow.find(name)}
    mine = events[events["node_id"].isin(list(nodes)) & events["step_id"].notna()]
    for node, step, start in zip(*(mine[name].tolist() for name in ("node_id", "step_id", "start_ns")), strict=True):
        steps = run.setdefault(nodes[node], {})
        steps[step] = min(start, steps.get(step, start))
    return {**run, **copied}
