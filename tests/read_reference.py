"""The protobuf library's own reading of events, value by value, to compare every reader with."""

from __future__ import annotations

from typing import Any

from tfplace.read.raw import TIME_FIELDS, RawStepStats


def reference_columns(stats: Any) -> dict[str, Any]:
    """Return the columns of a StepStats message as plain lists, by a loop over its messages."""
    columns: dict[str, Any] = {
        "device_names": [device.device for device in stats.dev_stats],
        "thread_names": [dict(device.thread_names) for device in stats.dev_stats],
    }
    events = [(number, event) for number, device in enumerate(stats.dev_stats) for event in device.node_stats]
    columns["device"] = [number for number, _ in events]
    for name in ("node_name", "timeline_label", "thread_id"):
        columns[name] = [getattr(event, name) for _, event in events]
    columns["times"] = {name: [getattr(event, name) for _, event in events] for name in TIME_FIELDS}
    outputs = [(row, output) for row, (_, event) in enumerate(events) for output in event.output]
    columns["output_row"] = [row for row, _ in outputs]
    columns["output_slot"] = [output.slot for _, output in outputs]
    tensors = [output.tensor_description for _, output in outputs]
    columns["output_dtype"] = [tensor.dtype for tensor in tensors]
    columns["output_shape"] = [_shape(tensor) for tensor in tensors]
    columns["output_bytes"] = [
        tensor.allocation_description.requested_bytes if tensor.HasField("allocation_description") else -1
        for tensor in tensors
    ]
    memory = [(row, used) for row, (_, event) in enumerate(events) for used in event.memory]
    memory = [(row, used) for row, used in memory if used.allocator_bytes_in_use > 0]
    columns["memory_row"] = [row for row, _ in memory]
    columns["memory_allocator"] = [used.allocator_name for _, used in memory]
    columns["memory_bytes"] = [used.allocator_bytes_in_use for _, used in memory]
    columns["output_allocator"] = [tensor.allocation_description.allocator_name for tensor in tensors]
    return columns


def _shape(tensor: Any) -> str | None:
    if not tensor.HasField("shape") or tensor.shape.unknown_rank:
        return None
    return "[" + ",".join("?" if dim.size == -1 else str(dim.size) for dim in tensor.shape.dim) + "]"


def plain_columns(raw: RawStepStats) -> dict[str, Any]:
    """Return the same of what a reader gave."""
    columns = {name: getattr(raw, name) for name in raw.__dataclass_fields__}
    columns["times"] = {name: column.tolist() for name, column in raw.times.items()}
    return {name: column.tolist() if hasattr(column, "tolist") else column for name, column in columns.items()}
