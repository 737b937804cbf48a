"""What is known of every node's outputs: dtype, shape and size, from the run itself or from the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.model import schema
from tfplace.read.raw import RawStepStats
from tfplace.read.tables.graph import DTYPE_NAMES, NodeRows
from tfplace.units import dtype_bytes, shape_bytes

# ops whose output 0 has the type that this attribute names
_DTYPE_ATTRS = {
    "_Arg": "T",
    "_DeviceArg": "T",
    "_Recv": "tensor_type",
    "_HostRecv": "tensor_type",
    "Cast": "DstT",
    "Const": "dtype",
    "Identity": "T",
    "Placeholder": "dtype",
    "PlaceholderWithDefault": "dtype",
    "ReadVariableOp": "dtype",
    "TemporaryVariable": "dtype",
    "Variable": "dtype",
    "VariableV2": "dtype",
}
_SHAPED = frozenset({"VariableV2", "Variable", "TemporaryVariable"})
_PASS_ON = frozenset({"Identity", "Enter", "RefEnter", "StopGradient", "PreventGradient"})  # output 0 = input 0
_LONGEST_CHAIN = 32
_LARGEST = 1 << 62  # a size beyond it is damage, and would not fit a column

Output = tuple[str | None, str | None, str]  # dtype, shape, evidence


def outputs_from_attrs(rows: NodeRows) -> pd.DataFrame:
    """Return `schema.OUTPUTS` of what attributes alone tell: constants, variables, arguments, and what reads them.

    The output of a `ReadVariableOp` has the dtype and shape of the handle that it reads; an `Identity` has those of
    its input.
    """
    known: dict[tuple[int, int], Output] = {}
    for node, attrs in enumerate(rows.attrs):
        for slot, output in _own_outputs(rows.op[node] or "", attrs):
            known[node, slot] = output
    producers = {dst: (src, src_slot or 0) for src, src_slot, dst, dst_slot, _ in rows.edges if dst_slot == 0}
    for node, op in enumerate(rows.op):
        if op == "ReadVariableOp":
            found = _behind_handle(rows, producers, node)
        elif op in _PASS_ON and (node, 0) not in known:
            found = _passed_on(rows, producers, known, node)
        else:
            continue
        if found:
            known[node, 0] = found
    return _frame(
        np.array([node for node, _ in known], dtype=np.int64),
        np.array([slot for _, slot in known], dtype=np.int64),
        dtype=[dtype for dtype, _, _ in known.values()],
        shape=[shape for _, shape, _ in known.values()],
        requested=[-1] * len(known),
        allocator=list[str | None]([None]) * len(known),
        evidence=[evidence for _, _, evidence in known.values()],
    )


def _own_outputs(op: str, attrs: dict[str, Any]) -> list[tuple[int, Output]]:
    dtype = attrs.get(_DTYPE_ATTRS.get(op, ""))
    dtype = dtype.removesuffix("_ref") if isinstance(dtype, str) else None
    value, shapes, shape = attrs.get("value"), attrs.get("_output_shapes"), attrs.get("shape")
    if op == "Const" and isinstance(value, dict):
        return [(0, (value["dtype"], value["shape"], "const"))]
    if op in _SHAPED and (dtype or shape):
        return [(0, (dtype, shape, "shape_attr"))]
    if isinstance(shapes, tuple) and shapes:
        types = [dtype if slot == 0 else None for slot in range(len(shapes))]
        pairs = zip(types, shapes, strict=True)
        return [(slot, (kind, text, "shape_attr")) for slot, (kind, text) in enumerate(pairs) if kind or text]
    if op in _DTYPE_ATTRS and dtype and op not in _PASS_ON:
        # old programs write an unknown shape of a placeholder as a scalar's
        known = shape if op == "Placeholder" and shape != "[]" else None
        return [(0, (dtype, known, "shape_attr"))]
    return []


def _behind_handle(rows: NodeRows, producers: dict[int, tuple[int, int]], node: int) -> Output | None:
    """Return dtype and shape of the variable that a ReadVariableOp reads."""
    handle = producers.get(node)
    for _ in range(_LONGEST_CHAIN):
        if handle is None:
            return None
        attrs = rows.attrs[handle[0]]
        op = rows.op[handle[0]]
        if op == "VarHandleOp":
            return attrs.get("dtype"), attrs.get("shape"), "shape_attr"
        dtypes, shapes = attrs.get("_handle_dtypes"), attrs.get("_handle_shapes")
        if dtypes and shapes:
            return dtypes[0], shapes[0], "shape_attr"
        if op not in _PASS_ON:
            return None
        handle = producers.get(handle[0])
    return None


def _passed_on(
    rows: NodeRows, producers: dict[int, tuple[int, int]], known: dict[tuple[int, int], Output], node: int
) -> Output | None:
    for _ in range(_LONGEST_CHAIN):
        source = producers.get(node)
        if source is None:
            return None
        if source in known:
            return known[source]
        node = source[0]
        if rows.op[node] not in _PASS_ON:
            return None
    return None


def outputs_from_stats(stats: RawStepStats, node_of_row: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Return `schema.OUTPUTS` of what a run recorded; of a node that ran several times, the last.

    Args:
        stats: One file's rows.
        node_of_row: int64[N], node id of each row; -1 for rows of no node.
    """
    node = node_of_row[stats.output_row] if len(stats.output_row) else np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(node >= 0)
    last = pd.DataFrame({"node": node[rows], "slot": stats.output_slot[rows]})
    rows = rows[(~last.duplicated(keep="last")).to_numpy()]
    dtypes = [DTYPE_NAMES.get(number) for number in stats.output_dtype[rows].tolist()]
    dtypes = [dtype.removesuffix("_ref") if dtype else None for dtype in dtypes]
    return _frame(
        node[rows],
        stats.output_slot[rows],
        dtype=dtypes,
        shape=[stats.output_shape[row] for row in rows.tolist()],
        requested=stats.output_bytes[rows].tolist(),
        allocator=[stats.output_allocator[row] or None for row in rows.tolist()],
        evidence=["step_stats"] * len(rows),
    )


