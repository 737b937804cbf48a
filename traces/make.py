#!/usr/bin/env python3
"""Make the traces in this folder again, with real TensorFlow, on a machine without a GPU.

The process gets three logical CPU devices: CPU:0 is the host, CPU:1 plays the accelerator and CPU:2
a second one. TensorFlow places, partitions, sends and receives between them as it does with a GPU.
What is missing is a GPU's own: copy and kernel times, arguments kept in host memory, soft placement.

    python traces/make.py                                   all, into this folder
    python traces/make.py cifar10_weights_on_cpu --out /tmp one, elsewhere

Each trace is made in a process of its own, so that names do not depend on what was made before.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ACCELERATOR = "/device:CPU:1"
SECOND_ACCELERATOR = "/device:CPU:2"
DEVICE_COUNT = 3
WARM_UP = 2  # untraced steps before the first traced one
CONTEXT_FIELD = 20100  # number of the length-delimited RunMetadata field that carries the context

ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN picks ops by the CPU it finds: without it all machines give one graph
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True)
class Case:
    """One trace.

    Attributes:
        program: Module in `programs/`.
        kind: 'session' (v1) or 'function' (TF2).
        arguments: Given to the program's `build` by name.
        files: Names of the files to write, one traced step each; the suffix chooses the encoding.
    """

    program: str
    kind: str
    arguments: dict[str, str]
    files: tuple[str, ...]


CASES = {
    "cifar10_weights_on_cpu": Case(
        "cifar10_v1", "session", {"weights_on": "/cpu:0"}, ("cifar10_weights_on_cpu.pbtxt",)
    ),
    "cifar10_weights_on_gpu": Case(
        "cifar10_v1", "session", {"weights_on": ACCELERATOR}, ("cifar10_weights_on_gpu.pbtxt",)
    ),
    "cifar10_function_weights_on_cpu": Case(
        "cifar10_function", "function", {"weights_on": "/cpu:0"}, ("cifar10_function_weights_on_cpu.pb",)
    ),
    "cifar10_function_weights_on_gpu": Case(
        "cifar10_function", "function", {"weights_on": ACCELERATOR}, ("cifar10_function_weights_on_gpu.pb",)
    ),
    "two_towers_cpu_weights": Case(
        "two_towers_v1", "session", {"second_accelerator": SECOND_ACCELERATOR}, ("two_towers_cpu_weights.pb",)
    ),
    "embedding_on_cpu": Case("embedding_v1", "session", {}, ("embedding_on_cpu.pbtxt",)),
    "embedding_function_on_cpu": Case("embedding_function", "function", {}, ("embedding_function_on_cpu.pb",)),
    "inference_cpu_weights": Case("inference_v1", "session", {}, ("inference_cpu_weights.pbtxt",)),
    "inference_function_cpu_weights": Case(
        "inference_function", "function", {}, ("inference_function_cpu_weights.pb.gz",)
    ),
    "input_feed": Case("input_v1", "session", {"source": "feed"}, ("input_feed.pbtxt",)),
    "input_dataset": Case("input_v1", "session", {"source": "dataset"}, ("input_dataset.pbtxt",)),
    "input_feed_steps": Case(
        "input_v1", "session", {"source": "feed"}, tuple(f"input_feed_steps/step_{n}.pb" for n in (1, 2, 3))
    ),
}


# ---- tracing ---------------------------------------------------------------------------------------


def trace_session(build: Callable[[], tuple[Any, dict[Any, Any]]], count: int) -> list[Any]:
    """Run a v1 program; return the RunMetadata of `count` steps that follow the warm-up."""
    import tensorflow as tf

    v1 = tf.compat.v1
    steps = []
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        fetches, feed = build()
        config = v1.ConfigProto(device_count={"CPU": DEVICE_COUNT}, inter_op_parallelism_threads=1)
        with v1.Session(config=config) as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            for _ in range(WARM_UP):
                session.run(fetches, feed)
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
            for _ in range(count):
                steps.append(v1.RunMetadata())
                session.run(fetches, feed, options=options, run_metadata=steps[-1])
    return steps


def trace_function(build: Callable[[], tuple[Any, tuple[Any, ...]]]) -> tuple[Any, list[dict[str, Any]]]:
    """Run a TF2 program; return RunMetadata (graphs only) and what the graphs' arguments are.

    TensorFlow hands out the graphs when it instantiates the function, so the first call is traced.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    requested: dict[int, str | None] = {}

    def note_device(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variable = next_creator(**kwargs)
        requested[variable.handle._id] = context.context().device_name  # kept nowhere else
        return variable

    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(DEVICE_COUNT)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    with tf.variable_creator_scope(note_device):
        function, arguments = build()
    concrete = function.get_concrete_function(*arguments)
    context.context().enable_run_metadata()
    try:
        with tf.device(ACCELERATOR):  # the default for ops that ask for no device, as a GPU would be
            function(*arguments)
        metadata = context.context().export_run_metadata()
    finally:
        context.context().disable_run_metadata()
        context.context().disable_graph_collection()
    described = describe_function(concrete, arguments, requested)
    add_shapes(concrete, metadata)
    return metadata, [described]


def describe_function(concrete: Any, arguments: tuple[Any, ...], requested: dict[int, str | None]) -> dict[str, Any]:
    """Tell what each `_Arg` of the function's graphs is: `_Arg.index` counts arguments, then captures."""
    rows = [
        {"kind": "input", "name": symbol.name, "device": value.device}
        | {"dtype": symbol.dtype.name, "shape": shape_text(symbol.shape)}
        for symbol, value in zip(concrete.inputs, arguments, strict=False)
    ]
    variables = {variable.handle._id: variable for variable in concrete.graph.variables}
    for captured in concrete.captured_inputs:
        variable = variables[captured._id]
        rows.append(
            {"kind": "variable", "name": variable.name, "device": variable.device}
            | {"dtype": variable.dtype.name, "shape": shape_text(variable.shape)}
            | {"requested_device": requested[captured._id] or ""}
        )
    for index, row in enumerate(rows):
        row["index"] = index
    name = concrete.name.decode() if isinstance(concrete.name, bytes) else concrete.name
    return {"name": name, "graph": "function:0", "arguments": rows}


def add_shapes(concrete: Any, metadata: Any) -> None:
    """Give each node that sends a tensor the shapes of its outputs, as far as the function's own graph knows them.

    Without step_stats the trace has no sizes otherwise. A node that Grappler made or renamed is left out.
    """
    operations = {operation.name: operation for operation in concrete.graph.get_operations()}
    parts = [*metadata.partition_graphs, *(g for f in metadata.function_graphs for g in f.partition_graphs)]
    for graph in parts:
        senders = {name.partition(":")[0] for n in graph.node if n.op in ("_Send", "_HostSend") for name in n.input}
        for node in graph.node:
            operation = operations.get(node.name) if node.name in senders else None
            shapes = [tensor.shape for tensor in operation.outputs] if operation is not None else []
            if shapes and all(shape.rank is not None for shape in shapes):
                node.attr["_output_shapes"].list.ClearField("shape")
                node.attr["_output_shapes"].list.shape.extend(shape.as_proto() for shape in shapes)


def shape_text(shape: Any) -> str | None:
    """Write a shape as tfplace does: '[32,10]', '[]' for a scalar, '?' for a size that is not known."""
    if shape.rank is None:
        return None
    return "[" + ",".join("?" if size is None else str(size) for size in shape.as_list()) + "]"


# ---- files -----------------------------------------------------------------------------------------


def slim(metadata: Any) -> None:
    """Drop what no report uses and what is different in each run: cost model, addresses, allocator records."""
    metadata.ClearField("cost_graph")
    metadata.step_stats.dev_stats.sort(key=lambda device: device.device)
    for device in metadata.step_stats.dev_stats:
        device.node_stats.sort(key=lambda node: (node.all_start_nanos, node.node_name))
        for node in device.node_stats:
            for field in ("memory", "memory_stats", "referenced_tensor"):
                node.ClearField(field)
            for output in node.output:
                for field in ("ptr", "allocation_id", "has_single_reference"):
                    output.tensor_description.allocation_description.ClearField(field)


def encode(metadata: Any, context: dict[str, Any], suffix: str) -> bytes:
    """Return RunMetadata with tfplace's context, as text (`#` comments) or binary (an unknown field)."""
    from google.protobuf import text_format

    line = json.dumps(context, ensure_ascii=False, sort_keys=True)
    if suffix == ".pbtxt":
        return f"# tfplace: {line}\n{text_format.MessageToString(metadata, as_utf8=True)}".encode()
    text = line.encode()
    field = varint(CONTEXT_FIELD << 3 | 2) + varint(len(text)) + text
    return bytes(metadata.SerializeToString(deterministic=True)) + field


def varint(number: int) -> bytes:
    """Encode as protobuf does: seven bits a byte, the lowest first, the top bit set on all but the last."""
    done = bytearray()
    while number > 0x7F:
        done.append(number & 0x7F | 0x80)
        number >>= 7
    done.append(number)
    return bytes(done)


def make(name: str, out: Path) -> None:
    """Make one case's files in `out`, in this process."""
    import tensorflow as tf

    case = CASES[name]
    sys.path.insert(0, str(HERE / "programs"))
    program = importlib.import_module(case.program)
    context = {
        "tf_version": tf.__version__,
        "made_by": f"traces/make.py {name}",
        "accelerator": ",".join(
            name.rpartition("device:")[2] for name in (ACCELERATOR, case.arguments.get("second_accelerator")) if name
        ),
    }
    if case.kind == "session":
        steps = trace_session(lambda: program.build(ACCELERATOR, **case.arguments), len(case.files))
    else:
        metadata, context["functions"] = trace_function(lambda: program.build(ACCELERATOR, **case.arguments))
        steps = [metadata]
    for file, metadata in zip(case.files, steps, strict=True):
        slim(metadata)
        path = out / file
        data = encode(metadata, context, path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the example traces again (needs TensorFlow, no GPU).")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to make (all): {', '.join(CASES)}")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (this folder)")
    parser.add_argument("--here", action="store_true", help="make the one NAME in this very process")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(CASES))
    if unknown:
        parser.error(f"no such trace: {', '.join(unknown)}")
    if options.here:
        make(options.names[0], options.out)
        return 0
    environment = os.environ | ENVIRONMENT
    for name in options.names or CASES:
        command = [sys.executable, __file__, name, "--out", str(options.out), "--here"]
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            print(f"{name}: not made (exit {done.returncode})", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
