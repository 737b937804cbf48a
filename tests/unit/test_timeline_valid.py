"""Every timeline of every trace passes a checker that knows only the file; and the checker itself sees faults."""

import json

import pytest

from tests.timeline_checker import check_timeline
from tests.timeline_samples import HOSTILE, OTHERS, OWN, crowded_trace, hostile_trace, timeline_of, trace_of, with_times
from tfplace.report.timeline.chrome import compressed, write_chrome


def written(trace, path, **more):
    timeline = timeline_of(trace, **more)
    with path.open("wb") as out:
        write_chrome(timeline, out)
    return timeline, check_timeline(path)


def assert_all_is_there(trace, timeline, checked):
    own = sum(event["pid"] == 1 for event in checked.of("X"))
    assert checked.slices - own == len(trace.events)
    assert (checked.slices, checked.arrows) == (len(timeline.slices), len(timeline.arrows))
    assert checked.marks == len(timeline.marks)
    assert checked.slices + 2 * checked.arrows + checked.counter_values + checked.marks == timeline.event_count


@pytest.mark.parametrize("path", with_times(OWN), ids=lambda path: path.name)
def test_timelines_of_this_repository_are_valid(path, tmp_path):
    assert_all_is_there(trace_of(path), *written(trace_of(path), tmp_path / "t.json"))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("path", with_times(OTHERS), ids=lambda path: path.name)
def test_timelines_of_traces_by_others_are_valid(path, tmp_path):
    assert_all_is_there(trace_of(path), *written(trace_of(path), tmp_path / "t.json"))


def test_crowded_lanes_are_split(tmp_path):
    timeline, checked = written(crowded_trace(), tmp_path / "t.json")
    assert_all_is_there(crowded_trace(), timeline, checked)
    names = set(checked.threads.values())
    assert {"thread 7", "thread 7 (2)", "launches (4)", "copies D2H (4)"} <= names  # at 5 us four ops run at once
    assert not {"thread 7 (3)", "launches (5)"} & names  # on one thread they nest


def test_hostile_names_stay_readable_and_do_no_harm(tmp_path):
    _, checked = written(hostile_trace(), tmp_path / "t.json")
    names = {event["name"] for event in checked.of("X")}
    assert "Odd: 中文/🚀" in names
    assert "Odd: back\\slash\\ " in names  # never a backslash last
    assert "Odd: tab\\tnew\\nline\\x1b[31mred\\x07" in names
    assert not any("\u202e" in name for name in names)
    assert len(HOSTILE) == len([name for name in names if name.startswith("Odd: ")])
    assert max(map(len, names)) <= 200


def test_a_compressed_timeline_is_one_member_and_the_same_each_time(tmp_path):
    for name in ("a.gz", "b.gz"):
        with (tmp_path / name).open("wb") as out, compressed(out) as stream:
            write_chrome(timeline_of(crowded_trace()), stream)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert check_timeline(tmp_path / "a.gz").slices > 40


GOOD = [
    {"ph": "M", "pid": 1, "tid": 5, "name": "process_name", "args": {"name": "p"}},
    {"ph": "M", "pid": 1, "tid": 5, "name": "thread_name", "args": {"name": "t"}},
    {"ph": "M", "pid": 1, "tid": 6, "name": "thread_name", "args": {"name": "u"}},
    {"ph": "X", "pid": 1, "tid": 5, "ts": 0, "dur": 10, "name": "a", "args": {"k": 1}},
    {"ph": "s", "pid": 1, "tid": 5, "ts": 1, "name": "f", "cat": "c", "id": 1},
    {"ph": "X", "pid": 1, "tid": 6, "ts": 2, "dur": 10, "name": "b", "args": {"k": 1}},
    {"ph": "f", "bp": "e", "pid": 1, "tid": 6, "ts": 3, "name": "f", "cat": "c", "id": 1},
]


def with_fault(number, **changes):
    return [*GOOD[:number], {**GOOD[number], **changes}, *GOOD[number + 1 :]]


def document(events):
    return json.dumps({"traceEvents": events}, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def test_the_checker_accepts_a_good_timeline():
    assert check_timeline(document(GOOD)).arrows == 1


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        (with_fault(5, tid=5), "overlap in part"),
        (with_fault(5, ts=2.0005), "three decimals"),
        (with_fault(3, ts=4), "not in order"),
        (with_fault(6, id=2), "half an arrow"),
        (with_fault(6, ts=13), "ends at no slice"),
        (with_fault(6, ts=0.5), "not in order"),
        (with_fault(0, args={"name": "a/b"}), "from its last /"),
        (with_fault(1, tid=1), "the number of a process"),
        (with_fault(2, args={"name": "t"}), "two threads of one name"),
        (with_fault(3, name="ends in \\"), "ends in a backslash"),
        (with_fault(3, name="new\nline"), "an escape"),
        (with_fault(3, args={"k": None}), "dropped by Perfetto"),
        (with_fault(3, dur=float("nan")), "NaN is no JSON"),
    ],
)
def test_the_checker_sees(events, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_timeline(document(events))


def test_the_checker_sees_lone_surrogates_and_byte_order_marks():
    with pytest.raises(UnicodeDecodeError):
        check_timeline(document(with_fault(3, name="\ud800")))
    with pytest.raises(AssertionError, match="byte order mark"):
        check_timeline(b"\xef\xbb\xbf" + document(GOOD))
