"""More than a viewer takes: whole steps and all transfers, and a word on what is left out."""

import io

import pytest

from tests.builders import load
from tests.timeline_checker import check_timeline
from tests.timeline_samples import timeline_of, two_gpu_step
from tfplace.report.timeline.chrome import write_chrome

STEPS = 5
# of a step: 4 ops and 2 kernels; beside 3 copies, which are always drawn
OPTIONAL = 4 + 2


@pytest.fixture(scope="module")
def trace():
    return load(*(two_gpu_step(number) for number in range(STEPS)))


def written(timeline):
    out = io.BytesIO()
    write_chrome(timeline, out)
    return check_timeline(out.getvalue())


def steps_drawn(page, kinds=("op", "kernel")):
    return {event["args"]["step"] for event in page.of("X") if event.get("cat") in kinds}


def copies_drawn(page):
    return [e for e in page.of("X") if page.threads[e["pid"], e["tid"]].startswith("copies")]


def test_nothing_is_left_out_below_the_limit(trace):
    timeline = timeline_of(trace)
    assert timeline.left_out == ()
    exact = timeline_of(trace, max_events=timeline.event_count)
    assert exact.left_out == ()
    assert exact.event_count == timeline.event_count


def test_one_event_too_many_costs_a_whole_step_and_no_transfer(trace):
    whole = timeline_of(trace, max_events=None)
    smaller = timeline_of(trace, max_events=whole.event_count - 1)
    page = written(smaller)
    assert smaller.event_count <= whole.event_count - 1
    assert steps_drawn(page) == {"1", "2", "3", "4"}
    assert len(copies_drawn(page)) == 3 * STEPS
    assert smaller.left_out[0] == "Drawn are all transfers and the whole of steps 1 to 4, of 5 steps."
    assert f"{whole.event_count:,}" in smaller.left_out[1]
    bars = {event["name"] for event in page.of("X") if event.get("cat") == "left out"}
    assert bars == set(smaller.left_out)


def test_arrows_of_a_step_that_is_drawn_are_all_there(trace):
    whole = timeline_of(trace, max_events=None)
    smaller = timeline_of(trace, max_events=whole.event_count - 1)
    assert len(whole.arrows) == 8 * STEPS
    assert len(smaller.arrows) == 8 * (STEPS - 1)


def test_a_step_too_large_by_itself_keeps_transfers_and_its_longest_slices(trace):
    fixed = timeline_of(trace, max_events=1)
    page = written(fixed)
    assert steps_drawn(page) == set()
    assert len(copies_drawn(page)) == 3 * STEPS
    # a kernel brings its arrow from the launch and its arrow to the copy: five events
    room = timeline_of(trace, max_events=fixed.event_count + 10)
    kept = [e for e in written(room).of("X") if e.get("cat") in ("op", "kernel")]
    assert [e["cat"] for e in kept] == ["kernel", "kernel"]  # 20 us each, an op 10 us at most
    assert {e["args"]["step"] for e in kept} == {"1"}
    assert f"longest of the {OPTIONAL} other events of step 1, of 5 steps" in room.left_out[0]


def test_arrows_still_bind_after_events_are_left_out(trace):
    for limit in (1, 40, 80, 120, 160, 200):
        written(timeline_of(trace, max_events=limit))  # the checker finds a slice under each end
