"""The events and copies of one file, joined to nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.model import schema
from tfplace.model.rows import first_rows, number_rows, order_by
from tfplace.model.trace import Note
from tfplace.names import edge_producer
from tfplace.read.raw import Numbers, RawStepStats
from tfplace.read.tables import lanes as lane_module
from tfplace.read.tables.clocks import offsets, read_times
from tfplace.read.tables.devices import Devices
from tfplace.read.tables.graph import NodeRows
from tfplace.read.tables.labels import CopyParts, gpu_of_allocator, parse_op_label
from tfplace.read.tables.lanes import KERNEL, KINDS, NODES, OP, RUNTIME, Copies, Lanes, Rows, Subjects

Int = npt.NDArray[np.int64]


class NodeIndex:
    """Finds nodes by device and name, the nodes of the same file first."""

    def __init__(self, rows: NodeRows, device: Sequence[int | None], files: dict[str, Sequence[int]]) -> None:
        self.rows = rows
        self.device = device
        self._files = files
        self._named: dict[str, list[int]] = defaultdict(list)
        for node, name in enumerate(rows.name):
            self._named[name].append(node)

    def find(self, file: int, device: int, name: str | None, op: str | None = None) -> int | None:
        """Return the one node that fits; null where none does, or several do.

        Args:
            file: Number of the file that the event is of.
            device: Device id; -1 any.
            name: Node name; null finds nothing.
            op: Op type that decides between several.
        """
        found = self._named.get(name, []) if name else []
        if len(found) > 1:
            found = [n for n in found if file in self._files.get(self.rows.graph[n], (file,))] or found
        if device >= 0:
            found = [n for n in found if self.device[n] is None or self.device[n] == device]
        if len(found) > 1 and op is not None:
            found = [n for n in found if self.rows.op[n] == op]
        return found[0] if len(found) == 1 else None


class EdgeEnds:
    """Tells a copy between two devices from one within a device: files label both 'DtoD'."""

    def __init__(self, index: NodeIndex, devices: Devices) -> None:
        self._attrs = index.rows.attrs
        self._devices = devices
        self._crosses: dict[str, bool | None] = {}
        self._producers: set[str] = set()
        for op, attrs in zip(index.rows.op, index.rows.attrs, strict=True):
            if op in ("_Send", "_HostSend", "_Recv", "_HostRecv") and "tensor_name" in attrs:
                edge, answer = str(attrs["tensor_name"]), self._between_two(attrs)
                before = self._crosses.setdefault(edge, answer)
                self._crosses[edge] = answer if answer == before else None
        kind_of = devices.table["kind"].tolist()
        kinds = [None if d is None else kind_of[d] for d in index.device]
        for src, _, dst, _, control in index.rows.edges:
            if not control and index.device[src] != index.device[dst] and kinds[src] == kinds[dst] == "GPU":
                self._producers.add(index.rows.name[src])

    def _between_two(self, attrs: dict[str, object]) -> bool:
        ends = [self._devices.find(str(attrs.get(end, ""))) for end in ("send_device", "recv_device")]
        return None not in ends and ends[0] != ends[1]

    def direction(self, part: CopyParts, node: int, device: int, ordinal: int | None) -> str | None:
        """Return the copy's direction, D2D turned to P2P where its two ends are known to be two devices."""
        if part.direction != "D2D":
            return part.direction
        crosses = self._crosses.get(part.edge_name) if part.edge_name else None
        if crosses is None and node >= 0 and "send_device" in self._attrs[node]:
            crosses = self._between_two(self._attrs[node])
        if crosses is None and part.edge_name:
            crosses = edge_producer(part.edge_name) in self._producers
        if part.destination is not None and ordinal is not None and part.destination != ordinal:
            crosses = True
        return "P2P" if crosses else "D2D"


@dataclass(frozen=True)
class FileEvents:
    """One file's events.

    Attributes:
        events: Columns of `schema.EVENTS` without event_id and step_id; times from `base_ns`.
        copies: Columns of `schema.COPIES`; event_id is the row of `events`.
        memory: Columns of `schema.MEMORY`, likewise.
        node_of_row: int64[N] over all rows of the file, node id or -1.
        base_ns: Zero of the times: nanoseconds since the epoch, or whatever the file counts from.
        notes: What was doubtful.
    """

    events: pd.DataFrame
    copies: pd.DataFrame
    memory: pd.DataFrame
    node_of_row: Int
    base_ns: int
    notes: tuple[Note, ...]


