"""Faults of capture itself: the training goes on, Ctrl-C stops it, nothing stays behind, one warning per site."""

from __future__ import annotations

import json
from collections import Counter

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


KINDS = {"OSError", "RuntimeError", "InternalError", "KeyboardInterrupt"}


def test_every_other_way_was_tried_at_every_site_with_every_kind_of_fault(elsewhere):
    ways = Counter(row["way"] for row in elsewhere)
    assert ways == {"session": 28, "hook": 28, "finder": 28, "capture": 64, "keras": 64}
    assert [row for row in elsewhere if not row["reached"]] == []
    assert {row["error"] for row in elsewhere} == KINDS


@pytest.mark.parametrize("way", ["session", "hook", "finder", "capture", "keras"])
def test_faults_in_other_ways_leave_the_training_alone(elsewhere, way):
    rows = [row for row in elsewhere if row["way"] == way and row["error"] != "KeyboardInterrupt"]
    assert [row for row in rows if row["stopped"] is not None or not row["equal"] or row["left"]] == []
    for row in rows:
        told, switched_off = [text for text in row["warnings"] if "capture failed at" in text], "switched itself off"
        assert len(told) == 1, row
        assert all(text in told or switched_off in text for text in row["warnings"]), row


@pytest.mark.parametrize("way", ["session", "hook", "finder", "capture", "keras"])
def test_ctrl_c_in_other_ways_goes_on_and_leaves_nothing(elsewhere, way):
    rows = [row for row in elsewhere if row["way"] == way and row["error"] == "KeyboardInterrupt"]
    assert [row for row in rows if row["stopped"] != "KeyboardInterrupt" or row["left"]] == []
    texts = [text for row in rows for text in row["warnings"]]  # none but of the file that is missing then
    assert [text for text in texts if "no trace was written for 'step'" not in text] == []
