"""The trace event format, written as a stream: what chrome://tracing and Perfetto open.

Memory stays flat: only the order of the events is known as a whole, their text is made in pieces.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from tfplace.report.timeline.model import NONE, Counter, Int, Mark, Slices, Timeline, Track
from tfplace.report.timeline.text import DECIMALS, MAX_NAME, pairs, quote

_PIECE = 1 << 15
_FAST = 1  # gzip level: a fifth larger than the best, in a tenth of the time


def write_chrome(timeline: Timeline, out: BinaryIO) -> None:
    """Write the timeline as UTF-8 JSON, one event to a line, by time."""
    out.write(_head(timeline).encode())
    first = True
    for lines in _pieces(timeline):
        if lines:
            out.write((("" if first else ",\n") + ",\n".join(lines)).encode())
            first = False
    out.write(b"\n]}\n")


@contextmanager
def compressed(out: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a stream that compresses into `out`: one member, since chrome://tracing reads no further, and no date."""
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_FAST, fileobj=out, mtime=0) as stream:
        yield stream  # type: ignore[misc]  # a GzipFile is written like any other


def _head(timeline: Timeline) -> str:
    facts = pairs([("title", timeline.title), *((f"left out {n}", t) for n, t in enumerate(timeline.left_out, 1))])
    lines = [f'{{"displayTimeUnit":"ms","otherData":{{{facts}}},"traceEvents":[']
    lines += [line + "," for pid, name in timeline.processes.items() for line in _process(timeline, pid, name)]
    return "\n".join(lines) + "\n"


def _process(timeline: Timeline, pid: int, name: str) -> Iterator[str]:
    threads = [track for track in timeline.tracks if track.pid == pid]
    tid = threads[0].tid if threads else pid + 1
    yield _metadata(pid, tid, "process_name", f'"name":{quote(name, MAX_NAME)}')
    yield _metadata(pid, tid, "process_sort_index", f'"sort_index":{pid}')
    for track in threads:
        yield _metadata(pid, track.tid, "thread_name", f'"name":{quote(track.name, MAX_NAME)}')
        yield _metadata(pid, track.tid, "thread_sort_index", f'"sort_index":{track.tid}')


def _metadata(pid: int, tid: int, what: str, args: str) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{{{args}}}}}'


def _pieces(timeline: Timeline) -> Iterator[list[str]]:
    """Yield the lines of all events in order of time, some thousands at once."""
    streams = [_slices(timeline), *_arrow_ends(timeline), *map(_counter, timeline.counters), _marks(timeline)]
    times = [at for at, _ in streams]
    sizes = np.array([len(at) for at in times], dtype=np.int64)
    bases = np.concatenate([[0], np.cumsum(sizes)])
    # stable: of events at one moment the slices come first, and a flow's beginning before its end
    order = np.argsort(np.concatenate(times), kind="stable") if sizes.sum() else np.zeros(0, dtype=np.int64)
    done = np.zeros(len(streams), dtype=np.int64)
    for begin in range(0, len(order), _PIECE):
        piece = order[begin : begin + _PIECE]
        stream_of = np.searchsorted(bases, piece, side="right") - 1
        counts = np.bincount(stream_of, minlength=len(streams))
        lines: list[str] = []
        shift = np.zeros(len(streams), dtype=np.int64)
        for number, (_, make) in enumerate(streams):
            shift[number] = len(lines) - done[number] - bases[number]
            if counts[number]:
                lines += make(int(done[number]), int(done[number] + counts[number]))
        done += counts
        yield [lines[place] for place in (piece + shift[stream_of]).tolist()]


Stream = tuple[Int, Callable[[int, int], list[str]]]


