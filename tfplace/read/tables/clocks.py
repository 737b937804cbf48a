"""One clock for all rows of a file: starts, lengths and enqueue times in nanoseconds, re-based where lanes disagree.

TensorFlow writes most rows in microseconds since the epoch. In some releases GPU rows count from the start of the
profile instead, single lanes have been many times too large, and enqueue times have been left in raw clock ticks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.model.trace import Note
from tfplace.read.raw import RawStepStats

DAY_US = 86_400_000_000
_TIGHTEST = 0.95  # of the estimates of a clock's offset, the one that all but the oddest agree with
_MOST_GROUPS = 64  # more foreign clocks than that are damage, not clocks
_UNANCHORED = "they begin with the step: their order against the host's events is not known"

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Times:
    """Times of the rows of one file, each in the clock of its own cluster.

    Attributes:
        start_ns: int64[N], from the first start of the row's cluster.
        length_ns: int64[N], never negative.
        scheduled_ns: int64[N], on the same scale as `start_ns`; meaningless where not `has_scheduled`.
        has_scheduled: bool[N].
        scheduled_in_main: bool[N]: the enqueue time is in the main clock, though the row is not.
        timed: bool[N]; false for rows that carry no time at all.
        cluster: int64[N]: rows whose starts lie within a day of a neighbour's.
        main: The cluster that the host's rows are in.
        base_ns: int64 per cluster: its first start, nanoseconds since the epoch (or whatever it counts from).
        notes: What was not believed.
    """

    start_ns: Int
    length_ns: Int
    scheduled_ns: Int
    has_scheduled: Bool
    scheduled_in_main: Bool
    timed: Bool
    cluster: Int
    main: int
    base_ns: Int
    notes: tuple[Note, ...]


def read_times(stats: RawStepStats, is_host: Bool) -> Times:
    """Return the times of all rows; nothing is clamped without a note.

    Args:
        stats: One file's rows.
        is_host: bool[N], rows that a host thread wrote: the main clock is theirs.
    """
    times = stats.times
    start_us = _prefer(times["all_start_nanos"], times["all_start_micros"], lambda nanos: nanos // 1000)
    length_ns = _nanoseconds(times, "all_end_rel")
    missing = length_ns == 0
    if missing.any():
        length_ns = np.where(missing, _nanoseconds(times, "op_end_rel"), length_ns)
    has_schedule = (times["scheduled_micros"] != 0) | (times["scheduled_nanos"] != 0)
    timed = (start_us != 0) | (length_ns != 0) | has_schedule
    cluster = _clusters(start_us, timed)
    count = int(cluster.max()) + 1 if len(cluster) else 0
    first_us = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_us, cluster[timed], start_us[timed])
    first_us[first_us == np.iinfo(np.int64).max] = 0
    main = _main_cluster(cluster, timed, is_host, count)
    with np.errstate(over="ignore"):  # a damaged clock overflows here; differences inside its cluster stay right
        base_ns = first_us * 1000
        micros_ns = (start_us - first_us[cluster]) * 1000 if count else start_us
        start_ns = _prefer(times["all_start_nanos"], micros_ns, lambda nanos: nanos - base_ns[cluster])
    scheduled_ns, has_scheduled, in_main, doubtful = _scheduled(times, start_us, first_us, cluster, main)
    notes = []
    odd = timed & ((length_ns < 0) | (length_ns > DAY_US * 1000))
    if odd.any():
        length_ns = np.where(odd, 0, length_ns)
        notes.append(
            Note(
                "lengths-unbelievable",
                f"{int(odd.sum())} events are said to end before they start, or more than a day later; their length "
                "is unknown and counted as zero.",
                int(odd.sum()),
            )
        )
    if doubtful:
        notes.append(
            Note(
                "scheduled-times-unbelievable",
                f"{doubtful} of {int(has_schedule.sum())} enqueue times are more than a day away from their event; "
                "they are treated as unknown.",
                doubtful,
            )
        )
    return Times(start_ns, length_ns, scheduled_ns, has_scheduled, in_main, timed, cluster, main, base_ns, tuple(notes))


def _nanoseconds(times: dict[str, Int], name: str) -> Int:
    """Return the *_nanos field where it is filled, else the *_micros field in nanoseconds."""
    micros = np.clip(times[f"{name}_micros"], -(2**62) // 1000, 2**62 // 1000) * 1000
    return _prefer(times[f"{name}_nanos"], micros, lambda nanos: nanos)


def _prefer(nanos: Int, otherwise: Int, convert: Callable[[Int], Int]) -> Int:
    """Return what the *_nanos field tells where it is filled; in most files it nowhere is."""
    return np.where(nanos != 0, convert(nanos), otherwise) if nanos.any() else otherwise


def _clusters(start_us: Int, timed: Bool) -> Int:
    """Return the number of each row's cluster: starts with no gap of more than a day between them."""
    cluster = np.zeros(len(start_us), dtype=np.int64)
    rows = np.flatnonzero(timed)
    if len(rows) and int(start_us[rows].max()) - int(start_us[rows].min()) > DAY_US:
        order = rows[np.argsort(start_us[rows], kind="stable")]
        gaps = np.diff(start_us[order].astype(np.float64)) > DAY_US
        cluster[order[1:]] = np.cumsum(gaps)
    return cluster


