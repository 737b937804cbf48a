"""Names and arguments of slices: made only when written, since a million events share a few thousand of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfplace.analyze.analysis import Analysis
from tfplace.model.rows import first_rows, number_rows, python_records, python_values
from tfplace.report.timeline.model import Int
from tfplace.report.timeline.text import MAX_NAME, pairs, quote
from tfplace.units import format_bytes

_REMEMBERED = 100_000
_MAX_INPUTS = 12

NAMING = ("tensor_name", "category", "variable_id", "num_bytes", "rows_only")
"""Columns of `transfers` that `EventTexts.transfer_name` reads."""

_TELLING = ("kind", "lane", "name", "op", "node_id")
_SAME_IN_EVERY_STEP = (
    *("tensor_name", "edge_name", "direction", "src_device_id", "dst_device_id", "src_memory", "dst_memory"),
    *("num_bytes", "category", "variable_id", "rows_only", "inside_op", "producer_node_id", "send_node_id"),
)

# names of chrome://tracing's own palette; Perfetto colours by name and shows the category
_COLOURS = {
    "variable": "terrible",
    "gradient": "bad",
    "input": "good",
    "activation": "rail_load",
    "constant": "olive",
    "fetch": "yellow",
    "shape": "grey",
    "control": "grey",
    "unknown": "grey",
}


def slice_text(name: str, category: str, args: list[tuple[str, Any]], colour: str | None = None) -> str:
    """Return the inside of a slice's JSON object, its arguments still open; there is always one argument."""
    paint = f',"cname":"{colour}"' if colour else ""
    return f'"name":{quote(name, MAX_NAME)},"cat":{quote(category)}{paint},"args":{{{pairs(args)}'


class EventTexts:
    """Texts of the trace's events and copies, each made once and forgotten when there are too many.

    Attributes:
        of_event: int64[N], the number of each event's text.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._events = analysis.trace.events
        self._devices = dict(zip(analysis.trace.devices["device_id"], analysis.trace.devices["name"], strict=True))
        self._source = python_values(analysis.trace.nodes["source"])
        self._variables = python_values(analysis.variables["name"])
        self.of_event: Int = number_rows(*(self._events[name] for name in _TELLING))
        first = first_rows(self.of_event)
        self._sample = python_records(self._events.iloc[first])
        self._copies = _Copies(analysis, base=len(first))
        self.of_event[self._copies.event] = len(first) + np.arange(len(self._copies.event))
        self._known: dict[int, str] = {}
        self._own: list[str] = []

    def add(self, text: str) -> int:
        """Take a text that is not of an event, and return its number; these are negative."""
        self._own.append(text)
        return -len(self._own)

    def render(self, number: int) -> str:
        """Return the text of that number."""
        if number < 0:
            return self._own[-1 - number]
        if number < self._copies.base:
            return self._remember(number)
        place = number - self._copies.base
        return self._remember(self._copies.base + self._copies.code[place]) + self._copies.times(place)

    def _remember(self, number: int) -> str:
        text = self._known.get(number)
        if text is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            base = self._copies.base
            text = self._known[number] = self._event(number) if number < base else self._copy(number - base)
        return text

    def _event(self, number: int) -> str:
        row = self._sample[number]
        kind, node = row["kind"], row["node_id"]
        flow = self._analysis.flow
        own = flow.name[node] if node is not None else None
        name = own or row["name"] or "unnamed"
        op = row["op"] or (flow.op[node] if node is not None else None)
        title = f"{op}: {name}" if op and op != name else name
        args: list[tuple[str, Any]] = [("kind", kind), ("op", op), ("node", own)]
        if node is not None:
            args += [("inputs", self._inputs(node) if kind == "op" else None), ("source", self._source[node])]
        if row["name"] != own:
            args.append(("recorded as", row["name"]))
        if kind != "op":
            args += [("lane", row["lane"]), ("label", row["label"] if row["label"] != row["name"] else None)]
        return slice_text(title, kind, args)

    def _inputs(self, node: int) -> str:
        flow = self._analysis.flow
        names = [flow.name[src] + (f":{slot}" if slot > 0 else "") for src, slot, _ in flow.inputs(node)]
        more = len(names) - _MAX_INPUTS
        return ", ".join(names[:_MAX_INPUTS]) + (f" and {more} more" if more > 0 else "")

    def _copy(self, number: int) -> str:
        row = self._copies.sample[number]
        args = [
            ("tensor", row["tensor_name"]),
            *self._ends(row),
            ("source", self._line(row)),
            ("issued inside op", row["inside_op"]),
            ("edge", row["edge_name"]),
            ("lane", row["lane"]),
            ("recorded as", row["recorded"]),
        ]
        category = row["category"] or "unknown"
        return slice_text(self.transfer_name(row), category, args, _COLOURS.get(category))

    def _line(self, row: dict[str, Any]) -> str | None:
        """Return the program's line that made the value; of a value without one, that of its Send."""
        nodes = (row["producer_node_id"], row["send_node_id"])
        return next((self._source[node] for node in nodes if node is not None and self._source[node]), None)

    def _ends(self, row: dict[str, Any]) -> list[tuple[str, Any]]:
        variable = row["variable_id"]
        return [
            ("variable", self._variables[variable] if variable is not None else None),
            ("category", row["category"]),
            ("bytes", row["num_bytes"]),
            ("direction", row["direction"]),
            ("from", self._end(row["src_device_id"], row["src_memory"])),
            ("to", self._end(row["dst_device_id"], row["dst_memory"])),
        ]

    def _end(self, device: int | None, memory: str | None) -> str | None:
        name = self._devices.get(device) if device is not None else None
        return f"{name} ({memory})" if name and memory else name or memory

    def transfer_name(self, row: dict[str, Any]) -> str:
        """Return 'conv1/kernel, 2.4 MB': the variable where it is one's value, else the tensor."""
        variable = row["variable_id"] if row["category"] == "variable" else None
        name = self._variables[variable] if variable is not None else row["tensor_name"] or "unattributed"
        size = "size not recorded" if row["num_bytes"] is None else format_bytes(row["num_bytes"])
        return f"{'rows of ' if row['rows_only'] else ''}{name}, {size}"


