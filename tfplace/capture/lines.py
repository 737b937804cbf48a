"""Which source line, and which static shapes, the nodes of a function's partitions have.

A partition's node is looked up in the function graph that Python built: by the names that inlining
recorded, or by its own name without what the optimizer put before or behind it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tfplace.capture.graphs import Function, called_functions
from tfplace.capture.sources import line_of

BUDGET_S = 3.0  # for all lines of one capture; what is left out then is null
_SUFFIX = re.compile(r"/_\d+$")
_CONTROL = re.compile(r"/ctrl$")
_ADDED = re.compile(
    r"^(?:(?:ConstantFolding|ArithmeticOptimizer|Func|LayoutOptimizer|AutoMixedPrecision|RemapperPatternMatcher)/)+"
)
_FOLDED = re.compile(r"(?:_recip|_const_axis|-folded-\d+|-matshapes-\d+|_const_\d+|/_\d+)+$")


class FunctionLines:
    """Looks up the ops behind the nodes of one function.

    Args:
        function: Its `concrete` must still be alive.
        deadline: `time.monotonic()` after which no more lines are looked up.
    """

    def __init__(self, function: Function, deadline: float) -> None:
        self._deadline = deadline
        self._graphs: dict[str, Any] = {}
        self._top = getattr(function.concrete, "graph", None)
        self._lines: dict[tuple[int, str], str | None] = {}
        for atomic in called_functions(function.concrete):
            name = atomic.name.decode("utf-8", "replace")
            graph = getattr(atomic, "_cached_graph", None)
            if graph is not None:
                self._graphs[name] = graph
        if function.called_by:
            self._top = self._graphs.get(function.name, self._top)

    def find(self, node: Any) -> Any:
        """Return the graph op that a NodeDef came from; null where it cannot be told."""
        return next(self._candidates(node), None)

    def line(self, node: Any) -> str | None:
        """Return the user's line of a NodeDef.

        What no line of the user's is known of (the inside of a SavedModel, a replica's thread) has that of the
        call around it.
        """
        for op in self._candidates(node):
            key = (id(op.graph), op.name)
            if key not in self._lines:
                if time.monotonic() > self._deadline:
                    return None
                self._lines[key] = line_of(op.traceback or ())
            if self._lines[key] is not None:
                return self._lines[key]
        return None

    def _candidates(self, node: Any) -> Iterator[Any]:
        debug = node.experimental_debug_info
        pairs = list(zip(debug.original_func_names, debug.original_node_names, strict=False))
        ops = [_op(self._graphs.get(function), name) for function, name in pairs[:1]]
        yield from filter(None, ops)
        yield from filter(None, (_op(self._top, name) for name in _names(node.name)))


def _op(graph: Any, name: str) -> Any:
    if graph is None:
        return None
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _names(name: str) -> Iterable[str]:
    """Yield what a node may have been called before partitioning and optimization, most exact first."""
    yield name
    plain = _CONTROL.sub("", _SUFFIX.sub("", name))
    if plain != name:
        yield plain
    original = _FOLDED.sub("", _ADDED.sub("", plain))
    if original != plain:
        yield original
    # a folded or rewritten node is named after an op in some scope: the op itself, else its nearest relative
    while "/" in original:
        original = original.rpartition("/")[0]
        yield original


def node_lines(function: Function, deadline: float) -> dict[str, str]:
    """Return {node name: 'train.py:41'} of all partitions of a function; a transfer has its producer's line."""
    finder = FunctionLines(function, deadline)
    lines: dict[str, str] = {}
    sent: dict[str, str] = {}
    receivers: list[Any] = []
    for graph in function.partitions:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op in ("_Recv", "_HostRecv"):
                receivers.append(node)
                continue
            line = finder.line(_producer(node, nodes))
            if line is not None:
                lines[node.name] = line
                if node.op in ("_Send", "_HostSend"):
                    sent[edge_of(node)] = line
    for node in receivers:
        if edge_of(node) in sent:
            lines[node.name] = sent[edge_of(node)]
    return lines


def _producer(node: Any, nodes: dict[str, Any]) -> Any:
    """Return the node whose value a send carries (for a control edge: the one it waits for); else the node itself."""
    for _ in range(4):
        if node.op not in ("_Send", "_HostSend") and not (node.op == "Const" and _is_control(node)):
            return node
        source = nodes.get(node.input[0].lstrip("^").partition(":")[0]) if node.input else None
        if source is None:
            return node
        node = source
    return node


def _is_control(node: Any) -> bool:
    return bool(node.input) and node.input[0].startswith("^") and "/ctrl" in node.name


def edge_of(node: Any) -> str:
    """Return what a send and its receive have in common."""
    attr = node.attr
    return f"{attr['tensor_name'].s!r} {attr['send_device'].s!r} {attr['recv_device'].s!r}"
