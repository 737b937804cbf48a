"""Every column of every table, declared once.

Times are int64 nanoseconds from the trace's origin and end in `_ns`; sizes end in `_bytes`;
shares are 0..1 and end in `_share`. Unknown is null, never 0 or -1. Ids are dense (0, 1, 2 ...)
and stably ordered, so that a table's row number equals its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from pandas.api.types import pandas_dtype

ID = "int64"  # never null
REF = "Int64"  # another table's id, or a whole number, or null
TEXT = "string"  # text or null
CODED = "category"  # the same, for columns of many rows and few distinct texts
FLAG = "bool"  # never null
MAYBE = "boolean"  # true, false or null
ANY = "object"  # a Python object, named in the column's meaning


@dataclass(frozen=True)
class Column:
    """One column: name, pandas dtype, meaning, and where the meaning is defined."""

    name: str
    dtype: str
    meaning: str
    source: str = ""


DEVICES = (
    Column("device_id", ID, "row number"),
    Column("name", TEXT, "short name for people: CPU:0, GPU:1, or task-qualified worker/1/GPU:0 where tasks differ"),
    Column("full_name", TEXT, "as in the trace: /job:localhost/replica:0/task:0/device:GPU:0"),
    Column("task", TEXT, "/job:worker/replica:0/task:1; null where the trace names none"),
    Column("kind", TEXT, "CPU, GPU, TPU or OTHER"),
    Column("role", TEXT, "host or device; a CPU named by --accelerator has role device"),
    Column("ordinal", REF, "the number in GPU:1"),
    Column("model", TEXT, "hardware name where the trace has it: Tesla V100-SXM2-16GB"),
    Column("memory_bytes", REF, "device memory"),
)

NODES = (
    Column("node_id", ID, "row number"),
    Column("name", TEXT, "node name, unique within its graph"),
    Column("op", TEXT, "op type; null where the trace does not tell"),
    Column("graph", TEXT, "partition:0, function:2/partition:1, graph:0; 'inferred' for nodes read off step_stats"),
    Column("device_id", REF, "assigned device; null where unknown"),
    Column("requested_device", TEXT, "device asked for before placement; '' = none asked; null = unknown"),
    Column("colocation_group", TEXT, "the X of _class loc:@X; null = none"),
    Column("source", TEXT, "user's file:line; null = unknown"),
    Column("attrs", ANY, "dict of the decoded attributes that analyses use (see read/tables/graph.py)"),
)

EDGES = (
    Column("edge_id", ID, "row number"),
    Column("src_node_id", ID, "producer, in the same graph"),
    Column("src_slot", REF, "producer's output number; null for a control edge"),
    Column("dst_node_id", ID, "consumer"),
    Column("dst_slot", REF, "consumer's input number; null for a control edge"),
    Column("is_control", FLAG, "control dependency: carries no data"),
)

OUTPUTS = (
    Column("node_id", ID, "the producer"),
    Column("slot", ID, "output number"),
    Column("dtype", TEXT, "float32, int32, string, resource ...; null unknown"),
    Column("shape", TEXT, "'[32,10]', '[]' for a scalar, '?' inside for an unknown dimension; null unknown"),
    Column("num_bytes", REF, "size of one value; null unknown"),
    Column("allocator", TEXT, "allocator that owns the buffer: GPU_0_bfc, cuda_host_bfc, cpu; null unknown"),
    Column("evidence", TEXT, "step_stats, shape_attr (from _output_shapes, _handle_shapes, shape) or const"),
)

EVENTS = (
    Column("event_id", ID, "row number, by start time then lane"),
    Column("step_id", REF, "step the event belongs to; null = outside the known steps"),
    Column("device_id", REF, "device the event ran on (for a copy: the lane's device)"),
    Column("lane", CODED, "lane as the trace names it: /device:GPU:0/stream:14"),
    Column("thread_id", REF, "host thread; null unknown"),
    Column("thread_name", CODED, "its name as recorded: python, tf_Compute/4924526031051825574; null unknown"),
    Column("kind", CODED, "op, kernel, memcpy, memset, sync, runtime or annotation"),
    Column("name", CODED, "node or kernel name as recorded"),
    Column("op", CODED, "op type; null unknown"),
    Column("node_id", REF, "node it belongs to; null unknown"),
    Column("scheduled_ns", REF, "when it was enqueued; null unknown or unbelievable"),
    Column("start_ns", ID, "start"),
    Column("end_ns", ID, "end, never before start"),
    Column("label", CODED, "timeline_label as recorded"),
)

COPIES = (
    Column("event_id", ID, "the event of kind memcpy"),
    Column("direction", TEXT, "H2D, D2H, D2D, P2P, H2H; null unknown"),
    Column("num_bytes", REF, "bytes moved; null unknown"),
    Column("src_memory", TEXT, "pinned, pageable, device ...; null not recorded"),
    Column("dst_memory", TEXT, "pinned, pageable, device ...; null not recorded"),
    Column("edge_name", TEXT, "edge_9_x: the tensor_name of the _Send; null where not recorded"),
    Column("node_name", TEXT, "node in whose name the copy was made (a Send, a Recv or an op); null unknown"),
    Column("op", TEXT, "op that issued the copy inside its kernel, as recorded; null for an edge copy"),
    Column("device_id", REF, "GPU whose lane carries the copy"),
)

MEMORY = (
    Column("event_id", ID, "the run of an op after which the allocator told it"),
    Column("device_id", REF, "GPU whose memory it is; null for host memory"),
    Column("allocator", CODED, "GPU_0_bfc, cuda_host_bfc, cpu ..."),
    Column("in_use_bytes", ID, "bytes that the allocator had given out by then, for all of the program"),
)

STEPS = (
    Column("step_id", ID, "row number"),
    Column("step_num", REF, "the program's own number; null unknown"),
    Column("start_ns", REF, "first moment; null where the trace has no times"),
    Column("end_ns", REF, "last moment; null where the trace has no times"),
    Column("cpu_time_ns", REF, "process CPU time in the step; null unknown"),
    Column("boundary", TEXT, "how it was cut: file (one RunMetadata each), context (recorded), profiler"),
)

TRANSFERS = (
    Column("transfer_id", ID, "row number"),
    Column("tensor_name", TEXT, "producer:slot, or the copy's own name where no producer is known"),
    Column("edge_name", TEXT, "tensor_name of the Send / Recv pair; null where no edge is known"),
    Column("step_id", REF, "step; null where the trace has no events"),
    Column("direction", TEXT, "H2D, D2H, D2D, P2P, H2H; null unknown"),
    Column("src_device_id", REF, "device whose memory is read"),
    Column("dst_device_id", REF, "device whose memory is written"),
    Column("src_memory", TEXT, "pinned, pageable, host, device; null unknown"),
    Column("dst_memory", TEXT, "pinned, pageable, host, device; null unknown"),
    Column("num_bytes", REF, "bytes of one copy; null unknown"),
    Column("start_ns", REF, "start of the copy; null where none was seen"),
    Column("end_ns", REF, "end of the copy; null where none was seen"),
    Column("exposed_ns", REF, "part of the copy in which no kernel ran on its GPU; null where kernels were not timed"),
    Column("event_id", REF, "the memcpy event; null where none was seen"),
    Column("send_node_id", REF, "the _Send or _HostSend"),
    Column("recv_node_id", REF, "the _Recv or _HostRecv"),
    Column("producer_node_id", REF, "node whose output is sent"),
    Column("producer_slot", REF, "its output number"),
    Column("consumer_node_ids", ANY, "tuple of the nodes that read the _Recv"),
    Column("category", TEXT, "variable, input, gradient, activation, constant, fetch, shape, control, unknown"),
    Column("variable_id", REF, "variable whose value (or rows of it) it carries"),
    Column("rows_only", FLAG, "true where a gather took rows: only a part of the variable crosses"),
    Column("evidence", TEXT, "memcpy, send_recv or both"),
    Column("inside_op", TEXT, "op whose kernel issued the copy by itself; null for the copy of an edge"),
    Column("join", TEXT, "how a copy met its edge: name, order (device, direction and bytes in order), none"),
)

VARIABLES = (
    Column("variable_id", ID, "row number"),
    Column("node_id", REF, "defining node; null when only inferred from a reader"),
    Column("name", TEXT, "variable name, or 'argument 3 (float32 [64,10])' where the trace has no name"),
    Column("named", FLAG, "false where the name is a description"),
    Column("kind", TEXT, "ref (VariableV2), resource, table, iterator"),
    Column("device_id", REF, "where its memory is"),
    Column("requested_device", TEXT, "'' none asked; null unknown"),
    Column("dtype", TEXT, "null unknown"),
    Column("shape", TEXT, "null unknown"),
    Column("num_bytes", REF, "null unknown"),
    Column("has_gpu_kernel", MAYBE, "all ops that touch it have GPU kernels for its dtype; null unknown"),
    Column("readers", ANY, "tuple of node ids that read it"),
    Column("writers", ANY, "tuple of node ids that write it"),
    Column("destinations", ANY, "tuple of device ids its value is sent to"),
    Column("destination_bytes", ANY, "tuple: bytes of its value per step to each of `destinations`; null unknown"),
    Column("read_bytes_per_step", REF, "bytes of its value over the bus per step, all destinations"),
    Column("written_bytes_per_step", REF, "bytes (gradients, new values) sent to its host writers per step"),
    Column("copied_each_step", MAYBE, "true: its value crosses inside the step; null unknown"),
    Column("rows_only", FLAG, "read only through gathers: rows cross, not the table"),
    Column("verdict", TEXT, "unnecessary, justified, harmless, on-device, unknown"),
    Column("reason", TEXT, "why, in one sentence"),
    Column("source", TEXT, "user's file:line; null unknown"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "devices": DEVICES,
    "nodes": NODES,
    "edges": EDGES,
    "outputs": OUTPUTS,
    "events": EVENTS,
    "copies": COPIES,
    "memory": MEMORY,
    "steps": STEPS,
    "transfers": TRANSFERS,
    "variables": VARIABLES,
}


def conform(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with exactly the declared columns, in order and typed.

    A declared nullable column that is absent becomes all null.

    Raises:
        KeyError: `frame` lacks a column that cannot be null, or has one that is not declared.
    """
    columns = TABLES[table]
    extra = set(frame.columns) - {c.name for c in columns}
    if extra:
        raise KeyError(f"{table}: undeclared columns {sorted(extra)}")
    data: dict[str, pd.Series[Any]] = {}
    for column in columns:
        if column.name in frame.columns:
            data[column.name] = frame[column.name].astype(pandas_dtype(column.dtype))
        elif column.dtype in (ID, FLAG) and len(frame):
            raise KeyError(f"{table}: column {column.name} is missing")
        else:
            blank = None if column.dtype == ANY else pd.NA
            values = [blank] * len(frame)
            data[column.name] = pd.Series(values, index=frame.index, dtype=pandas_dtype(column.dtype))
    typed: pd.DataFrame = pd.DataFrame(data).reset_index(drop=True)
    return typed


def empty(table: str) -> pd.DataFrame:
    """Return the table with no rows."""
    blank: pd.DataFrame = pd.DataFrame({c.name: pd.Series([], dtype=pandas_dtype(c.dtype)) for c in TABLES[table]})
    return blank
