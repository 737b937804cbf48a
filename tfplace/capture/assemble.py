"""From what a capture collected to its file: join graphs, times and names, part by part.

Each part is guarded by itself: where one fails the file is written without it, and says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tfplace.capture import context as contexts
from tfplace.capture import guard
from tfplace.capture.clock import Step
from tfplace.capture.context import Notes
from tfplace.capture.graphs import Function
from tfplace.capture.guard import Guard
from tfplace.capture.kernels import gpu_kernels, ops_of
from tfplace.capture.lines import BUDGET_S, node_lines
from tfplace.capture.schedule import Options
from tfplace.capture.shapes import add_output_shapes
from tfplace.capture.tf_api import tensorflow
from tfplace.capture.writer import write_atomically, write_trace
from tfplace.capture.xspace import step_stats_from_xspace

LARGEST_CONSTANT = 4096  # bytes; a data set that a function holds as a constant must not end up in the file


@dataclass
class Collected:
    """All that a capture of compiled functions has when its last step is over."""

    options: Options
    step_name: str
    functions: list[Function]
    steps: list[Step]
    own_ns: list[int]
    space: bytes | None
    profile_started_ns: int
    finish_began_ns: int
    notes: Notes
    guard: Guard


def write_recording(got: Collected) -> None:
    """Write the trace; every fault on the way costs only its own part."""
    has_graphs = any(one.graphs is not None or one.jit for one in got.functions)
    # times of eager ops alone say nothing of placement; what `record` takes for the step is never one of those
    is_eager = not got.functions and got.options.made_by != "record"
    if is_eager or not (has_graphs or got.space is not None):
        if not got.guard.faults and not any(step.failed for step in got.steps):
            guard.warn(
                f"no trace was written for '{got.step_name}': no compiled function ran in it. Plain eager code has no "
                "placement to show; put @tf.function on the step."
            )
        return
    got.functions.sort(key=lambda one: (one.graphs is None, -one.num_nodes))
    say_what_is_hidden(got.functions, got.notes)
    got.guard.run("shapes", _add_shapes, got)
    message = tensorflow().config_pb2.RunMetadata()
    for function in got.functions:
        if function.graphs is not None:
            entry = message.function_graphs.add()
            entry.partition_graphs.extend(function.graphs.partition_graphs)
            entry.pre_optimization_graph.CopyFrom(function.graphs.pre_optimization_graph)
            for graph in (*entry.partition_graphs, entry.pre_optimization_graph):
                got.guard.run("constants", drop_large_constants, graph)
    context = got.guard.run("context", make_context, got, default={})
    if got.space is not None:
        converted = got.guard.run("convert", step_stats_from_xspace, got.space, got.functions, got.profile_started_ns)
        if converted is not None:
            message.step_stats.CopyFrom(converted[0])
            context["argument_copies"] = _copies(converted[1].argument_copies)
    context.update(contexts.describe_overhead(got.steps, got.own_ns, got.finish_began_ns))
    context["notes"] = got.notes.as_list()
    context["faults"] = list(got.guard.messages)
    got.guard.run("write", write_trace, got.options.path, message, context)
    if got.options.xplane and got.space is not None:
        got.guard.run("write xplane", write_atomically, xplane_path(got.options.path), got.space)


def drop_large_constants(graph: Any) -> None:
    """Take the values out of large constants; dtype and shape stay."""
    nodes = [node for function in graph.library.function for node in function.node_def]
    for node in (*graph.node, *nodes):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() > LARGEST_CONSTANT:
            tensor = node.attr["value"].tensor
            kept = type(tensor)(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape)
            tensor.CopyFrom(kept)


def make_context(got: Collected) -> dict[str, Any]:
    """Return the context, without overhead and notes."""
    context = contexts.basics(got.options.made_by, got.step_name, got.options.accelerator)
    context["steps"], context["untimed_steps"] = contexts.describe_steps(got.steps)
    context["functions"] = got.guard.run("names", contexts.describe_functions, got.functions, default=[])
    context["nodes"] = got.guard.run("lines", _lines, got.functions, default={})
    context["devices"], simulated = got.guard.run("devices", contexts.describe_devices, default=([], None))
    if simulated:
        context["simulated"] = simulated
    graphs = [graph for one in got.functions for graph in (*one.partitions, *one.requested)]
    kernels = got.guard.run("kernels", gpu_kernels, ops_of(graphs))
    if kernels is not None:
        context["kernels"] = kernels
    return context


def _lines(functions: list[Function]) -> dict[str, Any]:
    deadline = time.monotonic() + BUDGET_S
    with_graphs = [one for one in functions if one.graphs is not None]
    return {
        f"function:{number}": contexts.compact_lines(node_lines(function, deadline))
        for number, function in enumerate(with_graphs)
    }


def _add_shapes(got: Collected) -> None:
    deadline = time.monotonic() + BUDGET_S
    for function in got.functions:
        if function.graphs is not None:
            got.guard.run("shapes", add_output_shapes, function, deadline)


def _copies(counts: Any) -> dict[str, dict[str, int]]:
    copies: dict[str, dict[str, int]] = {}
    for (function, name), times in counts.items():
        copies.setdefault(function, {})[name] = times
    return copies


def say_what_is_hidden(functions: list[Function], notes: Notes) -> None:
    """Note what the graphs cannot show."""
    for function in functions:
        if function.jit or function.hides_part:
            notes.add(
                "xla-hides-placement",
                f"{function.name} is compiled by XLA{'' if function.jit else ' in part'}: what is inside is hidden; "
                "set jit_compile=False for the traced run (Keras: model.compile(..., jit_compile=False)).",
            )
        elif function.graphs is None:
            notes.add("no-graph", f"{function.name} gave no graph.")
        if function.late:
            text = f"{function.name} had run before the capture began and was instantiated a second time for one call"
            if function.is_random:
                text += "; its tf.random ops repeated one step. Begin the capture before its first call to avoid it"
                guard.warn(f"{text}.")
            notes.add("late-attach", text + ".")
        if function.instantiations > 1 + function.late:
            notes.add("placed-anew", f"{function.name} was placed {function.instantiations} times; the last is shown.")
    graphs = [contexts._python_name(one) for one in functions if one.graphs is not None and not one.called_by]
    for name in {one for one in graphs if one is not None and graphs.count(one) > 1 and "backward" not in one}:
        notes.add(
            "retracing",
            f"{name} was traced {graphs.count(name)} times for different argument shapes or values; each is shown.",
        )


def xplane_path(path: str) -> str:
    """Return where the profiler's own data goes: trace.xplane.pb beside trace.pb."""
    base = path
    for suffix in (".gz", ".pbtxt", ".pb"):
        base = base.removesuffix(suffix)
    return f"{base}.xplane.pb"
