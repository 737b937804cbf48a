"""Transfers: each copy seen and each edge that crosses, joined, with what it carries and for whom.

A copy meets its edge by name (the tensor_name of the `_Send` is the copy's edge name), by the name of
its Send or Recv node, or, where the copies have no names, by device, direction and byte size in order:
only when there are as many such copies as such edges, since a guess is worse than none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tfplace.analyze.cargo import Freight
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.inferred import device_arguments, ends_of_eager_copy, ends_of_named_copy, ends_of_op_copy
from tfplace.analyze.pairs import HostDevices
from tfplace.model import schema
from tfplace.model.rows import python_rows
from tfplace.model.trace import Trace

Row = dict[str, Any]


@dataclass(frozen=True)
class Copy:
    """One memcpy event with its details; null where not recorded."""

    event_id: int
    step_id: int | None
    start_ns: int
    end_ns: int
    device_id: int | None
    direction: str | None
    num_bytes: int | None
    src_memory: str | None
    dst_memory: str | None
    edge_name: str | None
    node_name: str | None
    op: str | None


def read_copies(trace: Trace) -> list[Copy]:
    """Return the copies in order of start, then event."""
    if trace.copies.empty:
        return []
    times = trace.events[["event_id", "step_id", "start_ns", "end_ns"]]
    merged = trace.copies.merge(times, on="event_id", how="left", validate="one_to_one")
    merged = merged.sort_values(["start_ns", "event_id"])
    names = ["event_id", "step_id", "start_ns", "end_ns", "device_id", "direction", "num_bytes"]
    names += ["src_memory", "dst_memory", "edge_name", "node_name", "op"]
    return [Copy(*row) for row in python_rows(merged[names])]


class _Joiner:
    """Finds the edge of a copy."""

    def __init__(self, flow: Dataflow, freights: list[Freight]) -> None:
        self._by_edge: dict[str, list[int]] = defaultdict(list)
        self._by_node: dict[str, list[int]] = defaultdict(list)
        self._by_size: dict[tuple[int | None, str, int | None], list[int]] = defaultdict(list)
        self._freights = freights
        self._flow = flow
        self._cache: dict[tuple[Any, ...], int | None] = {}
        for index, freight in enumerate(freights):
            if freight.pair.is_control:
                continue
            self._by_edge[freight.pair.edge_name].append(index)
            for end in (freight.pair.send, freight.pair.recv):
                self._by_node[flow.name[end]].append(index)
            if freight.num_bytes is not None:
                for device in {freight.pair.src_device, freight.pair.dst_device}:
                    self._by_size[device, freight.pair.direction, freight.num_bytes].append(index)

    def by_name(self, copy: Copy) -> int | None:
        """Return the index of the freight whose edge, Send or Recv the copy names; null where none or several fit."""
        key = (copy.edge_name, copy.node_name, copy.device_id, copy.direction)
        if key not in self._cache:
            candidates = self._by_edge.get(copy.edge_name or "", [])
            if not candidates and copy.node_name:
                candidates = self._by_node.get(copy.node_name, [])
            self._cache[key] = self._choose(copy, candidates)
        return self._cache[key]

    def _choose(self, copy: Copy, candidates: list[int]) -> int | None:
        fitting = [i for i in candidates if self._freights[i].pair.direction == copy.direction]
        here = [i for i in fitting if copy.device_id in self._devices(i)]
        best = here or fitting or candidates
        return best[0] if best else None

    def _devices(self, index: int) -> tuple[int, ...]:
        """Accelerators at either end; a host-memory end still belongs to its node's device."""
        pair = self._freights[index].pair
        return self._flow.device[pair.send], self._flow.device[pair.recv]

    def by_order(self, copies: list[Copy], taken: set[int]) -> dict[int, int]:
        """Join nameless copies of one step by device, direction and size; returns {event: freight}."""
        groups: dict[tuple[int | None, str, int | None], list[Copy]] = defaultdict(list)
        for copy in copies:
            if copy.direction and copy.num_bytes and copy.op is None:
                groups[copy.device_id, copy.direction, copy.num_bytes].append(copy)
        joined = {}
        for key, members in groups.items():
            free = [i for i in self._by_size.get(key, []) if i not in taken]
            if len(free) == len(members):
                joined.update({copy.event_id: i for copy, i in zip(members, free, strict=True)})
        return joined


