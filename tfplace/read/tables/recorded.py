"""What capture stored beside RunMetadata, put where it belongs: requested devices, lines, the accelerator.

The stored part is a JSON object of which every key may be missing or of another form than expected: files are edited
and cut. What does not fit is passed over.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tfplace.errors import UsageError
from tfplace.model.trace import Note
from tfplace.read.tables.devices import Devices
from tfplace.read.tables.graph import NodeRows


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def choose_accelerators(devices: Devices, asked: str | None, context: dict[str, Any]) -> pd.DataFrame:
    """Return the device table: accelerators as the caller asks, else as capture stored, else GPUs and TPUs only.

    Raises:
        UsageError: The caller asks for a device that the trace does not have.
    """
    if asked:
        return devices.with_accelerators(asked)
    try:
        return devices.with_accelerators(_text(context.get("accelerator")))
    except UsageError:  # not the caller's words: the stored device is not in this file
        return devices.table


def recorded_notes(context: dict[str, Any]) -> list[Note]:
    """Return what capture itself noted or failed at, and what a simulated GPU leaves out."""
    notes = [
        Note(str(note.get("slug", "capture")), str(note["text"]), _count(note.get("count")))
        for note in _dicts(context.get("notes"))
        if isinstance(note.get("text"), str)
    ]
    faults = context.get("faults")
    for fault in faults if isinstance(faults, list) else []:
        notes.append(Note("capture-fault", f"Capture failed at a part of its own work: {fault}"))
    if context.get("simulated"):
        text = (
            "The GPU was simulated: copies that a kernel makes inside itself (Where and Unique reading a count back) "
        )
        notes.append(Note("simulated-edge-copies", text + "are not in the counts, and no time is a GPU's."))
    return notes


def recorded_functions(context: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what capture stored of the functions that ran."""
    return _dicts(context.get("functions"))


def compiled_wholes(context: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the functions that XLA compiled as a whole: they ran, but gave no graphs and no timed nodes."""
    return [
        function
        for function in recorded_functions(context)
        if function.get("jit") is True and _text(function.get("graph")) is None
    ]


def devices_of_wholes(context: dict[str, Any]) -> list[str]:
    """Return the devices that hold the arguments of such functions: nothing else in the file names them."""
    return [
        device
        for function in compiled_wholes(context)
        for argument in _dicts(function.get("arguments"))
        if (device := _text(argument.get("device"))) is not None
    ]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _group(graph: str) -> str:
    return graph.partition("/")[0]


def mark_captured(rows: NodeRows, context: dict[str, Any]) -> None:
    """Mark the arguments that are tensors made outside of the function, once: they are constants, no input."""
    constants = {
        (_text(function.get("graph")), argument.get("index"))
        for function in recorded_functions(context)
        for argument in _dicts(function.get("arguments"))
        if argument.get("kind") == "constant" and isinstance(argument.get("index"), int)
    }
    for node, op in enumerate(rows.op):
        if constants and op == "_Arg" and (_group(rows.graph[node]), rows.attrs[node].get("index")) in constants:
            rows.attrs[node]["captured"] = True


def add_requests(rows: NodeRows, context: dict[str, Any]) -> None:
    """Fill in the devices that were asked for: by node name, and by argument for the variables of functions."""
    by_name = _requests_by_name(context.get("requested_devices"))
    by_argument = {
        (_text(function.get("graph")), argument.get("index")): _text(argument.get("requested_device"))
        for function in _dicts(context.get("functions"))
        for argument in _dicts(function.get("arguments"))
        if isinstance(argument.get("index"), int)
    }
    for node, name in enumerate(rows.name):
        if rows.op[node] == "_Arg":
            known = by_argument.get((_group(rows.graph[node]), rows.attrs[node].get("index")))
            rows.requested[node] = known if known is not None else rows.requested[node]
        if rows.requested[node] is None:
            rows.requested[node] = _text(by_name.get(name))


def _requests_by_name(stored: Any) -> dict[str, Any]:
    """Return {node name: device} of {'devices': [device], 'of': {node name: index}}, or of the plain mapping."""
    if not isinstance(stored, dict):
        return {}
    devices, numbers = stored.get("devices"), stored.get("of")
    if not (isinstance(devices, list) and isinstance(numbers, dict)):
        return stored
    return {
        name: devices[number]
        for name, number in numbers.items()
        if isinstance(number, int) and 0 <= number < len(devices)
    }


def find_lines(rows: NodeRows, context: dict[str, Any]) -> list[str | None]:
    """Return the user's line ('train.py:41') of each node; null where none was stored.

    A variable's own line (where it was made) goes before the line that reads it.
    """
    made: dict[tuple[str | None, Any], str | None] = {
        (_text(function.get("graph")), argument.get("index")): _text(argument.get("source"))
        for function in _dicts(context.get("functions"))
        for argument in _dicts(function.get("arguments"))
        if isinstance(argument.get("index"), int)
    }
    stored = context.get("variables")
    variables = stored if isinstance(stored, dict) else {}
    lines_of = {graph: _node_lines(block) for graph, block in _blocks(context)}
    found: list[str | None] = []
    for node, name in enumerate(rows.name):
        graph = rows.graph[node]
        line = made.get((_group(graph), rows.attrs[node].get("index"))) if rows.op[node] == "_Arg" else None
        line = line or _text(variables.get(name))
        found.append(line or lines_of.get(graph, {}).get(name) or lines_of.get(_group(graph), {}).get(name))
    return found


def _blocks(context: dict[str, Any]) -> list[tuple[str, Any]]:
    nodes = context.get("nodes")
    return list(nodes.items()) if isinstance(nodes, dict) else []


def _node_lines(block: Any) -> dict[str, str]:
    """Unfold {'lines': ['a.py:1', ...], 'of': {node: index}}."""
    lines = block.get("lines") if isinstance(block, dict) else None
    of = block.get("of") if isinstance(block, dict) else None
    if not isinstance(lines, list) or not isinstance(of, dict):
        return {}
    return {name: str(lines[index]) for name, index in of.items() if isinstance(index, int) and 0 <= index < len(lines)}
