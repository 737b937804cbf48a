"""Tracing runs of a v1 Session: what TensorFlow's own FULL_TRACE gives, several runs joined into one file."""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections.abc import Iterable
from typing import Any

from tfplace.capture import context as contexts
from tfplace.capture import guard, profiler, recording
from tfplace.capture.assemble import drop_large_constants
from tfplace.capture.clock import Step
from tfplace.capture.kernels import gpu_kernels, ops_of
from tfplace.capture.lines import BUDGET_S
from tfplace.capture.schedule import Options
from tfplace.capture.slot import Holder, claim, release
from tfplace.capture.sources import line_of
from tfplace.capture.tf_api import tensorflow
from tfplace.capture.writer import write_trace

_SUFFIX = re.compile(r"/_\d+$")
_FEED_OR_FETCH = re.compile(r"^_(?:arg|retval)_(?P<name>.+)_\d+_\d+$", re.S)
_VARIABLES = ("VariableV2", "Variable", "VarHandleOp")


class SessionRecording(Holder):
    """Captures runs of one step; driven by `SessionHook` and `trace_session`.

    Attributes:
        done: Nothing more is captured.
    """

    def __init__(self, options: Options, step_name: str) -> None:
        self.options = options
        self.step_name = step_name
        self.guard = guard.Guard()
        self.guard.when_exhausted(self.abandon)
        self.notes = contexts.Notes()
        self.done = False
        self._graph: Any = None
        self._metadata: list[Any] = []
        self._steps: list[Step] = []
        self._own_ns: list[int] = []
        self._current: Step | None = None
        self._is_live = False
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def enter(self, graph: Any) -> Step | None:
        """A run is about to begin; null = it is not captured. `step.timed` says whether it is to be traced."""
        if self.done:
            return None
        try:
            step: Step | None = self.guard.run("before", self._enter, graph)
            return step
        except BaseException:
            self.abandon()
            raise

    def leave(self, step: Step, metadata: Any, error: BaseException | None = None) -> None:
        """That run is over; `metadata` is its RunMetadata (null where it was not traced)."""
        try:
            self.guard.run("after", self._leave, step, metadata, error)
        except BaseException:
            self.abandon()
            raise
        finally:
            self._current = None

    def finish(self) -> None:
        """Write what there is and stop; does nothing the second time."""
        with self._lock:
            if self.done:
                return
            self.done = True
        try:
            if os.getpid() == self._pid:
                self.guard.run("finish", self._finish)
        finally:
            self.abandon()

    def forget(self) -> None:
        """In a forked child: stop without a file."""
        self.abandon()

    def _enter(self, graph: Any) -> Step | None:
        with self._lock:
            if self.done or self._current is not None:
                return None
            if not self._is_live:
                if not claim(self):
                    self.done = True
                    guard.warn(f"'{self.step_name}' is not captured: another capture is on.")
                    return None
                self._is_live = True
                atexit.register(self.finish)
            self._graph = graph
            number = len(self._steps)
            timed = self.options.is_timed(number)
            if timed and not profiler.probe():
                # with FULL_TRACE the user's own run would raise: two profilers cannot be on
                timed = False
                self.notes.add("profiler-busy", "another profiler was running, so runs were not traced.")
                guard.warn("another profiler is running: the run is not traced. End it first.", once="v1 profiler busy")
            step = self._current = Step(number, timed)
        step.begin()
        return step

    def _leave(self, step: Step, metadata: Any, error: BaseException | None) -> None:
        step.end()
        began = time.perf_counter_ns()
        if error is not None and type(error).__name__ in recording.NOT_STEPS:
            return
        step.failed = error is not None
        self._steps.append(step)
        if step.timed and metadata is not None:
            self._metadata.append(metadata)
            self._own_ns.append(time.perf_counter_ns() - began)
        if error is not None:
            self.notes.add("step-failed", contexts.failed_text(step.num, error))
        if error is not None or len(self._steps) >= self.options.last:
            self.finish()

    def _finish(self) -> None:
        began = time.perf_counter_ns()
        traced = [one for one in self._metadata if one.ByteSize()]
        if not traced:
            if any(one.timed for one in self._steps):
                guard.warn(f"no trace was written for '{self.step_name}': no traced run came to its end.")
            return
        message = self.guard.run("convert", join_runs, traced, default=traced[0])
        context = contexts.basics(self.options.made_by, self.step_name, self.options.accelerator)
        context["steps"], context["untimed_steps"] = contexts.describe_steps(self._steps)
        lines = self.guard.run("lines", _lines, self._graph, message.partition_graphs)
        if lines is not None:
            context["nodes"], context["variables"] = lines
        self.guard.run("shapes", _add_shapes, self._graph, message.partition_graphs)
        context["requested_devices"] = self.guard.run("devices", _requested, self._graph, message.partition_graphs)
        for graph in message.partition_graphs:
            self.guard.run("constants", drop_large_constants, graph)
        context["devices"], simulated = self.guard.run("devices", contexts.describe_devices, default=([], None))
        if simulated:
            context["simulated"] = simulated
        kernels = self.guard.run("kernels", gpu_kernels, ops_of(message.partition_graphs))
        if kernels is not None:
            context["kernels"] = kernels
        context.update(contexts.describe_overhead(self._steps, self._own_ns, began))
        context["notes"], context["faults"] = self.notes.as_list(), list(self.guard.messages)
        self.guard.run("write", write_trace, self.options.path, message, context)

    def abandon(self) -> None:
        """Stop without a file; safe to call twice."""
        self.done = True
        self._metadata = []
        if self._is_live:
            self._is_live = False
            atexit.unregister(self.finish)
        release(self)


