"""Variables: where each lives, who reads and writes it, what of it crosses, and whether it must be there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.origins import is_resource
from tfplace.model import schema
from tfplace.model.trace import Trace
from tfplace.units import shape_bytes


@dataclass
class Variable:
    """A variable or table found in the graph.

    Attributes:
        node: Defining node: VariableV2, VarHandleOp, table op, or the resource `_Arg`.
        kind: ref, resource or table.
        name: Its name, or a description of the argument.
        named: False where `name` is a description.
        readers: Nodes that take its value, or rows of it.
        writers: Nodes that change it.
    """

    node: int
    kind: str
    name: str
    named: bool
    dtype: str | None
    shape: str | None
    num_bytes: int | None
    readers: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    aliases: list[int] = field(default_factory=list)


def _argument(context: dict[str, Any], graph: str, index: int | None) -> dict[str, Any]:
    """Return what capture stored about argument `index` of the function that `graph` belongs to."""
    group = graph.partition("/")[0]
    functions = context.get("functions")
    for function in functions if isinstance(functions, list) else []:
        if isinstance(function, dict) and function.get("graph") == group:
            for argument in function.get("arguments") or []:
                if isinstance(argument, dict) and argument.get("index") == index:
                    return argument
    return {}


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, tuple) and values else None


def _from_handle(flow: Dataflow, node: int, context: dict[str, Any]) -> Variable | None:
    """Describe a resource `_Arg`; null for iterators and other handles that are not variables."""
    attrs = flow.attrs[node]
    dtype, shape = _first(attrs.get("_handle_dtypes")), _first(attrs.get("_handle_shapes"))
    index = attrs.get("index")
    known = _argument(context, flow.graph[node], index)
    consumers = [flow.op[consumer] for consumer in flow.successors(node)]
    if dtype is None and any(op.startswith("LookupTable") for op in consumers):
        kind = "table"
    elif dtype is None and not any(op in ops.VARIABLE_READS or ops.WRITES.match(op) for op in consumers):
        return None
    else:
        kind = "resource"
    shape = shape or known.get("shape")
    dtype = dtype or known.get("dtype")
    name = str(known.get("name") or "").removesuffix(":0")
    name = name or _describe_argument(flow.name[node], index, dtype, shape)
    size = shape_bytes(dtype, shape)
    return Variable(node, kind, name, bool(known.get("name")), dtype, shape, size)


def _describe_argument(node_name: str, index: int | None, dtype: str | None, shape: str | None) -> str:
    position = f"argument {index}" if index is not None else f"argument {node_name}"
    return f"{position} ({dtype or 'type unknown'} {shape or 'shape unknown'})"


def _from_node(flow: Dataflow, node: int) -> Variable:
    attrs = flow.attrs[node]
    if ops.is_table(flow.op[node]):
        return Variable(node, "table", flow.name[node], True, attrs.get("value_dtype"), None, None)
    kind = "ref" if flow.op[node] in ops.REF_VARIABLES else "resource"
    dtype, shape = attrs.get("dtype"), attrs.get("shape")
    if kind == "ref" and dtype is None:
        dtype, shape = flow.value_type(node, 0)
    size = shape_bytes(dtype, shape)
    if size is None and kind == "ref":
        size = flow.value_bytes(node, 0)
    name = flow.name[node]
    shared = attrs.get("shared_name")
    return Variable(node, kind, str(shared) if kind == "resource" and shared else name, True, dtype, shape, size)


def _touching(flow: Dataflow, variable: Variable) -> None:
    """Fill in readers and writers by walking the handle (or reference) forward."""
    is_ref = variable.kind == "ref"
    stack, seen = [variable.node], {variable.node}
    while stack:
        node = stack.pop()
        for consumer, consumer_slot, _ in _consumers(flow, node):
            if consumer in seen:
                continue
            op = flow.op[consumer]
            if ops.WRITES.match(op) and not (is_ref and consumer_slot > 0 and not _writes_slot(op, consumer_slot)):
                variable.writers.append(consumer)
                if is_ref:  # Assign and Apply hand the reference on
                    seen.add(consumer)
            elif op in ops.VARIABLE_CHECKS:
                continue
            elif op in ops.IDENTITIES and (not is_ref or op.startswith("Ref") or op in ("Enter", "Switch")):
                stack.append(consumer)
                variable.aliases.append(consumer)
            else:
                variable.readers.append(consumer)
            seen.add(consumer)
    variable.readers = sorted(set(variable.readers))
    variable.writers = sorted(set(variable.writers))


def _consumers(flow: Dataflow, node: int) -> list[tuple[int, int, int]]:
    """Data consumers with Send / Recv bridged; the slot is the consumer's."""
    found = []
    for consumer, slot, own in flow.outputs(node):
        recv = flow.recv_of.get(consumer)
        if recv is None:
            found.append((consumer, slot, own))
        else:
            found.extend(flow.outputs(recv))
    return found


