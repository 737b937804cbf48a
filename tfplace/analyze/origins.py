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
        if op == "Const" or flow.attrs[node].get("captured"):
            return Origin("constant", node, slot)
        if op in ops.FEEDS or ops.INPUTS.match(op) or (flow.is_recv(node) and is_client_end(flow, node)):
            return Origin("input", node, slot)
        first = _first_input(flow, node)
        if first is None or not (op in ops.SIZE_KEEPING or ops.REF_WRITES.match(op)):
            break
        node, slot = first
    return Origin("computed", node, slot)


def entries(flow: Dataflow, node: int, value: int | None) -> list[int]:
    """Return the input numbers of `node` that read `value` (a `_Recv` or a producer); [] where that is not known."""
    return [] if value is None else [slot for reader, slot, _ in flow.outputs(value) if reader == node]


def updates_from(flow: Dataflow, node: int, value: int | None = None, hops: int = 3) -> list[int]:
    """Return the update ops (ApplyGradientDescent ...) that a value reaches as a delta within a few host ops.

    Gradients are often summed, scaled or averaged on the host before the update takes them. A learning rate, or
    another factor, reaches the update too, but is no delta.

    Args:
        flow: The dataflow.
        node: A reader of the value.
        value: The `_Recv` or producer that it reads; null = not known.
        hops: How many ops may stand between.
    """
    found: dict[int, None] = {}
    frontier = [(node, hops, slot) for slot in entries(flow, node, value) or [0]]
    seen = {node}
    while frontier:
        current, left, slot = frontier.pop()
        op = flow.op[current]
        if ops.UPDATES.match(op):
            if ops.takes_delta(op, slot):
                found[current] = None
            continue
        if left == 0 or not (op in ops.SIZE_KEEPING or op in ops.GRADIENT_SUMS or flow.is_recv(current)):
            continue
        if is_factor(flow, current, slot):
            continue
        for consumer, at, _ in flow.outputs(current):
            if consumer not in seen or flow.op[consumer] in ops.SCALINGS or ops.UPDATES.match(flow.op[consumer]):
                seen.add(consumer)
                frontier.append((consumer, left - (0 if flow.is_recv(current) else 1), at))
    return list(found)


def is_factor(flow: Dataflow, node: int, slot: int) -> bool:
    """Tell whether input `slot` of a product or quotient is a scalar that only scales the other input."""
    if flow.op[node] not in ops.SCALINGS:
        return False
    source = next(((producer, out) for producer, out, own in flow.inputs(node) if own == slot), None)
    whole = flow.value_type(node, 0)[1]
    return source is not None and flow.value_type(*flow.source(*source))[1] == "[]" and whole not in (None, "[]")


def made_of_gradients(flow: Dataflow, node: int, hops: int = 4) -> bool:
    """Tell whether a value is a gradient: by the op that makes it or its name, or as sum or packing of gradients."""
    op = flow.op[node]
    if ops.GRADIENT_NAMES.search(flow.name[node]) or ops.GRADIENTS.search(op):
        return True
    if hops == 0 or not (op in ops.SIZE_KEEPING or op in ops.PACKINGS or op in ops.SUMS):
        return False
    sources = [flow.source(producer, slot)[0] for producer, slot, _ in flow.inputs(node)]
    if not sources:
        return op == "AddN"  # of a trace without edges: what else sums many tensors in a step
    if op in ops.SIZE_KEEPING:
        return made_of_gradients(flow, sources[0], hops - 1)
    if op in ops.SUMS:
        return any(made_of_gradients(flow, source, hops - 1) for source in sources)
    packed = [source for source in sources if flow.op[source] != "Const"]  # the axis
    return bool(packed) and all(made_of_gradients(flow, source, hops - 1) for source in packed)
