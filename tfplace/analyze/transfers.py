"""Transfers: each copy seen and each edge that crosses, joined, with what it carries and for whom.

A copy meets its edge by name (the tensor_name of the `_Send` is the copy's edge name), by the name of
its Send or Recv node, or, where the copies have no names, by device, direction and byte size in order:
only when there are as many such copies as such edges, since a guess is worse than none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.analyze.cargo import Freight
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.inferred import device_arguments, ends_of_eager_copy, ends_of_named_copy, ends_of_op_copy
from tfplace.analyze.pairs import HostDevices
from tfplace.analyze.runs import Runs, graph_group
from tfplace.model import schema
from tfplace.model.rows import first_rows, number_rows, python_rows, python_values
from tfplace.model.trace import Trace

Row = dict[str, Any]
Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Copy:
    """What a copy says of itself; the same in every step. Null where not recorded."""

    device_id: int | None
    direction: str | None
    num_bytes: int | None
    src_memory: str | None
    dst_memory: str | None
    edge_name: str | None
    node_name: str | None
    op: str | None


@dataclass(frozen=True)
class Copies:
    """The copies of a trace in order of start, then event.

    Attributes:
        alike: What distinct copies say of themselves.
        code: int64[M], index into `alike`.
        times: event_id, step_id, start_ns and end_ns of each.
    """

    alike: list[Copy]
    code: Int
    times: pd.DataFrame


def read_copies(trace: Trace) -> Copies:
    """Return all copies of a trace."""
    times = trace.events[["event_id", "step_id", "start_ns", "end_ns"]].iloc[trace.copies["event_id"].to_numpy()]
    order = np.lexsort((times["event_id"], times["start_ns"]))
    said = trace.copies[[column.name for column in fields(Copy)]].iloc[order]
    code = number_rows(*(said[name] for name in said.columns))
    alike = [Copy(*row) for row in python_rows(said.iloc[first_rows(code)])]
    return Copies(alike, code, times.iloc[order].reset_index(drop=True))


class _Joiner:
    """Finds the edge of a copy."""

    def __init__(self, flow: Dataflow, freights: list[Freight]) -> None:
        self._by_edge: dict[str, list[int]] = defaultdict(list)
        self._by_node: dict[str, list[int]] = defaultdict(list)
        self._by_size: dict[tuple[int | None, str, int | None], list[int]] = defaultdict(list)
        self._freights = freights
        self._flow = flow
        for index, freight in enumerate(freights):
            if freight.pair.is_control:
                continue
            self._by_edge[freight.pair.edge_name].append(index)
            for end in (freight.pair.send, freight.pair.recv):
                self._by_node[flow.name[end]].append(index)
            if freight.num_bytes is not None:
                for device in {freight.pair.src_device, freight.pair.dst_device}:
                    self._by_size[device, freight.pair.direction, freight.num_bytes].append(index)

    def by_name(self, copy: Copy) -> list[int]:
        """Return the freights whose edge, Send or Recv the copy names; several where several functions have one."""
        candidates = self._by_edge.get(copy.edge_name or "", [])
        if not candidates and copy.node_name:
            candidates = self._by_node.get(copy.node_name, [])
        return self._choose(copy, candidates)

    def _choose(self, copy: Copy, candidates: list[int]) -> list[int]:
        fitting = [i for i in candidates if self._freights[i].pair.direction == copy.direction]
        here = [i for i in fitting if copy.device_id in self._devices(i)]
        best = here or fitting or candidates
        return [i for i in best if self._freights[i].num_bytes == copy.num_bytes] or best

    def _devices(self, index: int) -> tuple[int, ...]:
        """Accelerators at either end; a host-memory end still belongs to its node's device."""
        pair = self._freights[index].pair
        return self._flow.device[pair.send], self._flow.device[pair.recv]

    def by_order(self, copies: list[tuple[int, Copy]], taken: set[int]) -> dict[int, int]:
        """Join nameless copies of one step by device, direction and size; returns {number of the copy: freight}."""
        groups: dict[tuple[int | None, str, int | None], list[int]] = defaultdict(list)
        for number, copy in copies:
            if copy.direction and copy.num_bytes and copy.op is None:
                groups[copy.device_id, copy.direction, copy.num_bytes].append(number)
        joined: dict[int, int] = {}
        for key, members in groups.items():
            free = [i for i in self._by_size.get(key, []) if i not in taken]
            if len(free) == len(members):
                joined.update(zip(members, free, strict=True))
        return joined