def _writes_slot(op: str, slot: int) -> bool:
    """Tell whether an update op also changes the variable given as input `slot`: optimizer slots do.

    Source: tensorflow/core/ops/training_ops.cc (var, then accumulators, then scalars and the gradient).
    """
    slots = {"Momentum": 2, "KerasMomentum": 2, "Adam": 3, "AdaMax": 3, "Adagrad": 2, "AdagradV2": 2}
    slots |= {"Adadelta": 3, "RMSProp": 3, "CenteredRMSProp": 4, "Ftrl": 3, "FtrlV2": 3, "AdamWithAmsgrad": 4}
    for name, count in slots.items():
        if op.endswith(f"Apply{name}"):
            return slot < count
    return slot == 0


def find_variables(flow: Dataflow, context: dict[str, Any]) -> list[Variable]:
    """Return every variable and table of the trace, in node order, with who reads and writes it."""
    found: list[Variable] = []
    by_handle: dict[tuple[Any, ...], Variable] = {}
    twins: Counter[tuple[Any, ...]] = Counter()
    for node, op in enumerate(flow.op):
        variable = None
        if is_resource(flow, node):
            variable = _from_handle(flow, node, context)
        elif ops.is_variable(op) or ops.is_table(op):
            variable = _from_node(flow, node)
        if variable is None:
            continue
        _touching(flow, variable)
        key: tuple[Any, ...] = (variable.name, flow.device[node], variable.dtype, variable.shape)
        if op in ops.FEEDS:
            # two arguments of one graph are two variables, also when both are called 'Variable'
            here = (flow.graph[node].partition("/")[0], key)
            twins[here] += 1
            key = (*key, twins[here])
        same = by_handle.get(key) if variable.named and variable.kind != "ref" else None
        if same is None:
            by_handle[key] = variable
            found.append(variable)
        else:  # a handle may stand in several graphs: forward and backward functions, several runs
            same.readers = sorted({*same.readers, *variable.readers})
            same.writers = sorted({*same.writers, *variable.writers})
            same.aliases += [variable.node, *variable.aliases]
    return found


def owners(variables: list[Variable]) -> dict[int, int]:
    """Return {node: variable id} for defining nodes and the nodes that hand their handle on."""
    return {node: i for i, v in enumerate(variables) for node in (v.node, *v.aliases)}


def variable_rows(
    trace: Trace, flow: Dataflow, found: list[Variable], moved: pd.DataFrame, verdicts: list[dict[str, Any]]
) -> pd.DataFrame:
    """Assemble the variables table.

    Args:
        trace: The trace, for requested devices and sources.
        flow: Its dataflow.
        found: Variables, by id.
        moved: One row per variable id: destinations, read_bytes_per_step, written_bytes_per_step,
            copied_each_step, rows_only.
        verdicts: One dict per variable: verdict, reason, has_gpu_kernel.

    Returns:
        Table `variables`.
    """
    nodes = [v.node for v in found]
    known = trace.nodes.loc[nodes, ["requested_device", "source", "device_id"]].reset_index(drop=True)
    frame = pd.DataFrame(
        {
            "variable_id": range(len(found)),
            "node_id": nodes,
            "name": [v.name for v in found],
            "named": [v.named for v in found],
            "kind": [v.kind for v in found],
            "device_id": known["device_id"],
            "requested_device": known["requested_device"],
            "dtype": [v.dtype for v in found],
            "shape": [v.shape for v in found],
            "num_bytes": [v.num_bytes for v in found],
            "has_gpu_kernel": [v["has_gpu_kernel"] for v in verdicts],
            "readers": [tuple(v.readers) for v in found],
            "writers": [tuple(v.writers) for v in found],
            "verdict": [v["verdict"] for v in verdicts],
            "reason": [v["reason"] for v in verdicts],
            "source": known["source"],
        },
        index=range(len(found)),
    )
    return schema.conform("variables", pd.concat([frame, moved], axis=1)) if len(found) else schema.empty("variables")
