"""Shapes of what the nodes of a partition give, so that transfers have sizes where no copy is measured.

Two ways, joined: the static shapes of the function graph that Python built, and TensorFlow's shape
inference over the partitions put together again, fed with the shapes of the actual arguments. What is
found is stored as the attribute `_output_shapes`, which TensorFlow's own exporter uses for the same.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from typing import Any

from tfplace.capture.graphs import Argument, Function
from tfplace.capture.lines import FunctionLines, edge_of
from tfplace.capture.sent_shapes import Shapes, fill_sent, is_full
from tfplace.capture.tf_api import tensorflow

MOST_NODES = 20_000  # inference over more would hold up the training for seconds
_SENDS = ("_Send", "_HostSend")
_RECVS = ("_Recv", "_HostRecv")
_LEFT_OUT = (*_SENDS, "_Retval")


def add_output_shapes(function: Function, deadline: float) -> int:
    """Set `_output_shapes` on the nodes of a function's partitions; return how many have one."""
    finder = FunctionLines(function, deadline)
    known = _static_shapes(function, finder)
    if function.num_nodes <= MOST_NODES and time.monotonic() < deadline:
        for name, shapes in infer_shapes(function.partitions, function.arguments, finder).items():
            if name not in known or not all(map(is_full, known[name])):
                known[name] = _fuller(shapes, known.get(name, []))
    fill_sent(function, known, finder)
    count = 0
    for graph in function.partitions:
        for node in graph.node:
            shapes = known.get(node.name, [])
            if shapes and node.op not in _SENDS:
                # arguments have the attribute already, with the unknown dimensions of the signature
                node.attr["_output_shapes"].list.Clear()
                node.attr["_output_shapes"].list.shape.extend(shapes)
                count += 1
    return count


def _static_shapes(function: Function, finder: FunctionLines) -> Shapes:
    found: Shapes = {}
    for graph in function.partitions:
        for node in graph.node:
            op = finder.find(node) if node.op not in (*_SENDS, *_RECVS) else None
            # only the very same op gives the very same value: a rewritten one has only the place in common
            if op is not None and op.outputs and op.type in (node.op, plain_op(node.op)):
                found[node.name] = [tensor.shape.as_proto() for tensor in op.outputs]
    return found


def infer_shapes(partitions: Iterable[Any], arguments: Iterable[Argument], finder: FunctionLines | None) -> Shapes:
    """Run shape inference over the partitions of one function, joined at their sends and receives.

    Where TensorFlow cannot join them (a graph that its own optimizer left inconsistent), nothing is inferred.
    """
    tf = tensorflow()
    joined = _Joined(list(partitions), {one.index: one for one in arguments}, finder)
    graph = tf.tf.Graph()
    with graph.as_default():
        try:
            tf.tf.graph_util.import_graph_def(joined.graph, name="")
        except ValueError:
            return {}
    return {
        joined.original[op.name]: [tensor.shape.as_proto() for tensor in op.outputs]
        for op in graph.get_operations()
        if op.name in joined.original and op.outputs
    }


