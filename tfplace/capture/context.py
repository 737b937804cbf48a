"""What RunMetadata has no field for: the context part of a trace file.

Constants of more than 4 kB are stored in the graphs with dtype and shape but without their values.

A JSON object. All keys may be missing; readers pass over what they do not know; additions only.

    tf_version         '2.21.0'
    tfplace_version    '0.1.0'
    made_by            'trace', 'capture', 'KerasCallback', 'SessionHook', 'trace_session' or 'record'
    step_name          what was captured: 'train_step', '__inference_one_step_on_iterator_1234', fetches of a run
    accelerator        'CPU:1': the CPU device that plays the accelerator; only where the user said so
    simulated          description of the simulated GPU; missing where the devices are real
    notes              [{'slug', 'text', 'count'}]: what is missing or was disturbed, in words for the user
    devices            [{'name', 'type', 'model', 'compute_capability', 'memory_bytes', 'peak_bytes', 'current_bytes'}]
                       memory_bytes: what TensorFlow may use of it; all but name and type only of what is no CPU
    steps              one per timed call, in order:
                       [{'num', 'start_ns', 'end_ns', 'wall_ns', 'cpu_time_ns', 'threads', 'failed'}]
                       num counts all calls from 0.
                       start_ns and end_ns are absolute, on the clock of step_stats; cpu_time_ns is the whole
                       process; threads is {thread name: CPU ns} or null where not known (not Linux). Threads of
                       Python are 'python:NAME'. A step of a record run ends where the next one starts.
    untimed_steps      the same of calls that were not timed: step_stats holds nothing of them
    functions          [{'graph', 'name', 'python_name', 'steps', 'jit', 'late', 'random', 'instantiations',
                       'called_by', 'source', 'arguments'}]
                       graph is 'function:K', K the index in RunMetadata.function_graphs; null where the function
                       gave no graphs (XLA). name is the runtime's ('__forward_step_31'). steps are the numbers of
                       the steps it ran in. late: its graphs came from a second instantiation.
                       arguments: [{'index', 'kind', 'name', 'node', 'dtype', 'shape', 'bytes', 'device',
                       'requested_device', 'source'}], index = `_Arg.index`; kind is variable, input, constant, table,
                       iterator or resource (a handle nobody names: name null); dtype and shape '[32,10]' of the
                       variable or input, bytes its size (null where a dimension is not known, and of strings);
                       device is where the value (for a variable: its memory) was at the first
                       call: where it differs from the `_Arg` node's device, the eager runtime copies it at every
                       call; requested_device '' = none asked, null = not known; source is the user's line that made
                       the variable.
    variables          v1 only: {variable op name: line}
    requested_devices  v1 only: {'devices': [device, ...], 'of': {node name: index in devices}}, where one was asked for
                       (compiled functions have it in pre_optimization_graph)
    nodes              {'function:K' or 'partition:K': {'lines': [line, ...], 'of': {node name: index in lines}}}
                       the user's line of each node; for `_Send` and `_Recv` that of the producer.
                       Shapes are not here but on the nodes, as attribute `_output_shapes`.
    argument_copies    {function name: {'_Send input 0 from X to Y': times}}: copies of arguments by the eager runtime
    kernels            {'tf_version', 'ops': {op: [registration, ...]}}, see `kernels.py`
    overhead_ns_per_step   what tracing added to one traced step: its own work before and after the call, plus how
                       much longer traced calls took than untraced ones (null part left out where none was untraced)
    overhead           {'own_ns_per_step', 'untraced_step_ns', 'traced_step_ns', 'finish_ns'}; finish_ns is spent once
    faults             [text]: what capture itself failed at
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Iterable
from typing import Any

from tfplace.capture.arguments import Handles, describe_arguments
from tfplace.capture.clock import Step
from tfplace.capture.graphs import Function
from tfplace.capture.tf_api import TensorFlow, tensorflow
from tfplace.version import __version__

SIMULATED_MARK = "simulated"
_RUNNING, _SIZES = "tensorflow.python.pywrap_tfe", "tensorflow.python.client.pywrap_tf_session"
_ALONE = "/job:localhost/replica:0/task:0"
PROFILER_BUSY = "another profiler was running, so nothing was timed; placement is complete."


def failed_text(number: int, error: BaseException) -> str:
    """Say that a step failed."""
    return f"step {number} raised {type(error).__name__}; this is what was seen before."


class Notes:
    """Facts about the capture that the report is to print, each kind once with a count."""

    def __init__(self) -> None:
        self._notes: dict[str, dict[str, Any]] = {}

    def add(self, slug: str, text: str) -> None:
        """Add one; a second of the same slug only raises the count."""
        note = self._notes.setdefault(slug, {"slug": slug, "text": text, "count": 0})
        note["count"] += 1

    def as_list(self) -> list[dict[str, Any]]:
        """Return them in the order in which they came up."""
        return list(self._notes.values())


def basics(made_by: str, step_name: str, accelerator: str | None) -> dict[str, Any]:
    """Return versions and origin."""
    context: dict[str, Any] = {
        "tf_version": tensorflow().version,
        "tfplace_version": __version__,
        "made_by": made_by,
        "step_name": step_name,
    }
    if accelerator is not None:
        context["accelerator"] = accelerator
    return context


def describe_functions(functions: Iterable[Function]) -> list[dict[str, Any]]:
    """Return the `functions` of the context; those with graphs come first, numbered as they are written."""
    functions = list(functions)
    handles = Handles(functions)
    rows, number = [], 0
    for function in functions:
        graph = None
        if function.graphs is not None:
            graph, number = f"function:{number}", number + 1
        rows.append(
            {
                "graph": graph,
                "name": function.name,
                "python_name": _python_name(function),
                "steps": sorted(function.steps),
                "jit": function.jit,
                "late": function.late,
                "random": function.is_random,
                "instantiations": function.instantiations,
                "called_by": function.called_by or None,
                "arguments": describe_arguments(function, handles),
            }
        )
    return rows


def _python_name(function: Function) -> str | None:
    return getattr(getattr(function.concrete, "graph", None), "name", None)


def describe_steps(steps: Iterable[Step]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the `steps` and the `untimed_steps` of the context."""
    steps = list(steps)
    return [step.as_dict() for step in steps if step.timed], [step.as_dict() for step in steps if not step.timed]


