"""Every timeline in Perfetto's own trace processor: nothing lost, every arrow between the slices that were meant."""

import gzip
import io
from collections import Counter

import pytest

from tests.timeline_checker import check_timeline, ns
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
from tfplace.report.timeline.chrome import compressed, write_chrome

pytestmark = pytest.mark.skipif(perfetto.missing() is not None, reason=f"needs {perfetto.missing()}")

LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
UNBOUND = "select value from stats where name = 'flow_end_without_start' and value > 0"
SLICES = """select process.pid, thread.tid, slice.ts, slice.dur, slice.name from slice
    join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)"""
ENDS = """select a.ts, a.dur, a.name, b.ts, b.dur, b.name from flow
    join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id"""
VALUES = """select process.pid, track.name, counter.ts, counter.value from counter
    join process_counter_track track on counter.track_id = track.id join process using (upid)"""
TEXTS = "select distinct string_value from args where string_value is not null"


def read_back(timeline, path):
    """Write a timeline, load it, and compare all that Perfetto holds with all that was written."""
    with path.open("wb") as out:
        write_chrome(timeline, out)
    written = check_timeline(path)
    lost, unbound, slices, ends, values = perfetto.ask(path, LOST, UNBOUND, SLICES, ENDS, VALUES)
    assert (lost, unbound) == ([], [])
    drawn = written.of("X") + written.of("i")
    expected = Counter((e["pid"], e["tid"], ns(e["ts"]), ns(e.get("dur", 0)), shown(e["name"])) for e in drawn)
    assert Counter(map(tuple, slices)) == expected
    meant = Counter((a, b, shown(c), d, e, shown(f)) for a, b, c, d, e, f in arrow_ends(timeline).elements())
    assert Counter(map(tuple, ends)) == meant
    counted = Counter(
        (e["pid"], f"{e['name']} {unit}", ns(e["ts"]), float(value))
        for e in written.of("C")
        for unit, value in e["args"].items()
    )
    assert Counter((pid, name, ts, float(value)) for pid, name, ts, value in values) == counted
    return written


def shown(name):
    """Perfetto shows a backslash as it stands in the file: twice."""
    return name.replace("\\", "\\\\")


@pytest.mark.parametrize("path", with_times(OWN), ids=lambda path: path.name)
def test_perfetto_holds_all_that_was_written(path, tmp_path):
    read_back(timeline_of(trace_of(path)), tmp_path / "t.json")


@pytest.mark.parametrize("path", with_times(OTHERS), ids=lambda path: path.name)
@pytest.mark.usefixtures("recorded")
def test_perfetto_holds_all_that_was_written_of_traces_by_others(path, tmp_path):
    read_back(timeline_of(trace_of(path)), tmp_path / "t.json")


def test_perfetto_loses_no_crowded_slice(tmp_path):
    written = read_back(timeline_of(crowded_trace()), tmp_path / "t.json")
    assert written.slices > 44


def test_perfetto_takes_hostile_names(tmp_path):
    read_back(timeline_of(hostile_trace()), tmp_path / "t.json")
    ((*texts,),) = perfetto.ask(tmp_path / "t.json", TEXTS)
    shown = "\n".join(row[0] for row in texts)
    assert "中文/🚀" in shown
    assert "<script>" in shown
    assert "\x1b" not in shown


def test_perfetto_takes_the_compressed_file(tmp_path):
    timeline = timeline_of(hostile_trace())
    plain = io.BytesIO()
    write_chrome(timeline, plain)
    path = tmp_path / "t.json.gz"
    with path.open("wb") as out, compressed(out) as stream:
        write_chrome(timeline, stream)
    assert gzip.decompress(path.read_bytes()) == plain.getvalue()
    ((number,),), lost = perfetto.ask(path, "select count(1) from slice", LOST)
    assert [number, lost] == [len(timeline.slices) + len(timeline.marks), []]


def test_the_trace_processor_reports_what_it_loses(tmp_path):
    """The judge itself: a slice overlapped in part, a file that is no timeline."""
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents":[{"ph":"X","pid":1,"tid":2,"ts":0,"dur":10,"name":"a"},'
        '{"ph":"X","pid":1,"tid":2,"ts":5,"dur":10,"name":"b"}]}'
    )
    lost, slices = perfetto.ask(path, LOST, SLICES)
    assert lost == [["slice_drop_overlapping_complete_event", 1]]
    assert len(slices) == 1
    path.write_text("no timeline")
    with pytest.raises(perfetto.ImportFailed):
        perfetto.ask(path, LOST)
