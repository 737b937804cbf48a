"""GraphDefs to rows: nodes with their decoded attributes, edges, and which devices were asked for.

Source: tensorflow/core/framework/{graph,node_def,attr_value}.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfplace.names import parse_device
from tfplace.read.protos import DATA_TYPES
from tfplace.read.raw import RawTrace
from tfplace.units import shape_bytes

_PYTHON_NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "HALF": "float16"}
DTYPE_NAMES: dict[int, str] = {
    number: _PYTHON_NAMES.get(name, name.lower()) for number, name in enumerate(DATA_TYPES) if number
}
DTYPE_NAMES |= {number + 100: f"{name}_ref" for number, name in list(DTYPE_NAMES.items())}
"""DataType number -> 'float32'; 0 (DT_INVALID) and numbers of a later TensorFlow are absent."""

LONGEST_TEXT = 4096
"""Text attributes beyond this length (serialized functions, protos) are dropped: nothing here reads them."""


def shape_text(shape: Any) -> str | None:
    """Return '[32,10]' for a TensorShapeProto, '[]' for a scalar, '?' for an unknown size; null for unknown rank."""
    if shape.unknown_rank:
        return None
    return "[" + ",".join([str(d.size) if d.size >= 0 else "?" for d in shape.dim]) + "]"


def decode_attr(attr: Any) -> Any:
    """Return one AttrValue as a plain Python value (see `decode_attrs`)."""
    kind = attr.WhichOneof("value")
    if kind == "list":
        for described, items in attr.list.ListFields():
            decode = _DECODERS.get(described.name)
            return tuple([decode(item) for item in items]) if decode else None
        return ()
    decode = _DECODERS.get(kind)
    return decode(getattr(attr, kind)) if decode else None


def decode_attrs(node: Any) -> dict[str, Any]:
    """Return every attribute of a NodeDef as plain Python values.

    type -> 'float32' ('float32_ref' for references; null for a type this version does not know);
    shape -> '[32,10]' (null: unknown rank); s -> str; i, f, b -> int, float, bool; func -> its name;
    tensor -> dict(dtype=, shape=, num_bytes=); lists -> tuples of these. Text beyond `LONGEST_TEXT` is left out.
    'original_node_names' and 'original_func_names' are added where the node has debug information; later 'captured',
    true for an argument that is a constant made outside of the function (`recorded.mark_captured`).
    """
    attrs = {key: decode_attr(value) for key, value in node.attr.items()}
    for key in [key for key, value in attrs.items() if isinstance(value, str) and len(value) > LONGEST_TEXT]:
        del attrs[key]
    if node.HasField("experimental_debug_info"):
        debug = node.experimental_debug_info
        for key in ("original_node_names", "original_func_names"):
            if getattr(debug, key):
                attrs[key] = tuple(getattr(debug, key))
    return attrs


def _decode_tensor(tensor: Any) -> dict[str, Any]:
    dtype, shape = DTYPE_NAMES.get(tensor.dtype), shape_text(tensor.tensor_shape)
    return {"dtype": dtype, "shape": shape, "num_bytes": shape_bytes(dtype, shape)}


def _same(value: Any) -> Any:
    return value


_DECODERS: dict[str, Any] = {
    "type": DTYPE_NAMES.get,
    "shape": shape_text,
    "s": lambda value: value.decode("utf-8", "replace"),
    "i": _same,
    "f": _same,
    "b": _same,
    "func": lambda value: value.name,
    "tensor": _decode_tensor,
    "placeholder": _same,
}


class Requests:
    """The devices that the program asked for, read off a graph from before placement.

    A node that came out of an inlined function is traced back by its debug information to the function's own
    node; where that asks for nothing, the request of the call applies, as in TensorFlow.

    Source: tensorflow/core/common_runtime/inline_function_utils.cc (MultiDeviceFunctionBodyPlacer).
    """

    def __init__(self, graph: Any) -> None:
        self._nodes: dict[str, str] = {node.name: node.device for node in graph.node}
        self._functions: dict[str, dict[str, str]] = {
            function.signature.name: {node.name: node.device for node in function.node_def}
            for function in graph.library.function
        }

    def find(self, name: str, attrs: dict[str, Any]) -> str | None:
        """Return the device asked for; '' = none asked; null where the node has no origin in that graph."""
        if name in self._nodes:
            return self._nodes[name]
        originals = zip(attrs.get("original_node_names", ()), attrs.get("original_func_names", ()), strict=False)
        for original, function in originals:
            device = self._functions.get(function, {}).get(original)
            if device:
                return device
            if device == "":
                return self._call_device(name)
        return None

    def _call_device(self, name: str) -> str:
        while "/" in name:
            name = name.rpartition("/")[0]
            if name in self._nodes:
                return self._nodes[name]
        return ""


@dataclass
class NodeRows:
    """Columns of the nodes table before devices have ids, and of the edges table."""

    name: list[str] = field(default_factory=list)
    op: list[str | None] = field(default_factory=list)
    graph: list[str] = field(default_factory=list)
    device: list[str | None] = field(default_factory=list)
    requested: list[str | None] = field(default_factory=list)
    colocation: list[str | None] = field(default_factory=list)
    attrs: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int | None, int, int | None, bool]] = field(default_factory=list)
    dangling: int = 0  # inputs that name no node of their graph

    def add(
        self,
        name: str,
        op: str | None,
        graph: str,
        device: str | None,
        *,
        requested: str | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> int:
        """Append a node and return its id."""
        attrs = attrs or {}
        self.name.append(name)
        self.op.append(op)
        self.graph.append(graph)
        self.device.append(device)
        self.requested.append(requested)
        self.colocation.append(colocation_group(attrs))
        self.attrs.append(attrs)
        return len(self.name) - 1


def colocation_group(attrs: dict[str, Any]) -> str | None:
    """Return the X of `_class` = ['loc:@X']; null where the node is tied to none."""
    classes = attrs.get("_class")
    for text in classes if isinstance(classes, tuple) else ():
        if isinstance(text, str) and text.startswith("loc:@"):
            return text[len("loc:@") :]
    return None


def split_input(text: str) -> tuple[str, int | None]:
    """Return (node, slot) of an input 'x', 'x:1' or '^x' (slot null: a control edge)."""
    if text.startswith("^"):
        return text[1:], None
    node, colon, slot = text.rpartition(":")
    return (node, int(slot)) if colon and slot.isdecimal() and len(slot) <= 9 else (text, 0)


@dataclass(frozen=True)
class PlacedGraph:
    """One graph whose nodes enter the nodes table.

    Attributes:
        name: 'partition:0', 'function:2/partition:1', 'graph:0'; further files have 'step:1' in front.
        graph: GraphDef.
        requests: Devices asked for; null where the file has no graph from before placement.
        assigned: The device fields say where nodes are; false: they say where nodes were asked to be.
        files: Numbers of the files whose step this graph is of.
    """

    name: str
    graph: Any
    requests: Requests | None
    assigned: bool
    files: list[int]


def choose_graphs(raws: Sequence[RawTrace]) -> list[PlacedGraph]:
    """Return the graphs that hold the steps' nodes, each once.

    Partition graphs that stand twice (a function's also beside it; the same step in several files) count once.
    A GraphDef file counts only where nothing else holds nodes. Graphs that only hand an eager constant to a device
    are no part of a step and are left out.
    """
    chosen: dict[bytes, PlacedGraph] = {}
    for number, raw in enumerate(raws):
        pre = {g.name.rpartition("/")[0]: Requests(g.graph) for g in raw.graphs if g.role == "pre"}
        partitions = [g for g in raw.graphs if g.role == "partition" and not _is_eager_constant(g.graph)]
        partitions.sort(key=lambda g: not g.name.startswith("function:"))  # a function's graphs know their requests
        for item in partitions:
            key = item.graph.SerializeToString(deterministic=True)
            if key in chosen:
                if number not in chosen[key].files:
                    chosen[key].files.append(number)
                continue
            requests = pre.get(item.name.rpartition("/")[0])
            chosen[key] = PlacedGraph(_graph_name(item.name, number), item.graph, requests, True, [number])
    if chosen:
        return list(chosen.values())
    alone = [(i, g) for i, raw in enumerate(raws) for g in raw.graphs if g.role == "graph"]
    if any(raw.step_stats is not None and raw.step_stats.node_name for raw in raws):
        return []  # nodes come from the times; the graphs still tell the requests
    return [
        PlacedGraph(_graph_name(g.name, i), g.graph, None, _is_placed(g.graph), [i])
        for i, g in alone
        if len(g.graph.node)
    ]


def graph_requests(raws: Iterable[RawTrace]) -> list[Requests]:
    """Return the requests of GraphDef files read beside others, for nodes that have none of their own."""
    return [Requests(g.graph) for raw in raws for g in raw.graphs if g.role == "graph" and not _is_placed(g.graph)]


def _graph_name(name: str, number: int) -> str:
    if number == 0:
        return name
    # one group for the partitions of one step (or function): what stands before the '/'
    return f"step:{number}.{name}" if "/" in name else f"step:{number}/{name}"


def _is_eager_constant(graph: Any) -> bool:
    ops = {node.op for node in graph.node}
    return "_EagerConst" in ops and ops <= {"_Arg", "_EagerConst", "_Retval"}


def _is_placed(graph: Any) -> bool:
    """Tell whether every node names a whole device, as only the placer writes them."""
    return bool(len(graph.node)) and all(parse_device(node.device).is_full for node in graph.node)


def read_graphs(graphs: Sequence[PlacedGraph], requests: Sequence[Requests] = ()) -> NodeRows:
    """Return the nodes and edges of the graphs; node ids follow the order of the graphs and of their nodes.

    Args:
        graphs: From `choose_graphs`.
        requests: Further places to look a node's request up, by its name.
    """
    rows = NodeRows()
    for placed in graphs:
        ids: dict[str, int] = {}
        for node in placed.graph.node:
            attrs = decode_attrs(node)
            if placed.assigned:
                sources = [placed.requests, *requests] if placed.requests else requests
                found = (source.find(node.name, attrs) for source in sources)
                requested = next((device for device in found if device is not None), None)
                device = node.device or None
            else:
                requested, device = node.device, None
            ids[node.name] = rows.add(node.name, node.op or None, placed.name, device, requested=requested, attrs=attrs)
        for node in placed.graph.node:
            _add_edges(rows, ids, node)
    return rows


def _add_edges(rows: NodeRows, ids: dict[str, int], node: Any) -> None:
    target, position = ids[node.name], 0
    for text in node.input:
        name, slot = split_input(text)
        source = ids.get(name)
        if source is None:
            rows.dangling += 1
        else:
            rows.edges.append((source, slot, target, None if slot is None else position, slot is None))
        if slot is not None:
            position += 1