class _Joined:
    """The partitions as one GraphDef that shape inference understands.

    Attributes:
        graph: The GraphDef.
        original: {node name in it: name in the partition}, of the nodes whose shapes can be trusted.
    """

    def __init__(
        self, partitions: list[Any], arguments: dict[int, Argument], finder: FunctionLines | None = None
    ) -> None:
        self.graph = tensorflow().tf.compat.v1.GraphDef()
        self.graph.versions.CopyFrom(partitions[0].versions)
        self.graph.library.CopyFrom(partitions[0].library)
        self.original: dict[str, str] = {}
        self._arguments = arguments
        self._finder = finder
        self._sends = {edge_of(node): node for graph in partitions for node in graph.node if node.op in _SENDS}
        nodes = {node.name: node for graph in partitions for node in graph.node if node.op not in _LEFT_OUT}
        self._rewritten = {
            name for name, node in nodes.items() if node.op.startswith("_Mkl") and not _is_plainly_rewritten(node)
        }
        self._slots = {name: self._used_slots(name, partitions) for name in self._rewritten}
        for node in nodes.values():
            self._add(node)

    def _add(self, node: Any) -> None:
        if node.name in self._rewritten:
            self._add_stand_ins(node)
            return
        copy = self.graph.node.add()
        copy.CopyFrom(node)
        copy.name = _legal(node.name)
        copy.device = ""
        copy.ClearField("experimental_debug_info")
        self.original[copy.name] = node.name
        if node.op in _RECVS:
            self._replace_recv(copy, node)
        elif node.op in ("_Arg", "_DeviceArg"):
            self._replace_argument(copy, node)
        elif node.op.startswith("_Mkl"):
            copy.op = plain_op(node.op)
            known = {attr.name for attr in _definition(copy.op).attr}
            for key in [key for key in copy.attr if key not in known]:
                del copy.attr[key]
        for key in [key for key in copy.attr if key.startswith("_")]:
            del copy.attr[key]
        for position, text in enumerate(copy.input):
            copy.input[position] = self._input(text)

    def _add_stand_ins(self, node: Any) -> None:
        """Stand in for an op that the CPU build made of others: its own shape function is not to be relied on."""
        op = self._finder.find(node) if self._finder is not None else None
        if op is not None and op.type != plain_op(node.op):
            op = None
        for slot in self._slots[node.name]:
            tensor = op.outputs[slot] if op is not None and slot < len(op.outputs) else None
            kind = tensor.dtype.as_datatype_enum if tensor is not None else node.attr["T"].type
            shape = tensor.shape.as_proto() if tensor is not None else None
            self._placeholder(self.graph.node.add(name=f"{_legal(node.name)}/slot_{slot}"), kind, shape)

    def _used_slots(self, name: str, partitions: list[Any]) -> list[int]:
        slots = {0}
        for graph in partitions:
            for node in graph.node:
                slots |= {int(text.partition(":")[2] or 0) for text in node.input if text.partition(":")[0] == name}
        return sorted(slots)

    def _input(self, text: str) -> str:
        mark = "^" if text.startswith("^") else ""
        name, colon, slot = text[len(mark) :].partition(":")
        if name in self._rewritten:
            return f"{mark}{_legal(name)}/slot_{slot or 0}"
        return f"{mark}{_legal(name)}{colon}{slot}"

    def _replace_recv(self, copy: Any, node: Any) -> None:
        send = self._sends.get(edge_of(node))
        kind = node.attr["tensor_type"].type
        _clear(copy)
        if send is None:
            self._placeholder(copy, kind, None)
            return
        copy.op = "Identity"
        copy.attr["T"].type = kind
        copy.input.append(send.input[0])

    def _replace_argument(self, copy: Any, node: Any) -> None:
        dtypes, shapes = node.attr["_handle_dtypes"].list.type, node.attr["_handle_shapes"].list.shape
        kind, argument = node.attr["T"].type, self._arguments.get(node.attr["index"].i)
        handle = (dtypes[0], shapes[0]) if dtypes and shapes else None
        _clear(copy)
        if handle is not None:
            copy.op = "VarHandleOp"
            copy.attr["dtype"].type = handle[0]
            copy.attr["shape"].shape.CopyFrom(handle[1])
            return
        shape = None
        if argument is not None and argument.shape is not None:
            shape = type(copy.attr["shape"].shape)()
            for size in argument.shape:
                shape.dim.add().size = size
        self._placeholder(copy, kind, shape)

    @staticmethod
    def _placeholder(node: Any, kind: int, shape: Any) -> None:
        node.op = "Placeholder"
        node.attr["dtype"].type = kind
        if shape is None:
            node.attr["shape"].shape.unknown_rank = True
        else:
            node.attr["shape"].shape.CopyFrom(shape)


def plain_op(op: str) -> str:
    """Return the op that a rewrite for the CPU stands for: '_MklNativeConv2DBackpropFilterWithBias'."""
    if not op.startswith("_Mkl"):
        return op
    return op.removeprefix("_Mkl").removeprefix("Native").removesuffix("WithBias")


def _definition(op: str) -> Any:
    return importlib.import_module("tensorflow.python.framework.op_def_registry").get(op)


def _is_plainly_rewritten(node: Any) -> bool:
    """Tell whether a `_Mkl` op takes and gives what the op that it stands for does."""
    definition = _definition(plain_op(node.op))
    if definition is None or node.op.endswith("WithBias"):
        return False
    given = sum(not text.startswith("^") for text in node.input)
    is_list = any(one.number_attr or one.type_list_attr for one in definition.input_arg)
    return is_list or given == len(definition.input_arg)


def _legal(name: str) -> str:
    """Return a node name that may be imported: those of the optimizer may begin with '_'."""
    return f"n/{name}" if name.startswith("_") else name


def _clear(copy: Any) -> None:
    del copy.input[:]
    copy.attr.clear()


def _fuller(inferred: list[Any], static: list[Any]) -> list[Any]:
    """Return, output by output, the shape that says more."""
    if len(inferred) != len(static):
        return inferred
    return [new if is_full(new) or not is_full(old) else old for new, old in zip(inferred, static, strict=True)]
