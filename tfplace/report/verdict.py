"""The verdict: one sentence with a number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfplace.diagnose.rule import Finding
from tfplace.report.model import DIRECTIONS, Report
from tfplace.report.wording import count_of, join_words, sentence, time_phrase, timed
from tfplace.units import format_bytes

CAPTURE_RULE = "capture-quality"
_WEIGHTS, _GRADIENTS = "variable-on-cpu", "update-on-cpu"
_TIME = re.compile(r"\d\s?(ns|us|ms|s)\b")
_BYTES_TAIL = re.compile(r": [^:]* a step\.?$")


def state_verdict(report: Report) -> str:
    """Return the costliest finding as one sentence, or the truth where there is none."""
    findings = [finding for finding in report.findings if finding.rule != CAPTURE_RULE]
    if findings:
        return _round_trip(report, findings) or _costliest(report, findings[0])
    if not report.devices:
        return "The trace names no device, so it cannot show what crosses between devices."
    if not report.trace["accelerators"]:
        names = join_words([str(device["name"]) for device in report.devices])
        return f"The step ran on the host alone ({names}): there is no accelerator to copy to."
    if report.totals["evidence"] is None:
        return "What crosses cannot be seen: the trace has neither partition graphs nor copies."
    return sentence(f"Nothing to change was found: {_traffic(report)}{_blind(report)}")


def _costliest(report: Report, finding: Finding) -> str:
    cost = None if _TIME.search(finding.title) else time_phrase(finding)
    return sentence(f"{finding.title.rstrip('.')}, {cost}" if cost else finding.title)


def _round_trip(report: Report, findings: Sequence[Finding]) -> str | None:
    """Weights that go up and gradients of the same variables that come back are one matter, told in one sentence."""
    if findings[0].rule not in (_WEIGHTS, _GRADIENTS):
        return None
    up = next((finding for finding in findings if finding.rule == _WEIGHTS), None)
    back = next((finding for finding in findings if finding.rule == _GRADIENTS), None)
    if up is None or back is None or up.bytes_per_step is None or back.bytes_per_step is None:
        return None
    shared = set(up.subjects) & set(back.subjects)
    if not shared:
        return None
    whose = "their gradients" if shared == set(up.subjects) else f"the gradients of {len(shared)} of them"
    text = f"{_BYTES_TAIL.sub('', up.title).rstrip('.')}, and {whose} back: "
    text += f"{format_bytes(up.bytes_per_step + back.bytes_per_step)} over the bus"
    if up.cost_ns_per_step is not None and back.cost_ns_per_step is not None and up.cost_basis == back.cost_basis:
        cost = up.cost_ns_per_step + back.cost_ns_per_step
        return sentence(f"{text}, {timed(cost, up.cost_basis)}")
    return sentence(f"{text} a step")


def _traffic(report: Report) -> str:
    """'2 copies, 314 kB a step' over all directions that leave a device."""
    per_step = report.totals["per_step"]
    ways = [per_step[way] for way in DIRECTIONS if way != "d2d"]
    count = sum(way["count"] or 0 for way in ways)
    word = ("copy", "copies") if report.totals["evidence"] == "memcpy" else ("transfer", "transfers")
    if not count:
        return f"no {word[1]} between host and device in the step"
    sizes = [way["bytes"] for way in ways if way["bytes"] is not None]
    missing = sum(way["unknown_sizes"] or 0 for way in ways)
    size = f", {'at least ' if missing else ''}{format_bytes(round(sum(sizes)))}" if sizes else " of unknown size"
    return f"{count_of(count, *word)}{size} a step"


def _blind(report: Report) -> str:
    blind = sum(outcome.outcome in ("skipped", "failed") for outcome in report.rules)
    return f"; {count_of(blind, 'rule')} of {len(report.rules)} could not look" if blind else ""