def _join(trace: Trace, flow: Dataflow, copies: Copies, freights: list[Freight]) -> tuple[Int, Int]:
    """Return the index of each copy's freight, and one that each of `copies.alike` names; -1 where none is known."""
    joiner = _Joiner(flow, freights)
    fitting = [joiner.by_name(copy) for copy in copies.alike]
    named = np.array([found[0] if found else -1 for found in fitting], dtype=np.int64)
    nameless = np.array([copy.edge_name is None for copy in copies.alike], dtype=np.bool_)
    joined = named[copies.code]
    _tell_functions_apart(trace, flow, copies, freights, fitting=fitting, joined=joined)
    open_rows = np.flatnonzero((joined < 0) & nameless[copies.code])
    if not len(open_rows):
        return joined, named
    step = copies.times["step_id"].fillna(-1).to_numpy(dtype=np.int64)
    members: dict[int, list[tuple[int, Copy]]] = defaultdict(list)
    for row in open_rows.tolist():
        members[int(step[row])].append((row, copies.alike[copies.code[row]]))
    for number, rows in members.items():
        taken = set(joined[(step == number) & (joined >= 0)].tolist())
        for row, index in joiner.by_order(rows, taken).items():
            joined[row] = index
    return joined, named


def _tell_functions_apart(
    trace: Trace, flow: Dataflow, copies: Copies, freights: list[Freight], *, fitting: list[list[int]], joined: Int
) -> None:
    """Give a copy whose name stands in several functions (an argument `x` of each) to the one that ran at its time."""
    groups = [{index: graph_group(flow, freights[index].pair.send) for index in found} for found in fitting]
    unclear = np.array([len(set(of.values())) > 1 for of in groups], dtype=np.bool_)
    rows = np.flatnonzero(unclear[copies.code])
    if not len(rows):
        return
    runs = Runs(trace, flow)
    steps, starts = python_values(copies.times["step_id"]), copies.times["start_ns"].tolist()
    for row in rows.tolist():
        far = {
            index: runs.distance(group, steps[row], starts[row]) for index, group in groups[copies.code[row]].items()
        }
        joined[row] = min(far, key=far.__getitem__)


def _steps_of_graphs(trace: Trace) -> dict[str, set[int]]:
    """Return {graph group: steps in which any of its nodes was timed}."""
    timed = trace.events.loc[trace.events["node_id"].notna() & trace.events["step_id"].notna(), ["node_id", "step_id"]]
    timed = timed.drop_duplicates()
    groups = [str(graph).partition("/")[0] for graph in trace.nodes["graph"].fillna("").tolist()]
    found: dict[str, set[int]] = defaultdict(set)
    for node, step in zip(timed["node_id"].tolist(), timed["step_id"].tolist(), strict=True):
        found[groups[node]].add(step)
    return found


def build_transfers(
    trace: Trace,
    flow: Dataflow,
    freights: list[Freight],
    *,
    owner: dict[int, int],
    hosts: HostDevices,
    exposed_ns: dict[int, int],
) -> pd.DataFrame:
    """Return the transfers table.

    Args:
        trace: The trace.
        flow: Its dataflow.
        freights: Its Send / Recv pairs with their loads.
        owner: {node: variable id}, see `variables.owners`.
        hosts: Host device of each task.
        exposed_ns: {event id: copy time not hidden behind kernels}; {} where kernels were not timed.

    Returns:
        Table `transfers`: every copy once, then each edge in each step in which no copy of it was seen.
    """
    copies = read_copies(trace)
    freight, named = _join(trace, flow, copies, freights)
    seen = _Seen(flow, freights, owner, hosts, device_arguments(flow))
    both = number_rows(copies.code, freight)
    first = first_rows(both)
    alike = [
        seen.row(copies.alike[code], index, "name" if named[code] >= 0 else "order")
        for code, index in zip(copies.code[first].tolist(), freight[first].tolist(), strict=True)
    ]
    timed = copies.times.assign(exposed_ns=copies.times["event_id"].map(exposed_ns)) if exposed_ns else copies.times
    frames = [_with_times(alike, both, timed)] if alike else []
    known = set(zip(freight.tolist(), python_values(copies.times["step_id"]), strict=True))
    unseen = _unseen(trace, flow, freights, known)
    if unseen:
        frames.append(_conform(unseen))
    if not frames:
        return schema.empty("transfers")
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    numbered: pd.DataFrame = frame.assign(transfer_id=np.arange(len(frame)))
    return numbered


