"""What the numbered arguments of a function are: variables by name, tables, iterators, or inputs."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tfplace.capture.graphs import Argument, Function
from tfplace.capture.sources import creation_of
from tfplace.capture.tf_api import tensorflow


@dataclass
class Holder:
    """The object behind a resource handle."""

    kind: str
    name: str
    dtype: str | None = None
    shape: list[int] | None = None
    rank: int = 0  # a better name wins


class Handles:
    """Names of resource handles, found once for a whole capture.

    Args:
        functions: Those whose arguments are to be named.
    """

    def __init__(self, functions: Iterable[Function]) -> None:
        self._holders: dict[int, Holder] = {}
        functions = list(functions)
        for function in functions:
            for variable in _variables_of(function.concrete):
                self._add_variable(variable, _plain(variable.name), 1)
        handles = {one.handle_id for function in functions for one in function.arguments if one.dtype == "resource"}
        if handles - self._holders.keys() or "keras" in sys.modules:
            self._walk_live_objects()

    def find(self, handle_id: int) -> Holder | None:
        """Return what is known of a handle."""
        return self._holders.get(handle_id)

    def _add_variable(self, variable: Any, name: str, rank: int) -> None:
        for part in _components(variable):
            handle_id = getattr(getattr(part, "_handle", None), "_id", None)
            if not isinstance(handle_id, int):
                continue
            known = self._holders.get(handle_id)
            if known is None or known.rank < rank:
                label = name if part is variable or not name else _replica_name(name, _plain(part.name))
                shape = part.shape
                dims = None if shape.rank is None else [-1 if d is None else int(d) for d in shape]
                self._holders[handle_id] = Holder("variable", label, part.dtype.base_dtype.name, dims, rank)

    def _walk_live_objects(self) -> None:
        """Look through all live objects once (100 ms): only they know Keras' paths, tables and iterators."""
        classes = _classes()
        kinds: dict[type, str] = {}  # by type: asking a million objects for their class would take a second
        for thing in gc.get_objects():
            cls = type(thing)  # not isinstance: that would run code of the user's objects
            kind = kinds.get(cls)
            if kind is None:
                kind = kinds[cls] = _kind_of(cls, classes)
            if kind:
                try:
                    self._add(kind, thing)
                except Exception:  # half-made objects live among these; they name nothing
                    continue

    def _add(self, kind: str, thing: Any) -> None:
        if kind == "keras":
            if thing._value is not None:
                self._add_variable(thing._value, str(thing.path), 2)
        elif kind == "variable":
            self._add_variable(thing, _plain(thing.name), 0)
        elif kind == "table":
            self._add_handle(thing._resource_handle, "table", _table_name(thing))
        else:
            self._add_handle(thing._iterator_resource, "iterator", "dataset iterator")

    def _add_handle(self, handle: Any, kind: str, name: str) -> None:
        handle_id = getattr(handle, "_id", None)
        if isinstance(handle_id, int):
            self._holders.setdefault(handle_id, Holder(kind, name))


def describe_arguments(function: Function, handles: Handles) -> list[dict[str, Any]]:
    """Return the `arguments` of one function, as `context.py` describes them."""
    requested = _requested_devices(function)
    names = function.argument_names
    constants = _constants(function.concrete)
    rows = []
    for argument in function.arguments:
        node_name = names[argument.index] if argument.index < len(names) else ""
        row = _describe(argument, node_name, handles, requested)
        if row["kind"] == "input" and argument.index in constants:
            row["kind"] = "constant"
        rows.append(row)
    return rows


def _constants(concrete: Any) -> frozenset[int]:
    """Return the positions of tensors that were made outside of the function, once, and are the same at each call."""
    try:
        captured = list(concrete._captured_inputs)  # the public property would call what is captured late
        first = len(concrete.inputs) - len(captured)
        return frozenset(first + n for n, one in enumerate(captured) if type(one).__name__ == "EagerTensor")
    except Exception:  # not known: then each counts as an input
        return frozenset()


