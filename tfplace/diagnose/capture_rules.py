"""The rule capture-quality: what the trace lacks, and which rules are off because of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose import facts, words
from tfplace.diagnose.rule import Finding
from tfplace.diagnose.thresholds import Thresholds

NEED_GRAPHS = ("colocated-to-cpu", "gpu-gpu-through-host", "staging-misuse")
"""Rules that are off without partition graphs."""

WEAK_WITHOUT_GRAPHS = ("variable-on-cpu", "update-on-cpu", "ping-pong", "transfer-in-loop")
"""Rules that see only what the names of copies and nodes tell."""

NEED_TIMES = ("exposed-copies",)
"""Rules that are off without times of a real GPU; all others fall back to estimates."""

NEED_COPIES = ("exposed-copies", "gpu-gpu-through-host", "pageable-copy")
"""Rules that are off where the GPU's copies were not traced."""

_RECORD_GRAPHS = (
    "Record them: TF1 `tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE, "
    "output_partition_graphs=True)`; in TF2 collect them before the function's first call."
)
_CUPTI = (
    "Let the profiler read the GPU: the driver option NVreg_RestrictProfilingToAdminUsers=0, or "
    "`--cap-add=SYS_ADMIN` for a container; libcupti on the library path; one profiler at a time; a run without XLA."
)
_DAMAGE = {
    "truncated": (
        "The file ends too early",
        "What is missing counts as not seen, never as absent.",
        "Save the trace as .pb in place of .pbtxt, and wait until the file is written.",
    ),
    "unpaired-transfers": (
        "Half of a Send / Recv pair is missing",
        "Edges without their other half have no direction and are in no sum.",
        "Keep the graphs of all partitions in one file.",
    ),
    "copies-without-direction": (
        "Copies do not say where they went",
        "They are in no sum and no finding.",
        "Trace again with another TensorFlow or driver version.",
    ),
    "clock-rebased": (
        "Host and GPU rows are on two clocks",
        "Lengths hold; distances between host and GPU rows are uncertain.",
        "Nothing to change; compare lengths, not distances.",
    ),
    "late-attach": (
        "A function had run before the capture began, and was instantiated a second time to see its graphs",
        "Its graphs are those of the second time: the runtime placed them by the same rules, on the same devices.",
        "Begin the capture before the function's first call: put `tfplace.trace` on it, or record the whole program.",
    ),
    "lengths-unbelievable": (
        "Some rows have impossible lengths",
        "Their time is not used.",
        "Trace again if they are many.",
    ),
}
"""{start of a note's slug: what is wrong, what it means for the report, cure}."""

_NO_LOSS = frozenset({"late-attach"})
"""Notes of `_DAMAGE` after which nothing is missing."""


