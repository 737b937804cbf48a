"""Must a variable be on the host? One verdict and one reason for each, nothing the trace does not show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.origins import updates_from
from tfplace.analyze.placement import Placer, short_request
from tfplace.analyze.variables import Variable, owners
from tfplace.model.trace import Trace

_BUS = ("H2D", "D2H", "P2P")
_MOVED = ("variable_id", "dst_device_id", "num_bytes", "rows_only", "consumer_node_ids", "category", "recv_node_id")


@dataclass
class Movement:
    """What of one variable crosses the bus.

    Attributes:
        sent: Rows of transfers that carry its value, in all steps.
        read: {device that it goes to, null unknown: bytes of its value in all steps, null where a size is unknown}.
        rows_only: Its value crosses only as gathered rows.
        written_bytes: Bytes sent to its updates on the host in all steps; null where a size is unknown.
    """

    sent: int = 0
    read: dict[int | None, int | None] = field(default_factory=dict)
    rows_only: bool = False
    written_bytes: int | None = 0

    @property
    def destinations(self) -> tuple[int, ...]:
        """Devices that its value goes to."""
        return tuple(device for device in self.read if device is not None)

    @property
    def read_bytes(self) -> int | None:
        """Bytes of its value over the bus in all steps, all destinations; null where a size is unknown."""
        known = [size for size in self.read.values() if size is not None]
        return sum(known) if len(known) == len(self.read) else None


def _add(total: int | None, size: Any) -> int | None:
    return None if total is None or size is None or pd.isna(size) else total + int(size)


def measure_movement(flow: Dataflow, variables: list[Variable], transfers: pd.DataFrame) -> list[Movement]:
    """Return what crosses of each variable, by variable id."""
    moves = [Movement(rows_only=True) for _ in variables]
    owner = owners(variables)
    bus = transfers[transfers["direction"].isin(_BUS).fillna(False) & (transfers["category"] != "control")]
    for row in bus[[*_MOVED]].itertuples(index=False, name=None):
        variable, destination, size, rows_only, consumers, category, recv = row
        if not pd.isna(variable):
            _carry(moves[int(variable)], destination, size, bool(rows_only))
        if category == "variable":
            continue  # a value is not an update, also where an update reads it
        value = None if pd.isna(recv) else int(recv)
        updates = {u for consumer in consumers or () for u in updates_from(flow, consumer, value)}
        for update in updates:
            inputs = flow.inputs(update)
            target = owner.get(inputs[0][0]) if inputs else None
            if target is not None and not flow.on_device[update]:
                moves[target].written_bytes = _add(moves[target].written_bytes, size)
    for move in moves:
        move.rows_only = move.rows_only and move.sent > 0
    return moves


def _carry(move: Movement, destination: Any, size: Any, rows_only: bool) -> None:
    move.sent += 1
    move.rows_only = move.rows_only and rows_only
    device = None if pd.isna(destination) else int(destination)
    move.read[device] = _add(move.read.get(device, 0), size)


def movement_columns(moves: list[Movement], steps: int, edges_known: bool) -> pd.DataFrame:
    """Return the per-step columns of the variables table.

    Where neither a graph nor copies were recorded (`edges_known` False), no crossing means unknown, not none.
    """

    def per_step(total: int | None, seen: int) -> int | None:
        return None if total is None or (not edges_known and not seen) else round(total / steps)

    columns: pd.DataFrame = pd.DataFrame(
        {
            "destinations": [m.destinations for m in moves],
            "destination_bytes": [tuple(per_step(m.read[d], m.sent) for d in m.destinations) for m in moves],
            "read_bytes_per_step": pd.array([per_step(m.read_bytes, m.sent) for m in moves], dtype="Int64"),
            "written_bytes_per_step": pd.array([per_step(m.written_bytes, 0) for m in moves], dtype="Int64"),
            "copied_each_step": pd.array(
                [None if not edges_known and not m.sent else m.sent > 0 and not m.rows_only for m in moves],
                dtype="boolean",
            ),
            "rows_only": [m.rows_only for m in moves],
        },
        index=range(len(moves)),
    )
    return columns


class Judge:
    """Gives each variable its verdict.

    Verdicts: unnecessary, justified, harmless, on-device, unknown (see docs/report-json.md).
    """

    def __init__(self, trace: Trace, flow: Dataflow, placer: Placer, edges_known: bool) -> None:
        self._flow = flow
        self._placer = placer
        self._edges_known = edges_known
        self._labels = trace.devices["name"].fillna("").tolist()
        accelerators = trace.devices[trace.devices["role"] == "device"]
        self._has_accelerator = len(accelerators) > 0
        memory = accelerators["memory_bytes"].dropna()
        self._memory: int | None = int(memory.max()) if len(memory) else None

    def judge(self, variable: Variable, move: Movement) -> dict[str, Any]:
        """Return {verdict, reason, has_gpu_kernel}."""
        kernel = self._kernels_of(variable)
        verdict, reason = self._verdict(variable, move, kernel)
        return {"verdict": verdict, "reason": reason, "has_gpu_kernel": kernel}

    def _kernels_of(self, variable: Variable) -> bool | None:
        answers = [self._placer.has_gpu_kernel(n) for n in self._touched(variable)]
        if variable.kind == "resource" and variable.dtype is not None:
            answers.append(self._placer.can_hold("VarHandleOp", variable.dtype))
        if False in answers:
            return False
        return None if None in answers else True

    def _touched(self, variable: Variable) -> list[int]:
        own = [variable.node] if self._flow.op[variable.node] not in ops.FEEDS else []
        return own + [n for n in (*variable.readers, *variable.writers) if self._flow.op[n] not in ops.BOOKKEEPING]

    def _verdict(self, variable: Variable, move: Movement, kernel: bool | None) -> tuple[str, str]:
        device = self._flow.device[variable.node]
        if device < 0:
            return "unknown", "the trace does not tell where it lives"
        if self._flow.on_device[variable.node]:
            return "on-device", f"lives on {self._labels[device]}"
        if not self._has_accelerator:
            return "harmless", "the trace holds no accelerator that could read it"
        device_readers = [n for n in variable.readers if self._flow.on_device[n]]
        if not move.sent and not device_readers:
            if not self._edges_known:
                return "unknown", "no graph and no copies were recorded: what reads it is not known"
            return "harmless", "its value never leaves the host"
        return self._forced(variable, move, kernel)

    def _forced(self, variable: Variable, move: Movement, kernel: bool | None) -> tuple[str, str]:
        """Judge a host variable that an accelerator reads."""
        forced = next(self._forces(variable, move, kernel), None)
        if forced is not None:
            return "justified", forced
        if kernel is None:
            return "unknown", "not known whether all ops that touch it have GPU kernels"
        if variable.dtype is None:
            return "unknown", "its dtype is not recorded"
        free = "all ops that touch it have GPU kernels and nothing else holds it on the host"
        if self._placer.asked_for_host(variable.node):
            asked = short_request(self._placer.requested(variable.node))
            return "unnecessary", f"the program asked for {asked}; {free}"
        return "unnecessary", free

    def _forces(self, variable: Variable, move: Movement, kernel: bool | None) -> Iterator[str]:
        """Yield all that holds the variable on the host, the most certain first."""
        dtype = variable.dtype
        if variable.kind == "table":
            yield "a look-up table lives on the host only"
        if dtype in ("string", "variant"):
            yield f"{dtype} lives on the host only"
        if dtype == "int32":
            yield "TensorFlow keeps int32 variables in host memory"
        if move.rows_only:
            yield "only rows of it cross, not the whole table"
        if self._memory is not None and variable.num_bytes is not None and variable.num_bytes > self._memory:
            yield "it is larger than the accelerator's memory"
        if kernel is False:
            touched = self._touched(variable)
            lacking = [self._flow.op[n] for n in touched if self._placer.has_gpu_kernel(n) is False]
            yield f"{(lacking or ['VarHandleOp'])[0]} has no GPU kernel for {dtype or 'its type'}"
        blocker = self._placer.blocker(variable.node)
        if blocker is not None:
            yield f"colocated with {self._flow.name[blocker]}, and {self._flow.op[blocker]} has no GPU kernel"
