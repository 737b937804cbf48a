"""From a .pbtxt to something to look at: `tfplace report` against text_format.Parse and TensorFlow's Timeline.

    python benchmarks/bench_report.py --sizes 2 25 120 --folder /tmp/inputs

Whole processes, side by side in one run. TensorFlow's import is not counted against it: its process prints the time
from then on. tfplace's figure is the whole process, its imports included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

OTHERS = """
import sys, time
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.client.timeline import Timeline
begin = time.perf_counter()
metadata = tf.compat.v1.RunMetadata()
text_format.Parse(open(sys.argv[1]).read(), metadata)
parsed = time.perf_counter()
Timeline(metadata.step_stats).generate_chrome_trace_format()
print(parsed - begin, time.perf_counter() - begin)
"""


def measure(command: list[str]) -> tuple[float, int, str]:
    """Run a command; return wall seconds, peak memory in MB and its output."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return time.perf_counter() - begin, usage.ru_maxrss // 1024, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 25])
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    make = [sys.executable, str(Path(__file__).with_name("make_inputs.py")), str(arguments.folder)]
    subprocess.run([*make, "--sizes", *map(str, arguments.sizes)], check=True)
    for size in arguments.sizes:
        path = arguments.folder / f"step_{size}mb.pbtxt"
        ours, peak, _ = measure([sys.executable, "-m", "tfplace", "report", str(path), "--format", "json"])
        _, _, out = measure([sys.executable, "-c", OTHERS, str(path)])
        parse, both = map(float, out.split()[-2:])
        print(f"{path.stat().st_size / 1e6:.1f} MB: tfplace report {ours:.2f} s, {peak} MB; ", end="")
        print(f"Parse {parse:.2f} s, with Timeline {both:.2f} s: {both / ours:.1f} times", flush=True)


if __name__ == "__main__":
    main()
