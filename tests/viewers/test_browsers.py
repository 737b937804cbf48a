"""Timelines in the two real viewers, in headless Chromium."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from tests.builders import load
from tests.timeline_checker import check_timeline, ns
from tests.timeline_samples import (
    OTHERS,
    OWN,
    ROOT,
    arrow_ends,
    crowded_trace,
    hostile_trace,
    timeline_of,
    trace_of,
    two_gpu_step,
    with_times,
)
from tests.viewers import browser
from tfplace.report.timeline.chrome import write_chrome
from tfplace.report.timeline.perfetto import write_perfetto

pytestmark = pytest.mark.skipif(browser.missing() is not None, reason=f"needs {browser.missing()}")


@pytest.fixture(scope="module")
def opened():
    with browser.viewers() as page:
        yield page


def write(timeline, path):
    with path.open("wb") as out:
        write_chrome(timeline, out)
    return path


def test_chrome_tracing_holds_all_that_was_written(opened, tmp_path):
    tab, home = opened
    browser.open_catapult(tab, home)
    traces = {path.name: trace_of(path) for path in with_times(OWN) + with_times(OTHERS)}
    for name, trace in {**traces, "hostile": hostile_trace(), "crowded": crowded_trace(scale=8)}.items():
        timeline = timeline_of(trace)
        path = write(timeline, tmp_path / "t.json")
        written = check_timeline(path)
        first = min(ns(event["ts"]) for event in written.of("X"))
        meant = Counter((a - first, b, c - first, d) for a, _, b, c, _, d in arrow_ends(timeline).elements())
        seen = browser.show_in_catapult(tab, path, draw=False)
        assert seen.get("error") is None, name
        assert seen["warnings"] == [], name
        assert seen["slices"] == written.slices + written.marks, name
        assert (seen["flows"], seen["counters"]) == (written.arrows, written.counter_values), name
        assert Counter(map(tuple, seen["arrows"])) == meant, name
        assert seen["processes"] == list(written.processes.values()), name


def test_perfetto_shows_processes_and_lanes_by_name(opened, tmp_path):
    tab, home = opened
    path = next(path for path in OWN if path.name == "cpu_accelerator_cifar10.pbtxt")
    assert browser.show_in_perfetto(tab, home, write(timeline_of(trace_of(path)), tmp_path / "t.json")) == ""
    text = tab.locator("body").inner_text()
    for shown in ("CPU:0 (host)", "CPU:1 (a CPU as accelerator)", "transfers without a time of their own"):
        assert shown in text


def test_perfetto_shows_its_own_format_in_the_order_meant(opened, tmp_path):
    tab, home = opened
    path = tmp_path / "t.pftrace"
    with path.open("wb") as out:
        write_perfetto(timeline_of(load(two_gpu_step())), out)
    assert browser.show_in_perfetto(tab, home, path) == ""
    shown = list(dict.fromkeys(tab.locator("body").inner_text().split("\n")))  # a name stands there twice in a row
    first = shown.index("tfplace: step0.pb")
    groups = [name for name in shown[first:] if "(host)" in name or "(device)" in name]
    assert groups == ["CPU:0 (host)", "GPU:0 (device)", "GPU:1 (device)"]
    lanes = ["launches", "copies H2D", "copies P2P", "stream 13", "bus H2D", "bus P2P", "busy"]
    of_gpu = shown[shown.index("GPU:0 (device)") : shown.index("GPU:1 (device)")]
    assert [name for name in of_gpu if name in lanes] == lanes
    assert shown.index("about this timeline") < shown.index("steps") < shown.index("CPU:0 (host)")


def test_open_shows_the_timeline_in_perfetto(opened):
    """The address that the command prints leads to a loaded timeline, with nothing fetched from elsewhere."""
    command = [sys.executable, "-m", "tfplace", "timeline", "traces/input_feed.pbtxt", "--open"]
    environment = {**os.environ, "BROWSER": "true"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stderr.readline())
        tab = opened[0].context.browser.new_context().new_page()
        tab.route("**/*", lambda route: route.continue_() if "//127.0.0.1:" in route.request.url else route.abort())
        tab.goto(found[0])
        tab.get_by_text("CPU:0 (host)").first.wait_for(timeout=60_000)
        assert "tfplace: input_feed.pbtxt" in tab.locator("body").inner_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_perfetto_opens_hostile_names_without_a_dialog(opened, tmp_path):
    tab, home = opened
    assert browser.show_in_perfetto(tab, home, write(timeline_of(hostile_trace()), tmp_path / "t.json")) == ""
    assert "copies H2D" in tab.locator("body").inner_text()
