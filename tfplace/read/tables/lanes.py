"""The rows of one file's step_stats, each event once: what kind each is, on which device, in whose name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.model.rows import number_rows
from tfplace.names import parse_device
from tfplace.read.raw import Numbers, RawStepStats
from tfplace.read.tables import labels
from tfplace.read.tables.clocks import Times
from tfplace.read.tables.devices import Devices

KINDS = ("op", "kernel", "memcpy", "memset", "sync", "runtime", "annotation")
OP, KERNEL, MEMCPY, MEMSET, SYNC, RUNTIME, ANNOTATION = range(len(KINDS))

# what a lane holds; an event of a device stands on one of its streams, and again on a summary lane
NODES, THREADS, SYNCS, STREAM, ALL_STREAMS, COPIES, UNKNOWN_STREAM = range(7)

_MEMORY_WORDS = ("emcpy", "EMCPY", "emset", "EMSET")

_SUMMARIES = {"": NODES, "memcpy": COPIES, "stream:all": ALL_STREAMS, "stream:": UNKNOWN_STREAM}

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Lanes:
    """What each DeviceStepStats of a file is.

    Attributes:
        device: int64 per lane, device id; -1 unknown.
        content: int64 per lane: NODES, THREADS, SYNCS, STREAM, ALL_STREAMS, COPIES or UNKNOWN_STREAM.
        own: The lane's own part of the name: 'stream:14<MemcpyH2D>'.
    """

    device: Int
    content: Int
    own: list[str]


def read_lanes(stats: RawStepStats, devices: Devices) -> Lanes:
    """Tell what each lane of a file is."""
    found = [devices.find(name) for name in stats.device_names]
    parsed = [parse_device(name) for name in stats.device_names]
    return Lanes(
        np.array([-1 if number is None else number for number in found], dtype=np.int64),
        np.array([_content(name) for name in parsed], dtype=np.int64),
        [name.lane for name in parsed],
    )


def _content(name: Any) -> int:
    if name.host_threads or name.type is None:
        return THREADS
    lane = name.lane
    if name.kind == "CPU" and lane:
        return THREADS
    return SYNCS if lane.startswith("sync") else _SUMMARIES.get(lane, STREAM)


@dataclass(frozen=True)
class Rows:
    """Codes and kinds of the rows of one file.

    Attributes:
        device: int64[N], device id of the row's lane; -1 unknown.
        content: int64[N], what the lane is.
        lane: int64[N], lane number.
        kind: int64[N], index into KINDS.
        name: int64[N], index into `names`.
        pair: int64[N], index into `pair_names` and `pair_labels`.
        names: Distinct node names.
        pair_names: Name of each distinct pair of name and label.
        pair_labels: Label of each.
        label: int64[N], index into the file's distinct labels.
    """

    device: Int
    content: Int
    lane: Int
    kind: Int
    name: Int
    pair: Int
    names: npt.NDArray[np.object_]
    pair_names: npt.NDArray[np.object_]
    pair_labels: npt.NDArray[np.object_]
    label: Int


def classify(stats: RawStepStats, lanes: Lanes) -> Rows:
    """Tell the kind of every row; labels are looked at once each, however often they stand."""
    name, names = stats.node_name.codes, _objects(stats.node_name.distinct)
    label, texts = stats.timeline_label.codes, _objects(stats.timeline_label.distinct)
    pair, pairs = pd.factorize(name * max(len(texts), 1) + label)
    pair_names = names[pairs // max(len(texts), 1)]
    pair_labels = texts[pairs % max(len(texts), 1)]
    lane = stats.device.astype(np.int64)
    content = lanes.content[lane] if len(lane) else np.zeros(0, dtype=np.int64)
    kind = np.select([content == THREADS, content == SYNCS], [RUNTIME, SYNC], default=OP)
    on_device = np.flatnonzero(content >= STREAM)
    where, distinct = pd.factorize(pair[on_device] * max(len(lanes.own), 1) + lane[on_device])
    kinds = [
        _device_kind(pair_names[code // len(lanes.own)], pair_labels[code // len(lanes.own)], lanes, code)
        for code in distinct.tolist()
    ]
    kind[on_device] = np.array(kinds, dtype=np.int64)[where]
    received = np.flatnonzero((content == NODES) & (name == _code_of(names, "RecvTensor")))
    if len(received):
        is_transfer = np.array([labels.parse_recv_tensor(text) is not None for text in pair_labels[pair[received]]])
        kind[received[is_transfer]] = MEMCPY
    device = lanes.device[lane] if len(lane) else np.zeros(0, dtype=np.int64)
    return Rows(
        device=device,
        content=content,
        lane=lane,
        kind=kind,
        name=name,
        pair=pair.astype(np.int64),
        names=names,
        pair_names=pair_names,
        pair_labels=pair_labels,
        label=label,
    )


def _code_of(names: npt.NDArray[np.object_], text: str) -> int:
    found = np.flatnonzero(names == text)
    return int(found[0]) if len(found) else -1


def _device_kind(name: str, label: str, lanes: Lanes, code: int) -> int:
    number = code % len(lanes.own)
    own, content = lanes.own[number], lanes.content[number]
    if content in (STREAM, ALL_STREAMS) and not any(
        word in text for text in (name, label, own) for word in _MEMORY_WORDS
    ):
        return KERNEL
    if labels.is_memset(name, label, own):
        return MEMSET
    if content == COPIES or labels.is_copy(name, label, own):
        return MEMCPY
    return ANNOTATION if content == UNKNOWN_STREAM else KERNEL


def keep_once(rows: Rows, times: Times) -> Bool:
    """Return which rows to keep so that every event of a device stands once.

    A kernel or copy stands on a stream of its own and again on '/stream:all' or '/memcpy'; some files lack the one
    or the other. Two equal rows of one lane are two events: of every group of equal rows as many are kept as the
    kind of lane with most of them has. The stream's own row is preferred: its lane tells the direction of a copy.
    """
    keep = np.ones(len(rows.kind), dtype=np.bool_)
    believed = times.timed | (not times.timed.any())
    twice = np.flatnonzero((rows.content >= STREAM) & (rows.content != UNKNOWN_STREAM) & believed)
    if not len(twice):
        return keep
    where = rows.device[twice], rows.pair[twice], times.cluster[twice]
    same = number_rows(*where, times.start_ns[twice], times.length_ns[twice])
    place = same * (UNKNOWN_STREAM + 1) + rows.content[twice]
    # of equal rows on one kind of lane, which is it? there is hardly ever more than one
    nth = pd.Series(place).groupby(place).cumcount().to_numpy() if pd.Series(place).duplicated().any() else 0 * place
    order = np.argsort(rows.content[twice], kind="stable")
    repeated = pd.Series(number_rows(same, nth)[order]).duplicated(keep="first").to_numpy()
    keep[twice[order[repeated]]] = False
    kept = twice[order[~repeated]]
    frame = pd.DataFrame(
        {
            "row": kept,
            "content": rows.content[kept],
            "device": rows.device[kept],
            "pair": rows.pair[kept],
            "cluster": times.cluster[kept],
        }
    )
    foreign = frame["cluster"] != times.main
    if foreign.any() and not foreign.all():
        keep[_known_elsewhere(frame[foreign], frame[~foreign], rows, times, twice)] = False
    return keep


def _known_elsewhere(foreign: pd.DataFrame, main: pd.DataFrame, rows: Rows, times: Times, twice: Int) -> Int:
    """Return the foreign-clock rows that a lane with believable times has as well."""
    believed = twice[times.cluster[twice] == times.main]
    counts = (
        pd.DataFrame({"device": rows.device[believed], "pair": rows.pair[believed], "content": rows.content[believed]})
        .value_counts()
        .rename("count")
        .reset_index()
    )
    most = counts.groupby(["device", "pair"])["count"].max().rename("most").reset_index()
    left = foreign.assign(nth=foreign.groupby(["device", "pair", "content"], sort=False).cumcount())
    left = left.merge(most, on=["device", "pair"], how="left", validate="m:1")
    left = left.merge(counts, on=["device", "pair", "content"], how="left", validate="m:1")
    spare = left["most"].fillna(0) - left["count"].fillna(0)
    found: Int = left.loc[left["nth"] < spare, "row"].to_numpy(dtype=np.int64)
    return found


@dataclass(frozen=True)
class Subjects:
    """In whose name each row ran.

    Attributes:
        node: int64[N], node name as an index into `texts`; -1 unknown.
        op: int64[N], op type likewise.
        device: int64[N], device to look the node up on; -1 any.
        texts: Names and op types.
    """

    node: Int
    op: Int
    device: Int
    texts: list[str]


def find_subjects(rows: Rows, keep: Bool, find_device: Callable[[str | None], int | None]) -> Subjects:
    """Read node and op off the names of kernels, copies and host threads' rows, each distinct name once.

    The rows of NODES lanes are named after their node; their op is left to the graph or the label.
    """
    node, op = (np.full(len(rows.kind), -1, dtype=np.int64) for _ in range(2))
    device = rows.device.copy()
    numbers = Numbers(zip(rows.names.tolist(), range(len(rows.names)), strict=True))
    plain = keep & (rows.content == NODES) & (rows.kind == OP)
    node[plain] = rows.name[plain]
    named = np.flatnonzero(keep & np.isin(rows.kind, (KERNEL, RUNTIME, MEMSET)))
    where, distinct = pd.factorize(rows.pair[named])
    parts = [labels.parse_annotation(rows.pair_names[code], rows.pair_labels[code]) for code in distinct.tolist()]
    node[named] = numbers.of([part[0] for part in parts])[where]
    op[named] = numbers.of([part[1] for part in parts])[where]
    threads = rows.kind[named] == RUNTIME
    if threads.any():  # a host thread works for any device: its label says which
        stated = [find_device(labels.parse_device_metadata(rows.pair_labels[code])) for code in distinct.tolist()]
        found = np.array([-1 if number is None else number for number in stated], dtype=np.int64)[where]
        device[named[threads]] = np.where(found >= 0, found, device[named])[threads]
    return Subjects(node, op, device, list(numbers))


def _objects(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@dataclass(frozen=True)
class Copies:
    """The rows of kind memcpy.

    Attributes:
        row: int64[M], row number.
        parts: What each says.
        sender: Device name in each row's own annotation; null where it has none.
    """

    row: Int
    parts: list[labels.CopyParts]
    sender: list[str | None]


def read_copies(stats: RawStepStats, rows: Rows, lanes: Lanes, keep: Bool) -> Copies:
    """Return what the rows of copies say."""
    row = np.flatnonzero(keep & (rows.kind == MEMCPY))
    known: dict[tuple[int, int], tuple[labels.CopyParts, str | None]] = {}
    parts, senders = [], []
    received = _received_bytes(stats, row[rows.content[row] == NODES])
    for number, pair, lane in zip(row.tolist(), rows.pair[row].tolist(), rows.lane[row].tolist(), strict=True):
        found = known.get((pair, lane))
        if found is None:
            name, label = rows.pair_names[pair], rows.pair_labels[pair]
            found = (
                (labels.parse_copy(name, label, lanes.own[lane]), labels.parse_device_metadata(name))
                if lanes.content[lane] != NODES
                else _received(label)
            )
            known[pair, lane] = found
        part, sender = found
        if number in received:
            part = labels.CopyParts(part.direction, received[number], edge_name=part.edge_name)
        parts.append(part)
        senders.append(sender)
    return Copies(row, parts, senders)


def _received(label: str) -> tuple[labels.CopyParts, str | None]:
    """Describe a tensor that came from another worker: it crosses from host to host whatever its ends are."""
    found = labels.parse_recv_tensor(label)
    return (labels.CopyParts("H2H", edge_name=found[0]), found[1]) if found else (labels.CopyParts(), None)


def _received_bytes(stats: RawStepStats, rows: Int) -> dict[int, int]:
    if not len(rows):
        return {}
    mine = np.isin(stats.output_row, rows) & (stats.output_bytes >= 0)
    return dict(zip(stats.output_row[mine].tolist(), stats.output_bytes[mine].tolist(), strict=True))
