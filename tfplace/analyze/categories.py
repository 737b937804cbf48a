"""What a crossing value is: a variable's value, input, gradient, activation, constant, fetch, shape."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.origins import Origin, made_of_gradients, trace_origin, updates_from
from tfplace.analyze.pairs import Pair, is_fetch

_WHOLE = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"})
_DEFAULT_VALUE = 2  # LookupTableFindV2(table, keys, default_value)
_SHAPE_BYTES = 256  # shapes and axes are a handful of whole numbers; a batch of labels is not


@dataclass(frozen=True)
class Cargo:
    """What a pair carries.

    Attributes:
        category: As in `schema.TRANSFERS`.
        origin: Where the value comes from; null for control edges and unknown producers.
        updates: Update ops (ApplyGradientDescent ...) that take the value.
    """

    category: str
    origin: Origin | None
    updates: tuple[int, ...] = ()


def _is_shape(flow: Dataflow, pair: Pair, dtype: str | None, num_bytes: int | None) -> bool:
    if dtype not in ("int32", "int64") or (num_bytes or 0) > _SHAPE_BYTES:
        return False
    near = [flow.op[c] for c in pair.consumers]
    if pair.producer is not None:
        near.append(flow.op[pair.producer])
    return any(op in ops.SHAPE_OPS for op in near)


def _counts(flow: Dataflow, dtype: str | None, updates: tuple[int, ...]) -> bool:
    """Tell whether whole numbers are added to a counter: no gradient, other than row numbers of a sparse one."""
    sparse = any("Sparse" in flow.op[update] or "Scatter" in flow.op[update] for update in updates)
    return dtype in _WHOLE and not sparse


def _is_hyperparameter(flow: Dataflow, pair: Pair, updates: tuple[int, ...]) -> bool:
    """Tell whether a computed value only sets how updates work: a learning rate of a schedule."""
    return not updates and bool(pair.consumers) and all(ops.UPDATES.match(flow.op[c]) for c in pair.consumers)


def _is_default_value(flow: Dataflow, pair: Pair) -> bool:
    """Tell whether a value is only what look-ups of unknown keys give: a function captures it like an argument."""
    at = [(flow.op[reader], slot) for reader, slot, _ in flow.outputs(pair.recv)]
    return bool(at) and all(op.startswith("LookupTableFind") and slot == _DEFAULT_VALUE for op, slot in at)


def value_dtype(flow: Dataflow, pair: Pair) -> str | None:
    """Return the dtype that a pair carries: the Send states it."""
    attrs = flow.attrs[pair.send]
    dtype = attrs.get("T") or flow.attrs[pair.recv].get("tensor_type")
    if dtype is None and pair.producer is not None and pair.slot is not None:
        dtype = flow.value_type(pair.producer, pair.slot)[0]
    return None if dtype is None else str(dtype).removesuffix("_ref")


def classify(flow: Dataflow, pair: Pair, num_bytes: int | None) -> Cargo:
    """Say what a pair carries; the first that fits, from the most certain down."""
    if pair.is_control:
        return Cargo("control", None)
    if pair.producer is None or pair.slot is None:
        return Cargo("fetch" if is_fetch(flow, pair.consumers) else "unknown", None)
    return classify_value(flow, pair, num_bytes, pair.producer, pair.slot)


def classify_value(flow: Dataflow, pair: Pair, num_bytes: int | None, producer: int, slot: int) -> Cargo:
    """Say what the value of a known producer is."""
    origin = trace_origin(flow, producer, slot)
    dtype = value_dtype(flow, pair)
    updates = tuple(dict.fromkeys(u for consumer in pair.consumers for u in updates_from(flow, consumer, pair.recv)))
    if is_fetch(flow, pair.consumers):
        category = "fetch"
    elif origin.kind == "variable":
        category = "variable"
    elif _is_default_value(flow, pair):
        category = "constant"
    elif origin.kind == "input":
        category = "input"
    elif _is_shape(flow, pair, dtype, num_bytes):
        category = "shape"
    elif origin.kind == "constant":
        category = "constant"
    elif (updates and not _counts(flow, dtype, updates)) or made_of_gradients(flow, producer):
        category = "gradient"
    elif flow.op[producer] and not _is_hyperparameter(flow, pair, updates):
        category = "activation"
    else:
        category = "unknown"
    return Cargo(category, origin, updates)