def capture_quality(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Say what the trace lacks, one finding for each fact, with the rules that are off."""
    yield from _graphs(analysis)
    yield from _times(analysis)
    yield from _accelerators(analysis)
    yield from _sizes(analysis, thresholds)
    yield from _damage(analysis)
    yield from _overhead(analysis, thresholds)


def _finding(title: str, detail: str, fix: str, *, severity: str = "info", evidence: tuple[str, ...] = ()) -> Finding:
    return Finding(rule="capture-quality", severity=severity, title=title, detail=detail, fix=fix, evidence=evidence)


def _off(rules: tuple[str, ...]) -> str:
    return f"Off because of it: {', '.join(rules)}."


def _graphs(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    if trace.has_graphs:
        return
    if facts.why_no_graphs(analysis):
        yield _finding(
            "0 partition graphs in the trace: XLA compiled the step as a whole (jit_compile=True).",
            "No op in it has a place, and no edge is known: see xla-hides-placement. "
            f"{_off((*NEED_GRAPHS, *NEED_TIMES))} Seeing nothing inside: {', '.join(WEAK_WITHOUT_GRAPHS)}.",
            "Trace one run with jit off: `tfplace record --no-jit`, `tfplace simulate --no-jit`, or jit_compile=False.",
            severity="warning",
        )
        return
    nodes = words.plural(len(trace.nodes), "node")
    held = "timed nodes only" if trace.has_times else "neither graphs nor times"
    yield _finding(
        f"0 partition graphs in the trace: it holds {held} ({nodes}).",
        "Edges, Send / Recv pairs and nodes that were not timed (variable reads, constants) are not known, or are "
        f"inferred from labels. {_off(NEED_GRAPHS)} Seeing less: {', '.join(WEAK_WITHOUT_GRAPHS)}.",
        _RECORD_GRAPHS,
        severity="info" if trace.has_times else "warning",
    )


def _times(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    if not trace.has_times and facts.why_no_graphs(analysis):
        return  # said with the graphs
    if not trace.has_times:
        yield _finding(
            "0 timed nodes in the trace: there is no step_stats.",
            f"Costs are estimated from bytes and the bus speed. {_off(NEED_TIMES)}",
            "Record times too: FULL_TRACE of a Session, or the profiler beside a tf.function.",
        )
        return
    if analysis.accelerators.empty or (analysis.accelerators["kind"] == "CPU").all() or trace.simulated is not None:
        return
    if not trace.has_device_times:
        gpus = words.plural(len(analysis.accelerators), "GPU")
        yield _finding(
            f"{gpus} in the trace, but 0 rows of kernels or copies: the GPU was not traced.",
            "That is not 'no transfers': what crosses is known from the graph only, and costs are estimated. "
            f"{_off((*NEED_TIMES, 'pageable-copy', 'gpu-gpu-through-host'))}",
            _CUPTI,
            severity="warning",
        )
    elif silent := _silent(analysis):
        yield _finding(
            f"{len(silent)} of {words.plural(len(analysis.accelerators), 'GPU')} left no rows of kernels or copies.",
            f"{words.devices(analysis, silent)} hold{'s' * (len(silent) == 1)} nodes of the graph but was not traced: "
            "'not traced' is not 'idle'.",
            _CUPTI,
            severity="warning",
        )
    elif trace.copies.empty and _edges_over_bus(analysis):
        edges = words.plural(_edges_over_bus(analysis), "edge crosses", "edges cross")
        yield _finding(
            f"{edges} the bus, but the trace has 0 copies: copies were not traced.",
            f"Kernels were timed, copies were not; their bytes come from the graph. {_off(NEED_COPIES)}",
            _CUPTI,
            severity="warning",
        )


def _silent(analysis: Analysis) -> list[int]:
    """Return the accelerators that hold nodes but have no kernel and no copy of their own in the trace."""
    events = analysis.trace.events
    traced = facts.where(events, facts.has_value(events, "kind", ["kernel", "memcpy", "memset"]))["device_id"]
    holding = {d for d, on in zip(analysis.flow.device, analysis.flow.on_device, strict=True) if on}
    return sorted(holding - set(traced.dropna().tolist()))


def _edges_over_bus(analysis: Analysis) -> int:
    rows = facts.crossings(analysis)
    return int(rows["send_node_id"].nunique())


def _accelerators(analysis: Analysis) -> Iterator[Finding]:
    trace = analysis.trace
    if analysis.accelerators.empty:
        hosts = words.plural(len(trace.devices), "device")
        yield _finding(
            f"No GPU took part: the trace names {hosts}, none of them a GPU.",
            "Nothing crosses a bus, so the rules about placement and transfers have nothing to look at.",
            "`tfplace simulate` runs the program on GPUs that are not there, and shows where all would go. Or trace a "
            "run with a GPU, or name a logical CPU device that stands for one: --accelerator CPU:1.",
        )
    elif trace.simulated is not None:
        yield _finding(
            f"The GPU is simulated ({words.name(trace.simulated, 200)}): "
            "placement, edges and bytes are real, times are not a GPU's.",
            f"No time of this trace is used: costs come from bytes. {_off(NEED_TIMES)}",
            "Trace a run on a real GPU for times.",
        )
    elif (analysis.accelerators["kind"] == "CPU").all():
        names = words.devices(analysis, analysis.accelerators["device_id"].tolist())
        count = len(analysis.accelerators)
        yield _finding(
            f"{names} {'plays' if count == 1 else 'play'} the accelerator: "
            f"{words.plural(count, 'logical CPU device')}, no GPU.",
            "Placement and edges are real for the devices that the program named. Copies, GPU times, host-memory "
            f"arguments and soft placement are not: a GPU would add some. {_off((*NEED_TIMES, 'pageable-copy'))}",
            "Trace a run on a real GPU for times and copies.",
        )


def _sizes(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    rows = facts.crossings(analysis)
    unknown = rows[rows["num_bytes"].isna()]
    if rows.empty or len(unknown) <= thresholds.unknown_size_share * len(rows):
        return
    names = facts.distinct(unknown["tensor_name"].tolist())
    yield _finding(
        f"{len(unknown)} of {words.plural(len(rows), 'copy', 'copies')} have no size ({len(unknown) / len(rows):.0%}).",
        "Byte totals and estimated costs are lower bounds.",
        "Record times as well (step_stats holds the sizes), or give the inputs static shapes.",
        evidence=words.cut([words.name(n) for n in names]),
    )


def _damage(analysis: Analysis) -> Iterator[Finding]:
    for note in (*analysis.trace.notes, *analysis.notes):
        known = next((texts for slug, texts in _DAMAGE.items() if note.slug.startswith(slug)), None)
        if known is None:
            continue
        what, meaning, cure = known
        severity = "info" if note.slug in _NO_LOSS else "warning"
        count = "" if note.count is None else f" ({note.count:,})"
        yield _finding(f"{what}{count}.", f"{note.text} {meaning}", cure, severity=severity)


def _overhead(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    share = _overhead_share(analysis)
    if share is None or share <= thresholds.overhead_share:
        return
    yield _finding(
        f"Tracing made the step {share:.0%} longer than an untraced one.",
        "Times between ops are stretched; bytes and placement are not touched.",
        "Trace fewer steps, or compare times only between traces.",
    )


def _overhead_share(analysis: Analysis) -> float | None:
    """Return what tracing added to a step as a share of an untraced one; null where no untraced step was timed.

    Null as well where no time of the trace is a GPU's: then none is used, and none can mislead.
    """
    trace = analysis.trace
    stand_in = len(analysis.accelerators) > 0 and bool((analysis.accelerators["kind"] == "CPU").all())
    if trace.simulated is not None or stand_in:
        return None
    added, measured = trace.context.get("overhead_ns_per_step"), trace.context.get("overhead")
    untraced = measured.get("untraced_step_ns") if isinstance(measured, dict) else None
    if not _is_number(added) or not _is_number(untraced) or untraced <= 0:
        return None
    return float(added / untraced)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
