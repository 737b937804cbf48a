"""Ends of a copy where the trace has no graph: what its own name and the node stats tell."""

from __future__ import annotations

from typing import Any

from tfplace.analyze.categories import classify_value
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.origins import is_resource
from tfplace.analyze.pairs import Pair
from tfplace.names import edge_producer


def _side(flow: Dataflow, nodes: list[int], on_device: bool) -> int | None:
    """Return the node on the wanted side, else the only one there is."""
    wanted = [node for node in nodes if flow.on_device[node] == on_device]
    return wanted[0] if wanted else (nodes[0] if len(nodes) == 1 else None)


def ends_of_named_copy(
    flow: Dataflow, edge_name: str, direction: str | None, num_bytes: int | None, owner: dict[int, int]
) -> dict[str, Any]:
    """Find producer and consumers of a copy called `edge_N_producer`.

    Returns:
        Columns of `transfers`; the producer is null where no node of that name was recorded.
    """
    producer_name = edge_producer(edge_name) or edge_name
    row: dict[str, Any] = {"tensor_name": producer_name, "edge_name": edge_name, "consumer_node_ids": ()}
    from_device = direction in ("D2H", "D2D", "P2P")
    producer = _side(flow, flow.find(producer_name), from_device)
    if producer is None:
        guess = "input" if producer_name.startswith(("_arg_", "_recv_")) else "unknown"
        return {**row, "category": guess}
    to_device = direction in ("H2D", "D2D", "P2P")
    consumers = tuple(c for c in flow.successors(producer) if flow.on_device[c] == to_device)
    stand_in = Pair(producer, producer, edge_name, direction or "", None, None, producer, 0, consumers, False)
    cargo = classify_value(flow, stand_in, num_bytes, producer, 0)
    variable = owner.get(cargo.origin.node) if cargo.origin and cargo.origin.kind == "variable" else None
    return {
        **row,
        "producer_node_id": producer,
        "consumer_node_ids": consumers,
        "category": cargo.category,
        "variable_id": variable,
        "rows_only": bool(cargo.origin and cargo.origin.rows_only and variable is not None),
    }


def device_arguments(flow: Dataflow) -> dict[int, list[int]]:
    """Return {bytes: the inputs of that size} of functions whose argument has to be on an accelerator."""
    found: dict[int, list[int]] = {}
    for node, op in enumerate(flow.op):
        size = flow.value_bytes(node, 0) if op == "_Arg" and flow.on_device[node] else None
        if size and not is_resource(flow, node):
            found.setdefault(size, []).append(node)
    return found


def ends_of_eager_copy(flow: Dataflow, arguments: list[int]) -> dict[str, Any]:
    """Describe a nameless copy to an accelerator by the one input of its size.

    A numpy array handed to a function goes to the GPU before the function runs, outside any graph: the copy has no
    edge and no name, and only its size tells which argument it is.
    """
    if len(arguments) != 1:
        return {"tensor_name": "(unattributed)", "category": "unknown", "consumer_node_ids": ()}
    consumers = tuple(dict.fromkeys(consumer for consumer, _, _ in flow.outputs(arguments[0])))
    row = {"tensor_name": flow.name[arguments[0]], "category": "input", "consumer_node_ids": consumers}
    return {**row, "join": "order"}


def ends_of_op_copy(flow: Dataflow, node_name: str, direction: str | None) -> dict[str, Any]:
    """Describe a copy that an op issued inside its kernel: no edge of the graph, the op itself is the end."""
    row: dict[str, Any] = {"tensor_name": node_name, "category": "unknown", "consumer_node_ids": ()}
    node = _side(flow, flow.find(node_name), True)
    if node is None:
        return row
    if direction == "H2D":
        return {**row, "consumer_node_ids": (node,)}
    return {**row, "producer_node_id": node}
