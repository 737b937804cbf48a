"""A checker of timelines that knows nothing of how they are made: only the file, and what loses data in the viewers."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Thread = tuple[int, int]


@dataclass(frozen=True)
class Checked:
    """A timeline that has passed.

    Attributes:
        events: All, metadata first.
        slices, arrows, counter_values, marks: How many.
        processes, threads: Names by number.
    """

    events: list[Event]
    slices: int
    arrows: int
    counter_values: int
    marks: int
    processes: dict[int, str]
    threads: dict[Thread, str]

    def of(self, phase: str) -> list[Event]:
        """Return the events of one phase."""
        return [event for event in self.events if event["ph"] == phase]

    def on(self, process: str, thread: str | None = None) -> list[Event]:
        """Return the slices of a process, or of one of its threads, by name."""
        return [
            event
            for event in self.of("X")
            if self.processes[event["pid"]] == process and thread in (None, self.threads[event["pid"], event["tid"]])
        ]


def check_timeline(source: Path | bytes) -> Checked:
    """Check a timeline file; an AssertionError says what is wrong."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    if data[:2] == b"\x1f\x8b":
        assert data.count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") == 1, "more than one gzip member, or a date in it"
        data = gzip.decompress(data)
    text = data.decode("utf-8")
    assert text.startswith("{"), "no byte order mark"
    _check_strings(text)
    document = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    events: list[Event] = document["traceEvents"]
    names = _check_names(events)
    drawn = [event for event in events if event["ph"] != "M"]
    assert {event["ph"] for event in drawn} <= set("XsfCi")
    for event in drawn:
        _check_numbers(event)
    times = [ns(event["ts"]) for event in drawn]
    assert times == sorted(times), "events are not in order"
    slices = [event for event in drawn if event["ph"] == "X"]
    on_thread: dict[Thread, list[Event]] = defaultdict(list)
    for event in slices:
        on_thread[event["pid"], event["tid"]].append(event)
    for lane in on_thread.values():
        _check_nesting(lane)
    arrows = _check_flows(drawn, on_thread)
    marks = [event for event in drawn if event["ph"] == "i"]
    for event in (*slices, *marks):
        assert (event["pid"], event["tid"]) in names[1], "a slice on a thread without a name"
    values = [value for event in drawn if event["ph"] == "C" for value in event["args"].values()]
    assert all(isinstance(value, (int, Decimal)) and value >= 0 for value in values)
    return Checked(events, len(slices), arrows, len(values), len(marks), *names)


def ns(microseconds: Decimal | int) -> int:
    """Return microseconds of the file as whole nanoseconds."""
    value = Decimal(microseconds) * 1000
    assert value == int(value), f"more than three decimals: {microseconds}"
    return int(value)


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def _check_strings(text: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), "control characters"
    assert not re.search(r'\\(?!["\\])', re.sub(r"\\\\", "", text)), "an escape that Perfetto shows undecoded"
    for string in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        assert not string.endswith("\\\\"), f"ends in a backslash: {string!r}"
        assert "\n" not in string


def _check_numbers(event: Event) -> None:
    assert ns(event["ts"]) >= 0
    for key, value in event.items():
        assert value is not None, f"{key} is null"
    if event["ph"] == "X":
        assert ns(event["dur"]) >= 0
        assert event["name"]
    for key, value in event.get("args", {}).items():
        assert value is not None and value not in ("", {}, []), f"argument {key} is dropped by Perfetto"
        assert isinstance(value, (str, int, Decimal, bool))


def _check_names(events: list[Event]) -> tuple[dict[int, str], dict[Thread, str]]:
    processes: dict[int, str] = {}
    threads: dict[Thread, str] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            assert event["pid"] not in processes
            processes[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in threads
            threads[event["pid"], event["tid"]] = event["args"]["name"]
    assert len(set(processes.values())) == len(processes), "two processes of one name"
    assert not any("/" in name for name in processes.values()), "Perfetto shows a process name from its last /"
    per_process = Counter((pid, name) for (pid, _), name in threads.items())
    assert max(per_process.values()) == 1, "two threads of one name in a process"
    for event in events:
        assert event["pid"] in processes
        assert 0 < event.get("tid", 1) < 1 << 32
        assert event.get("tid", 0) not in processes, "a thread with the number of a process"
    return processes, threads


def _check_nesting(lane: list[Event]) -> None:
    """Slices of a thread, in the order in which viewers open them: by start, the longest first."""
    open_ends: list[int] = []
    spans = sorted((ns(e["ts"]), -ns(e["dur"])) for e in lane)
    for start, minus in spans:
        end = start - minus
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], f"slices at {start} ns overlap in part"
        open_ends.append(end)


def _check_flows(drawn: list[Event], on_thread: dict[Thread, list[Event]]) -> int:
    begins = {event["id"]: event for event in drawn if event["ph"] == "s"}
    ends = {event["id"]: event for event in drawn if event["ph"] == "f"}
    assert len(begins) == sum(event["ph"] == "s" for event in drawn), "one flow id twice"
    assert len(ends) == sum(event["ph"] == "f" for event in drawn), "one flow id twice"
    assert begins.keys() == ends.keys(), "half an arrow"
    find = {thread: slice_finder(lane) for thread, lane in on_thread.items()}
    for number, begin in begins.items():
        end = ends[number]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert end["bp"] == "e"
        assert ns(begin["ts"]) <= ns(end["ts"]), "an arrow back in time"
        for event in (begin, end):
            assert find[event["pid"], event["tid"]](ns(event["ts"])) is not None, "an arrow that ends at no slice"
    return len(begins)


def slice_finder(lane: list[Event]) -> Callable[[int], Event | None]:
    """Return a function that finds the slice on top at a moment; one without length is there at its moment."""
    ordered = sorted(lane, key=lambda e: (ns(e["ts"]), -ns(e["dur"])))
    spans = [(ns(e["ts"]), ns(e["ts"]) + max(ns(e["dur"]), 1), e) for e in ordered]

    def find(moment: int) -> Event | None:
        found = None
        for start, end, event in spans:
            if start > moment:
                break
            if end > moment:
                found = event
        return found

    return find
