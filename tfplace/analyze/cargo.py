"""Each Send / Recv pair with its load: bytes, memory kinds, category, variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfplace.analyze.categories import Cargo, classify, value_dtype
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.pairs import Pair
from tfplace.analyze.variables import Variable, owners
from tfplace.model.trace import Trace
from tfplace.units import shape_bytes


@dataclass(frozen=True)
class Freight:
    """A pair and its load.

    Attributes:
        pair: The pair.
        cargo: What it carries.
        num_bytes: Bytes of one copy; null unknown.
        variable: Variable id whose value it carries.
        src_memory, dst_memory: pinned, pageable, host or device.
    """

    pair: Pair
    cargo: Cargo
    num_bytes: int | None
    variable: int | None
    src_memory: str | None
    dst_memory: str | None

    def row(self, flow: Dataflow) -> dict[str, Any]:
        """Return the columns of `transfers` that the graph alone tells."""
        pair, origin = self.pair, self.cargo.origin
        name = flow.name[pair.producer] if pair.producer is not None else pair.edge_name
        return {
            "tensor_name": f"{name}:{pair.slot}" if pair.slot else name,
            "edge_name": pair.edge_name,
            "direction": pair.direction,
            "src_device_id": pair.src_device,
            "dst_device_id": pair.dst_device,
            "src_memory": self.src_memory,
            "dst_memory": self.dst_memory,
            "num_bytes": self.num_bytes,
            "send_node_id": pair.send,
            "recv_node_id": pair.recv,
            "producer_node_id": pair.producer,
            "producer_slot": pair.slot,
            "consumer_node_ids": pair.consumers,
            "category": self.cargo.category,
            "variable_id": self.variable,
            "rows_only": bool(origin and origin.rows_only and self.variable is not None),
        }


def _known_bytes(flow: Dataflow, pair: Pair) -> int | None:
    if pair.is_control:
        return 0
    if pair.producer is None or pair.slot is None:
        return None
    size = flow.value_bytes(pair.producer, pair.slot)
    if size is None:  # the shape may stand on the producer, the type on the Send
        size = shape_bytes(value_dtype(flow, pair), flow.value_type(pair.producer, pair.slot)[1])
    return flow.value_bytes(pair.recv, 0) if size is None else size


def _bytes_from_variable(
    flow: Dataflow, pair: Pair, cargo: Cargo, variables: list[Variable], owner: dict[int, int]
) -> int | None:
    """Size a value by the variable it is, or by the variable it updates: a dense gradient has its shape."""
    dtype = value_dtype(flow, pair)
    origin = cargo.origin
    if origin is not None and origin.kind == "variable" and origin.size_kept and origin.node in owner:
        return shape_bytes(dtype, variables[owner[origin.node]].shape)
    for update in cargo.updates if cargo.category == "gradient" else ():
        inputs = flow.inputs(update)
        rows_only = "Sparse" in flow.op[update] or "Scatter" in flow.op[update]
        target = owner.get(inputs[0][0]) if inputs and not rows_only else None
        if target is not None:
            return shape_bytes(dtype, variables[target].shape)
    return None


def _memory(flow: Dataflow, pair: Pair, real_gpu: bool) -> tuple[str, str]:
    """Memory kind of both ends; pinned only where the producer's allocator tells.

    Allocator 'cpu' does not mean pageable: feeds in memory that the caller pinned are booked there too.
    """
    src = "host" if flow.host_end(pair.send) else "device"
    dst = "host" if flow.host_end(pair.recv) else "device"
    if src == "host" and real_gpu and pair.producer is not None and pair.slot is not None:
        allocator = flow.allocator(pair.producer, pair.slot) or ""
        if "host_bfc" in allocator:
            src = "pinned"
    return src, dst


def describe_pairs(trace: Trace, flow: Dataflow, pairs: list[Pair], variables: list[Variable]) -> list[Freight]:
    """Return every pair with its load, in the order given."""
    owner = owners(variables)
    real_gpu = bool((trace.devices["kind"] == "GPU").any())
    freights = []
    for pair in pairs:
        size = _known_bytes(flow, pair)
        cargo = classify(flow, pair, size)
        if size is None:
            size = _bytes_from_variable(flow, pair, cargo, variables, owner)
        origin = cargo.origin
        variable = owner.get(origin.node) if origin is not None and origin.kind == "variable" else None
        freights.append(Freight(pair, cargo, size, variable, *_memory(flow, pair, real_gpu)))
    return freights
