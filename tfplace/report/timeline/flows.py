"""Arrows: producer to copy to consumers, and launch to kernel, where both ends are slices that exist.

An arrow binds to whatever slice is on top of its track at its moment, so both moments are chosen where the slice meant
is on top; an arrow whose end would come before its beginning is left out and counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.model.rows import first_rows, number_rows, python_records
from tfplace.report.timeline.lanes import by_number
from tfplace.report.timeline.model import NONE, Arrows, Int, Slices
from tfplace.report.timeline.texts import NAMING, EventTexts

LAUNCH = ("launch", "launch")
_TRANSFER, _UNTIMED = "transfer", "transfer, not timed"
_KEY = ["node_id", "step_id"]


def find_arrows(analysis: Analysis, texts: EventTexts, slices: Slices) -> Arrows:
    """Return all arrows between slices that are drawn."""
    runs = _runs(analysis, slices)
    launches = _launches(runs)
    timed, untimed = _transfers(analysis, runs)
    names: list[tuple[str, str]] = [LAUNCH]
    found = [launches.assign(label=0)]
    named = number_rows(*(analysis.transfers[name] for name in NAMING))  # many are alike but for their times
    for category, rows in ((_TRANSFER, timed), (_UNTIMED, untimed)):
        transfer = rows["transfer"].to_numpy(dtype=np.int64)
        which = number_rows(named[transfer])
        first = transfer[first_rows(which)]
        found.append(rows.assign(label=which + len(names)))
        names += [(category, texts.transfer_name(row)) for row in python_records(analysis.transfers.iloc[first])]
    pairs = pd.concat([frame[["source", "target", "label"]] for frame in found], ignore_index=True)
    pairs = pairs.drop_duplicates().astype("int64")
    source, target, label = (pairs[name].to_numpy(dtype=np.int64) for name in ("source", "target", "label"))
    return _bind(slices, source, target, label, names)


def keep_arrows(arrows: Arrows, new_number: Int) -> Arrows:
    """Return the arrows whose ends are still drawn.

    Args:
        arrows: Arrows between slices.
        new_number: int64, the new number of each slice; -1 where it is not drawn.
    """
    source, target = new_number[arrows.source], new_number[arrows.target]
    kept = np.flatnonzero((source != NONE) & (target != NONE))
    return Arrows(
        source[kept],
        target[kept],
        arrows.leave[kept],
        arrows.arrive[kept],
        arrows.label[kept],
        arrows.labels,
        arrows.dropped,
    )


def _runs(analysis: Analysis, slices: Slices) -> pd.DataFrame:
    """Return the drawn slices of nodes: slice, start, node_id, step_id, kind, on_device."""
    drawn = np.flatnonzero(slices.event != NONE)
    events = analysis.trace.events.iloc[slices.event[drawn]]
    real = analysis.trace.devices
    devices = real.loc[(real["role"] == "device") & (real["kind"] != "CPU"), "device_id"]
    runs: pd.DataFrame = pd.DataFrame(
        {
            "slice": drawn,
            "start": slices.start[drawn],
            "event_id": slices.event[drawn],
            "node_id": events["node_id"].fillna(NONE).to_numpy(dtype=np.int64),
            "step_id": events["step_id"].fillna(NONE).to_numpy(dtype=np.int64),
            "kind": events["kind"].array,
            "on_device": events["device_id"].isin(devices).to_numpy(dtype=bool),
        }
    )
    return runs


def _launches(runs: pd.DataFrame) -> pd.DataFrame:
    """Join each kernel, copy and fill to the latest host-side run of its node before it."""
    named = runs[runs["node_id"] != NONE]
    hosts = named[((named["kind"] == "op") & named["on_device"]) | (named["kind"] == "runtime")]
    work = named[named["kind"].isin(["kernel", "memcpy", "memset"])]
    joined = _nearest(work, hosts, "backward")
    arrows: pd.DataFrame = pd.DataFrame({"source": joined["slice_other"], "target": joined["slice"]})
    return arrows


def _nearest(left: pd.DataFrame, right: pd.DataFrame, direction: str) -> pd.DataFrame:
    """Join each row to the slice of the same node and step that starts nearest before or after it, if any."""
    right = right[["start", "slice", *_KEY]].rename(columns={"slice": "slice_other", "start": "start_other"})
    if left.empty or right.empty:
        none: pd.DataFrame = left.iloc[:0].assign(slice_other=0, start_other=0)
        return none
    joined = pd.merge_asof(
        left.sort_values("start", kind="stable"),
        right.sort_values("start_other", kind="stable"),
        left_on="start",
        right_on="start_other",
        by=_KEY,
        direction=direction,  # type: ignore[arg-type]
    )
    found: pd.DataFrame = joined.dropna(subset=["slice_other"])
    return found


def _transfers(analysis: Analysis, runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return arrows of transfers with a copy, and of those without (source, target, transfer)."""
    rows = analysis.transfers
    frame = pd.DataFrame(
        {
            "transfer": rows["transfer_id"].to_numpy(dtype=np.int64),
            "step_id": rows["step_id"].fillna(NONE).to_numpy(dtype=np.int64),
            "producer": rows["producer_node_id"].fillna(NONE).to_numpy(dtype=np.int64),
            "consumers": rows["consumer_node_ids"].to_numpy(dtype=object),
            "event_id": rows["event_id"].fillna(NONE).to_numpy(dtype=np.int64),
            "control": (rows["category"] == "control").fillna(False).to_numpy(dtype=bool),
        }
    )
    copies = frame[frame["event_id"] != NONE].merge(
        runs[["event_id", "slice", "start"]], on="event_id", how="inner", validate="one_to_one"
    )
    # what computes a value on a GPU is the kernel; its launch says only when it was asked for
    kernels, ops = runs[runs["kind"] == "kernel"], runs[runs["kind"] == "op"]
    made = _first_of(copies.rename(columns={"producer": "node_id"}), (kernels, ops), "backward")
    timed = pd.concat(
        [
            pd.DataFrame({"source": made["slice_other"], "target": made["slice"], "transfer": made["transfer"]}),
            _read(_by_consumer(copies), (ops, kernels)),
        ],
        ignore_index=True,
    )
    edges = frame[(frame["event_id"] == NONE) & ~frame["control"]]
    first_run = ops.drop_duplicates(_KEY)[["slice", "start", *_KEY]].rename(columns={"node_id": "producer"})
    known = edges.merge(first_run, on=["producer", "step_id"], how="inner", validate="many_to_one")
    return timed, _read(_by_consumer(known), (ops,))


