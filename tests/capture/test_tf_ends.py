"""A program whose own loop fails between two steps: its error is its own, the capture ends, and the next one begins."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def ends(run):
    def go(scenario):
        ran = run("ends.py", scenario)
        assert ran.code == 0, ran.err
        return json.loads(ran.out.splitlines()[-1]), ran

    return go


STEPS = {
    "fit": 3,
    "fit-ctrl-c": 3,
    "fit-in-step": 2,
    "evaluate": 3,
    "predict": 3,
    "hook": 4,
    "hook-ctrl-c": 4,
    "session": 5,
}


@pytest.mark.parametrize("scenario", STEPS)
def test_error_in_the_programs_loop_ends_the_capture_at_once_and_is_not_touched(ends, scenario):
    said, ran = ends(scenario)
    assert said["same"]
    assert said["ours"] == []
    assert not said["live"]
    assert said["file"]
    assert said["files"] == ["next.pb", "trace.pb"]
    assert said["left"] == []
    assert said["warnings"] == []
    assert len(ran.trace.context["steps"]) == STEPS[scenario]
    assert "ended-early" in ran.trace.notes()


def test_error_that_is_kept_keeps_the_fit_and_the_next_capture_ends_it(ends):
    said, ran = ends("fit-held")
    assert said["live"]
    assert not said["file"]
    assert said["files"] == ["next.pb", "trace.pb"]
    assert said["left"] == []
    assert said["warnings"] == []
    assert len(ran.trace.context["steps"]) == 3


def test_callback_used_again_after_such_an_error_writes_what_it_saw_and_rests(ends):
    said, ran = ends("same-callback-again")
    assert said["live"]
    assert said["left"] == []
    assert len(ran.trace.context["steps"]) == 3


def test_fit_that_goes_on_is_not_ended_by_another_capture(ends):
    said, ran = ends("fit-goes-on")
    assert said["files"] == ["next.pb", "trace.pb"]
    assert len(said["warnings"]) == 1
    assert "another capture is on" in said["warnings"][0]
    assert len(ran.trace.context["steps"]) == 5


def test_loop_that_drives_the_callbacks_itself_is_not_ended_by_another_capture(ends):
    said, ran = ends("own-loop")
    assert said["files"] == ["trace.pb"]
    assert len(said["warnings"]) == 1
    assert len(ran.trace.context["steps"]) == 3


def test_session_that_was_dropped_makes_room_for_the_next_capture(ends):
    said, ran = ends("hook-dropped")
    assert said["files"] == ["next.pb", "trace.pb"]
    assert said["left"] == []
    assert len(ran.trace.context["steps"]) == 4


def test_session_that_is_still_open_keeps_its_capture(ends):
    said, _ = ends("hook-open")
    assert said["live"]
    assert said["files"] == []
    assert len(said["warnings"]) == 1
    assert "another capture is on" in said["warnings"][0]
