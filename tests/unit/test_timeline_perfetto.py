"""Perfetto's own format, read back by another reader: the same as the JSON, slice by slice, and in the order meant."""

import io
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from tests.builders import load
from tests.perfetto_reader import read_native
from tests.timeline_checker import check_timeline, ns
from tests.timeline_samples import (
    OTHERS,
    OWN,
    arrow_ends,
    crowded_trace,
    hostile_trace,
    timeline_of,
    trace_of,
    two_gpu_step,
    with_times,
)
from tfplace.read.binary.wire import read_varint
from tfplace.report.timeline import packets, perfetto
from tfplace.report.timeline.chrome import write_chrome
from tfplace.report.timeline.perfetto import write_perfetto


def written(timeline, writer=write_perfetto):
    out = io.BytesIO()
    writer(timeline, out)
    return out.getvalue()


def plain(args):
    return tuple((key, float(value) if isinstance(value, (Decimal, int)) else value) for key, value in args.items())


def bars_of_json(page, phase):
    lane = lambda e: (page.processes[e["pid"]], page.threads[e["pid"], e["tid"]])  # noqa: E731
    end = lambda e: ns(e["ts"]) + ns(e["dur"]) if phase == "X" else None  # noqa: E731
    return Counter((*lane(e), ns(e["ts"]), end(e), e["name"], e["cat"], plain(e["args"])) for e in page.of(phase))


def bars_of_native(bars):
    return Counter((b.device, b.track, b.start, b.end, b.name, b.category, plain(b.args)) for b in bars)


def compare(timeline):
    """Return what the file holds, which is what the JSON holds."""
    native = read_native(written(timeline))
    page = check_timeline(written(timeline, write_chrome))
    assert bars_of_native(native.bars) == bars_of_json(page, "X")
    assert bars_of_native(native.marks) == bars_of_json(page, "i")
    ends = lambda bar: (bar.start, bar.end - bar.start, bar.name)  # noqa: E731
    assert Counter((*ends(a), *ends(b)) for a, b in native.arrows) == arrow_ends(timeline)
    assert Counter(native.values) == Counter(
        (page.processes[e["pid"]], e["name"], unit, ns(e["ts"]), float(value))
        for e in page.of("C")
        for unit, value in e["args"].items()
    )
    root, *others = page.processes.values()
    assert native.below[None] == [root]
    for pid, process in page.processes.items():
        threads = [name for (of, _), name in sorted(page.threads.items()) if of == pid]
        counters = [counter.name for counter in timeline.counters if counter.pid == pid]
        assert native.below[process] == threads + counters + (others if process == root else [])
    return native


@pytest.mark.parametrize("path", with_times(OWN), ids=lambda path: path.name)
def test_both_formats_hold_the_same_of_traces_of_this_repository(path):
    compare(timeline_of(trace_of(path)))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("path", with_times(OTHERS), ids=lambda path: path.name)
def test_both_formats_hold_the_same_of_traces_by_others(path):
    compare(timeline_of(trace_of(path)))


def test_crowded_slices_nest():
    native = compare(timeline_of(crowded_trace()))
    assert any(bar.end == bar.start for bar in native.bars)


def test_hostile_names_stand_as_they_are_in_json():
    names = {bar.name for bar in compare(timeline_of(hostile_trace())).bars}
    assert "Odd: 中文/🚀" in names
    assert 'Odd: quote"' in names
    assert "Odd: tab\\tnew\\nline\\x1b[31mred\\x07" in names
    assert max(map(len, names)) <= 200


def test_what_is_left_out_is_said():
    trace = load(*(two_gpu_step(number) for number in range(5)))
    timeline = timeline_of(trace, max_events=100)
    assert timeline.left_out
    assert {bar.name for bar in compare(timeline).bars if bar.category == "left out"} == set(timeline.left_out)


def test_small_pieces_make_the_same_file(monkeypatch):
    timeline = timeline_of(load(*(two_gpu_step(number) for number in range(20))))
    whole = compare(timeline)
    monkeypatch.setattr(perfetto, "_PIECE", 3)
    pieces = compare(timeline)
    assert [bar.start for bar in pieces.bars] == [bar.start for bar in whole.bars]
    assert pieces.values == whole.values


def test_texts_that_were_forgotten_get_new_numbers(monkeypatch):
    monkeypatch.setattr(perfetto, "_PIECE", 3)
    monkeypatch.setattr(perfetto, "_REMEMBERED", 2)
    monkeypatch.setattr(packets, "_REMEMBERED", 2)
    compare(timeline_of(hostile_trace()))


@pytest.mark.parametrize(
    "args",
    [
        {"kind": "op"},
        {"bytes": 5},
        {"bytes": -5, "GB/s": 1.5},
        {"text": 'ends like a number,"GB/s":7', "a": 1},
        {"text": 'x,"GB/s":7'},
        {"text": 'comma,"'},
        {"text": "comma,", "a": 1e300, "b": 2**63 - 1, "c": -(2**63)},
        {"text": "\\", "a": True, "b": 0.1},
        {"text": '\\","b":3', "last": 7},
    ],
)
def test_numbers_at_the_end_of_a_text_are_told_from_texts_that_look_so(args):
    inside = '"name":"n","cat":"c","args":' + json.dumps(args, separators=(",", ":"))[:-1]
    timeline = replace(timeline_of(load(two_gpu_step())), render=lambda _number: inside)
    for bar in read_native(written(timeline)).bars:
        assert {key: value for key, value in bar.args.items() if key not in ("step", "queued us")} == args


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**32, 2**63 - 1])
def test_varints_of_a_column_are_read_as_what_they_are(value):
    column = packets.varints(np.array([0, 1, value, 127]))
    assert len({len(row) for row in column.tolist()}) == 1
    assert [read_varint(bytes(row), 0, len(row)) for row in column.tolist()] == [
        (number, column.shape[1]) for number in (0, 1, value, 127)
    ]
    assert read_varint(packets.varint(value), 0, 10) == (value, len(packets.varint(value)))
