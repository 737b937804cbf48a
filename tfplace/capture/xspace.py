"""The profiler's XSpace as the step_stats that a v1 Session would have given.

GPU lanes are named as TensorFlow's own converter names them (tensorflow/core/profiler/convert/
xplane_to_step_stats.cc), so that its Timeline and every reader of its traces understand them. That
converter leaves out the host's op rows; here each is put on the device of its partition, found by ids:
op row -> enclosing ExecutorState::Process (`_c`) -> FunctionRun (`_p`) -> EagerExecute (the function).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfplace.capture.graphs import Function
from tfplace.capture.tf_api import tensorflow

GPU_PLANE = re.compile(r"^/device:(GPU|TPU|CUSTOM):\d+")
_PROCESS, _RUN, _EAGER = "ExecutorState::Process", "FunctionRun", "EagerExecute"
_ASYNC_START, _ASYNC_DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
_OP_ROW = re.compile(r"^(?P<name>.+):(?P<op>[A-Z_][A-Za-z0-9_>]*)$", re.S)
_TRANSFERS = frozenset(("_Send", "_Recv", "_HostSend", "_HostRecv"))  # TensorFlow's step_stats leave them out too
EPOCH_NS = 10**17  # 1973: later times are absolute, earlier ones count from the profiler's start


class Row(NamedTuple):
    """One op on a host thread; `context` is the executor's id, 0 = unknown."""

    name: str
    op: str
    start_ns: int
    end_ns: int
    thread: int
    context: int


@dataclass
class HostEvents:
    """What the host threads tell.

    Attributes:
        rows: Ops.
        function_of: {executor id: name of the function it runs}.
        threads: {thread number: name}.
        launches: {correlation id: (time, thread number)} of GPU launches.
    """

    rows: list[Row] = field(default_factory=list)
    function_of: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    launches: dict[int, tuple[int, int]] = field(default_factory=dict)
    argument_copies: Counter[tuple[str, str]] = field(default_factory=Counter)


def step_stats_from_xspace(data: bytes, functions: Iterable[Function], started_ns: int) -> tuple[Any, HostEvents]:
    """Convert one profile.

    Args:
        data: XSpace, serialized.
        functions: Those that ran, with their partition graphs.
        started_ns: When the profiler was started, for profiles that do not say.

    Returns:
        StepStats message, and the host events it was made of.
    """
    tf = tensorflow()
    space = tf.xplane_pb2.XSpace()
    space.ParseFromString(data)
    base = _profile_start(space) or started_ns
    host = HostEvents()
    for plane in space.planes:
        if plane.name.startswith("/host:"):
            _read_host(plane, base, host)
    stats = tf.step_stats_pb2.StepStats()
    _write_host(stats, host, list(functions))
    for plane in space.planes:
        if GPU_PLANE.match(plane.name):
            _write_device(stats, plane, base, host.launches)
    return stats, host


def _profile_start(space: Any) -> int:
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
                return int(stat.uint64_value or stat.int64_value)
    return 0


def _line_start(line: Any, base: int) -> int:
    return int(line.timestamp_ns) if line.timestamp_ns > EPOCH_NS else base + int(line.timestamp_ns)


def stats_of(event: Any, plane: Any) -> dict[str, Any]:
    """Return {name: value} of an event's stats."""
    found = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind) if kind else None
        if kind == "ref_value":
            value = plane.stat_metadata[value].name
        found[plane.stat_metadata[stat.metadata_id].name] = value
    return found


# ---- host threads ------------------------------------------------------------------------------------


