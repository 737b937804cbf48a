"""Reading, side by side with protobuf in one run: time, peak memory, ratio.

    python benchmarks/bench_read.py                    2 and 25 MB
    python benchmarks/bench_read.py --sizes 2 25 120 --events

Each measurement is a process of its own; the time is its CPU time, since ratios of wall-clock times
mean nothing on a machine that does other things as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIELDS = ("node_name", "timeline_label", "thread_id", "all_start_micros", "op_start_rel_micros", "op_end_rel_micros")
FIELDS += ("all_end_rel_micros", "scheduled_micros", "all_start_nanos", "op_start_rel_nanos", "op_end_rel_nanos")
FIELDS += ("all_end_rel_nanos", "scheduled_nanos")


def parse_text(path: str) -> Any:
    """What TensorFlow users do: text_format.Parse, and nothing else."""
    from google.protobuf import text_format

    from tfplace.read.protos import RunMetadata

    return text_format.Parse(Path(path).read_text(), RunMetadata(), allow_unknown_field=True)


def read_tfplace(path: str) -> Any:
    """The whole read: detection, every column of every event, graphs."""
    from tfplace.read.run_metadata import read_raw

    return read_raw(path)


def read_any_text(path: str) -> Any:
    """The reader of any legal text, whatever the text is."""
    from tfplace.read.text.file import read_any

    return read_any(Path(path).read_bytes(), "RunMetadata")


def loop_binary(path: str) -> Any:
    """FromString, and a Python loop over the events for the same columns."""
    from tfplace.read.protos import RunMetadata

    message = RunMetadata.FromString(Path(path).read_bytes())
    rows, outputs = [], []
    for device in message.step_stats.dev_stats:
        for event in device.node_stats:
            rows.append([device.device, *(getattr(event, name) for name in FIELDS)])
            for output in event.output:
                tensor = output.tensor_description
                allocated = tensor.allocation_description
                dims = [dim.size for dim in tensor.shape.dim]
                outputs.append((output.slot, tensor.dtype, dims, allocated.requested_bytes, allocated.allocator_name))
    return message, rows, outputs


WAYS: dict[str, Callable[[str], Any]] = {
    one.__name__: one for one in (parse_text, read_tfplace, read_any_text, loop_binary)
}


def measure(way: str, path: Path, repeat: int) -> tuple[float, float]:
    """Return CPU seconds (the best of some) and peak megabytes of the process, some 70 of them Python and pandas."""
    command = [sys.executable, __file__, "--one", way, str(path), "--repeat", str(repeat)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["seconds"], result["megabytes"]


def run_one(way: str, path: str, repeat: int) -> None:
    import tfplace.read.run_metadata  # noqa: F401 - imports are not what is measured

    WAYS[way](str(path))
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        WAYS[way](path)
        best = min(best, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": best, "megabytes": peak}))


def compare(title: str, size: int, rows: list[tuple[str, str, Path]], repeat: int) -> None:
    print(f"\n{title}")
    base = None
    for label, way, path in rows:
        seconds, megabytes = measure(way, path, 1 if way == "parse_text" and size > 1e7 else repeat)
        base = base or seconds
        rate = path.stat().st_size / seconds / 1e6
        print(f"  {label:44}{seconds:9.3f} s {rate:8.1f} MB/s {megabytes:8.0f} MB peak {base / seconds:8.1f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 25])
    parser.add_argument("--events", action="store_true", help="also a binary of a million events")
    parser.add_argument("--folder", type=Path, help="keep the inputs here")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(*options.one, options.repeat)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        make = [sys.executable, str(Path(__file__).with_name("make_inputs.py")), str(folder)]
        missing = [size for size in options.sizes if not (folder / f"step_{size}mb.pbtxt").exists()]
        if missing:
            subprocess.run([*make, "--sizes", *map(str, missing)], check=True)
        for size in options.sizes:
            stem = folder / f"step_{size}mb"
            text, unusual, binary = (stem.with_name(stem.name + end) for end in (".pbtxt", "_unusual.pbtxt", ".pb"))
            num_bytes = text.stat().st_size
            rows = [("text_format.Parse", "parse_text", text), ("tfplace", "read_tfplace", text)]
            rows.append(("tfplace, reader of any text", "read_any_text", text))
            compare(f"canonical text, {num_bytes / 1e6:.1f} MB", num_bytes, rows, options.repeat)
            rows = [("text_format.Parse", "parse_text", unusual), ("tfplace", "read_tfplace", unusual)]
            compare("the same, unusual but legal", num_bytes, rows, options.repeat)
            rows = [("FromString and a Python loop", "loop_binary", binary), ("tfplace", "read_tfplace", binary)]
            compare(f"binary, {binary.stat().st_size / 1e6:.1f} MB", num_bytes, rows, options.repeat)
        if options.events:
            path = folder / "step_1m_events.pb"
            if not path.exists():
                subprocess.run([*make, "--events"], check=True)
            rows = [("FromString and a Python loop", "loop_binary", path), ("tfplace", "read_tfplace", path)]
            compare(f"binary of a million events, {path.stat().st_size / 1e6:.1f} MB", path.stat().st_size, rows, 1)


if __name__ == "__main__":
    main()