def _conform(rows: list[Row]) -> pd.DataFrame:
    return schema.conform("transfers", pd.DataFrame(rows).assign(transfer_id=0))


def _with_times(alike: list[Row], number: Int, times: pd.DataFrame) -> pd.DataFrame:
    """Return one row per copy: what is the same in every step, and the times of each."""
    frame = _conform(alike).iloc[number].reset_index(drop=True)
    return schema.conform("transfers", frame.assign(**{str(name): times[name].array for name in times.columns}))


def _unseen(trace: Trace, flow: Dataflow, freights: list[Freight], seen: set[tuple[int, int | None]]) -> list[Row]:
    """Rows of the edges that no copy was seen for, in each step in which their graph ran."""
    all_steps: list[int] = trace.steps["step_id"].tolist()
    ran = _steps_of_graphs(trace)
    rows = []
    for index, freight in enumerate(freights):
        group = graph_group(flow, freight.pair.send)
        steps: list[int | None] = [*sorted(ran[group])] if ran.get(group) else [*all_steps] or [None]
        rows += [
            {**freight.row(flow), "step_id": step, "evidence": "send_recv", "join": "none"}
            for step in steps
            if (index, step) not in seen
        ]
    return rows


@dataclass(frozen=True)
class _Seen:
    """Describes copies that were seen."""

    flow: Dataflow
    freights: list[Freight]
    owner: dict[int, int]
    hosts: HostDevices
    inputs: dict[int, list[int]]

    def row(self, copy: Copy, freight: int, join: str) -> Row:
        """Return the columns of `transfers` that are the same in every step.

        Args:
            copy: What the copy says of itself.
            freight: Index of the freight that it carries; -1 where none is known.
            join: How the two met.
        """
        if freight < 0:
            return {**self._from_copy(copy, None), **self._guess_ends(copy)}
        edge = self.freights[freight].row(self.flow)
        return {**edge, **self._from_copy(copy, edge), "evidence": "both", "join": join}

    def _from_copy(self, copy: Copy, edge: Row | None) -> Row:
        """What the copy itself tells; ends known from the edge stay, since a lane names only one GPU."""
        row: Row = {"direction": copy.direction or (edge or {}).get("direction")}
        if copy.num_bytes is not None:
            row["num_bytes"] = copy.num_bytes
        for end, memory in (("src_memory", copy.src_memory), ("dst_memory", copy.dst_memory)):
            if memory is not None:
                row[end] = memory
        if edge is None:
            host = self.hosts.beside(copy.device_id)
            row["src_device_id"] = host if copy.direction == "H2D" else copy.device_id
            row["dst_device_id"] = host if copy.direction == "D2H" else copy.device_id
            if copy.direction in ("P2P", None):
                row["dst_device_id"] = None
                row["src_device_id"] = None if copy.direction is None else copy.device_id
            row.update(evidence="memcpy", join="none", rows_only=False, edge_name=None, inside_op=copy.op)
        return row

    def _guess_ends(self, copy: Copy) -> Row:
        """Name a copy that no edge of a graph explains, from its own names."""
        eager = copy.edge_name in (None, "copy") and not copy.node_name and copy.direction == "H2D"
        if eager and copy.num_bytes is not None:
            return ends_of_eager_copy(self.flow, self.inputs.get(copy.num_bytes, []))
        if copy.edge_name is not None:
            return ends_of_named_copy(self.flow, copy.edge_name, copy.direction, copy.num_bytes, self.owner)
        if copy.node_name:
            return ends_of_op_copy(self.flow, copy.node_name, copy.direction)
        return {"tensor_name": "(unattributed)", "category": "unknown", "consumer_node_ids": ()}