def merge_outputs(recorded: Sequence[pd.DataFrame], stated: pd.DataFrame) -> pd.DataFrame:
    """Return one row per node and slot: what a run recorded wins over attributes, a later step over an earlier."""
    frames = [*reversed(recorded), stated]
    merged = pd.concat([f for f in frames if len(f)] or [schema.empty("outputs")], ignore_index=True)
    merged = merged[~merged.duplicated(["node_id", "slot"], keep="first")]
    return schema.conform("outputs", merged.sort_values(["node_id", "slot"], kind="stable"))


def _frame(
    node: npt.NDArray[np.int64],
    slot: npt.NDArray[np.int64],
    *,
    dtype: list[str | None],
    shape: list[str | None],
    requested: Sequence[int],
    allocator: list[str | None],
    evidence: Sequence[str],
) -> pd.DataFrame:
    """Return `schema.OUTPUTS` with sizes worked out.

    The size is that of the values; what was requested of the allocator (-1 unknown) may be a larger buffer that the
    value is a part of, and counts only where the shape is unknown and the dtype is one of fixed size.
    """
    sizes = {pair: shape_bytes(*pair) for pair in set(zip(dtype, shape, strict=True))}
    num_bytes: list[int | None] = []
    for kind, text, asked in zip(dtype, shape, requested, strict=True):
        size = sizes[kind, text]
        if size is None and text is None and asked >= 0 and dtype_bytes(kind) is not None:
            size = asked
        num_bytes.append(None if size is None else min(size, _LARGEST))
    frame: pd.DataFrame = pd.DataFrame(
        {
            "node_id": node,
            "slot": slot,
            "dtype": pd.Series(dtype, dtype=schema.TEXT),
            "shape": pd.Series(shape, dtype=schema.TEXT),
            "num_bytes": pd.Series(num_bytes, dtype=schema.REF),
            "allocator": pd.Series(allocator, dtype=schema.TEXT),
            "evidence": pd.Series(evidence, dtype=schema.TEXT),
        }
    )
    return frame
