"""Who is where, and why a node of a GPU job is on the host."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.kernels import KernelRegistry
from tfplace.analyze.pairs import Pair
from tfplace.analyze.variables import Variable
from tfplace.model.trace import Trace
from tfplace.names import parse_device

_REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")


def short_request(requested: str | None) -> str:
    """Return a requested device as a program writes it: '/device:CPU:0' for '/job:localhost/.../device:CPU:0'."""
    text = requested or ""
    return "/device:" + text.rpartition("/device:")[2] if text.startswith("/job:localhost/") else text


def is_control_dummy(flow: Dataflow, node: int) -> bool:
    """Tell whether the node is the empty Const that the partitioner sends for a control edge: nobody placed it."""
    if flow.op[node] != "Const" or flow.value_bytes(node, 0) != 0 or not flow.control_inputs(node):
        return False
    return all(flow.is_send(consumer) for consumer, _, _ in flow.outputs(node))


def sums_over_replicas(flow: Dataflow, node: int) -> bool:
    """Tell whether the node is the sum that a distribution strategy itself makes over its replicas.

    Source: tensorflow/python/distribute/cross_device_ops.py (_simple_reduce: an AddN under a device of its own choice);
    mirrored_run.py (names of all replicas but the first stand in a scope replica_N).
    """
    if flow.op[node] != "AddN" or _REPLICA.search(flow.name[node]):
        return False
    scopes = [_REPLICA.search(flow.name[flow.source(producer, slot)[0]]) for producer, slot, _ in flow.inputs(node)]
    return len({scope and scope[1] for scope in scopes}) == len(scopes) > 1


def main_dtype(flow: Dataflow, node: int) -> str | None:
    """Return the type that decides placement: T or dtype, else that of the first output; null unknown."""
    for key in ("T", "dtype", "DstT", "out_type", "output_type"):
        value = flow.attrs[node].get(key)
        if isinstance(value, str):
            return value.removesuffix("_ref")
    return flow.value_type(node, 0)[0]


def count_placement(flow: Dataflow) -> pd.DataFrame:
    """Count nodes by device and op.

    Returns:
        Columns: device_id (Int64), op (string), nodes (int64); by device, then count down, then op.
    """
    counts = Counter(zip(flow.device, flow.op, strict=True))
    rows = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    frame = pd.DataFrame(
        {
            "device_id": [None if device < 0 else device for (device, _), _ in rows],
            "op": [op for (_, op), _ in rows],
            "nodes": [count for _, count in rows],
        }
    )
    typed: pd.DataFrame = frame.astype({"device_id": "Int64", "op": "string", "nodes": "int64"})
    return typed


def reaching_device(flow: Dataflow, pairs: list[Pair]) -> set[int]:
    """Return the host nodes from which some value reaches an accelerator."""
    stack = [p.producer for p in pairs if p.direction == "H2D" and not p.is_control and p.producer is not None]
    seen = set(stack)
    while stack:
        for producer, _, _ in flow.inputs(stack.pop()):
            if producer not in seen and not flow.on_device[producer]:
                seen.add(producer)
                stack.append(producer)
    return seen


def colocation_groups(trace: Trace, flow: Dataflow) -> dict[int, list[int]]:
    """Return {node: the other members of its colocation group}."""
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    groups = trace.nodes["colocation_group"].astype("object").tolist()
    for node, group in enumerate(groups):
        if isinstance(group, str):
            members[flow.graph[node].partition("/")[0], group].append(node)
    for (graph, group), nodes in members.items():
        nodes += [n for n in flow.find(group) if flow.graph[n].partition("/")[0] == graph and n not in nodes]
    return {node: [m for m in nodes if m != node] for nodes in members.values() for node in nodes}


class Placer:
    """Answers why a node is on the host, from what the trace and the kernel registry tell."""

    def __init__(
        self, trace: Trace, flow: Dataflow, kernels: KernelRegistry, variables: Sequence[Variable] = ()
    ) -> None:
        self._flow = flow
        self._variable_of = {n: v.name for v in reversed(variables) for n in (*v.readers, *v.writers)}
        accelerators = trace.devices[trace.devices["role"] == "device"]
        self._accelerators = [parse_device(name) for name in accelerators["full_name"].dropna().tolist()]
        self._kernels = kernels
        self._requested = trace.nodes["requested_device"].astype("object").tolist()
        self._groups = colocation_groups(trace, flow)
        self._answers: dict[int, bool | None] = {}

    def requested(self, node: int) -> str | None:
        """Return the requested device; '' none asked, null unknown."""
        value = self._requested[node]
        return value if isinstance(value, str) else None

    def asked_for_host(self, node: int) -> bool:
        """Tell whether the program asked for a CPU that is not one playing the accelerator."""
        wanted = parse_device(self.requested(node) or "")
        if wanted.kind != "CPU":
            return False
        return not any(a.kind == "CPU" and a.ordinal == wanted.ordinal for a in self._accelerators)

    def has_gpu_kernel(self, node: int) -> bool | None:
        """Tell whether the node's op has a GPU kernel for its types; null unknown."""
        if node not in self._answers:
            self._answers[node] = self._kernels.has_gpu_kernel(self._flow.op[node], self._flow.attrs[node])
        return self._answers[node]

    def can_hold(self, variable_op: str, dtype: str) -> bool | None:
        """Tell whether a variable of this op and dtype can live on a GPU; null unknown."""
        return self._kernels.has_gpu_kernel(variable_op, {"dtype": dtype})

    def blocker(self, node: int) -> int | None:
        """Return a member of the node's colocation group that has no GPU kernel; null where none is known."""
        for member in self._groups.get(node, []):
            if not self._flow.on_device[member] and self.has_gpu_kernel(member) is False:
                return member
        return None

    def reason(self, node: int) -> tuple[str, str]:
        """Return (reason, one sentence) for a host node; the first reason that fits."""
        return next(self._fitting(node), ("unknown", "the trace does not tell why"))

    def _fitting(self, node: int) -> Iterator[tuple[str, str]]:
        """Yield every reason that fits, the most certain first."""
        op, dtype = self._flow.op[node], main_dtype(self._flow, node)
        if self.asked_for_host(node) and sums_over_replicas(self._flow, node):
            asked = short_request(self.requested(node))
            yield "strategy-request", f"the distribution strategy asked for {asked}, to sum over its replicas there"
        if self.asked_for_host(node):
            yield "user-request", f"the program asked for {short_request(self.requested(node))}"
        if ops.DATASETS.search(op) or ops.INPUTS.match(op):
            yield "input-pipeline", f"{op} belongs to the input pipeline"
        if dtype == "int32":
            yield "int32-host", "TensorFlow keeps int32 values in host memory"
        if dtype in ("string", "variant"):
            yield "string", f"{dtype} values live in host memory only"
        if ops.is_table(op) or op.startswith("LookupTable"):
            yield "resource", f"{op} works on a look-up table, which lives on the host"
        if self.has_gpu_kernel(node) is False:
            yield "no-gpu-kernel", f"{op} has no GPU kernel" + (f" for {dtype}" if dtype else "")
        blocker = self.blocker(node)
        if blocker is not None:
            yield "colocation", f"colocated with {self._flow.name[blocker]} ({self._flow.op[blocker]}, no GPU kernel)"
        if node in self._variable_of:
            yield "variable", f"it reads or writes {self._variable_of[node]}, which is on the host"
        if dtype == "int64" and op in ops.SHAPE_OPS:
            yield "grappler", "small shape arithmetic, which the graph optimizer keeps on the host"

    def reasons(self, pairs: list[Pair]) -> pd.DataFrame:
        """Explain every host node, the runtime's own nodes left out.

        Returns:
            Columns: node_id (int64), reason (string), detail (string), harmless (bool).
        """
        sending = reaching_device(self._flow, pairs)
        nodes = [
            n
            for n in range(len(self._flow))
            if self._flow.device[n] >= 0
            and not self._flow.on_device[n]
            and self._flow.op[n] not in ops.BOOKKEEPING
            and not is_control_dummy(self._flow, n)
        ]
        answers = [self.reason(n) for n in nodes]
        frame = pd.DataFrame(
            {
                "node_id": nodes,
                "reason": [reason for reason, _ in answers],
                "detail": [detail for _, detail in answers],
                "harmless": [n not in sending for n in nodes],
            }
        )
        typed: pd.DataFrame = frame.astype(
            {"node_id": "int64", "reason": "string", "detail": "string", "harmless": "bool"}
        )
        return typed
