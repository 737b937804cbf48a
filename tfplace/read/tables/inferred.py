"""Nodes and edges read off the labels of step_stats, for the many files that hold no partition graphs.

A label reads `name = Op(a, b:1, ^c)`. Transfer nodes are never recorded: an input `x/_5` is the far end of a transfer
of x, so the edge is drawn from x, and may cross devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tfplace.names import strip_suffix
from tfplace.read.raw import RawStepStats
from tfplace.read.tables import labels
from tfplace.read.tables.devices import Devices
from tfplace.read.tables.graph import NodeRows, split_input
from tfplace.read.tables.lanes import NODES, OP, Rows

GRAPH = "inferred"
NOT_NODES = frozenset({"_SOURCE", "_SINK"})  # every partition has them; they compute nothing

NodeKey = tuple[int, str]  # device id (-1 unknown), name


def infer_nodes(files: Sequence[tuple[RawStepStats, Rows]], devices: Devices) -> tuple[NodeRows, int]:
    """Return the nodes that ran, each once however many steps ran it, with the edges that their labels tell.

    Returns:
        The rows, and how many inputs lead to no node (constants folded away, rows not recorded).
    """
    rows = NodeRows()
    ids: dict[NodeKey, int] = {}
    inputs: dict[int, tuple[str, ...]] = {}
    slots: dict[NodeKey, set[int]] = defaultdict(set)
    full_names = devices.table["full_name"].tolist()
    for stats, table in files:
        _recorded_slots(stats, table, slots)
        for device, name, label in _distinct_runs(table):
            if name in NOT_NODES or (device, name) in ids:
                continue
            parts = labels.parse_op_label(label, name)
            where = full_names[device] if device >= 0 else None
            ids[device, name] = rows.add(name, parts.op if parts else None, GRAPH, where)
            inputs[ids[device, name]] = parts.inputs if parts else ()
    return rows, _Linker(rows, ids, slots).link(inputs)


def _distinct_runs(table: Rows) -> list[tuple[int, str, str]]:
    runs = np.flatnonzero((table.content == NODES) & (table.kind == OP))
    first = ~pd.DataFrame({"device": table.device[runs], "name": table.name[runs]}).duplicated().to_numpy()
    chosen = runs[first]
    names, texts = table.names[table.name[chosen]], table.pair_labels[table.pair[chosen]]
    return list(zip(table.device[chosen].tolist(), names.tolist(), texts.tolist(), strict=True))


def _recorded_slots(stats: RawStepStats, table: Rows, slots: dict[NodeKey, set[int]]) -> None:
    if not len(stats.output_row):
        return
    made = stats.output_row
    mine = (table.content[made] == NODES) & (table.kind[made] == OP)
    seen = pd.DataFrame(
        {"device": table.device[made[mine]], "name": table.name[made[mine]], "slot": stats.output_slot[mine]}
    ).drop_duplicates()
    for device, name, slot in seen.itertuples(index=False, name=None):
        slots[device, str(table.names[name])].add(slot)


class _Linker:
    """Finds the producers of inputs named in labels."""

    def __init__(self, rows: NodeRows, ids: dict[NodeKey, int], slots: dict[NodeKey, set[int]]) -> None:
        self._rows, self._ids, self._slots = rows, ids, slots
        self._anywhere: dict[str, list[NodeKey]] = defaultdict(list)
        for key in ids:
            self._anywhere[key[1]].append(key)

    def link(self, inputs: dict[int, tuple[str, ...]]) -> int:
        """Add all edges; return how many inputs lead to no node."""
        lost = 0
        owners = {number: key for key, number in self._ids.items()}
        for target, texts in inputs.items():
            position = 0
            for text in texts:
                name, slot = split_input(text)
                found = self._producer(owners[target][0], name, slot, target)
                control = slot is None
                if found is None:
                    lost += 1
                else:
                    source, from_slot = found
                    self._rows.edges.append((source, from_slot, target, None if control else position, control))
                position += not control
        return lost

    def _producer(self, device: int, name: str, slot: int | None, reader: int) -> tuple[int, int | None] | None:
        """Return (node, output number) behind an input of `reader`, which is on `device`."""
        here = self._ids.get((device, name))
        if here is not None:
            return here, slot
        origin = strip_suffix(name)
        candidates = self._anywhere.get(origin, []) if origin != name else []
        if len(candidates) == 1:
            key = candidates[0]
            known = self._slots.get(key, set())
            # which output was sent is not in the label; it is certain where there is only one
            single = next(iter(known)) if len(known) == 1 else None
            return self._ids[key], None if slot is None else single
        if name.startswith("_recv_"):
            # the receiving end of a client's feed: always on the device of its reader, never recorded
            feed = self._rows.add(name, "_Recv", GRAPH, self._rows.device[reader], attrs={"client_terminated": True})
            self._ids[device, name] = feed
            return feed, slot
        return None
