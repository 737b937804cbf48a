"""Where a value comes from: a variable, rows of one, an input, a constant, or a computation."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow

_MAX_HOPS = 64  # a guard against cycles of loop frames, far above any chain of Identity seen


@dataclass(frozen=True)
class Origin:
    """What a value is made of.

    Attributes:
        kind: variable, input, constant, or computed.
        node: The variable, input, constant or computing node.
        slot: Its output number.
        rows_only: True where a gather took rows of the variable.
        size_kept: True where the value is as large as the origin's, up to a cast.
    """

    kind: str
    node: int
    slot: int = 0
    rows_only: bool = False
    size_kept: bool = True


def is_client_end(flow: Dataflow, node: int) -> bool:
    """Tell whether the node is a TF 1.x feed (`_Recv`) or fetch (`_Send`) whose other half is the client."""
    return bool(flow.attrs[node].get("client_terminated"))


def is_resource(flow: Dataflow, node: int) -> bool:
    """Tell whether the node hands on a resource handle as its argument."""
    attrs = flow.attrs[node]
    return flow.op[node] in ops.FEEDS and (attrs.get("T") or attrs.get("dtype")) == "resource"


def _first_input(flow: Dataflow, node: int) -> tuple[int, int] | None:
    inputs = flow.inputs(node)
    return (inputs[0][0], inputs[0][1]) if inputs else None


def trace_origin(flow: Dataflow, node: int, slot: int = 0) -> Origin:
    """Follow a value back through copies, reads and reshapes to what it is made of."""
    rows_only = False
    for _ in range(_MAX_HOPS):
        node, slot = flow.source(node, slot)
        op = flow.op[node]
        if ops.is_variable(op) or ops.is_table(op) or is_resource(flow, node):
            return Origin("variable", node, slot, rows_only, not rows_only)
        if op in ops.VARIABLE_READS or ops.GATHERS.match(op) or ops.ROW_REDUCERS.match(op):
            rows_only = rows_only or op not in ops.VARIABLE_READS
            first = _first_input(flow, node)
            if first is None:
                break
            owner = trace_origin(flow, *first) if rows_only else None
            if owner is not None and owner.kind != "variable":
                return Origin("computed", node, slot)
            node, slot = first
            continue
        if op == "Const":
            return Origin("constant", node, slot)
        if op in ops.FEEDS or ops.INPUTS.match(op) or (flow.is_recv(node) and is_client_end(flow, node)):
            return Origin("input", node, slot)
        first = _first_input(flow, node)
        if first is None or not (op in ops.SIZE_KEEPING or ops.REF_WRITES.match(op)):
            break
        node, slot = first
    return Origin("computed", node, slot)


def updates_from(flow: Dataflow, node: int, hops: int = 3) -> list[int]:
    """Return the update ops (ApplyGradientDescent ...) that a value reaches within a few host ops.

    Gradients are often summed, scaled or averaged on the host before the update takes them.
    """
    found: dict[int, None] = {}
    frontier = [(node, hops)]
    seen = {node}
    while frontier:
        current, left = frontier.pop()
        op = flow.op[current]
        if ops.UPDATES.match(op):
            found[current] = None
            continue
        if left == 0 or not (op in ops.SIZE_KEEPING or op in ops.GRADIENT_SUMS or flow.is_recv(current)):
            continue
        for consumer, _, _ in flow.outputs(current):
            if consumer not in seen:
                seen.add(consumer)
                frontier.append((consumer, left - (0 if flow.is_recv(current) else 1)))
    return list(found)
