"""TensorFlow's own timelines of the same runs: the same ops, devices, starts and durations in ours, each once."""

import json
import re
from collections import Counter

import pytest

from tests.conftest import RECORDED
from tests.timeline_checker import check_timeline, ns
from tests.timeline_samples import timeline_of
from tfplace.read.load import load_trace
from tfplace.report.timeline.chrome import write_chrome

pytestmark = pytest.mark.usefixtures("recorded")

SAME_RUNS = [
    ("rm_text_tf1_inception_inference.pbtxt", "timeline_tf1_inception_showmemory.json"),
    ("rm_text_tf1_mnist.pbtxt", "timeline_tf1_mnist_showmemory.json"),
    ("rm_json_p5000_c2g_45.json", "timeline_p5000_c2g_45.json"),
    ("rm_json_p5000x2_g2g.json", "timeline_p5000x2_g2g.json"),
]


def drawn_by_tf(path):
    """Count TF's slices by (lane, start us, length us, node), in its timeline's own times.

    TF draws kernels and copies twice: on the summary lanes they are left out, after a look that nothing stands on these
    alone.
    """
    events = json.loads(path.read_text())["traceEvents"]
    lanes = {e["pid"]: e["args"]["name"].removesuffix(" Compute") for e in events if e["ph"] == "M"}
    slices = [e for e in events if e["ph"] == "X"]
    summary = [e for e in slices if lanes[e["pid"]].endswith(("/stream:all", "/memcpy"))]
    own = [e for e in slices if e not in summary]
    times = {(e["ts"], e["dur"]) for e in own}
    assert all((e["ts"], e["dur"]) in times for e in summary)
    return Counter((lanes[e["pid"]], e["ts"], e["dur"], e["args"]["name"].partition(":")[0]) for e in own)


def drawn_by_us(trace, tmp_path):
    """Return our slices as (lane, start ns, end ns, node), and the whole; the lane of an op is its device's name."""
    path = tmp_path / "t.json"
    with path.open("wb") as out:
        write_chrome(timeline_of(trace), out)
    checked = check_timeline(path)
    short = {str(name): str(full) for name, full in zip(trace.devices["name"], trace.devices["full_name"], strict=True)}
    slices = []
    for event in checked.of("X"):
        process, args = checked.processes[event["pid"]], event["args"]
        if process.startswith("tfplace"):
            continue
        lane = args.get("lane") or short[process.partition(" (")[0]]
        name = str(args.get("recorded as") or args.get("node")).partition(":")[0]
        slices.append((lane, ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), name))
    return slices, checked


@pytest.mark.parametrize(("source", "timeline"), SAME_RUNS)
def test_every_slice_of_tensorflows_timeline_is_in_ours_at_the_same_time_and_no_other(source, timeline, tmp_path):
    theirs = drawn_by_tf(RECORDED / timeline)
    ours, _ = drawn_by_us(load_trace([str(RECORDED / source)]), tmp_path)
    zero = min(start for _, start, _, _ in theirs)
    expected = Counter({(lane, start - zero, dur, name): n for (lane, start, dur, name), n in theirs.items()})
    # TF cuts starts and ends to whole microseconds; where ours are finer, its zero lies some nanoseconds before ours
    fractions = range(1000) if any(start % 1000 for _, start, _, _ in ours) else [0]
    assert any(in_microseconds(ours, fraction) == expected for fraction in fractions)


def in_microseconds(slices, fraction):
    cut = [(lane, (at + fraction) // 1000, (end + fraction) // 1000, name) for lane, at, end, name in slices]
    return Counter((lane, at, end - at, name) for lane, at, end, name in cut)


@pytest.mark.parametrize(("source", "timeline"), SAME_RUNS)
def test_ops_have_tensorflows_op_types(source, timeline, tmp_path):
    events = json.loads((RECORDED / timeline).read_text())["traceEvents"]
    lanes = {e["pid"]: e["args"]["name"].removesuffix(" Compute") for e in events if e["ph"] == "M"}
    run = [e for e in events if e["ph"] == "X" and re.fullmatch(r"/job:.*/device:[CG]PU:\d+", lanes[e["pid"]])]
    _, checked = drawn_by_us(load_trace([str(RECORDED / source)]), tmp_path)
    ours = Counter(e["args"]["op"] for e in checked.of("X") if e.get("cat") == "op")
    assert ours == Counter(e["args"]["op"] for e in run)


@pytest.mark.parametrize(("source", "timeline"), SAME_RUNS)
def test_every_copy_has_the_bytes_that_tensorflows_timeline_lacks(source, timeline, tmp_path):
    trace = load_trace([str(RECORDED / source)])
    _, checked = drawn_by_us(trace, tmp_path)
    copies = [e for e in checked.of("X") if checked.threads[e["pid"], e["tid"]].startswith("copies")]
    assert Counter(e["args"]["bytes"] for e in copies) == Counter(trace.copies["num_bytes"].tolist())
    assert all("tensor" in e["args"] and "direction" in e["args"] for e in copies)
    assert "bytes" not in json.loads((RECORDED / timeline).read_text())["traceEvents"][-1].get("args", {})
