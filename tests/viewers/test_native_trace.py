"""Every timeline in Perfetto's own format, in its own trace processor: the same as in JSON, and in the order meant."""

import gzip
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.timeline_samples import (
    OTHERS,
    OWN,
    arrow_ends,
    crowded_trace,
    hostile_trace,
    timeline_of,
    trace_of,
    with_times,
)
from tests.viewers import perfetto
from tests.viewers.test_trace_processor import ENDS, LOST, TEXTS, UNBOUND, shown
from tfplace.report.timeline.chrome import compressed, write_chrome
from tfplace.report.timeline.model import Arrows
from tfplace.report.timeline.perfetto import write_perfetto

pytestmark = pytest.mark.skipif(perfetto.missing() is not None, reason=f"needs {perfetto.missing()}")

_SLICE = "slice.ts, slice.dur, slice.depth, slice.category, slice.name"
_THREADS = """slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
    join process using (upid)"""
_TRACKS = "slice join track on slice.track_id = track.id join track device on track.parent_id = device.id"
_ARGUMENT = "substr(args.key, instr(args.key, '.') + 1), args.string_value, coalesce(args.int_value, args.real_value)"
# what the JSON holds, and the same of Perfetto's own format
SLICES = (
    f"select process.name, thread.name, {_SLICE} from {_THREADS}",
    f"select device.name, track.name, {_SLICE} from {_TRACKS}",
)
VALUES = (
    """select process.name, track.name, counter.ts, counter.value from counter
        join process_counter_track track on counter.track_id = track.id join process using (upid)""",
    """select device.name, track.name || ' ' || measure.unit, counter.ts, counter.value from counter
        join counter_track measure on counter.track_id = measure.id join track on track.id = measure.id
        join track device on track.parent_id = device.id""",
)
ARGUMENTS = (
    f"select thread.name, {_SLICE}, {_ARGUMENT} from {_THREADS} join args using (arg_set_id)",
    f"select track.name, {_SLICE}, {_ARGUMENT} from {_TRACKS} join args on slice.arg_set_id = args.arg_set_id",
)
# as the UI asks for it
ORDER = """include perfetto module viz.summary.track_event;
    select tracks.name, parent.name, tracks.is_counter, tracks.unit, has_data
    from _track_event_tracks_ordered_groups tracks
    left join track parent on tracks.parent_id = parent.id order by tracks.parent_id, order_id"""


def write(timeline, folder):
    json, native = folder / "t.json", folder / "t.pftrace"
    for path, writer in ((json, write_chrome), (native, write_perfetto)):
        with path.open("wb") as out:
            writer(timeline, out)
    return json, native


def compare(timeline, folder):
    """Write a timeline in both formats, and compare what Perfetto holds of the two."""
    json, native = write(timeline, folder)
    of_json = perfetto.ask(json, SLICES[0], VALUES[0], ARGUMENTS[0], ENDS)
    *of_native, lost, unbound, order = perfetto.ask(
        native, SLICES[1], VALUES[1], ARGUMENTS[1], ENDS, LOST, UNBOUND, ORDER
    )
    assert (lost, unbound) == ([], [])
    expected = [once(count(rows)) for rows in of_json]
    slices, values, arguments, ends = map(count, of_native)
    assert slices == expected[0]
    assert values == expected[1]
    assert arguments == expected[2]
    assert ends == expected[3] == arrow_ends(timeline)
    assert slices.total() == len(timeline.slices) + len(timeline.marks)
    assert values.total() == sum(len(counter.at) for counter in timeline.counters)
    check_order(timeline, order)


def count(rows):
    """Count alike rows; Perfetto reads some numbers of JSON wrong in their last bit."""
    rounded = lambda value: float(f"{value:.14g}") if isinstance(value, float) else value  # noqa: E731
    return Counter(tuple(map(rounded, row)) for row in rows)


def once(rows):
    """Undo what Perfetto does to a backslash in JSON, which it shows as it stands in the file: twice."""
    plain = lambda value: value.replace("\\\\", "\\") if isinstance(value, str) else value  # noqa: E731
    return Counter({tuple(map(plain, row)): count for row, count in rows.items()})


def check_order(timeline, order):
    """Below each process stand its threads, then its counters; below the first also the other processes."""
    root, *others = timeline.processes.values()
    drawn = {timeline.tracks[n].tid for n in [*timeline.slices.track.tolist(), *(m.track for m in timeline.marks)]}
    for pid, process in timeline.processes.items():
        below = [(name, counter, unit) for name, parent, counter, unit, _ in order if parent == process]
        threads = [(track.name, 0, None) for track in timeline.tracks if track.pid == pid and track.tid in drawn]
        counters = [(counter.name, 1, counter.unit) for counter in timeline.counters if counter.pid == pid]
        devices = [(name, 0, None) for name in others] if process == root else []
        assert below == threads + counters + devices
    assert [row[0] for row in order if row[1] is None] == [root]


@pytest.mark.parametrize("path", with_times(OWN), ids=lambda path: path.name)
def test_perfetto_holds_the_same_of_both_formats(path, tmp_path):
    compare(timeline_of(trace_of(path)), tmp_path)


@pytest.mark.parametrize("path", with_times(OTHERS), ids=lambda path: path.name)
@pytest.mark.usefixtures("recorded")
def test_perfetto_holds_the_same_of_traces_by_others(path, tmp_path):
    compare(timeline_of(trace_of(path)), tmp_path)


def test_perfetto_loses_no_crowded_slice(tmp_path):
    compare(timeline_of(crowded_trace()), tmp_path)


def test_perfetto_takes_hostile_names(tmp_path):
    compare(timeline_of(hostile_trace()), tmp_path)
    ((*texts,),) = perfetto.ask(tmp_path / "t.pftrace", TEXTS)
    found = "\n".join(row[0] for row in texts)
    assert "back\\slash\\" in found
    assert shown("back\\slash\\") not in found
    assert "中文/🚀" in found
    assert "\x1b" not in found


def test_arrows_lead_from_anything_to_anything_that_begins_no_earlier(tmp_path):
    """Also between slices that begin at one moment, whichever the file names first, and have no length."""
    timeline = timeline_of(crowded_trace())
    start, end = timeline.slices.start, timeline.slices.end
    source, target = np.nonzero(start[:, None] <= start[None, :])
    source, target = source[source != target], target[source != target]
    backwards = source > target
    assert (backwards & (end[target] == start[target])).any()
    assert (backwards & (end[target] > start[target])).any()
    arrows = Arrows(source, target, start[source], start[target], np.zeros(len(source), np.int64), [("c", "n")])
    timeline = replace(timeline, arrows=arrows)
    lost, unbound, ends = perfetto.ask(write(timeline, tmp_path)[1], LOST, UNBOUND, ENDS)
    assert (lost, unbound) == ([], [])
    assert Counter(map(tuple, ends)) == arrow_ends(timeline)


def test_perfetto_takes_the_compressed_file(tmp_path):
    timeline = timeline_of(hostile_trace())
    path = tmp_path / "t.pftrace.gz"
    with path.open("wb") as out, compressed(out) as stream:
        write_perfetto(timeline, stream)
    assert gzip.decompress(path.read_bytes()) == write(timeline, tmp_path)[1].read_bytes()
    ((number,),), lost = perfetto.ask(path, "select count(1) from slice", LOST)
    assert [number, lost] == [len(timeline.slices) + len(timeline.marks), []]
