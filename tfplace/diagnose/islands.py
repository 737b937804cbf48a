"""Detours through host memory: device -> host work -> device, as connected pieces of host work.

A node works in host memory when it is placed on a host device, or when it is booked on a GPU and its kernel
takes its data from a `_HostRecv` and gives it to a `_HostSend`: the partitioner puts such a pair around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose import facts


@dataclass(frozen=True)
class Island:
    """A connected piece of host work that takes from a device and gives to a device.

    Attributes:
        nodes: Its nodes, sorted.
        into: Positions of the transfers into it, in `Islands.down`.
        out: Positions of the transfers out of it, in `Islands.up`.
    """

    nodes: list[int]
    into: list[int]
    out: list[int]


@dataclass(frozen=True)
class Islands:
    """All islands of a trace and the transfers they speak of.

    Attributes:
        found: The islands.
        down: Rows of `transfers` that go from a device to the host (D2H).
        up: Rows from the host to a device (H2D) whose producer is known.
    """

    found: list[Island]
    down: pd.DataFrame = field(repr=False)
    up: pd.DataFrame = field(repr=False)


class HostWork:
    """The nodes that work in host memory and the values that pass between them there."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._flow = analysis.flow
        self._stop = {n for nodes in analysis.variables["writers"].tolist() for n in nodes or ()}
        self._next: dict[int, list[int]] = {}

    def gives_host_memory(self, node: int, slot: int) -> bool:
        """Tell whether an output is in host memory; False where the trace does not show it."""
        flow = self._flow
        if not flow.on_device[node]:
            return True
        for consumer, _, own in flow.outputs(node):
            if own == slot and flow.is_send(consumer):
                return flow.host_end(consumer)
        allocator = flow.allocator(node, slot)
        if allocator is not None:
            return "host" in allocator or allocator.startswith("cpu")
        kernels = self._analysis.kernels
        return kernels.computes_on_host(flow.op[node], flow.attrs[node]) is True

    def next_on_host(self, node: int) -> list[int]:
        """Return the nodes that take the node's results in host memory."""
        if node not in self._next:
            self._next[node] = [] if node in self._stop else self._find_next(node)
        return self._next[node]

    def _find_next(self, node: int) -> list[int]:
        flow, found = self._flow, []
        for consumer, _, slot in flow.outputs(node):
            if not self.gives_host_memory(node, slot):
                continue
            if not flow.is_send(consumer):
                if flow.on_device[node] or not flow.on_device[consumer]:
                    found.append(consumer)
                continue
            recv = flow.recv_of.get(consumer)
            if recv is not None and flow.host_end(recv):
                found += [reader for reader, _, _ in flow.outputs(recv)]
        return list(dict.fromkeys(n for n in found if not flow.is_send(n)))


def find_islands(analysis: Analysis, most_nodes: int) -> Islands:
    """Return the islands of at most `most_nodes` host-device nodes (nodes booked on a GPU are not counted)."""
    flow = analysis.flow
    rows = facts.crossings(analysis, "D2H", "H2D")
    down = facts.where(rows, rows["direction"] == "D2H")
    up = facts.where(rows, (rows["direction"] == "H2D") & rows["producer_node_id"].notna())
    work = HostWork(analysis)
    reached = _reach([n for n in facts.consumers_of(down) if not flow.is_send(n)], work.next_on_host)
    back: dict[int, list[int]] = defaultdict(list)
    for node in reached:
        for follower in work.next_on_host(node):
            back[follower].append(node)
    makers = [int(n) for n in up["producer_node_id"].unique().tolist()]
    inside = _reach([n for n in makers if n in reached], lambda node: back[node])
    pieces = _connected(inside, work, back)
    piece_of = {node: number for number, piece in enumerate(pieces) for node in piece}
    into: dict[int, list[int]] = defaultdict(list)
    out: dict[int, list[int]] = defaultdict(list)
    for row, consumers in enumerate(down["consumer_node_ids"].tolist()):
        for number in {piece_of[n] for n in consumers or () if n in piece_of}:
            into[number].append(row)
    for row, producer in enumerate(up["producer_node_id"].tolist()):
        if producer in piece_of:
            out[piece_of[producer]].append(row)
    found = [
        Island(sorted(piece), into[number], out[number])
        for number, piece in enumerate(pieces)
        if into[number] and out[number] and sum(not flow.on_device[n] for n in piece) <= most_nodes
    ]
    return Islands(found, down, up)


def _reach(start: list[int], step: Callable[[int], list[int]]) -> set[int]:
    seen, stack = set(start), list(start)
    while stack:
        for node in step(stack.pop()):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return seen


def _connected(inside: set[int], work: HostWork, back: dict[int, list[int]]) -> list[set[int]]:
    """Return the connected pieces, by their first node."""
    pieces: list[set[int]] = []
    done: set[int] = set()
    for start in sorted(inside):
        if start not in done:
            piece = _reach([start], lambda n: [m for m in (*work.next_on_host(n), *back[n]) if m in inside])
            done |= piece
            pieces.append(piece)
    return pieces
