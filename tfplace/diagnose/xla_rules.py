"""The rule xla-hides-placement: what XLA compiled, and which variables it was handed from where."""

from __future__ import annotations

from collections.abc import Iterator

from tfplace.analyze import ops
from tfplace.analyze.analysis import Analysis
from tfplace.diagnose import advice, words
from tfplace.diagnose.compiled import Compiled, Handed, by_device, compiled_functions
from tfplace.diagnose.rule import HIDING_RULE, Finding, Skip
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.rows import python_records

_SIMULATED = (
    " XLA does not run on a simulated GPU: the cluster's ops ran one by one here, and the copies that no edge explains "
    "are theirs. On a real GPU there are none of these."
)
_FAILS = "jit_compile=True fails on it with 'resource located in CPU'"


def xla_hides_placement(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
    """Find XLA clusters: at most one node in the trace, whose inside was neither placed nor timed node by node."""
    del thresholds
    flow = analysis.flow
    wholes = compiled_functions(analysis)
    if not len(flow) and not wholes:
        raise Skip("the trace holds no nodes")
    clusters = [n for n in range(len(flow)) if ops.XLA_OPS.match(flow.op[n]) or flow.attrs[n].get("_XlaMustCompile")]
    if not clusters and not wholes:
        return
    count = len(clusters) + len(wholes)
    handed = _handed_to_nodes(analysis, clusters)
    lines = [words.node(analysis, n) + f" on {words.device(analysis, _at(flow.device[n]))}" for n in clusters]
    lines += handed
    for whole in wholes:
        lines += _whole_lines(analysis, whole)
    yield Finding(
        rule=HIDING_RULE,
        severity="info",
        title=f"{words.plural(count, 'XLA cluster')} in this step hide{'s' * (count == 1)} what runs "
        "inside: placement and copies there are not in the trace.",
        detail=_detail(clusters, handed, wholes) + (_SIMULATED if analysis.trace.simulated and clusters else ""),
        fix=advice.xla_hides_placement(analysis),
        evidence=words.cut(lines),
        subjects=(*(flow.name[n] for n in clusters), *(whole.name for whole in wholes)),
    )


def _detail(clusters: list[int], handed: list[str], wholes: list[Compiled]) -> str:
    parts = []
    if clusters:
        parts.append(
            "XLA compiles a whole function into one program, so the trace shows one node in place of its ops. The "
            "report speaks only of what is outside."
        )
    if handed:
        parts.append(f"{words.plural(len(handed), 'variable')} handed in from the host: see below.")
    if wholes:
        names = words.listing(words.name(whole.name) for whole in wholes)
        taken = by_device({(one.name, one.device): one for whole in wholes for one in whole.variables}.values())
        parts.append(
            f"XLA compiled {names} as a whole (jit_compile=True), so it left no graph: what it takes is all that is "
            f"known of it, {words.listing(taken, 8) if taken else 'no variable'}."
        )
    return " ".join(parts)


def _handed_to_nodes(analysis: Analysis, clusters: list[int]) -> list[str]:
    """Return one line per variable on a host that a cluster takes; only a cluster on a device fails on it."""
    flow, inside, lines = analysis.flow, set(clusters), []
    for row in python_records(analysis.variables):
        readers = inside.intersection(row["readers"] or ())
        node = row["node_id"]
        known = row["device_id"] is not None and node is not None and flow.device[node] >= 0
        if not readers or not known or flow.on_device[node]:
            continue
        fails = any(flow.device[n] >= 0 and flow.on_device[n] for n in readers)
        lines.append(
            f"{words.name(row['name'])} ({row['dtype'] or 'type unknown'}) is handed in from "
            f"{words.device(analysis, row['device_id'])}" + f": {_FAILS}" * fails
        )
    return lines


def _whole_lines(analysis: Analysis, whole: Compiled) -> list[str]:
    """Return the function and its variables, those on a host first.

    The trace does not say where the function ran. Where it raised an error although a GPU is there, it was on that GPU.
    """
    fails = whole.failed and not analysis.accelerators.empty
    first = f"{words.name(whole.name)}, compiled as a whole" + "; it raised an error in a step" * whole.failed
    return [first, *(_handed_line(one, fails=fails and one.on_host) for one in whole.variables)]


def _handed_line(one: Handed, *, fails: bool) -> str:
    kind = f"{words.name(one.dtype)} {words.name(one.shape)}" if one.dtype and one.shape else "type unknown"
    size = "size unknown" if one.num_bytes is None else words.size(one.num_bytes)
    made = f", made at {words.name(one.source)}" if one.source else ""
    return (
        f"{words.name(one.name)} ({kind}, {size}) is handed in from {one.device or 'an unknown device'}{made}"
        + f": {_FAILS}" * fails
    )


def _at(device_id: int) -> int | None:
    return device_id if device_id >= 0 else None
