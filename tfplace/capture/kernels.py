"""Has an op a GPU kernel? Asked of the TensorFlow that trains, so that the answer fits its version."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from tfplace.capture.tf_api import tensorflow

LEAST_GPU_KERNELS = 2000  # a CUDA-built wheel registers about 5,000, tensorflow-cpu 470: that one cannot answer
VARIABLE_OPS = (
    "VarHandleOp",
    "VariableV2",
    "ReadVariableOp",
    "AssignVariableOp",
    "Assign",
    "ResourceGather",
    "Identity",
)
_RESOURCE = 20  # DataType.DT_RESOURCE: a handle, which says nothing of where the data is


def ops_of(graphs: Iterable[Any]) -> set[str]:
    """Return the ops of GraphDefs and of the functions in them, and those that a variable may be asked about."""
    ops = set(VARIABLE_OPS)
    for graph in graphs:
        ops.update(node.op for node in graph.node)
        ops.update(node.op for function in graph.library.function for node in function.node_def)
    return ops


def gpu_kernels(ops: Iterable[str]) -> dict[str, Any] | None:
    """Return {'tf_version', 'ops': {op: [registration, ...]}} for `ops`; null where this build cannot tell.

    A registration is {'types': {attribute: [dtype, ...]}, 'host_memory': [argument, ...]} and, where they
    are not the usual ones, 'on_host': true, 'fallback': true, 'label', 'priority'; [] = no GPU kernel.
    """
    tf = tensorflow()
    registry = importlib.import_module("tensorflow.python.framework.kernels")
    registered = registry.get_all_registered_kernels().kernel
    if sum(kernel.device_type == "GPU" for kernel in registered) < LEAST_GPU_KERNELS:
        return None
    wanted = {name for op in ops for name in (op, *_plain_names(op))}
    found: dict[str, list[dict[str, Any]]] = {op: [] for op in sorted(wanted) if not op.startswith("_Mkl")}
    known: set[str] = set()
    for kernel in registered:
        if kernel.op in found:
            known.add(kernel.op)
            if kernel.device_type in ("GPU", "DEFAULT"):
                row = _registration(kernel, tf)
                if row not in found[kernel.op]:
                    found[kernel.op].append(row)
    return {"tf_version": tf.version, "ops": {op: _merged(rows) for op, rows in found.items() if op in known}}


def _plain_names(op: str) -> Iterable[str]:
    """Yield what a rewrite for the CPU stands for: '_MklNativeFusedConv2D' -> '_FusedConv2D', 'Conv2D'."""
    plain = op
    for prefix in ("_MklNative", "_Mkl"):
        if plain.startswith(prefix):
            plain = plain.removeprefix(prefix)
            yield plain
            break
    plain = plain.removeprefix("_").removeprefix("PadWith").removesuffix("WithBias")
    if plain.startswith("Fused"):
        yield f"_{plain}"
        yield plain.removeprefix("Fused")


def _registration(kernel: Any, tf: Any) -> dict[str, Any]:
    types = {}
    for one in kernel.constraint:
        values = one.allowed_values.list
        names = [tf.tf.dtypes.as_dtype(number).name for number in values.type]
        types[one.name] = sorted(names or [text.decode() for text in values.s])
    host = sorted(set(kernel.host_memory_arg))
    row: dict[str, Any] = {"types": types, "host_memory": host}
    if _on_host(kernel.op, set(host)):
        row["on_host"] = True
    if kernel.device_type == "DEFAULT":
        row["fallback"] = True
    if kernel.label:
        row["label"] = kernel.label
    if kernel.priority:
        row["priority"] = kernel.priority
    return row


def _on_host(op: str, host: set[str]) -> bool:
    """Tell whether all data that the op gives (takes, where it gives none) is in host memory."""
    definition = importlib.import_module("tensorflow.python.framework.op_def_registry").get(op)
    for arguments in (definition.output_arg, definition.input_arg) if definition is not None else ():
        names = {argument.name for argument in arguments if argument.type != _RESOURCE}
        if names:
            return names <= host
    return False


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join kernels that differ in the types of one attribute only."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        types = row["types"]
        if len(types) != 1:
            groups[repr(row)] = row
            continue
        (name, values), rest = next(iter(types.items())), {key: value for key, value in row.items() if key != "types"}
        first = groups.setdefault(f"{name} {rest!r}", {**row, "types": {name: []}})
        first["types"][name] = sorted({*first["types"][name], *values})
    return list(groups.values())