def _join(flow: Dataflow, copies: list[Copy], freights: list[Freight]) -> dict[int, tuple[int, str]]:
    """Return {event: (freight index, 'name' or 'order')}."""
    joiner = _Joiner(flow, freights)
    joined: dict[int, tuple[int, str]] = {}
    nameless: dict[int | None, list[Copy]] = defaultdict(list)
    taken: dict[int | None, set[int]] = defaultdict(set)
    for copy in copies:
        index = joiner.by_name(copy)
        if index is not None:
            joined[copy.event_id] = (index, "name")
            taken[copy.step_id].add(index)
        elif copy.edge_name is None:
            nameless[copy.step_id].append(copy)
    for step, members in nameless.items():
        for event, index in joiner.by_order(members, taken[step]).items():
            joined[event] = (index, "order")
    return joined


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
    joined = _join(flow, copies, freights)
    inputs = device_arguments(flow)
    rows: list[Row] = []
    seen: set[tuple[int, int | None]] = set()
    for copy in copies:
        match = joined.get(copy.event_id)
        if match is None:
            rows.append({**_from_copy(copy, hosts, None), **_guess_ends(flow, copy, owner, inputs)})
        else:
            seen.add((match[0], copy.step_id))
            edge = freights[match[0]].row(flow)
            timed = _from_copy(copy, hosts, edge)
            rows.append({**edge, **timed, "evidence": "both", "join": match[1]})
    rows += _unseen(trace, flow, freights, seen)
    for row in rows:
        event = row.get("event_id")
        row["exposed_ns"] = exposed_ns.get(event) if event is not None else None
    frame = pd.DataFrame(rows)
    if frame.empty:
        return schema.empty("transfers")
    frame["transfer_id"] = range(len(frame))
    return schema.conform("transfers", frame)


def _unseen(trace: Trace, flow: Dataflow, freights: list[Freight], seen: set[tuple[int, int | None]]) -> list[Row]:
    """Rows of the edges that no copy was seen for, in each step in which their graph ran."""
    all_steps: list[int] = trace.steps["step_id"].tolist()
    ran = _steps_of_graphs(trace)
    rows = []
    for index, freight in enumerate(freights):
        group = flow.graph[freight.pair.send].partition("/")[0]
        steps: list[int | None] = [*sorted(ran[group])] if ran.get(group) else [*all_steps] or [None]
        rows += [
            {**freight.row(flow), "step_id": step, "evidence": "send_recv", "join": "none"}
            for step in steps
            if (index, step) not in seen
        ]
    return rows


def _from_copy(copy: Copy, hosts: HostDevices, edge: Row | None) -> Row:
    """What the copy itself tells; ends known from the edge stay, since a lane names only one GPU."""
    row: Row = {
        "step_id": copy.step_id,
        "direction": copy.direction or (edge or {}).get("direction"),
        "start_ns": copy.start_ns,
        "end_ns": copy.end_ns,
        "event_id": copy.event_id,
    }
    if copy.num_bytes is not None:
        row["num_bytes"] = copy.num_bytes
    for end, memory in (("src_memory", copy.src_memory), ("dst_memory", copy.dst_memory)):
        if memory is not None:
            row[end] = memory
    if edge is None:
        host = hosts.beside(copy.device_id)
        row["src_device_id"] = host if copy.direction == "H2D" else copy.device_id
        row["dst_device_id"] = host if copy.direction == "D2H" else copy.device_id
        if copy.direction in ("P2P", None):
            row["dst_device_id"] = None
            row["src_device_id"] = None if copy.direction is None else copy.device_id
        row.update(evidence="memcpy", join="none", rows_only=False, edge_name=None, inside_op=copy.op)
    return row


def _guess_ends(flow: Dataflow, copy: Copy, owner: dict[int, int], inputs: dict[int, list[int]]) -> Row:
    """Name a copy that no edge of a graph explains, from its own names."""
    eager = copy.edge_name in (None, "copy") and not copy.node_name and copy.direction == "H2D"
    if eager and copy.num_bytes is not None:
        return ends_of_eager_copy(flow, inputs.get(copy.num_bytes, []))
    if copy.edge_name is not None:
        return ends_of_named_copy(flow, copy.edge_name, copy.direction, copy.num_bytes, owner)
    if copy.node_name:
        return ends_of_op_copy(flow, copy.node_name, copy.direction)
    return {"tensor_name": "(unattributed)", "category": "unknown", "consumer_node_ids": ()}
