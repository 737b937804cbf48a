"""The step's dataflow: fast neighbour look-ups, with Send / Recv pairs bridged.

Words: a *pair* is a `_Send` or `_HostSend` and the `_Recv` or `_HostRecv` that takes its value.
A pair shares tensor_name, both device names and the sender's incarnation within one function's
partition graphs.

Source: tensorflow/core/graph/graph_partition.cc (AddSend, AddRecv), tensorflow/core/kernels/sendrecv_ops.cc.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tfplace.model.rows import python_rows
from tfplace.model.trace import Trace

SEND_OPS = frozenset({"_Send", "_HostSend"})
RECV_OPS = frozenset({"_Recv", "_HostRecv"})

PairKey = tuple[str, str, str, str, int]


class Dataflow:
    """Nodes and edges of a Trace as plain Python lists; node ids index every list.

    Attributes:
        name: Node names; '' unknown.
        op: Op types; '' unknown.
        graph: Graph names.
        device: Assigned device ids; -1 unknown.
        on_device: True where the assigned device has role device.
        attrs: Decoded attributes.
        recv_of: {send node: its recv node}.
        send_of: {recv node: its send node}.
        unpaired: Sends and recvs with no other half, client-terminated ones (feeds, fetches) left out.
    """

    def __init__(self, trace: Trace) -> None:
        nodes = trace.nodes
        self.name: list[str] = nodes["name"].fillna("").tolist()
        self.op: list[str] = nodes["op"].fillna("").tolist()
        self.graph: list[str] = nodes["graph"].fillna("").tolist()
        self.device: list[int] = nodes["device_id"].fillna(-1).astype("int64").tolist()
        self.attrs: list[dict[str, Any]] = [a if isinstance(a, dict) else {} for a in nodes["attrs"].tolist()]
        accelerators = set(trace.devices.loc[trace.devices["role"] == "device", "device_id"].tolist())
        self.on_device: list[bool] = [d in accelerators for d in self.device]
        self._link(trace)
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for node, name in enumerate(self.name):
            self._by_name[name].append(node)
        self._values = self._read_outputs(trace)
        self.recv_of: dict[int, int] = {}
        self.send_of: dict[int, int] = {}
        self.unpaired: list[int] = []
        self._pair()

    def __len__(self) -> int:
        return len(self.name)

    def _link(self, trace: Trace) -> None:
        self._in: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._out: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._control_in: dict[int, list[int]] = defaultdict(list)
        self._control_out: dict[int, list[int]] = defaultdict(list)
        edges = trace.edges
        control = edges["is_control"].to_numpy(dtype=bool)
        sources = edges["src_node_id"].to_numpy()
        targets = edges["dst_node_id"].to_numpy()
        for src, dst in zip(sources[control].tolist(), targets[control].tolist(), strict=True):
            self._control_in[dst].append(src)
            self._control_out[src].append(dst)
        data = np.flatnonzero(~control)
        # -1: an edge read off a label does not always say which output crossed
        from_slots = edges["src_slot"].iloc[data].fillna(-1).astype("int64").tolist()
        to_slots = edges["dst_slot"].iloc[data].fillna(0).astype("int64").tolist()
        rows = zip(sources[data].tolist(), targets[data].tolist(), from_slots, to_slots, strict=True)
        for src, dst, src_slot, dst_slot in rows:
            self._in[dst].append((src, src_slot, dst_slot))
            self._out[src].append((dst, dst_slot, src_slot))
        for inputs in self._in.values():
            inputs.sort(key=lambda link: link[2])

    def _read_outputs(
        self, trace: Trace
    ) -> dict[tuple[int, int], tuple[str | None, str | None, int | None, str | None]]:
        outputs = trace.outputs
        keys = zip(outputs["node_id"].tolist(), outputs["slot"].tolist(), strict=True)
        values = python_rows(outputs[["dtype", "shape", "num_bytes", "allocator"]])
        return dict(zip(keys, values, strict=True))

    def _pair_key(self, node: int) -> PairKey:
        attrs = self.attrs[node]
        return (
            self.graph[node].partition("/")[0] if "/" in self.graph[node] else "",
            str(attrs.get("tensor_name", "")),
            str(attrs.get("send_device", "")),
            str(attrs.get("recv_device", "")),
            int(attrs.get("send_device_incarnation", 0)),
        )

    def _pair(self) -> None:
        sends: dict[PairKey, list[int]] = defaultdict(list)
        recvs: dict[PairKey, list[int]] = defaultdict(list)
        for node, op in enumerate(self.op):
            if op in SEND_OPS or op in RECV_OPS:
                if self.attrs[node].get("client_terminated"):
                    continue  # the other half is the client: a feed or a fetch of TF 1.x
                (sends if op in SEND_OPS else recvs)[self._pair_key(node)].append(node)
        for key, ends in sends.items():
            others = recvs.pop(key, [])
            for send, recv in zip(ends, others, strict=False):
                self.recv_of[send] = recv
                self.send_of[recv] = send
            self.unpaired.extend(ends[len(others) :])
            self.unpaired.extend(others[len(ends) :])
        for left in recvs.values():
            self.unpaired.extend(left)

    def inputs(self, node: int) -> list[tuple[int, int, int]]:
        """Return [(producer, its slot, own slot)] of the data inputs, by own slot."""
        return self._in.get(node, [])

    def outputs(self, node: int) -> list[tuple[int, int, int]]:
        """Return [(consumer, its slot, own slot)] of the data outputs."""
        return self._out.get(node, [])

    def control_inputs(self, node: int) -> list[int]:
        """Return the nodes that must finish first."""
        return self._control_in.get(node, [])

    def control_outputs(self, node: int) -> list[int]:
        """Return the nodes that wait for this one."""
        return self._control_out.get(node, [])

    def is_send(self, node: int) -> bool:
        """Tell whether the node is the sending half of a pair."""
        return self.op[node] in SEND_OPS

    def is_recv(self, node: int) -> bool:
        """Tell whether the node is the receiving half of a pair."""
        return self.op[node] in RECV_OPS

    def host_end(self, node: int) -> bool:
        """Tell whether this half of a pair holds its value in host memory."""
        return self.op[node].startswith("_Host") or not self.on_device[node]

    def find(self, name: str) -> list[int]:
        """Return the nodes of that name, one per graph that has it."""
        return self._by_name.get(name, [])

    def successors(self, node: int) -> list[int]:
        """Return the nodes that read the node's outputs, also across devices; each once, in order."""
        found: dict[int, None] = {}
        for consumer, _, _ in self.outputs(node):
            recv = self.recv_of.get(consumer)
            if recv is None:
                found[consumer] = None
            else:
                found.update((reader, None) for reader, _, _ in self.outputs(recv))
        return list(found)

    def predecessors(self, node: int) -> list[int]:
        """Return the nodes whose outputs the node reads, also across devices; each once, in order."""
        found: dict[int, None] = {}
        for producer, _, _ in self.inputs(node):
            send = self.send_of.get(producer)
            if send is None:
                found[producer] = None
            else:
                found.update((maker, None) for maker, _, _ in self.inputs(send))
        return list(found)

    def source(self, node: int, slot: int) -> tuple[int, int]:
        """Return (producer, slot) of a value, looking through a `_Recv` to what was sent."""
        while self.op[node] in RECV_OPS and node in self.send_of:
            inputs = self.inputs(self.send_of[node])
            if not inputs:
                break
            node, slot, _ = inputs[0]
        return node, slot

    def value_type(self, node: int, slot: int) -> tuple[str | None, str | None]:
        """Return (dtype, shape) of an output as recorded; null where the trace does not tell."""
        dtype, shape, _, _ = self._values.get((node, slot), (None, None, None, None))
        return dtype, shape

    def value_bytes(self, node: int, slot: int) -> int | None:
        """Return the size in bytes of an output as recorded; null where the trace does not tell."""
        return self._values.get((node, slot), (None, None, None, None))[2]

    def allocator(self, node: int, slot: int) -> str | None:
        """Return the allocator that owns an output's buffer; null where the trace does not tell."""
        return self._values.get((node, slot), (None, None, None, None))[3]