def _by_consumer(rows: pd.DataFrame) -> pd.DataFrame:
    each = rows.explode("consumers").dropna(subset=["consumers"])
    readers: pd.DataFrame = each.assign(node_id=each["consumers"].astype("int64"))
    return readers


def _read(rows: pd.DataFrame, among: tuple[pd.DataFrame, ...]) -> pd.DataFrame:
    """Join each value to the first run of its reader that starts after the row's slice does."""
    joined = _first_of(rows, among, "forward")
    columns = {"source": joined["slice"], "target": joined["slice_other"], "transfer": joined["transfer"]}
    arrows: pd.DataFrame = pd.DataFrame(columns)
    return arrows


def _first_of(rows: pd.DataFrame, among: tuple[pd.DataFrame, ...], direction: str) -> pd.DataFrame:
    """Join to the first table that has a fitting slice."""
    found: list[pd.DataFrame] = []
    left = rows[rows["node_id"] != NONE].reset_index(drop=True).rename_axis("row").reset_index()
    for table in among:
        joined = _nearest(left, table, direction)
        found.append(joined)
        left = left[~left["row"].isin(joined["row"])]
    joined_rows: pd.DataFrame = pd.concat(found, ignore_index=True)
    return joined_rows


def _bind(slices: Slices, source: Int, target: Int, label: Int, names: list[tuple[str, str]]) -> Arrows:
    """Choose the two moments of each arrow."""
    moment, alone, has_inner = inside(slices)
    begins, ends = slices.start[source], slices.end[source]
    arrive = moment[target]
    leave = np.where(has_inner[source], moment[source], np.minimum(np.maximum(ends - 1, begins), arrive))
    good = (leave >= begins) & (leave <= arrive) & alone[target] & (source != target)
    good &= ~has_inner[source] | alone[source]
    from_to = (source[good], target[good], leave[good], arrive[good])
    return Arrows(*from_to, label[good], names, dropped=int((~good).sum()))


def inside(slices: Slices) -> tuple[Int, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return of each slice: a moment just inside it, whether it is on top there, and whether another lies within it.

    The moment is one nanosecond after the start: at the start itself chrome://tracing finds the slice before, where
    that ends there.
    """
    order = by_number(slices.track)  # of one track they are by start already, the longest first
    start, end, track = slices.start[order], slices.end[order], slices.track[order]
    moment = np.where(end - start > 1, start + 1, start)
    alone = np.ones(len(order), dtype=np.bool_)
    inner = np.zeros(len(order), dtype=np.bool_)
    same_track = track[1:] == track[:-1]
    alone[:-1] = ~(same_track & (start[1:] <= moment[:-1]))
    inner[:-1] = same_track & ((start[1:] < end[:-1]) | (start[1:] == start[:-1]))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return moment[back], alone[back], inner[back]
