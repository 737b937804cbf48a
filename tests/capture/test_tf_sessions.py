"""v1 sessions: the user's options, metadata, profiler and errors are theirs."""

from __future__ import annotations

import json

import pytest

EXPECTED = [1.0, 1.5, 2.5, 4.0, 6.0, 8.5, 11.5, 15.0]  # 1 + the sum of x / 2


@pytest.fixture
def conduct(run):
    def go(scenario):
        ran = run("sessions.py", scenario)
        assert ran.code == 0, ran.err
        return json.loads(ran.out.splitlines()[-1]), ran

    return go


def test_runs_that_the_user_traces_are_left_alone(conduct):
    said, ran = conduct("own-options")
    assert said["results"] == EXPECTED[:3]
    assert said["theirs"]
    assert len(ran.trace.context["steps"]) == 2


def test_users_run_metadata_gets_what_it_would_have_got(conduct):
    said, ran = conduct("own-metadata")
    assert said["results"] == EXPECTED
    assert said["theirs"] == 0
    assert len(ran.trace.context["steps"]) == 3


def test_run_under_the_users_profiler_does_not_raise(conduct):
    said, ran = conduct("profiler-on")
    assert said["results"] == EXPECTED
    assert len(ran.warnings) == 1


@pytest.mark.parametrize("scenario", ["run-raises", "hook-raises"])
def test_run_that_raises_is_saved_and_its_error_goes_on(conduct, scenario):
    said, ran = conduct(scenario)
    assert said["error"] == "InvalidArgumentError"
    assert ran.trace.message.partition_graphs


def test_hook_merges_with_the_options_of_others_and_adds_no_node(conduct):
    said, ran = conduct("hook-and-theirs")
    assert said["results"] == EXPECTED
    assert set(said["timeouts"]) == {60_000}
    assert said["nodes"] == []
    assert len(ran.trace.context["steps"]) == 3


def test_closing_the_session_writes_what_there_is(conduct):
    said, ran = conduct("closed-early")
    assert len(ran.trace.context["steps"]) == 3
    assert not said["live"]


def test_misuse_raises_when_asked(conduct):
    said, _ = conduct("misuse")
    assert "not a tf.compat.v1.Session" in said["error"]
