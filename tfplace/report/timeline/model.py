"""What a timeline holds before it is written: tracks, slices, arrows, counters and marks, as arrays.

Times are int64 nanoseconds from the timeline's own zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[np.int64]
NONE = -1
"""In an array of numbers: there is none."""


@dataclass(frozen=True)
class Track:
    """One thread of the viewers: a lane on which slices nest.

    Attributes:
        pid: Process, one per device.
        tid: Thread; above 0, and no process has that number.
        name: What people read beside it.
    """

    pid: int
    tid: int
    name: str


@dataclass(frozen=True)
class Slices:
    """What is drawn as bars, by start, then track, then longest first.

    Attributes:
        start, end: int64[N].
        track: int64[N], index into the timeline's tracks.
        text: int64[N], number that `Timeline.render` turns into name, category and arguments.
        step: int64[N], index into `Timeline.step_names`; -1 outside the steps.
        queued: int64[N], nanoseconds between being enqueued and the start; -1 unknown.
        event: int64[N], event of the trace; -1 for the timeline's own (steps, summaries).
    """

    start: Int
    end: Int
    track: Int
    text: Int
    step: Int
    queued: Int
    event: Int

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Int) -> Slices:
        """Return some of the slices."""
        return Slices(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Arrows:
    """Flow arrows between two slices.

    Attributes:
        source, target: int64[M], slice numbers.
        leave, arrive: int64[M], moments inside the two at which no other slice of their track is on top.
        label: int64[M], index into `labels`.
        labels: (category, name) of the arrows.
        dropped: Arrows left out because the clocks put the end before the beginning, or a slice on top hides an end.
    """

    source: Int
    target: Int
    leave: Int
    arrive: Int
    label: Int
    labels: list[tuple[str, str]]
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Counter:
    """One counter: a value that holds until the next.

    Attributes:
        pid: Process it belongs to.
        name: 'bus H2D'.
        unit: 'bytes/s'; the viewers show both as one name.
        at: int64[K].
        value: float64[K].
    """

    pid: int
    name: str
    unit: str
    at: Int
    value: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mark:
    """A moment worth a word: a finding at the place it speaks of.

    Attributes:
        at: When.
        track: Index into the timeline's tracks.
        text: Name, category and arguments, as `Timeline.render` gives them.
    """

    at: int
    track: int
    text: str


@dataclass(frozen=True)
class Timeline:
    """All that is drawn.

    Attributes:
        title: What it is of, with a word where it is simulated.
        processes: {pid: name}, in the order to show.
        tracks: Threads, in the order to show.
        slices: Bars.
        arrows: Flow arrows.
        counters: Counters.
        marks: Findings.
        step_names: What people call the steps, by `Slices.step`.
        render: Turns a slice's `text` into the inside of its JSON object, arguments still open.
        left_out: Sentences on what is not drawn, and why.
    """

    title: str
    processes: dict[int, str]
    tracks: list[Track]
    slices: Slices
    arrows: Arrows
    counters: list[Counter]
    marks: list[Mark]
    step_names: list[str]
    render: Callable[[int], str] = field(repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def event_count(self) -> int:
        """Events that the viewers load: slices, both ends of arrows, counter values, marks."""
        values = sum(len(counter.at) for counter in self.counters)
        return len(self.slices) + 2 * len(self.arrows) + values + len(self.marks)
