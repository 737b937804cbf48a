"""Traces whose timelines are worth a look: the repository's, those of others beside the checkout, and odd ones."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.builders import (
    CPU0,
    GPU0,
    GPU1,
    copy,
    gpu_lanes,
    graph,
    kernel,
    lane,
    load,
    node,
    op,
    recv,
    run_metadata,
    send,
)
from tests.conftest import RECORDED
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.errors import TfplaceError
from tfplace.model.trace import Trace
from tfplace.read.load import load_trace
from tfplace.report.timeline.build import build_timeline
from tfplace.report.timeline.model import Timeline

ROOT = Path(__file__).parents[1]
OWN = sorted(
    path for path in (ROOT / "traces").iterdir() if ".pb" in path.name or (path.is_dir() and path.name != "programs")
)
OTHERS = sorted(
    path for path in RECORDED.glob("*") if path.suffix not in (".tsv", ".md") and path.name != "EXPECTED.json"
)

HOSTILE = (
    '<script>alert("x")</script>',
    "back\\slash\\",
    'quote"',
    "tab\tnew\nline\x1b[31mred\x07",
    "right\u202eleft",
    "\u4e2d\u6587/\U0001f680",
    "long" * 3000,
    "a/../../b",
)


@lru_cache(maxsize=64)
def trace_of(path: Path) -> Trace | None:
    """Return the trace of a file; null where tfplace reads none in it."""
    try:
        return load_trace([str(path)])
    except TfplaceError:
        return None


def with_times(paths: list[Path]) -> list[Path]:
    """Return the files whose traces have times."""
    return [path for path in paths if (trace := trace_of(path)) is not None and len(trace.events)]


def timeline_of(trace: Trace, **more: Any) -> Timeline:
    """Return the timeline as the command draws it."""
    analysis: Analysis = analyze(trace)
    findings = order_findings(run_rules(ALL_RULES, analysis, Thresholds()))
    return build_timeline(analysis, findings, **more)


def arrow_ends(timeline: Timeline) -> Counter[tuple[int, int, str, int, int, str]]:
    """Count the arrows by (start, length, name) of the slices at both ends."""
    slices, arrows = timeline.slices, timeline.arrows
    names: dict[int, str] = {}

    def end(number: int) -> tuple[int, int, str]:
        start, stop, text = (int(column[number]) for column in (slices.start, slices.end, slices.text))
        if text not in names:
            names[text] = json.loads("{" + timeline.render(text) + "}}")["name"]
        return start, stop - start, names[text]

    return Counter((*end(a), *end(b)) for a, b in zip(arrows.source.tolist(), arrows.target.tolist(), strict=True))


def hostile_trace() -> Trace:
    """A step whose names do harm where they are not escaped."""
    ops = [op(name, "Odd", start=10 * n, duration=9) for n, name in enumerate(HOSTILE)]
    copies = [copy(f"edge_{n}_{name}", "HtoD", 1000 + n, start=10 * n, duration=3) for n, name in enumerate(HOSTILE)]
    kernels = [kernel(name, "Odd", start=10 * n + 4, duration=3) for n, name in enumerate(HOSTILE)]
    return load(
        run_metadata(dev_stats=[lane(CPU0, *ops), lane(GPU0, *ops), *gpu_lanes(0, kernels=kernels, copies=copies)])
    )


def crowded_trace(scale: int = 1) -> Trace:
    """Slices that overlap in part, touch, nest, have no length, or stand on one thread.

    At scale 1 some begin and end within a microsecond, below which chrome://tracing nests by rounded times.
    """
    spans = [(0, 10), (5, 10), (5, 5), (10, 0), (10, 0), (15, 1), (15, 20), (16, 1.5), (17.5, 0.25), (17.75, 40)]
    spans = [(scale * start, scale * length) for start, length in [*spans, (0, 60)]]
    threaded = [op(f"t{n}", "Op", start=s, duration=d, thread=7, nanos=True) for n, (s, d) in enumerate(spans)]
    loose = [op(f"n{n}", "Op", start=s, duration=d, nanos=True) for n, (s, d) in enumerate(spans)]
    kernels = [kernel(f"n{n}", "Op", start=s + 1, duration=d, nanos=True) for n, (s, d) in enumerate(spans)]
    copies = [copy(f"edge_{n}_n{n}", "DtoH", 4096, start=s, duration=d, nanos=True) for n, (s, d) in enumerate(spans)]
    lanes = [lane(CPU0, *threaded), lane(GPU0, *loose), *gpu_lanes(0, kernels=kernels, copies=copies)]
    return load(run_metadata(dev_stats=lanes))


def two_gpu_step(number: int = 0, size: int = 2_400_000) -> Any:
    """A step in which a weight goes up to GPU 0, a value from GPU 0 to GPU 1, and a result down; 100 us apart.

    Weight w (24 bytes a row): host op 0 to 2, copy up 10 to 20, launch on GPU 0 at 21 to 23, kernel 25 to 45,
    peer copy 46 to 50, launch on GPU 1 at 51 to 53, kernel 55 to 75, copy down 76 to 80, host op 85 to 95.
    """
    at = 100 * number
    up, across, down = "edge_1_conv1/kernel", "edge_2_y", "edge_3_z"
    shape = f"[{size // 4}]"
    host = graph(
        CPU0,
        node("conv1/kernel", "VariableV2", dtype="float32", shape=shape, _output_shapes=[shape]),
        send(up, "conv1/kernel", CPU0, GPU0),
        recv("z/_3", down, GPU1, CPU0),
        node("loss", "Sum", "z/_3", T="float32"),
    )
    first = graph(
        GPU0,
        recv("conv1/kernel/_1", up, CPU0, GPU0),
        node("y", "Relu", "conv1/kernel/_1", T="float32"),
        send(across, "y", GPU0, GPU1),
    )
    second = graph(
        GPU1, recv("y/_2", across, GPU0, GPU1), node("z", "Relu", "y/_2", T="float32"), send(down, "z", GPU1, CPU0)
    )
    peer = copy(across, "PtoP", size, start=at + 46, duration=4, memory="Device to Device")
    lanes = [
        lane(
            CPU0,
            op("conv1/kernel", "VariableV2", start=at, duration=2),
            op("loss", "Sum", "z/_3", start=at + 85, duration=10),
        ),
        lane(GPU0, op("y", "Relu", "conv1/kernel/_1", start=at + 21, duration=2)),
        lane(GPU1, op("z", "Relu", "y/_2", start=at + 51, duration=2)),
        *gpu_lanes(
            0,
            kernels=[kernel("y", "Relu", start=at + 25, duration=20)],
            copies=[copy(up, "HtoD", size, start=at + 10, duration=10, memory="Pageable to Device"), peer],
        ),
        *gpu_lanes(
            1,
            kernels=[kernel("z", "Relu", start=at + 55, duration=20)],
            copies=[copy(down, "DtoH", size, start=at + 76, duration=4, memory="Device to Pinned")],
        ),
    ]
    return run_metadata([host, first, second], lanes)
