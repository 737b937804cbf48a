"""The Report: every number that any output format shows, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfplace.diagnose.rule import Finding, Outcome
from tfplace.model.trace import Note

SCHEMA = "tfplace.report/1"
"""Name and version of the JSON contract; only additions keep the version."""

DIRECTIONS = ("h2d", "d2h", "d2d", "p2p")
"""The directions that a bus or a device's own memory carries; H2H is not among them."""


@dataclass(frozen=True)
class Report:
    """What a report says. Plain Python values only (no pandas), unknown is None.

    Times are microseconds, sizes bytes; every key is described in docs/report-json.md.

    Attributes:
        trace: {source, format, tf_version, simulated, steps, traced_steps, ...}.
        devices: [{name, kind, role, task, model, memory_bytes}].
        placement: [{device, nodes, ops: {op: count}, scopes: {name scope: count}}].
        totals: {per_step: {h2d: {count, bytes, time_us, unknown_sizes}, d2h, d2d, p2p}, gpu_busy_share, step_time_us,
            exposed_copy_us, evidence}.
        variables: One dict per variable, those that cost most first.
        transfers: One dict per distinct edge or copy, most bytes per step first.
        findings: In the order to read them.
        rules: One Outcome per rule, in the order they ran.
        verdict: One sentence with a number.
        answers: {cpu_bottleneck, weights_copied, input_copied}.
        notes: Degraded data.
    """

    trace: dict[str, Any]
    devices: list[dict[str, Any]]
    placement: list[dict[str, Any]]
    totals: dict[str, Any]
    variables: list[dict[str, Any]]
    transfers: list[dict[str, Any]]
    findings: list[Finding]
    rules: list[Outcome]
    verdict: str
    answers: dict[str, str]
    notes: list[Note]