def _describe(argument: Argument, node_name: str, handles: Handles, requested: dict[str, str]) -> dict[str, Any]:
    holder = handles.find(argument.handle_id) if argument.dtype == "resource" else None
    creation = creation_of(argument.handle_id) if argument.dtype == "resource" else None
    kind = holder.kind if holder else "resource" if argument.dtype == "resource" else "input"
    dtype = holder.dtype if holder else None if argument.dtype == "resource" else argument.dtype
    shape = holder.shape if holder else None if argument.dtype == "resource" else argument.shape
    return {
        "index": argument.index,
        "kind": kind,
        "name": holder.name if holder and holder.name else None if kind == "resource" else node_name,
        "node": node_name,
        "dtype": dtype,
        "shape": shape_text(shape),
        "bytes": _size(dtype, shape),
        "device": argument.device or None,
        "requested_device": creation.requested_device if creation else requested.get(node_name),
        "source": creation.source if creation else None,
    }


def shape_text(shape: list[int] | None) -> str | None:
    """Return '[32,10]', '[]' for a scalar, '?' for an unknown dimension; null for unknown rank."""
    if shape is None:
        return None
    return "[" + ",".join("?" if size < 0 else str(size) for size in shape) + "]"


def _size(dtype: str | None, shape: list[int] | None) -> int | None:
    """Return the bytes of a tensor; null where a dimension is not known, and for strings and handles."""
    if not dtype or dtype in ("string", "variant", "resource") or shape is None or min(shape, default=0) < 0:
        return None
    try:
        return int(tensorflow().tf.dtypes.as_dtype(dtype).size) * math.prod(shape)
    except Exception:  # a type that is not TensorFlow's own
        return None


def _requested_devices(function: Function) -> dict[str, str]:
    if function.graphs is None:
        return {}
    nodes = function.graphs.pre_optimization_graph.node
    return {node.name: node.device for node in nodes if node.op == "_Arg" and node.device}


def _variables_of(concrete: Any) -> Iterator[Any]:
    try:
        yield from concrete.graph.variables
    except Exception:  # the function's graph or some of its variables are gone: then others name them, or nobody
        return


def _components(variable: Any) -> Iterator[Any]:
    """Yield a variable, or the parts of a distributed one."""
    parts = getattr(variable, "_values", None)
    if isinstance(parts, tuple | list):
        for part in parts:
            yield from _components(part)
    elif hasattr(variable, "_handle"):
        yield variable


def _plain(name: Any) -> str:
    return str(name).removesuffix(":0")


def _replica_name(name: str, part: str) -> str:
    """Name one replica's part of a variable as TensorFlow does: 'dense/kernel/replica_1'."""
    _, mark, number = part.rpartition("/replica_")
    return f"{name}/replica_{number}" if mark and number.isdigit() and "/replica_" not in name else name


def _table_name(table: Any) -> str:
    return str(getattr(table, "_name", None) or getattr(table, "_table_name", None) or type(table).__name__)


def _classes() -> list[tuple[str, type]]:
    """Return the classes that hold handles, of those that are loaded; the first that fits decides."""
    places = (
        ("keras", "keras.src.backend.common.variables", "Variable"),
        ("keras", "keras.src.backend.common.variables", "KerasVariable"),  # its name before Keras 3.7
        ("variable", "tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable"),
        ("variable", "tensorflow.python.distribute.values", "DistributedVariable"),
        ("table", "tensorflow.python.trackable.resource", "CapturableResource"),
        ("iterator", "tensorflow.python.data.ops.iterator_ops", "OwnedIterator"),
    )
    found = ((kind, getattr(sys.modules.get(module), name, None)) for kind, module, name in places)
    return [(kind, cls) for kind, cls in found if isinstance(cls, type)]


def _kind_of(cls: type, classes: list[tuple[str, type]]) -> str:
    if cls.__name__ == "_UnreadVariable":  # what an assignment returns: the variable itself has the name
        return ""
    try:
        return next((kind for kind, known in classes if known in cls.__mro__), "")
    except Exception:  # a metaclass may forbid even that
        return ""
