"""Processes and threads: one process per device, with the same number whatever is drawn; host, copies, compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfplace.model.rows import first_rows, number_rows, python_rows
from tfplace.model.trace import Trace
from tfplace.names import parse_device
from tfplace.report.timeline.lanes import by_number, split_lanes
from tfplace.report.timeline.model import Int, Track
from tfplace.report.timeline.text import show

OWN_PID = 1
_WIDTH = 1000  # thread numbers to a process, unless one has more lanes
_STREAM = re.compile(r"stream[:#]([^<:/]+)")
_THREAD_TAIL = re.compile(r"/-?\d+$", re.ASCII)
_KIND_ORDER = {"CPU": 0, "GPU": 1, "TPU": 2, "OTHER": 3}

# what stands above what within a process
OPS, THREADS, COPIES, SYNC, STREAMS, NOTES = range(6)
DIRECTIONS = ("H2D", "D2H", "P2P", "D2D", "H2H")


@dataclass(frozen=True)
class Group:
    """Slices that belong together and get as many lanes as they need.

    Attributes:
        pid: Process.
        rank: Where it stands within the process, then by name.
        name: What people read.
        may_nest: Its slices may lie within each other, as calls on one thread do.
    """

    pid: int
    rank: tuple[int, ...]
    name: str
    may_nest: bool = False


@dataclass(frozen=True)
class Layout:
    """Where each slice goes.

    Attributes:
        processes: {pid: name} of those that have a track.
        tracks: All threads.
        track: int64[N], index into `tracks`.
    """

    processes: dict[int, str]
    tracks: list[Track]
    track: Int


def device_processes(trace: Trace) -> tuple[dict[int, int], dict[int, str]]:
    """Return ({device id: pid}, {pid: name}).

    The numbers follow from all devices of the trace, hosts first, so that steps drawn apart can be merged. Perfetto
    shows a process name from its last '/' on, so there is none in it; it says where times are not a GPU's.
    """
    devices = trace.devices
    columns = [devices[c].astype("object").where(devices[c].notna(), None).tolist() for c in _COLUMNS]
    rows = sorted(zip(*columns, strict=True), key=_order)
    pids = {row[0]: number for number, row in enumerate(rows, start=OWN_PID + 1)}
    taken: dict[str, int] = {}
    names = {}
    for row in rows:
        name = f"{show(row[1] or 'device').replace('/', ' ')} ({_role(trace, row)})"
        taken[name] = taken.get(name, 0) + 1
        names[pids[row[0]]] = name if taken[name] == 1 else f"{name} #{taken[name]}"
    return pids, names


_COLUMNS = ("device_id", "name", "task", "kind", "role", "ordinal", "model")


def _order(row: tuple[object, ...]) -> tuple[object, ...]:
    _, name, task, kind, role, ordinal, _ = row
    return task or "", role == "device", _KIND_ORDER.get(str(kind), 9), -1 if ordinal is None else ordinal, name or ""


def _role(trace: Trace, row: tuple[object, ...]) -> str:
    _, _, _, kind, role, _, model = row
    if role != "device":
        return "host"
    if kind == "CPU":
        return "a CPU as accelerator"
    if trace.simulated is not None:
        return "simulated"
    return show(model, 60).replace("/", "-") if model else "device"


def event_groups(trace: Trace, pids: dict[int, int]) -> tuple[Int, list[Group]]:
    """Return (group of each event, the groups).

    Args:
        trace: The trace.
        pids: From `device_processes`.
    """
    events = trace.events
    way, known_ways = pd.factorize(trace.copies["direction"])
    ways = [*known_ways.tolist(), None]  # -1 is the last
    way_of_event = np.full(len(events), -1, dtype=np.int64)
    way_of_event[trace.copies["event_id"].to_numpy(dtype=np.int64)] = way
    number = number_rows(
        events["lane"], events["kind"], events["device_id"], events["thread_id"], pd.Series(way_of_event, dtype="int64")
    )
    first = first_rows(number)
    roles = dict(zip(trace.devices["device_id"].tolist(), _roles(trace), strict=True))
    known: dict[Group, int] = {}
    of_number = np.zeros(len(first), dtype=np.int64)
    sample = python_rows(events.iloc[first][["device_id", "lane", "kind", "thread_id", "thread_name"]])
    for place, (row, code) in enumerate(zip(sample, way_of_event[first].tolist(), strict=True)):
        device, lane, kind, *thread = row  # number and name
        pid = pids.get(device, len(pids) + OWN_PID + 1)
        role = roles.get(device, "")
        group = _copies(pid, ways[code]) if kind == "memcpy" else _group(pid, role, kind, lane or "", thread)
        of_number[place] = known.setdefault(group, len(known))
    return of_number[number] if len(number) else number, list(known)


def _roles(trace: Trace) -> list[str]:
    """Return 'host', 'played' (a CPU as accelerator) or 'device' for each device."""
    kinds, roles = trace.devices["kind"].tolist(), trace.devices["role"].tolist()
    return [
        "host" if role != "device" else "played" if kind == "CPU" else "device"
        for kind, role in zip(kinds, roles, strict=True)
    ]


def _copies(pid: int, way: str | None) -> Group:
    place = DIRECTIONS.index(way) if way in DIRECTIONS else len(DIRECTIONS)
    return Group(pid, (COPIES, place), f"copies {way}" if way else "copies, direction not recorded")


def _group(pid: int, role: str, kind: str, lane: str, thread: Sequence[Any]) -> Group:
    if kind in ("op", "runtime"):
        launch = "launches" if role == "device" else "ops"
        number, name = thread
        if number is not None:
            shown = _thread(number, name)
            return Group(pid, (THREADS, number), f"launches by {shown}" if role == "device" else shown, may_nest=True)
        return Group(pid, (OPS,), launch) if kind == "op" else Group(pid, (THREADS,), "host threads")
    if kind == "sync":
        return Group(pid, (SYNC,), "synchronization")
    if kind == "annotation":
        return Group(pid, (NOTES,), "annotations", may_nest=True)
    return Group(pid, (STREAMS, *_number(lane)), _stream(lane))


def _thread(number: int, name: str | None) -> str:
    """Return 'tf_Compute (thread 5)'; TensorFlow adds a long number of its own to the name, which tells nothing."""
    plain = show(_THREAD_TAIL.sub("", name or "").replace("/", " "), 60)
    return f"{plain} (thread {number})" if plain else f"thread {number}"


def _stream(lane: str) -> str:
    own = parse_device(lane).lane or lane
    found = _STREAM.search(own)
    name = show(found[1], 40) if found else show(own.replace("/", " "), 60) or "unknown"
    return "all streams" if name == "all" else f"stream {name} (compute)" if found else name


def _number(lane: str) -> tuple[int, ...]:
    found = _STREAM.search(lane)
    return (int(found[1]),) if found and found[1].isdecimal() and len(found[1]) < 10 else (1 << 30,)


def lay_out(groups: Sequence[Group], group: Int, start: Int, end: Int, names: dict[int, str]) -> Layout:
    """Split every group into lanes and number them.

    Args:
        groups: All groups.
        group: int64[N], index into `groups`.
        start, end: int64[N], the slices.
        names: {pid: name}.
    """
    lane = np.zeros(len(group), dtype=np.int64)
    order = by_number(group)
    bounds = np.searchsorted(group[order], np.arange(len(groups) + 1))
    depth = [0] * len(groups)
    for number, one in enumerate(groups):
        rows = order[bounds[number] : bounds[number + 1]]
        lane[rows] = split_lanes(start[rows], end[rows], one.may_nest)
        depth[number] = int(lane[rows].max()) + 1 if len(rows) else 1
    ordered = sorted(range(len(groups)), key=lambda n: (groups[n].pid, groups[n].rank, groups[n].name))
    tracks: list[Track] = []
    first = np.zeros(len(groups), dtype=np.int64)
    counts: dict[int, int] = {}
    per_process = pd.Series(depth, dtype="int64").groupby([one.pid for one in groups]).sum().max() if groups else 0
    width = max(_WIDTH, 10 ** len(str(per_process)))
    for number in ordered:
        one = groups[number]
        first[number] = len(tracks)
        for nth in range(depth[number]):
            counts[one.pid] = counts.get(one.pid, 0) + 1
            name = one.name if nth == 0 else f"{one.name} ({nth + 1})"
            tracks.append(Track(one.pid, one.pid * width + counts[one.pid], name))
    shown = {track.pid: names.get(track.pid, "device not known") for track in tracks}
    return Layout(shown, tracks, first[group] + lane if len(group) else lane)
