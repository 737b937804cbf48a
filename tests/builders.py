"""Small traces made by hand, as the messages a file would hold.

    message = run_metadata(
        partitions=[
            graph(CPU0, node("w", "VariableV2", dtype="float32", shape="[2,3]"),
                        node("w/read", "Identity", "w", T="float32"),
                        send("edge_1_w/read", "w/read", CPU0, GPU0)),
            graph(GPU0, recv("w/read/_1", "edge_1_w/read", CPU0, GPU0), node("y", "Relu", "w/read/_1")),
        ],
        dev_stats=[
            lane(CPU0, op("w", "VariableV2", start=10, duration=2, outputs=[output(0, "float32", "[2,3]", 24)])),
            *gpu_lanes(0, copies=[copy("edge_1_w/read", "HtoD", 24, start=20, duration=3)]),
        ],
    )
    trace = load(message)

Attributes are written as `nodes.attrs` shows them: "float32" is a type, "[2,3]" a shape, any other text a string;
lists of these are lists; `{"dtype": "int32", "shape": "[]"}` is a tensor; `func("name")` is a function.
Times are microseconds after `EPOCH_US`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfplace.model.trace import Trace
from tfplace.read.protos import DATA_TYPES, GraphDef, RunMetadata, StepStats, message_class
from tfplace.read.tables import normalize as normalize_module

EPOCH_US = 1_500_000_000_000_000  # July 2017

JOB = "/job:localhost/replica:0/task:0"
CPU0 = f"{JOB}/device:CPU:0"
CPU1 = f"{JOB}/device:CPU:1"
GPU0 = f"{JOB}/device:GPU:0"
GPU1 = f"{JOB}/device:GPU:1"

_PYTHON_NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "HALF": "float16"}
DTYPE_NUMBERS = {_PYTHON_NAMES.get(name, name.lower()): number for number, name in enumerate(DATA_TYPES)}
DTYPE_NUMBERS |= {f"{name}_ref": number + 100 for name, number in DTYPE_NUMBERS.items() if number}

_NodeDef = message_class("NodeDef")
_NodeExecStats = message_class("NodeExecStats")
_DeviceStepStats = message_class("DeviceStepStats")
_SHAPE = re.compile(r"\[[\d?, -]*\]")


@dataclasses.dataclass(frozen=True)
class func:
    """A function-valued attribute."""

    name: str


# ---------------------------------------------------------------- graphs


def node(name: str, op: str, *inputs: str, device: str = "", debug: Sequence[str] = (), **attrs: Any) -> Any:
    """Return a NodeDef; inputs as TensorFlow spells them: "x", "x:1", "^x". `debug` = original node names."""
    message = _NodeDef(name=name, op=op, input=list(inputs), device=device)
    for key, value in attrs.items():
        _set_attr(message.attr[key], value)
    message.experimental_debug_info.original_node_names.extend(debug)
    if not debug:
        message.ClearField("experimental_debug_info")
    return message


def send(edge: str, source: str, src: str, dst: str, *, host: bool = False, name: str = "", **attrs: Any) -> Any:
    """Return the `_Send` (`_HostSend` with host=True) of `edge`, reading the tensor `source`."""
    return node(name or f"{edge}/_send", "_HostSend" if host else "_Send", source, **_edge_attrs(edge, src, dst, attrs))


def recv(name: str, edge: str, src: str, dst: str, *, host: bool = False, **attrs: Any) -> Any:
    """Return the `_Recv` (`_HostRecv` with host=True) of `edge`."""
    return node(name, "_HostRecv" if host else "_Recv", **_edge_attrs(edge, src, dst, attrs))


def _edge_attrs(edge: str, src: str, dst: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tensor_name": edge,
        "send_device": src,
        "recv_device": dst,
        "send_device_incarnation": 1,
        "client_terminated": False,
        "tensor_type": "float32",
        **attrs,
    }


def graph(device: str, *nodes: Any, producer: int = 0) -> Any:
    """Return a GraphDef whose nodes are on `device` unless they name another; device="" leaves them alone."""
    message = GraphDef()
    for item in nodes:
        added = message.node.add()
        added.CopyFrom(item)
        if device and not added.device:
            added.device = device
    if producer:
        message.versions.producer = producer
    return message


def function(name: str, *nodes: Any) -> Any:
    """Return a FunctionDef, for `function_graphs(library=[...])`."""
    message = message_class("FunctionDef")()
    message.signature.name = name
    message.node_def.extend(nodes)
    return message


def function_graphs(
    partitions: Iterable[Any], pre: Iterable[Any] = (), post: Iterable[Any] = (), library: Iterable[Any] = ()
) -> Any:
    """Return RunMetadata.FunctionGraphs; `pre` and `post` are nodes, with the requested device each."""
    message = message_class("RunMetadata.FunctionGraphs")()
    message.partition_graphs.extend(partitions)
    message.pre_optimization_graph.CopyFrom(graph("", *pre))
    message.pre_optimization_graph.library.function.extend(library)
    message.post_optimization_graph.CopyFrom(graph("", *post))
    return message


def _set_attr(attr: Any, value: Any) -> None:
    if isinstance(value, (list, tuple)):
        attr.list.SetInParent()
        for item in value:
            single = message_class("AttrValue")()
            _set_attr(single, item)
            kind = single.WhichOneof("value") or _which(single)
            field = getattr(attr.list, kind)
            if hasattr(field, "add"):
                field.add().CopyFrom(getattr(single, kind))
            else:
                field.append(getattr(single, kind))
    elif isinstance(value, bool):
        attr.b = value
    elif isinstance(value, int):
        attr.i = value
    elif isinstance(value, float):
        attr.f = value
    elif isinstance(value, bytes):
        attr.s = value
    elif isinstance(value, func):
        attr.func.name = value.name
    elif isinstance(value, dict):
        attr.tensor.dtype = DTYPE_NUMBERS[value["dtype"]]
        _set_shape(attr.tensor.tensor_shape, value["shape"])
        attr.tensor.tensor_content = value.get("content", b"")
    elif value is None or _SHAPE.fullmatch(value):
        _set_shape(attr.shape, value)
    elif value in DTYPE_NUMBERS:
        attr.type = DTYPE_NUMBERS[value]
    else:
        attr.s = value.encode()


def _which(attr: Any) -> str:
    """Return the set field; the private schema has no oneof, so look at presence and values."""
    for kind in ("shape", "tensor", "func"):
        if attr.HasField(kind):
            return kind
    return next((kind for kind in ("s", "type", "i", "f", "b") if getattr(attr, kind)), "i")


def _set_shape(message: Any, text: str | None) -> None:
    message.SetInParent()
    if text is None:
        message.unknown_rank = True
        return
    for size in re.findall(r"-?\d+|\?", text):
        message.dim.add(size=-1 if size == "?" else int(size))


# ---------------------------------------------------------------- step_stats


def output(slot: int, dtype: str, shape: str | None, num_bytes: int | None = None, allocator: str = "cpu") -> Any:
    """Return a NodeOutput; num_bytes=None leaves the allocation_description out."""
    message = message_class("NodeOutput")(slot=slot)
    message.tensor_description.dtype = DTYPE_NUMBERS[dtype]
    _set_shape(message.tensor_description.shape, shape)
    if num_bytes is not None:
        allocation = message.tensor_description.allocation_description
        allocation.requested_bytes, allocation.allocator_name = num_bytes, allocator
    return message


def stat(
    name: str,
    start: float,
    duration: float,
    label: str = "",
    *,
    thread: int = 0,
    scheduled: float | None = None,
    outputs: Iterable[Any] = (),
    epoch: int = EPOCH_US,
    nanos: bool = False,
    memory: Mapping[str, int] | None = None,
) -> Any:
    """Return a NodeExecStats. Times in microseconds after `epoch`; `nanos` writes the *_nanos fields too.

    `memory` is {allocator: bytes in use}.
    """
    message = _NodeExecStats(node_name=name, timeline_label=label, thread_id=thread)
    start_ns, duration_ns = epoch * 1000 + round(start * 1000), round(duration * 1000)
    message.all_start_micros = start_ns // 1000
    message.op_end_rel_micros = message.all_end_rel_micros = duration_ns // 1000
    if scheduled is not None:
        message.scheduled_micros = epoch + round(scheduled)
    if nanos:
        message.all_start_nanos = start_ns
        message.op_end_rel_nanos = message.all_end_rel_nanos = duration_ns
        message.scheduled_nanos = message.scheduled_micros * 1000
    message.output.extend(outputs)
    for allocator, in_use in (memory or {}).items():
        message.memory.add(allocator_name=allocator, allocator_bytes_in_use=in_use, total_bytes=7, peak_bytes=8)
    return message


def op(name: str, op_type: str, *inputs: str, start: float, duration: float, **more: Any) -> Any:
    """Return the host-side run of a node, labelled `name = Op(inputs)`."""
    return stat(name, start, duration, f"{name} = {op_type}({', '.join(inputs)})", **more)


def kernel(name: str, op_type: str, *, start: float, duration: float, **more: Any) -> Any:
    """Return a kernel as TF 1.x writes it."""
    return stat(f"{name}:{op_type}", start, duration, "", **more)


def copy(
    edge: str, letters: str, num_bytes: int, *, start: float, duration: float, memory: str = "", **more: Any
) -> Any:
    """Return a copy as TF 1.x writes it: letters 'HtoD', 'DtoH', 'DtoD', 'PtoP'; memory 'Pageable to Device'."""
    name = f"{edge}:MEMCPY{letters}"
    label = f"MEMCPY{letters} {num_bytes} bytes" + (f" ({memory})" if memory else "")
    return stat(name, start, duration, label, **more)


def lane(device: str, *stats: Any, threads: Mapping[int, str] | None = None) -> Any:
    """Return a DeviceStepStats."""
    message = _DeviceStepStats(device=device, node_stats=stats)
    for thread, name in (threads or {}).items():
        message.thread_names[thread] = name
    return message


def gpu_lanes(ordinal: int, *, kernels: Sequence[Any] = (), copies: Sequence[Any] = ()) -> list[Any]:
    """Return the lanes of one GPU as TF 1.x writes them: kernels and copies stand twice."""
    device = f"/device:GPU:{ordinal}"
    return [
        lane(f"{device}/memcpy", *copies),
        lane(f"{device}/stream:13", *kernels),
        lane(f"{device}/stream:14", *copies),
        lane(f"{device}/stream:all", *kernels, *copies),
    ]


# ---------------------------------------------------------------- whole files


def run_metadata(partitions: Iterable[Any] = (), dev_stats: Iterable[Any] = (), functions: Iterable[Any] = ()) -> Any:
    """Return a RunMetadata; `functions` are `function_graphs(...)`."""
    message = RunMetadata(partition_graphs=partitions, function_graphs=functions)
    dev_stats = list(dev_stats)
    if dev_stats:
        message.step_stats.CopyFrom(StepStats(dev_stats=dev_stats))
    return message


def load(
    *messages: Any,
    accelerator: str | None = None,
    context: Mapping[str, Any] | None = None,
    format: str = "RunMetadata binary",
) -> Trace:
    """Return the Trace of one or more messages (several = several steps), through the product's own reader."""
    from tfplace.read.run_metadata import raw_from_message

    raws = []
    for number, message in enumerate(messages):
        raw = raw_from_message(message, f"step{number}.pb", format)
        raws.append(dataclasses.replace(raw, context=dict(context or {})))
    return normalize_module.normalize(raws, accelerator)


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples, null as None: easy to compare by eye."""
    chosen = frame[list(columns)] if columns else frame
    return [tuple(None if _is_null(v) else v for v in row) for row in chosen.itertuples(index=False, name=None)]


def _is_null(value: Any) -> bool:
    return value is None or str(value) in ("<NA>", "nan", "NaT")
