"""The page a person reads, laid out but not yet drawn: text, findings and tables in reading order.

The terminal, plain text and Markdown draw the same Page, so they cannot say different numbers.
Strings are as they come from the trace: whoever draws them makes them safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tfplace.diagnose.rule import Finding
from tfplace.report.answers import QUESTIONS
from tfplace.report.model import Report
from tfplace.report.tables import Table, placement_table, scopes_table, totals_table, transfers_table, variables_table
from tfplace.report.verdict import CAPTURE_RULE
from tfplace.report.wording import cost_phrase, count_of, join_words, sentence


@dataclass(frozen=True)
class Limits:
    """The most that a page shows; None = all of it.

    Attributes:
        findings: Findings.
        evidence: Evidence lines of one finding.
        rows: Rows of one table.
    """

    findings: int | None = 5
    evidence: int | None = 10
    rows: int | None = None


FILE = Limits()
"""A file or a pipe: tables whole, so that one can search them."""

TERMINAL = Limits(evidence=5, rows=15)
EVERYTHING = Limits(None, None, None)


@dataclass(frozen=True)
class FindingBlock:
    """A finding, ready to draw."""

    number: int
    rule: str
    severity: str
    cost: str | None
    title: str
    detail: str
    fix: str
    evidence: tuple[str, ...]
    confidence: str
    evidence_left_out: int = 0


@dataclass(frozen=True)
class Page:
    """Everything to draw, in order."""

    head: list[str]
    trust: list[str]
    verdict: str
    severity: str | None
    findings: list[FindingBlock]
    findings_left_out: int
    rules: list[str]
    answers: list[tuple[str, str]]
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def build_page(report: Report, limits: Limits) -> Page:
    """Lay a Report out.

    Args:
        report: What to say.
        limits: How much of it.
    """
    findings = [finding for finding in report.findings if finding.rule != CAPTURE_RULE]
    shown = findings[: limits.findings]
    makers = (variables_table, totals_table, transfers_table, placement_table, scopes_table)
    tables = [make(report) for make in makers]
    return Page(
        head=[_headline(report)],
        trust=_trust(report),
        verdict=report.verdict,
        severity=findings[0].severity if findings else None,
        findings=[_block(number, finding, report, limits.evidence) for number, finding in enumerate(shown, start=1)],
        findings_left_out=len(findings) - len(shown),
        rules=_rules(report),
        answers=[(question, report.answers[key]) for key, question in QUESTIONS.items()],
        tables=[_cut(table, limits.rows) for table in tables if table is not None],
        notes=[_note(note.text, note.slug, note.count) for note in report.notes],
    )


def _cut(table: Table, most: int | None) -> Table:
    if most is None or len(table.rows) <= most:
        return table
    return replace(table, rows=table.rows[:most], left_out=len(table.rows) - most)


def _block(number: int, finding: Finding, report: Report, most: int | None) -> FindingBlock:
    evidence = finding.evidence[:most]
    said = report.verdict.startswith(finding.title.rstrip("."))  # the verdict, a line above, is this title
    return FindingBlock(
        number=number,
        rule=finding.rule,
        severity=finding.severity,
        cost=cost_phrase(finding),
        title="" if said else sentence(finding.title),
        detail=finding.detail,
        fix=finding.fix,
        evidence=evidence,
        confidence=finding.confidence,
        evidence_left_out=len(finding.evidence) - len(evidence),
    )


# ---------------------------------------------------------------- what was read, what can be trusted


def _headline(report: Report) -> str:
    trace = report.trace
    parts = [trace["format"]]
    if trace["tf_version"]:
        parts.append(f"TensorFlow {trace['tf_version']}")
    elif trace["tf_era"]:
        parts.append(f"{trace['tf_era']} by its content")
    whose = f" of {trace['step_name']}" if trace["step_name"] else ""
    parts.append(f"{count_of(trace['steps'], 'step')}{whose}" if trace["steps"] else "no step")
    devices = [_device(device) for device in report.devices]
    parts.append(join_words(devices, most=8) if devices else "no device named")
    if trace["simulated"] is not None:
        parts.append("simulated GPU (placement and bytes are real, times are not)")
    return f"{_sources(trace)}: {', '.join(parts)}"


def _sources(trace: dict[str, Any]) -> str:
    sources = trace["sources"]
    return trace["source"] if len(sources) <= 2 else f"{sources[0]} and {len(sources) - 1} more files"


def _device(device: dict[str, Any]) -> str:
    return f"{device['name']} ({device['model']})" if device["model"] else str(device["name"])


def _trust(report: Report) -> list[str]:
    """What limits the report: stand-in accelerators, missing parts, rules that are therefore off."""
    lines = []
    trace = report.trace
    names = join_words(trace["accelerators"])
    if trace["cpu_as_accelerator"]:
        verb = "plays" if len(trace["accelerators"]) == 1 else "play"
        lines.append(f"{names} {verb} the accelerator: placement and bytes are real, times are not a GPU's.")
    cpus = [device["name"] for device in report.devices if device["kind"] == "CPU"]
    if not trace["accelerators"] and len(cpus) > 1:
        lines.append(f"No accelerator here; --accelerator {cpus[-1]} treats {cpus[-1]} as one.")
    for finding in report.findings:
        if finding.rule == CAPTURE_RULE:
            title = "" if finding.title.startswith(f"{names} play") else sentence(finding.title)  # said above
            lines.append(" ".join(filter(None, (title, finding.detail, finding.fix))))
    lines += [sentence(note.text) for note in report.notes if note.slug == "several-graphs"]  # means are of no one step
    lines += _off(report, "skipped", "Could not look")
    lines += _off(report, "failed", "Failed, by a fault of tfplace's own")
    return lines


def _off(report: Report, outcome: str, label: str) -> list[str]:
    """'Could not look: a, b (no graphs); c (no times).' with rules of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for item in report.rules:
        if item.outcome == outcome:
            by_reason.setdefault((item.reason or "no reason given").rstrip("."), []).append(item.rule)
    parts = [f"{', '.join(rules)} ({reason})" for reason, rules in by_reason.items()]
    return [f"{label}: {'; '.join(parts)}."] if parts else []


def _rules(report: Report) -> list[str]:
    clear = [outcome for outcome in report.rules if outcome.outcome == "clear"]
    nothing = [outcome.rule for outcome in clear if outcome.reason is None]
    little = [f"{outcome.rule} ({outcome.reason})" for outcome in clear if outcome.reason is not None]
    lines = [f"Looked and found nothing: {', '.join(nothing)}."] if nothing else []
    return [*lines, f"Looked and found too little to matter: {'; '.join(little)}."] if little else lines


def _note(text: str, slug: str, count: int | None) -> str:
    return sentence(text) + f" ({slug}{f', {count:,}' if count is not None else ''})"