def join_runs(runs: list[Any]) -> Any:
    """Return one RunMetadata of several: rows of a device one after another, equal graphs once."""
    message = tensorflow().config_pb2.RunMetadata()
    message.CopyFrom(runs[0])
    lanes = {lane.device: lane for lane in message.step_stats.dev_stats}
    graphs = {graph.SerializeToString(deterministic=True) for graph in message.partition_graphs}
    for run in runs[1:]:
        for lane in run.step_stats.dev_stats:
            if lane.device in lanes:
                lanes[lane.device].node_stats.extend(lane.node_stats)
            else:
                lanes[lane.device] = message.step_stats.dev_stats.add()
                lanes[lane.device].CopyFrom(lane)
        for graph in run.partition_graphs:
            data = graph.SerializeToString(deterministic=True)
            if data not in graphs:
                graphs.add(data)
                message.partition_graphs.add().CopyFrom(graph)
    return message


def _op(graph: Any, name: str) -> Any:
    """Return the op behind a partition's node: `x/_4`, `x/ctrl/_4`, `_arg_x_0_0` and `_retval_x_0_0` are x's."""
    plain = _SUFFIX.sub("", name).removesuffix("/ctrl")
    fed = _FEED_OR_FETCH.match(plain)
    for known in dict.fromkeys((name, plain, fed["name"] if fed else plain)):
        try:
            return graph.get_operation_by_name(known)
        except (KeyError, ValueError):
            continue
    return None


def _lines(graph: Any, partitions: Iterable[Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the `nodes` and `variables` of the context: in a v1 graph every op has its line."""
    deadline = time.monotonic() + BUDGET_S
    nodes: dict[str, Any] = {}
    variables: dict[str, str] = {}
    sent: dict[str, str] = {}
    found: list[dict[str, str]] = []
    partitions = list(partitions)
    for partition in partitions:
        lines: dict[str, str] = {}
        for node in partition.node:
            if time.monotonic() > deadline or node.op in ("_Recv", "_HostRecv"):
                continue
            source = node.input[0].lstrip("^").partition(":")[0] if node.op in ("_Send", "_HostSend") else node.name
            op = _op(graph, source)
            line = line_of(op.traceback or ()) if op is not None else None
            if line is None:
                continue
            lines[node.name] = line
            if node.op in _VARIABLES:
                variables[node.name] = line
            elif node.op in ("_Send", "_HostSend"):
                sent[node.attr["tensor_name"].s.decode("utf-8", "replace")] = line
        found.append(lines)
    for number, (partition, lines) in enumerate(zip(partitions, found, strict=True)):
        for node in partition.node:
            if node.op in ("_Recv", "_HostRecv"):
                line = sent.get(node.attr["tensor_name"].s.decode("utf-8", "replace"))
                if line is not None:
                    lines[node.name] = line
        nodes[f"partition:{number}"] = contexts.compact_lines(lines)
    return nodes, variables


def _requested(graph: Any, partitions: Iterable[Any]) -> dict[str, Any]:
    """Return the `requested_devices` of the context."""
    found = {}
    for node in (node for partition in partitions for node in partition.node):
        op = _op(graph, node.name)
        is_runtimes_own = bool(_SUFFIX.search(node.name)) and op is not None and op.type != node.op
        if op is not None and op.device and not is_runtimes_own:
            found[node.name] = op.device
    devices = sorted(set(found.values()))
    return {"devices": devices, "of": {name: devices.index(device) for name, device in found.items()}}


def _add_shapes(graph: Any, partitions: Iterable[Any]) -> None:
    for partition in partitions:
        for node in partition.node:
            op = None if node.op in ("_Send", "_HostSend", "_Recv", "_HostRecv") else _op(graph, node.name)
            if op is not None and op.type == node.op and op.outputs and "_output_shapes" not in node.attr:
                node.attr["_output_shapes"].list.shape.extend(tensor.shape.as_proto() for tensor in op.outputs)