class _Copies:
    """The copies: what is the same in every step, once; how fast each was, apart.

    Attributes:
        base: Number of the first copy's text.
        event: int64[M], the event of each.
        code: Row of `sample` for each.
        sample: The distinct ones.
    """

    def __init__(self, analysis: Analysis, base: int) -> None:
        rows = analysis.transfers[analysis.transfers["event_id"].notna()]
        self.base = base
        self.event: Int = rows["event_id"].to_numpy(dtype=np.int64)
        events = analysis.trace.events.iloc[self.event]
        same = rows[list(_SAME_IN_EVERY_STEP)].assign(lane=events["lane"].array, recorded=events["name"].array)
        codes = number_rows(*(same[name] for name in same.columns))
        self.code: list[int] = codes.tolist()
        self.sample = python_records(same.iloc[first_rows(codes)])
        lasts = events["end_ns"].to_numpy(dtype=np.float64) - events["start_ns"].to_numpy(dtype=np.float64)
        size = rows["num_bytes"].to_numpy(dtype=np.float64, na_value=np.nan)
        # bytes per nanosecond are gigabytes per second
        speed = np.divide(size, lasts, out=np.full(len(rows), np.nan), where=(lasts > 0) & (size > 0))
        if analysis.trace.simulated is not None:
            speed[:] = np.nan  # no bus was crossed
        exposed = rows["exposed_ns"].to_numpy(dtype=np.float64, na_value=np.nan) / 1000
        self._own = list(map(_own_times, speed.round(3).tolist(), exposed.tolist()))

    def times(self, place: int) -> str:
        """Return the arguments that are one copy's own."""
        return self._own[place]


def _own_times(speed: float, exposed: float) -> str:
    """Return these two arguments as `text.pairs` would; of a hundred thousand copies each has its own."""
    text = "" if math.isnan(speed) else f',"GB/s":{speed!r}'
    return text if math.isnan(exposed) else f'{text},"not hidden behind kernels us":{exposed!r}'