def _read_host(plane: Any, base: int, host: HostEvents) -> None:
    starts: dict[Any, Row] = {}
    for line in plane.lines:
        thread = len(host.threads) + 1
        host.threads[thread] = line.name or f"thread {thread}"
        reader = _ThreadReader(plane, thread, host, starts)
        origin = _line_start(line, base)
        for event in sorted(line.events, key=lambda one: (one.offset_ps, -one.duration_ps)):
            start = origin + event.offset_ps // 1000
            reader.read(event, start, start + event.duration_ps // 1000)


class _ThreadReader:
    """Reads the events of one host thread in the order of their start; they nest.

    Args:
        starts: {id: row without its end} of async ops, shared by all threads: they end on another one.
    """

    def __init__(self, plane: Any, thread: int, host: HostEvents, starts: dict[Any, Row]) -> None:
        self._plane = plane
        self._names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
        self._thread = thread
        self._host = host
        self._starts = starts
        self._processes: list[tuple[int, int]] = []  # (end, executor id) of those around the current event
        self._calls: list[tuple[int, str]] = []  # (end, function) of the eager calls around it

    def read(self, event: Any, start: int, end: int) -> None:
        """Take in the next event."""
        for enclosing in (self._processes, self._calls):
            while enclosing and enclosing[-1][0] < start:
                enclosing.pop()
        name = self._names.get(event.metadata_id, "")
        if name in (_PROCESS, _RUN, _EAGER):
            self._enter(name, stats_of(event, self._plane), end)
        elif name in (_ASYNC_START, _ASYNC_DONE):
            self._read_async(name, stats_of(event, self._plane), start, end)
        else:
            self._read_op(event, name, start, end)

    def _enter(self, name: str, stats: dict[str, Any], end: int) -> None:
        if name == _PROCESS:
            self._processes.append((end, int(stats.get("_c", 0))))
        elif name == _EAGER:
            self._calls.append((end, str(stats.get("eager_op", ""))))
        elif self._calls:
            self._host.function_of[int(stats.get("_p", 0))] = self._calls[-1][1]

    def _read_async(self, name: str, stats: dict[str, Any], start: int, end: int) -> None:
        if name == _ASYNC_START:
            node, op = str(stats.get("name", "")), str(stats.get("kernel_type", ""))
            self._starts[stats.get("_p")] = Row(node, op, start, end, self._thread, self._context)
        elif stats.get("_c") in self._starts:
            self._host.rows.append(self._starts.pop(stats.get("_c"))._replace(end_ns=end))

    def _read_op(self, event: Any, name: str, start: int, end: int) -> None:
        match = _OP_ROW.match(name) if self._processes and "::" not in name else None
        if match and self._plane.event_metadata[event.metadata_id].display_name in ("", match["op"]):
            self._host.rows.append(Row(match["name"], match["op"], start, end, self._thread, self._context))
            return
        if name.startswith("_Send input ") and self._calls:
            self._host.argument_copies[self._calls[-1][1], name] += 1
        for stat in event.stats:
            if self._plane.stat_metadata[stat.metadata_id].name == "correlation_id":
                self._host.launches[int(stat.uint64_value or stat.int64_value)] = (start, self._thread)

    @property
    def _context(self) -> int:
        return self._processes[-1][1] if self._processes else 0


def _write_host(stats: Any, host: HostEvents, functions: list[Function]) -> None:
    by_context: dict[int, list[Row]] = defaultdict(list)
    for row in host.rows:
        if row.op not in _TRANSFERS:
            by_context[row.context].append(row)
    parts = [
        (one.name, graph.node[0].device, {node.name: node for node in graph.node})
        for one in functions
        for graph in one.partitions
        if graph.node
    ]
    lanes: dict[str, Any] = {}
    for context, rows in by_context.items():
        device, nodes = _partition_of(rows, parts, host.function_of.get(context))
        if device is None:
            continue  # an eager op or a helper of the input pipeline: no graph of the step holds it
        lane = lanes.get(device)
        if lane is None:
            lane = lanes[device] = stats.dev_stats.add(device=device)
            for thread, name in host.threads.items():
                lane.thread_names[thread] = name
        for row in rows:
            node = nodes.get(row.name)
            inputs = ", ".join(node.input) if node is not None else ""
            added = _add_row(lane, row.name, f"{row.name} = {row.op}({inputs})", row.start_ns, row.end_ns)
            added.thread_id = row.thread


def _partition_of(
    rows: list[Row], parts: list[tuple[str, str, dict[str, Any]]], function: str | None
) -> tuple[str | None, dict[str, Any]]:
    """Return device and nodes of the partition whose nodes the rows are."""
    names = {row.name for row in rows}
    own = [part for part in parts if part[0] == function] or parts
    best = max(own, key=lambda part: len(names & part[2].keys()), default=None)
    if best is None or 2 * len(names & best[2].keys()) < len(names):
        return None, {}
    return best[1], best[2]


def _add_row(lane: Any, name: str, label: str, start_ns: int, end_ns: int) -> Any:
    length = max(0, end_ns - start_ns)
    return lane.node_stats.add(
        node_name=name,
        timeline_label=label,
        all_start_micros=start_ns // 1000,
        op_end_rel_micros=length // 1000,
        all_end_rel_micros=length // 1000,
        all_start_nanos=start_ns,
        op_end_rel_nanos=length,
        all_end_rel_nanos=length,
    )


# ---- GPU planes --------------------------------------------------------------------------------------


def _write_device(stats: Any, plane: Any, base: int, launches: dict[int, tuple[int, int]]) -> None:
    prefix = GPU_PLANE.match(plane.name)
    device = prefix.group(0) if prefix else plane.name
    lanes: dict[str, Any] = {}
    for line in plane.lines:
        origin = _line_start(line, base)
        for event in line.events:
            row = stats_of(event, plane)
            for lane_name, node, label in _device_rows(plane, line, event, row):
                lane = lanes.get(lane_name)
                if lane is None:
                    lane = lanes[lane_name] = stats.dev_stats.add(device=device + lane_name)
                start = origin + event.offset_ps // 1000
                added = _add_row(lane, node, label, start, start + event.duration_ps // 1000)
                launch = launches.get(int(row.get("correlation_id") or 0))
                if launch is not None:
                    added.scheduled_micros, added.scheduled_nanos = launch[0] // 1000, launch[0]
                    added.thread_id = launch[1]


def _device_rows(plane: Any, line: Any, event: Any, row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (lane, node name, label) twice: on its stream, and on the lane of all kernels or all copies."""
    name = plane.event_metadata[event.metadata_id].name
    annotation = str(row.get("tf_op") or "") or str(row.get("annotation") or "").partition("#")[0]
    node = annotation or name
    if "memcpy_details" in row:
        label = f"{name} {row['memcpy_details']}"
        yield f"/stream:{line.id}<{name}>", node, label
        yield "/memcpy", node, label
    elif "kernel_details" in row:
        label = f"{name} {row['kernel_details']}"
        yield f"/stream:{line.id}", node, label
        yield "/stream:all", node, label
    elif annotation:
        yield "/stream:", node, name
