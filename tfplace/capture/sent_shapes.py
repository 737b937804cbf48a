"""Shapes of sent values that neither static shapes nor inference tell: those that come round loops.

Shape inference gives up at the back edge of a lowered loop. What only passes through `Enter`, `Merge`,
`Switch`, `Exit` ... keeps its shape: that of the value going in, if the loop's body gives the same.
"""

from __future__ import annotations

from typing import Any

from tfplace.capture.graphs import Function
from tfplace.capture.lines import FunctionLines, edge_of

Shapes = dict[str, list[Any]]  # {node: one TensorShapeProto per output}
_PASS_ON = frozenset(
    ("Enter", "Exit", "NextIteration", "Switch", "Identity", "LoopCond", "StopGradient", "PreventGradient", "_Send")
)
_DEEPEST = 400
_AGAIN = object()  # the walk came back to where it is: the loop itself says nothing about the shape


def is_full(shape: Any) -> bool:
    """Tell whether every dimension is known."""
    return not shape.unknown_rank and all(dim.size >= 0 for dim in shape.dim)


def fill_sent(function: Function, known: Shapes, finder: FunctionLines) -> None:
    """Add to `known` the shapes of what the function's sends carry."""
    walk = _Walk(function, known)
    for node in walk.sends:
        name, _, slot = node.input[0].partition(":")
        number = int(slot or 0)
        if walk.known(name, number) is None:
            shape = walk.find(name, number) or _of_sent(node, finder)
            if shape is not None:
                _set(known, name, number, shape)


class _Walk:
    def __init__(self, function: Function, known: Shapes) -> None:
        self._known = known
        self._nodes = {node.name: node for graph in function.partitions for node in graph.node}
        self.sends = [node for node in self._nodes.values() if node.op in ("_Send", "_HostSend")]
        self._send_of = {edge_of(node): node for node in self.sends}
        self._open: set[str] = set()

    def known(self, name: str, slot: int) -> Any:
        shapes = self._known.get(name, [])
        return shapes[slot] if slot < len(shapes) and is_full(shapes[slot]) else None

    def find(self, name: str, slot: int) -> Any:
        """Return the shape of an output; null where it cannot be told."""
        self._open.clear()
        shape = self._find(name, slot)
        return None if shape is _AGAIN else shape

    def _find(self, name: str, slot: int) -> Any:
        shape = self.known(name, slot)
        node = self._nodes.get(name)
        if shape is not None or node is None or len(self._open) > _DEEPEST:
            return shape
        if name in self._open:
            return _AGAIN
        self._open.add(name)
        return self._from_inputs(node, slot)

    def _from_inputs(self, node: Any, slot: int) -> Any:
        if node.op in ("_Recv", "_HostRecv"):
            send = self._send_of.get(edge_of(node))
            return self._input(send.input[0]) if send is not None else None
        if node.op in _PASS_ON and node.input:
            return self._input(node.input[0])
        if node.op == "Merge" and slot == 0:
            shapes = [self._input(text) for text in node.input if not text.startswith("^")]
            shapes = [shape for shape in shapes if shape is not _AGAIN]
            return shapes[0] if shapes and all(shape is not None and shape == shapes[0] for shape in shapes) else None
        return None

    def _input(self, text: str) -> Any:
        name, _, slot = text.partition(":")
        return self._find(name, int(slot or 0))


def _of_sent(node: Any, finder: FunctionLines) -> Any:
    """Return the shape of the op that a send is named after: it may since have become part of another one."""
    op = finder.find(node)
    if op is None or not op.outputs or op.outputs[0].dtype.as_datatype_enum != node.attr["T"].type:
        return None
    shape = op.outputs[0].shape.as_proto()
    return shape if is_full(shape) else None


def _set(known: Shapes, name: str, slot: int, shape: Any) -> None:
    shapes = known.setdefault(name, [])
    while len(shapes) <= slot:
        unknown = type(shape)(unknown_rank=True)
        shapes.append(unknown)
    shapes[slot] = shape
