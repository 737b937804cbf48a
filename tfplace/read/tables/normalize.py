"""RawTraces to one Trace: ids, one clock, every event once, and notes on all that is missing or doubtful."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfplace.errors import UsageError
from tfplace.model import schema
from tfplace.model.trace import Note, Trace
from tfplace.read.raw import RawStepStats, RawTrace
from tfplace.read.tables.devices import Devices, find_devices
from tfplace.read.tables.events import EdgeEnds, FileEvents, NodeIndex, read_events
from tfplace.read.tables.graph import NodeRows, PlacedGraph, choose_graphs, graph_requests, read_graphs
from tfplace.read.tables.inferred import infer_nodes
from tfplace.read.tables.labels import parse_recv_tensor
from tfplace.read.tables.lanes import Lanes, Rows, classify, read_lanes
from tfplace.read.tables.outputs import merge_outputs, outputs_from_attrs, outputs_from_stats
from tfplace.read.tables.quality import count_notes, find_era, merge_notes, traced_devices, untraced_notes
from tfplace.read.tables.recorded import (
    add_requests,
    choose_accelerators,
    devices_of_wholes,
    find_lines,
    mark_captured,
    recorded_notes,
)
from tfplace.read.tables.steps import assign_steps, file_step, recorded_steps, steps_table

YEAR_NS = 366 * 24 * 3600 * 1_000_000_000


def normalize(raws: Sequence[RawTrace], accelerator: str | None = None) -> Trace:
    """Return the Trace of one or more files; several files are several steps.

    Args:
        raws: What was read, in the order of the steps.
        accelerator: CPU devices to treat as accelerators: 'CPU:1', or several with commas.

    Raises:
        UsageError: `accelerator` names a device that the trace does not have.
    """
    if not raws:
        raise UsageError("No trace was given.", "Name at least one file.")
    context = _merge_contexts(raws)
    graphs = choose_graphs(raws)
    rows = read_graphs(graphs, graph_requests(raws))
    devices = _devices(raws, rows, context)
    timed = _read_stats(raws, devices)
    inferred, lost = not graphs, 0
    if inferred:
        rows, lost = infer_nodes([(f.stats, f.rows) for f in timed], devices)
        _add_requests(rows, raws)
    add_requests(rows, context)
    mark_captured(rows, context)
    node_devices = [devices.find(name) for name in rows.device]
    index = NodeIndex(rows, node_devices, {g.name: g.files for g in graphs})
    ends = EdgeEnds(index, devices)
    read = {
        f.number: read_events(f.number, f.stats, f.lanes, f.rows, devices=devices, index=index, ends=ends)
        for f in timed
    }
    table = choose_accelerators(devices, accelerator, context)
    tables, steps, moved = _join_files(raws, read)
    events, copies = tables["events"], tables["copies"]
    recorded = [outputs_from_stats(f.stats, read[f.number].node_of_row) for f in timed]
    nodes = _nodes_table(rows, node_devices, find_lines(rows, context))
    found = [note for raw in raws for note in raw.notes] + list(devices.notes) + moved
    found += [note for number in sorted(read) for note in read[number].notes]
    traced = traced_devices(events, copies)
    found += count_notes(raws, rows, inferred, lost, copies)
    found += untraced_notes(traced, table, nodes) if len(events) else []
    found += _graph_notes(graphs, raws)
    found += recorded_notes(context)
    tf_version = context.get("tf_version")
    simulated = context.get("simulated") or _simulated_by_labels(raws)
    return Trace(
        source=tuple(raw.source for raw in raws),
        format=", ".join(dict.fromkeys(raw.format for raw in raws)),
        devices=table,
        nodes=nodes,
        edges=_edges_table(rows),
        outputs=merge_outputs(recorded, outputs_from_attrs(rows)),
        events=events,
        copies=copies,
        memory=tables["memory"],
        steps=steps,
        notes=merge_notes(found),
        tf_version=str(tf_version) if tf_version else None,
        tf_era=find_era(raws, rows, context),
        simulated=str(simulated) if simulated else None,
        has_graphs=any(graph.assigned for graph in graphs),
        has_times=any(len(f.stats.node_name) for f in timed),
        has_device_times=bool(traced),
        context=context,
    )


@dataclass(frozen=True)
class _TimedFile:
    number: int
    stats: RawStepStats
    lanes: Lanes
    rows: Rows


def _read_stats(raws: Sequence[RawTrace], devices: Devices) -> list[_TimedFile]:
    files = []
    for number, raw in enumerate(raws):
        if raw.step_stats is not None:
            lanes = read_lanes(raw.step_stats, devices)
            files.append(_TimedFile(number, raw.step_stats, lanes, classify(raw.step_stats, lanes)))
    return files


def _merge_contexts(raws: Sequence[RawTrace]) -> dict[str, Any]:
    """Return what capture stored; of several files the first that has a key wins, steps stay with their files."""
    merged: dict[str, Any] = {}
    for raw in raws:
        for key, value in raw.context.items():
            merged.setdefault(key, value)
    if len(raws) > 1 and "steps" in merged:
        merged["steps"] = [step for raw in raws for step in raw.context.get("steps") or []]
    return merged


def _devices(raws: Sequence[RawTrace], rows: NodeRows, context: dict[str, Any]) -> Devices:
    lanes = [name for raw in raws if raw.step_stats for name in raw.step_stats.device_names]
    names: dict[str | None, None] = dict.fromkeys(rows.device)
    for attrs in rows.attrs:
        if "send_device" in attrs:
            names[str(attrs["send_device"])] = names[str(attrs.get("recv_device", ""))] = None
    for raw in raws:
        if raw.step_stats and "RecvTensor" in raw.step_stats.node_name:
            for found in filter(None, map(parse_recv_tensor, raw.step_stats.timeline_label.used())):
                names[found[1]] = names[found[2]] = None
    names |= dict.fromkeys(devices_of_wholes(context))
    details = context.get("devices")
    details = [d for d in details if isinstance(d, dict)] if isinstance(details, list) else []
    return find_devices(lanes, names, details)


def _add_requests(rows: NodeRows, raws: Sequence[RawTrace]) -> None:
    """Fill in what GraphDef files, read beside the times, say was asked for."""
    sources = graph_requests(raws)
    for node, name in enumerate(rows.name):
        found = (source.find(name, {}) for source in sources)
        rows.requested[node] = next((device for device in found if device is not None), None)


def _nodes_table(rows: NodeRows, device: list[int | None], lines: list[str | None]) -> pd.DataFrame:
    attrs = np.empty(len(rows.attrs), dtype=object)
    attrs[:] = rows.attrs
    frame = pd.DataFrame(
        {
            "node_id": np.arange(len(rows.name)),
            "name": pd.Series(rows.name, dtype=schema.TEXT),
            "op": pd.Series(rows.op, dtype=schema.TEXT),
            "graph": pd.Series(rows.graph, dtype=schema.TEXT),
            "device_id": pd.Series(device, dtype=schema.REF),
            "requested_device": pd.Series(rows.requested, dtype=schema.TEXT),
            "colocation_group": pd.Series(rows.colocation, dtype=schema.TEXT),
            "source": pd.Series(lines, dtype=schema.TEXT),
            "attrs": pd.Series(attrs, dtype=object),
        }
    )
    return schema.conform("nodes", frame)


def _edges_table(rows: NodeRows) -> pd.DataFrame:
    columns = list(zip(*rows.edges, strict=True)) or [(), (), (), (), ()]
    frame = pd.DataFrame(
        {
            "edge_id": np.arange(len(rows.edges)),
            "src_node_id": np.array(columns[0], dtype=np.int64),
            "src_slot": pd.Series(list(columns[1]), dtype=schema.REF),
            "dst_node_id": np.array(columns[2], dtype=np.int64),
            "dst_slot": pd.Series(list(columns[3]), dtype=schema.REF),
            "is_control": np.array(columns[4], dtype=np.bool_),
        }
    )
    return schema.conform("edges", frame)


def _join_files(
    raws: Sequence[RawTrace], read: dict[int, FileEvents]
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame, list[Note]]:
    """Return tables of all files on one time axis, their steps, and a note where the axis had to be made up."""
    zeros, notes = _zeros(raws, read)
    events: list[pd.DataFrame] = []
    about: dict[str, list[pd.DataFrame]] = {"copies": [], "memory": []}
    steps: list[dict[str, Any]] = []
    offset = 0
    for number, raw in enumerate(raws):
        file = read.get(number)
        frame = file.events if file else pd.DataFrame({"start_ns": [], "end_ns": []})
        windows = recorded_steps(raw.context, file.base_ns if file and len(frame) else 0)
        windows = windows or ([file_step(frame)] if _is_step(raw) else [])
        shift = zeros[number]
        if file and len(frame):
            local = assign_steps(frame, windows)
            # each file's frame is its own: changing it in place spares a copy of all columns
            frame["step_id"] = pd.arrays.IntegerArray(local + len(steps), local < 0)
            frame["start_ns"] += shift
            frame["end_ns"] += shift
            frame["scheduled_ns"] += shift
            events.append(frame)
            for name, frames in about.items():
                frames.append(getattr(file, name).assign(event_id=getattr(file, name)["event_id"] + offset))
            offset += len(frame)
        for step in windows:
            for key in ("start_ns", "end_ns"):
                step[key] = None if step[key] is None else step[key] + shift
        steps.extend(windows)
    return _sorted_tables(events, about), steps_table(steps), notes


def _simulated_by_labels(raws: Sequence[RawTrace]) -> str | None:
    """Return what the kernel labels of a simulated GPU say, where what capture stored was lost on the way."""
    for raw in raws:
        if raw.step_stats and any("simulated:1" in label for label in raw.step_stats.timeline_label.used()):
            return "simulated GPU, by the labels of its kernels"
    return None


def _is_step(raw: RawTrace) -> bool:
    return raw.step_stats is not None or any(graph.role == "partition" for graph in raw.graphs)


def _zeros(raws: Sequence[RawTrace], read: dict[int, FileEvents]) -> tuple[dict[int, int], list[Note]]:
    """Return what to add to each file's times so that the first believable moment of the trace is 0."""
    bases: dict[int, int] = {}
    lengths: dict[int, int] = {}
    for number, raw in enumerate(raws):
        file = read.get(number)
        starts = file.events["start_ns"] if file else pd.Series([], dtype="int64")
        if file and len(starts):
            bases[number] = file.base_ns + int(starts.min())
            lengths[number] = int(file.events["end_ns"].max() - starts.min())
        else:
            known = [s["start_ns"] for s in recorded_steps(raw.context, 0) if s["start_ns"] is not None]
            if known:
                bases[number] = min(known)
    if not bases:
        return dict.fromkeys(range(len(raws)), 0), []
    numbers = sorted(bases, key=lambda n: (n not in read, n))  # files with events set the axis
    first = bases[numbers[0]]
    together = [n for n in numbers if abs(bases[n] - first) <= YEAR_NS]
    origin = min(bases[n] for n in together)
    zeros = dict.fromkeys(range(len(raws)), 0)
    end = max(bases[n] + lengths.get(n, 0) for n in together) - origin
    for number in numbers:
        base = read[number].base_ns if number in read and number in lengths else 0
        if number in together:
            zeros[number] = base - origin
        else:  # another clock altogether: put behind what is known
            zeros[number] = end - (bases[number] - base)
            end += lengths.get(number, 0)
    apart = len(numbers) - len(together)
    text = f"{apart} files count time from another zero than the first; they were put behind one another."
    return zeros, [Note("clock-rebased", text, apart)] if apart else []