def _main_cluster(cluster: Int, timed: Bool, is_host: Bool, count: int) -> int:
    if count <= 1:
        return 0
    votes = np.bincount(cluster[timed & is_host], minlength=count)
    if not votes.any():
        votes = np.bincount(cluster[timed], minlength=count)
    return int(votes.argmax())


def _scheduled(
    times: dict[str, Int], start_us: Int, first_us: Int, cluster: Int, main: int
) -> tuple[Int, Bool, Bool, int]:
    """Return (time from the row's base, has one, it is in the main clock instead, how many were not believed)."""
    size = len(start_us)
    result = np.zeros(size, dtype=np.int64)
    found = np.zeros(size, dtype=np.bool_)
    in_main = np.zeros(size, dtype=np.bool_)
    if not size:
        return result, found, in_main, 0
    own = first_us[cluster]
    foreign = cluster != main
    stated = np.zeros(size, dtype=np.bool_)
    for name, scale in (("scheduled_nanos", 1), ("scheduled_micros", 1000)):
        value = times[name]
        if not value.any():
            continue
        stated |= value != 0
        open_rows = (value > 0) & ~found
        value_us = value.astype(np.float64) * scale / 1000
        near = open_rows & (np.abs(value_us - start_us) <= DAY_US)
        beside = open_rows & ~near & foreign
        beside[beside] = np.abs(value_us[beside] - first_us[main]) <= DAY_US
        with np.errstate(over="ignore"):
            for chosen, base_us in ((near, own), (beside, np.broadcast_to(first_us[main], size))):
                result[chosen] = (value[chosen] - base_us[chosen] * (1000 // scale)) * scale
        found |= near | beside
        in_main |= beside
    return result, found, in_main, int((stated & ~found).sum())


def offsets(
    times: Times, keep: Bool, task: Int, node_key: Int, *, is_launch: Bool, is_work: Bool
) -> tuple[Int, list[Note]]:
    """Return what to add to each row's start to bring it to the main clock, and notes on every shift.

    All rows of one task in one foreign cluster share a clock and are shifted together. The shift is the largest that
    their enqueue times ask for (an event cannot start before it was enqueued); failing these, the launches of the
    same nodes on the host; failing these, the group begins where the step does.

    Args:
        times: From `read_times`.
        keep: bool[N], rows that become events.
        task: int64[N], number of the task that the row's device belongs to.
        node_key: int64[N], one number per device and node in whose name the row ran; -1 unknown.
        is_launch: bool[N], host-side runs of nodes.
        is_work: bool[N], kernels.
    """
    shift = np.zeros(len(times.start_ns), dtype=np.int64)
    foreign = np.flatnonzero(keep & times.timed & (times.cluster != times.main))
    groups = pd.DataFrame({"task": task[foreign], "cluster": times.cluster[foreign], "row": foreign})
    sizes: dict[str, int] = {}
    for number, (_, rows) in enumerate(groups.groupby(["task", "cluster"], sort=True)["row"]):
        amount, how = 0, _UNANCHORED
        if number < _MOST_GROUPS:
            amount, how = _anchor(times, rows.to_numpy(), node_key, is_launch, is_work)
        shift[rows.to_numpy()] = amount
        sizes[how] = sizes.get(how, 0) + len(rows)
    return shift, [
        Note(
            "clock-rebased",
            f"{count} events ran on a clock more than a day away from the host's; they were moved so that {how}.",
            count,
        )
        for how, count in sizes.items()
    ]


def _anchor(times: Times, rows: Int, node_key: Int, is_launch: Bool, is_work: Bool) -> tuple[int, str]:
    enqueued = rows[times.has_scheduled[rows] & times.scheduled_in_main[rows]]
    if len(enqueued):
        waits = times.scheduled_ns[enqueued] - times.start_ns[enqueued]
        return _tightest(waits), "none starts before it was enqueued"
    work = rows[is_work[rows] & (node_key[rows] >= 0)]
    launches = np.flatnonzero(
        is_launch & times.timed & (times.cluster == times.main) & np.isin(node_key, node_key[work])
    )
    runs = pd.Series(times.start_ns[launches], index=node_key[launches])
    runs = runs[~runs.index.duplicated(keep=False)]  # a node that ran several times: which launch is whose?
    kernels = pd.Series(times.start_ns[work], index=node_key[work]).groupby(level=0).min()
    waits = (runs - kernels.reindex(runs.index)).dropna().to_numpy(dtype=np.int64)
    if len(waits):
        return _tightest(waits), "no kernel starts before its launch"
    return 0, _UNANCHORED


def _tightest(waits: Int) -> int:
    return int(np.quantile(waits, _TIGHTEST, method="higher"))