def read_events(
    file: int,
    stats: RawStepStats,
    lanes: Lanes,
    rows: Rows,
    *,
    devices: Devices,
    index: NodeIndex,
    ends: EdgeEnds,
) -> FileEvents:
    """Return the events of one file, each once, on one clock and joined to their nodes.

    Args:
        file: Number of the file.
        stats: Its rows as read.
        lanes: From `read_lanes`.
        rows: From `classify`.
        devices: All devices of the trace.
        index: All nodes of the trace.
        ends: All edges of the trace.
    """
    times = read_times(stats, np.isin(rows.kind, (OP, RUNTIME)) | (rows.content == NODES))
    keep = lane_module.keep_once(rows, times)
    notes = list(times.notes)
    if times.timed.any() and not times.timed.all():
        keep &= times.timed
        untimed = int((~times.timed).sum())
        notes.append(Note("events-without-times", f"{untimed} rows carry no time; they count as nodes only.", untimed))
    subjects = lane_module.find_subjects(rows, keep, devices.find)
    copies = lane_module.read_copies(stats, rows, lanes, keep)
    ops = Numbers()
    node_of_row, op = _join(file, rows, subjects, index, ops)
    copy_nodes = _copy_nodes(file, rows, copies, devices, index)
    node_of_row[copies.row] = copy_nodes
    op[copies.row] = ops.of([part.op for part in copies.parts])
    shift, shifted = offsets(
        times,
        keep,
        _tasks(rows.device, devices),
        _subject_codes(subjects),
        is_launch=keep & (rows.kind == OP),
        is_work=rows.kind == KERNEL,
    )
    notes.extend(shifted)
    start = times.start_ns + shift
    scheduled = times.scheduled_ns + np.where(times.scheduled_in_main, 0, shift)
    kept = np.flatnonzero(keep)
    kept = kept[order_by(start[kept], rows.lane[kept], kept)]
    lane_names = Numbers()
    lane_number = lane_names.of(stats.device_names)  # a name may come twice
    events = pd.DataFrame(
        {
            "device_id": _nullable(rows.device[kept], rows.device[kept] >= 0),
            "lane": _coded(lane_number[rows.lane[kept]] if len(kept) else rows.lane[kept], list(lane_names)),
            "thread_id": _nullable(stats.thread_id[kept], stats.thread_id[kept] != 0),
            "thread_name": _thread_names(stats, rows.lane[kept], stats.thread_id[kept]),
            "kind": _coded(rows.kind[kept], KINDS),
            "name": _coded(rows.name[kept], stats.node_name.distinct),
            "op": _coded(op[kept], list(ops)),
            "node_id": _nullable(node_of_row[kept], node_of_row[kept] >= 0),
            "scheduled_ns": _nullable(scheduled[kept], times.has_scheduled[kept]),
            "start_ns": start[kept],
            "end_ns": start[kept] + times.length_ns[kept],
            "label": _coded(rows.label[kept], stats.timeline_label.distinct),
        }
    )
    place = np.full(len(keep), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    table = _copy_table(rows, copies, copy_nodes, place, devices=devices, ends=ends)
    base = int(times.base_ns[times.main]) if len(times.base_ns) else 0
    node_of_row[rows.kind != OP] = -1  # outputs belong to the node's own run
    memory = _memory_table(stats, rows, place, devices)
    return FileEvents(events, table, memory, node_of_row, base, tuple(notes))


def _coded(codes: Int, distinct: Sequence[str]) -> pd.Categorical:
    """Return a column of `schema.CODED` without the texts that no row has; -1 is null."""
    used = np.zeros(len(distinct) + 1, dtype=np.bool_)
    used[codes] = True
    used[-1] = False
    place = np.append(np.cumsum(used[:-1]) - 1, -1)
    texts = [distinct[code] for code in np.flatnonzero(used).tolist()]
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(texts, dtype=object))


def _thread_names(stats: RawStepStats, lane: Int, thread: Int) -> pd.Categorical:
    """Return the name of each row's thread: its own lane's word, else that of any lane: some files name it once."""
    numbers = Numbers()
    if not any(stats.thread_names):
        return _coded(np.full(len(lane), -1, dtype=np.int64), [])
    anywhere: dict[int, str] = {}
    for names in stats.thread_names:
        for number, name in names.items():
            anywhere.setdefault(number, name)
    which = number_rows(lane, thread)
    first = first_rows(which)
    pairs = zip(lane[first].tolist(), thread[first].tolist(), strict=True)
    found = [stats.thread_names[own].get(number) or anywhere.get(number) or None for own, number in pairs]
    return _coded(numbers.of(found)[which], list(numbers))


def _nullable(values: Int, known: npt.NDArray[np.bool_]) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.astype(np.int64), ~known)


