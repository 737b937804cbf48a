"""Faults of capture itself: the training goes on, Ctrl-C stops it, nothing stays behind, one warning per site."""

from __future__ import annotations

import json

import pytest

SITES = (
    "before",
    "after",
    "graph collection",
    "before a run",
    "graph export",
    "profiler start",
    "profiler stop",
    "convert",
    "names",
    "lines",
    "shapes",
    "kernels",
    "devices",
    "write",
)
PARTIAL = {"profiler start", "profiler stop", "convert", "names", "lines", "shapes", "kernels", "devices"}


@pytest.fixture(scope="module")
def injected(zygote):
    ran = zygote.run("faults.py", strict=False)
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("error", ["OSError", "RuntimeError", "InternalError"])
def test_training_goes_on_with_equal_results_after_a_fault(injected, site, error):
    (row,) = [one for one in injected if one["site"] == site and one["error"] == error]
    assert row["stopped"] is None
    assert row["equal"]
    assert row["left"] == []
    faults = [text for text in row["warnings"] if "capture failed at" in text]
    assert len(faults) == 1
    assert "affected" in faults[0] or "Times are missing" in faults[0]
    assert row["file"] == (site in PARTIAL or site == "graph collection")


@pytest.mark.parametrize("site", SITES)
def test_ctrl_c_in_our_own_code_stops_the_training_and_leaves_nothing(injected, site):
    (row,) = [one for one in injected if one["site"] == site and one["error"] == "KeyboardInterrupt"]
    assert row["stopped"] == "KeyboardInterrupt"
    assert row["left"] == []
    assert row["warnings"] == []


@pytest.fixture(scope="module")
def elsewhere(zygote):
    ran = zygote.run("faults_elsewhere.py", strict=False)
    assert ran.code == 0, ran.err
    return json.loads(ran.out.splitlines()[-1])


def test_faults_in_sessions_and_in_the_step_finder_leave_the_training_alone(elsewhere):
    for row in elsewhere:
        if row["error"] != "KeyboardInterrupt":
            assert row["stopped"] is None, row
            assert row["equal"], row
            assert len([text for text in row["warnings"] if "capture failed at" in text]) == 1, row
        assert row["left"] == [], row


def test_ctrl_c_in_sessions_and_in_the_step_finder_goes_on(elsewhere):
    rows = [row for row in elsewhere if row["error"] == "KeyboardInterrupt"]
    assert rows
    assert {row["site"]: row["stopped"] for row in rows} == {row["site"]: "KeyboardInterrupt" for row in rows}