def compact_lines(lines: dict[str, str]) -> dict[str, Any]:
    """Return {'lines': [...], 'of': {node: index}}: most nodes share a few lines."""
    distinct = sorted(set(lines.values()))
    index = {line: number for number, line in enumerate(distinct)}
    return {"lines": distinct, "of": {node: index[line] for node, line in lines.items()}}


def describe_devices() -> tuple[list[dict[str, Any]], str | None]:
    """Return the `devices` of the context, and the description of a simulated GPU (null = all real)."""
    tf = tensorflow()
    physical = list(tf.tf.config.list_physical_devices())
    running = list(tf.tf.config.list_logical_devices())
    limits = _limits(tf)
    simulated = None
    rows = []
    for logical in running:
        row: dict[str, Any] = {"name": logical.name, "type": logical.device_type}
        if logical.device_type != "CPU":
            details = _details(tf, physical, logical)
            row["model"] = details.get("device_name")
            capability = details.get("compute_capability")
            row["compute_capability"] = ".".join(map(str, capability)) if capability else None
            row.update(_memory(tf, logical))
            if logical.name in limits:
                row["memory_bytes"] = limits[logical.name]
            if SIMULATED_MARK in str(row["model"]).lower():
                simulated = str(row["model"])
        rows.append(row)
    gpus = sum(row["type"] == "GPU" for row in rows)
    return rows, simulated and f"{gpus} x {simulated}"


def _limits(tf: TensorFlow) -> dict[str, int]:
    """Return {device name: bytes that TensorFlow may use of it}, as its running devices say; it starts none.

    That is the size of a simulated GPU; of a real one the memory that was free at its start, or the user's own limit.
    """
    found: dict[str, int] = {}
    try:
        names, sizes = importlib.import_module(_RUNNING), importlib.import_module(_SIZES)
        devices = names.TFE_ContextListDevices(tf.eager_context._context_handle)
        try:
            for number in range(names.TF_DeviceListCount(devices)):
                size = int(sizes.TF_DeviceListMemoryBytes(devices, number))
                if size > 0:
                    # as list_logical_devices names it: a process by itself leaves its own task out
                    name = str(names.TF_DeviceListName(devices, number)).removeprefix(_ALONE)
                    found[name] = size
        finally:
            names.TF_DeleteDeviceList(devices)
    except Exception:  # another TensorFlow may have moved these: then the size is not known
        return {}
    return found


def _details(tf: TensorFlow, physical: list[Any], logical: Any) -> dict[str, Any]:
    """Return the details of the physical device behind a logical one (of several on one, the first is as good)."""
    same = [device for device in physical if device.device_type == logical.device_type]
    number = int(logical.name.rpartition(":")[2])
    try:
        return dict(tf.tf.config.experimental.get_device_details(same[min(number, len(same) - 1)]))
    except Exception:  # details are not known for every kind of device
        return {}


def _memory(tf: TensorFlow, logical: Any) -> dict[str, Any]:
    try:
        info = tf.tf.config.experimental.get_memory_info(logical.name.rpartition("/device:")[2] or logical.name)
        return {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"])}
    except Exception:  # not every allocator counts
        return {"current_bytes": None, "peak_bytes": None}


def describe_overhead(steps: list[Step], own_ns: list[int], started_ns: int) -> dict[str, Any]:
    """Return 'overhead_ns_per_step' and 'overhead'.

    Args:
        steps: All calls, in order; number 0 is left out as it traces and compiles.
        own_ns: Time of our own work around each timed step.
        started_ns: `time.perf_counter_ns()` when the work after the last step began.
    """
    untraced = [one.wall_ns for one in steps if one.num and not one.timed and not one.failed]
    traced = [one.wall_ns for one in steps if one.timed and not one.failed]
    own = int(statistics.median(own_ns)) if own_ns else None
    slower = int(statistics.median(traced) - statistics.median(untraced)) if traced and untraced else None
    return {
        "overhead_ns_per_step": None if own is None else own + max(0, slower or 0),
        "overhead": {
            "own_ns_per_step": own,
            "untraced_step_ns": int(statistics.median(untraced)) if untraced else None,
            "traced_step_ns": int(statistics.median(traced)) if traced else None,
            "finish_ns": time.perf_counter_ns() - started_ns,
        },
    }