def _sorted_tables(events: list[pd.DataFrame], about: dict[str, list[pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Join the files' events in order of time, and the tables that speak of events."""
    if not events:
        return {name: schema.empty(name) for name in ("events", *about)}
    joined = _stacked(events)
    tables = {name: _stacked(frames) for name, frames in about.items()}
    if len(events) > 1:
        order = np.argsort(joined["start_ns"].to_numpy(), kind="stable")
        joined = joined.iloc[order].reset_index(drop=True)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        for name, table in tables.items():
            moved = table.assign(event_id=place[table["event_id"].to_numpy(dtype=np.int64)])
            tables[name] = moved.sort_values("event_id", kind="stable", ignore_index=True)
    joined["event_id"] = np.arange(len(joined))
    return {name: schema.conform(name, table) for name, table in {"events": joined, **tables}.items()}


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _graph_notes(graphs: Iterable[PlacedGraph], raws: Sequence[RawTrace]) -> list[Note]:
    notes = []
    if any(not graph.assigned for graph in graphs):
        text = "A GraphDef says where nodes were asked to be, not where they were: assigned devices are unknown."
        notes.append(Note("requests-only", text))
    sets = {tuple(graph.files) for graph in graphs if graph.assigned}
    if len(raws) > 1 and len(sets) > 1:
        text = (
            f"The files hold {len(sets)} different sets of graphs: are they steps of one program? Counts and bytes per "
            "step are means over all of them, and nodes of the same name may stand more than once."
        )
        notes.append(Note("several-graphs", text, len(sets)))
    return notes