def _slices(timeline: Timeline) -> Stream:
    slices = timeline.slices
    heads = [f'{{"ph":"X","pid":{track.pid},"tid":{track.tid},"ts":' for track in timeline.tracks]
    tails = [f',"step":{quote(name)}}}}}' for name in timeline.step_names] + ["}}"]
    render = timeline.render

    def make(begin: int, end: int) -> list[str]:
        rows = slice(begin, end)
        at, at_rest = _split(slices.start[rows])
        lasts, lasts_rest = _split(slices.end[rows] - slices.start[rows])
        texts = [render(text) for text in slices.text[rows].tolist()]
        ends = [tails[step] for step in slices.step[rows].tolist()]
        if (slices.queued[rows] >= 0).any():
            ends = [f"{wait}{end}" for wait, end in zip(_waits(slices, rows), ends, strict=True)]
        columns = zip(slices.track[rows].tolist(), at, at_rest, lasts, lasts_rest, texts, ends, strict=True)
        return [
            f'{heads[track]}{us}{DECIMALS[ns]},"dur":{dur}{DECIMALS[dur_ns]},{text}{end}'
            for track, us, ns, dur, dur_ns, text, end in columns
        ]

    return slices.start, make


def _split(ns: Int) -> tuple[list[int], list[int]]:
    whole, rest = np.divmod(ns, 1000)
    return whole.tolist(), rest.tolist()


def _waits(slices: Slices, rows: slice) -> list[str]:
    queued = slices.queued[rows]
    whole, rest = _split(queued)
    known = (queued != NONE).tolist()
    return [
        f',"queued us":{us}{DECIMALS[ns]}' if is_known else ""
        for us, ns, is_known in zip(whole, rest, known, strict=True)
    ]


def _arrow_ends(timeline: Timeline) -> list[Stream]:
    arrows = timeline.arrows
    return [
        _flow(timeline, '"ph":"s"', arrows.leave, arrows.source),
        # bp:e binds the arrow to the slice around its end, not to the next one
        _flow(timeline, '"ph":"f","bp":"e"', arrows.arrive, arrows.target),
    ]


def _flow(timeline: Timeline, phase: str, moments: Int, ends: Int) -> Stream:
    arrows = timeline.arrows
    order = np.argsort(moments, kind="stable")
    at, slice_of, label, number = moments[order], ends[order], arrows.label[order], order + 1
    heads = [f'{{{phase},"pid":{track.pid},"tid":{track.tid},"ts":' for track in timeline.tracks]
    labels = [f',"cat":{quote(cat)},"name":{quote(name, MAX_NAME)},"id":' for cat, name in arrows.labels]

    def make(begin: int, end: int) -> list[str]:
        rows = slice(begin, end)
        whole, rest = _split(at[rows])
        tracks = timeline.slices.track[slice_of[rows]].tolist()
        columns = zip(tracks, whole, rest, label[rows].tolist(), number[rows].tolist(), strict=True)
        return [f"{heads[t]}{us}{DECIMALS[ns]}{labels[text]}{number}}}" for t, us, ns, text, number in columns]

    return at, make


def _counter(counter: Counter) -> Stream:
    head = f'{{"ph":"C","pid":{counter.pid},"name":{quote(counter.name)},"ts":'
    unit = quote(counter.unit)

    def make(begin: int, end: int) -> list[str]:
        whole, rest = _split(counter.at[begin:end])
        values = [int(value) if value.is_integer() else value for value in counter.value[begin:end].tolist()]
        columns = zip(whole, rest, values, strict=True)
        return [f'{head}{us}{DECIMALS[ns]},"args":{{{unit}:{value!r}}}}}' for us, ns, value in columns]

    return counter.at, make


def _marks(timeline: Timeline) -> Stream:
    marks = sorted(timeline.marks, key=lambda mark: mark.at)

    def make(begin: int, end: int) -> list[str]:
        return [_mark(timeline.tracks[mark.track], mark) for mark in marks[begin:end]]

    return np.array([mark.at for mark in marks], dtype=np.int64), make


def _mark(track: Track, mark: Mark) -> str:
    us, ns = divmod(mark.at, 1000)
    return f'{{"ph":"i","s":"t","pid":{track.pid},"tid":{track.tid},"ts":{us}{DECIMALS[ns]},{mark.text}}}}}'
