"""Counters: bytes per second over the bus each way, how busy each GPU is, its memory in use. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.intervals import covered, union
from tfplace.report.timeline.model import Counter, Int

BUS = ("H2D", "D2H", "P2P")
_VALUES = 20_000  # of busy share in all; each step gets its part, 10 to 200
_FEWEST, _MOST = 10, 200


def bus_counters(analysis: Analysis, pids: dict[int, int], zero_ns: int) -> list[Counter]:
    """Return bytes per second per GPU and direction: each copy's mean over its own time, copies at once added up.

    A copy without a size, or without a length, adds nothing; the counter's name says how many there are. Nothing for a
    simulated GPU: its copies do not cross a bus.
    """
    if analysis.trace.simulated is not None:
        return []
    rows = analysis.transfers
    rows = rows[rows["event_id"].notna() & rows["direction"].isin(BUS)]
    events = analysis.trace.events
    copies = rows.merge(
        events[["event_id", "device_id"]], on="event_id", how="left", validate="one_to_one", suffixes=("", "_lane")
    )
    counters = []
    for (device, way), group in copies.groupby(["device_id", "direction"], sort=True, dropna=True):
        start = group["start_ns"].to_numpy(dtype=np.int64)
        lasts = group["end_ns"].to_numpy(dtype=np.int64) - start
        known = (group["num_bytes"].notna() & (lasts > 0)).to_numpy(dtype=bool)
        if device not in pids or not known.any():
            continue
        size = group["num_bytes"].to_numpy(dtype=np.float64, na_value=0)[known]
        rate = np.round(size * 1e9 / lasts[known]).astype(np.int64)
        at, value = _levels(start[known] - zero_ns, lasts[known], rate)
        if at[0] > 0:  # nothing is on the way before the first copy
            at, value = np.insert(at, 0, 0), np.insert(value, 0, 0.0)
        missing = int((~known).sum())
        name = f"bus {way}" + (f", {missing} of {len(known)} copies not counted" if missing else "")
        counters.append(Counter(pids[device], name, "bytes/s", at, value))
    return counters


def _levels(start: Int, lasts: Int, rate: Int) -> tuple[Int, npt.NDArray[np.float64]]:
    """Return the moments at which the sum changes and the sum from there on; it ends at 0."""
    moments = np.concatenate([start, start + lasts])
    change = np.concatenate([rate, -rate])
    at, place = np.unique(moments, return_inverse=True)
    total = np.zeros(len(at), dtype=np.int64)
    np.add.at(total, place.ravel(), change)
    level = np.cumsum(total)
    changed = np.append(True, level[1:] != level[:-1])
    return at[changed], level[changed].astype(np.float64)


def busy_counters(
    analysis: Analysis, pids: dict[int, int], windows: Sequence[tuple[int, int]], zero_ns: int
) -> list[Counter]:
    """Return the share of time in which at least one kernel ran, per GPU, in equal parts of each step.

    Only for GPUs whose kernels were timed; a simulated GPU, or a CPU that plays one, has no such share.

    Args:
        analysis: The analysis.
        pids: {device id: pid}.
        windows: (start, end) of each step in the trace's time, in order, not overlapping.
        zero_ns: The timeline's zero in the trace's time.
    """
    trace = analysis.trace
    if trace.simulated is not None or not windows:
        return []
    gpus = trace.devices.loc[(trace.devices["role"] == "device") & (trace.devices["kind"] == "GPU"), "device_id"]
    kernels = trace.events[trace.events["kind"] == "kernel"]
    edges, last = _grid(windows)
    counters = []
    for device in gpus.tolist():
        mine = kernels[kernels["device_id"] == device]
        if mine.empty or device not in pids:
            continue
        busy = union(mine["start_ns"].to_numpy(dtype=np.int64), mine["end_ns"].to_numpy(dtype=np.int64))
        share = np.where(last > edges, covered(edges, last, busy) / np.maximum(last - edges, 1), 0.0).round(4)
        changed = np.append(True, share[1:] != share[:-1])
        counters.append(Counter(pids[device], "busy", "share", edges[changed] - zero_ns, share[changed]))
    return counters


def memory_counters(analysis: Analysis, pids: dict[int, int], zero_ns: int) -> list[Counter]:
    """Return the bytes that TensorFlow's allocator had given out of each GPU's memory, as told after each op's run.

    The allocator tells when an op was launched, not when its kernel ran. Of more than `_VALUES` moments each part
    shows its highest and its last. Nothing for a simulated GPU: its memory is the host's.
    """
    trace = analysis.trace
    if trace.simulated is not None:
        return []
    rows = trace.memory[trace.memory["device_id"].notna()]
    at = trace.events["end_ns"].to_numpy(dtype=np.int64)[rows["event_id"].to_numpy(dtype=np.int64)] - zero_ns
    in_use = rows["in_use_bytes"].to_numpy(dtype=np.int64)
    device = rows["device_id"].to_numpy(dtype=np.int64)
    counters = []
    for number in np.unique(device).tolist():
        mine = np.flatnonzero(device == number)
        mine = mine[np.argsort(at[mine], kind="stable")]
        kept = mine[_highest_and_last(at[mine], in_use[mine])]
        counters.append(Counter(pids[number], "memory in use", "bytes", at[kept], in_use[kept].astype(np.float64)))
    return counters


def _highest_and_last(at: Int, value: Int) -> Int:
    """Choose moments that show a course: those where it changes, of many only each part's highest and last."""
    rows: Int = np.flatnonzero(np.append(at[1:] != at[:-1], True))  # of one moment the last
    rows = rows[np.append(True, value[rows[1:]] != value[rows[:-1]])]
    if len(rows) > _VALUES:
        part = np.arange(len(rows)) * (_VALUES // 2) // len(rows)
        last = np.flatnonzero(np.append(part[1:] != part[:-1], True))
        highest = np.lexsort((value[rows], part))[last]
        rows = rows[np.unique(np.concatenate([last, highest]))]
    return rows


def _grid(windows: Sequence[tuple[int, int]]) -> tuple[Int, Int]:
    """Return starts and ends of the parts; after each step one part of no length, which sets the counter to 0."""
    parts = int(np.clip(_VALUES // len(windows), _FEWEST, _MOST))
    starts, ends = [], []
    for begin, end in windows:
        cuts = begin + (np.arange(parts + 1) * ((end - begin) / parts)).round().astype(np.int64)
        cuts[-1] = end
        starts.append(cuts)
        ends.append(np.append(cuts[1:], end))
    return np.concatenate(starts), np.concatenate(ends)


def disjoint(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return windows in order, each cut where the next begins; empty ones vanish."""
    ordered = sorted(windows)
    following = [begin for begin, _ in ordered[1:]]
    cut = [(begin, min(end, after)) for (begin, end), after in zip(ordered, [*following, 1 << 62], strict=True)]
    return [(begin, end) for begin, end in cut if end > begin]
