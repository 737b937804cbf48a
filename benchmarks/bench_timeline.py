"""Timelines, side by side with TensorFlow's own in one run: time, peak memory, ratio.

    python benchmarks/bench_timeline.py --tensorflow PYTHON       25 MB of text, a million events of binary
    python benchmarks/bench_timeline.py --growth                  100k, 500k, 1M and 5M events: is it linear?

PYTHON is one that has TensorFlow; without it only tfplace is measured. Each measurement is a process of its own that
writes the file to /dev/null. Its time is CPU time after imports, since ratios of wall-clock times mean nothing on a
machine that does other things as well. What each does:

    TensorFlow   Parse or FromString, then Timeline(step_stats).generate_chrome_trace_format(), written
    default      read, analyze, run the rules, draw up to 500,000 events, written
    everything   the same with --all: every event once, with arrows, counters and findings, which TensorFlow's lacks
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAYER_EVENTS = 58


def draw_tensorflow(path: str) -> tuple[float, dict[str, Any]]:
    from google.protobuf import text_format
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import timeline

    started = time.process_time()
    if path.endswith(".pbtxt"):
        message = text_format.Parse(Path(path).read_text(), config_pb2.RunMetadata())
    else:
        message = config_pb2.RunMetadata.FromString(Path(path).read_bytes())
    text = timeline.Timeline(message.step_stats).generate_chrome_trace_format()
    Path(os.devnull).write_text(text)
    return time.process_time() - started, {"bytes": len(text)}


def draw_tfplace(path: str, max_events: int | None) -> tuple[float, dict[str, Any]]:
    from tfplace.analyze.study import analyze
    from tfplace.diagnose.rule import run_rules
    from tfplace.diagnose.rules import ALL_RULES, order_findings
    from tfplace.diagnose.thresholds import Thresholds
    from tfplace.read.load import load_trace
    from tfplace.report.timeline.build import build_timeline
    from tfplace.report.timeline.chrome import write_chrome

    started = time.process_time()
    analysis = analyze(load_trace([path]))
    read = time.process_time()
    findings = order_findings(run_rules(ALL_RULES, analysis, Thresholds()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    timeline = build_timeline(analysis, findings, max_events)
    with Path(os.devnull).open("wb") as out:
        write_chrome(timeline, out)
    ended = time.process_time()
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    return ended - started, {"drawing": ended - read, "added": added, "events": timeline.event_count}


def run_one(way: str, path: str) -> None:
    if way == "tensorflow":
        seconds, more = draw_tensorflow(path)
    else:
        seconds, more = draw_tfplace(path, None if way == "everything" else 500_000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak, **more}))


def measure(python: str, way: str, path: Path) -> dict[str, Any]:
    command = [python, __file__, "--one", way, str(path)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if way != "tensorflow":
        environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(title: str, path: Path, tensorflow: str | None) -> None:
    print(f"\n{title}, {path.stat().st_size / 1e6:.0f} MB")
    base = measure(tensorflow, "tensorflow", path) if tensorflow else None
    if base:
        print(f"  {'TensorFlow':12}{base['seconds']:8.2f} s {base['megabytes']:7.0f} MB")
    for way in ("default", "everything"):
        found = measure(sys.executable, way, path)
        ratio = (
            f"{base['seconds'] / found['seconds']:6.1f}x {base['megabytes'] / found['megabytes']:5.1f}x less memory"
            if base
            else ""
        )
        print(
            f"  {way:12}{found['seconds']:8.2f} s {found['megabytes']:7.0f} MB {ratio}   of it drawing "
            f"{found['drawing']:.2f} s and {found['added']:.0f} MB, {found['events']:,} events"
        )


def grow(folder: Path) -> None:
    """Time per event at several sizes; the same graph in as many steps as it takes."""
    print("\ngrowth, everything drawn")
    for events in (100_000, 500_000, 1_000_000, 5_000_000):
        path = folder / f"step_{events}_events.pb"
        if not path.exists():
            make_events(path, events)
        found = measure(sys.executable, "everything", path)
        each = found["seconds"] / events * 1e6
        drawing = found["drawing"] / events * 1e6
        print(
            f"  {events:9,} rows {found['seconds']:8.2f} s {found['megabytes']:7.0f} MB   {each:6.2f} us a row, "
            f"of it drawing {drawing:.2f}; {found['events']:,} events drawn"
        )


def make_events(path: Path, events: int) -> None:
    code = (
        "import sys; from benchmarks.make_inputs import make_step; "
        f"open(sys.argv[1], 'wb').write(make_step({events} // {LAYER_EVENTS}, different=300).SerializeToString())"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has TensorFlow")
    parser.add_argument("--growth", action="store_true", help="measure growth instead")
    parser.add_argument("--folder", type=Path, help="keep the inputs here")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(*options.one)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        if options.growth:
            grow(folder)
            return
        text = folder / "step_25mb.pbtxt"
        if not text.exists():
            make = [sys.executable, str(Path(__file__).with_name("make_inputs.py")), str(folder), "--sizes", "25"]
            subprocess.run(make, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        binary = folder / "step_1000000_events.pb"
        if not binary.exists():
            make_events(binary, 1_000_000)
        compare("canonical text", text, options.tensorflow)
        compare("binary of a million rows", binary, options.tensorflow)


if __name__ == "__main__":
    main()
