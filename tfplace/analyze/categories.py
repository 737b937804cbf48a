"""What a crossing value is: a variable's value, input, gradient, activation, constant, fetch, shape."""

from __future__ import annotations

from dataclasses import dataclass

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.origins import Origin, trace_origin, updates_from
from tfplace.analyze.pairs import Pair, is_fetch

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


def _looks_like_gradient(flow: Dataflow, producer: int) -> bool:
    return bool(ops.GRADIENT_NAMES.search(flow.name[producer]) or ops.GRADIENTS.search(flow.op[producer]))


def _is_shape(flow: Dataflow, pair: Pair, dtype: str | None, num_bytes: int | None) -> bool:
    if dtype not in ("int32", "int64") or (num_bytes or 0) > _SHAPE_BYTES:
        return False
    near = [flow.op[c] for c in pair.consumers]
    if pair.producer is not None:
        near.append(flow.op[pair.producer])
    return any(op in ops.SHAPE_OPS for op in near)


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
    updates = tuple(dict.fromkeys(u for consumer in pair.consumers for u in updates_from(flow, consumer)))
    if is_fetch(flow, pair.consumers):
        category = "fetch"
    elif origin.kind in ("variable", "input"):
        category = origin.kind
    elif _is_shape(flow, pair, dtype, num_bytes):
        category = "shape"
    elif origin.kind == "constant":
        category = "constant"
    elif updates or _looks_like_gradient(flow, producer):
        category = "gradient"
    elif flow.op[producer]:
        category = "activation"
    else:
        category = "unknown"
    return Cargo(category, origin, updates)