def _join(file: int, rows: Rows, subjects: Subjects, index: NodeIndex, ops: Numbers) -> tuple[Int, Int]:
    """Return (node id per row; op per row, numbered by `ops`), -1 unknown. Each distinct row is looked up once."""
    nodes, op_of_row = (np.full(len(rows.kind), -1, dtype=np.int64) for _ in range(2))
    named = np.flatnonzero(subjects.node >= 0)
    group = number_rows(subjects.device[named], rows.pair[named], rows.kind[named])
    first = named[first_rows(group)]
    found_nodes, found_ops = [], []
    for row in first.tolist():
        name = subjects.texts[subjects.node[row]]
        op = subjects.texts[subjects.op[row]] if subjects.op[row] >= 0 else None
        node = index.find(file, int(subjects.device[row]), name, op)
        if op is None and node is None:
            parts = parse_op_label(rows.pair_labels[rows.pair[row]], name)
            op = parts.op if parts else None
            node = index.find(file, int(subjects.device[row]), name, op) if op else None
        found_nodes.append(-1 if node is None else node)
        found_ops.append(op if op is not None or node is None else index.rows.op[node])
    if len(first):
        nodes[named] = np.array(found_nodes, dtype=np.int64)[group]
        op_of_row[named] = ops.of(found_ops)[group]
    return nodes, op_of_row


def _subject_codes(subjects: Subjects) -> Int:
    width = len(subjects.texts)
    return np.where(subjects.node >= 0, (subjects.device + 1) * width + subjects.node, -1)


def _tasks(device: Int, devices: Devices) -> Int:
    codes, _ = pd.factorize(devices.table["task"].to_numpy(dtype=object))
    codes = np.append(codes, -1).astype(np.int64)  # row of an unknown device: -1
    return codes[device] if len(device) else device


def _copy_nodes(file: int, rows: Rows, copies: Copies, devices: Devices, index: NodeIndex) -> Int:
    """Return the node in whose name each copy was made: an op on the lane's device, or a Send or Recv anywhere."""
    found = []
    known: dict[tuple[int, str, str | None], int] = {}
    for row, part, sender in zip(copies.row.tolist(), copies.parts, copies.sender, strict=True):
        if part.node_name is None:
            found.append(-1)
            continue
        device = int(rows.device[row])
        key = (device, part.node_name, sender)
        if key not in known:
            at = devices.find(sender) if sender else None
            tries = (device if part.op or at is None else at, -1)
            hits = (index.find(file, where, part.node_name) for where in tries)
            known[key] = next((node for node in hits if node is not None), -1)
        found.append(known[key])
    return np.array(found, dtype=np.int64)


def _memory_table(stats: RawStepStats, rows: Rows, place: Int, devices: Devices) -> pd.DataFrame:
    """Return what allocators had in use after the runs of ops."""
    mine = np.flatnonzero((place[stats.memory_row] >= 0) & (rows.kind[stats.memory_row] == OP))
    row, code = stats.memory_row[mine], stats.memory_allocator.codes[mine]
    mine = mine[np.argsort(place[row], kind="stable")]
    row, code = stats.memory_row[mine], stats.memory_allocator.codes[mine]
    on, which = rows.device[row], number_rows(rows.device[row], code)
    first = first_rows(which)
    texts = stats.memory_allocator.distinct
    owners = [
        devices.gpu_beside(device, gpu_of_allocator(texts[allocator]))
        for device, allocator in zip(on[first].tolist(), code[first].tolist(), strict=True)
    ]
    device = np.array(owners, dtype=np.int64)[which] if owners else which
    table: pd.DataFrame = pd.DataFrame(
        {
            "event_id": place[row],
            "device_id": _nullable(device, device >= 0),
            "allocator": _coded(code, texts),
            "in_use_bytes": stats.memory_bytes[mine],
        }
    )
    return table


def _copy_table(
    rows: Rows, copies: Copies, copy_nodes: Int, place: Int, *, devices: Devices, ends: EdgeEnds
) -> pd.DataFrame:
    ordinals = devices.table["ordinal"].tolist()
    lane_devices = rows.device[copies.row].tolist()
    directions = [
        ends.direction(part, node, device, ordinals[device] if device >= 0 else None)
        for part, node, device in zip(copies.parts, copy_nodes.tolist(), lane_devices, strict=True)
    ]
    parts = copies.parts
    table = pd.DataFrame(
        {
            "event_id": place[copies.row],
            "direction": pd.Series(directions, dtype=schema.TEXT),
            "num_bytes": pd.Series([part.num_bytes for part in parts], dtype=schema.REF),
            "src_memory": pd.Series([part.src_memory for part in parts], dtype=schema.TEXT),
            "dst_memory": pd.Series([part.dst_memory for part in parts], dtype=schema.TEXT),
            "edge_name": pd.Series([part.edge_name for part in parts], dtype=schema.TEXT),
            "node_name": pd.Series([part.node_name for part in parts], dtype=schema.TEXT),
            "op": pd.Series([part.op for part in parts], dtype=schema.TEXT),
            "device_id": _nullable(rows.device[copies.row], rows.device[copies.row] >= 0),
        }
    )
    ordered: pd.DataFrame = table.sort_values("event_id", kind="stable", ignore_index=True)
    return ordered
