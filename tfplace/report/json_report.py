"""The Report as JSON: the contract of docs/report-json.md."""

from __future__ import annotations

import json
from typing import Any

from tfplace.diagnose.rule import Finding
from tfplace.report.model import SCHEMA, Report
from tfplace.report.values import number, plain_value


def render_json(report: Report) -> str:
    """Return the report as JSON text, keys in the contract's order.

    Pure ASCII: control and direction characters in names stay escaped, and any JSON reader gives the names back
    exactly. Unknown is null; there is no NaN.
    """
    return json.dumps(report_document(report), indent=2, ensure_ascii=True, allow_nan=False)


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as the dict that the contract describes."""
    document = {
        "schema": SCHEMA,
        "trace": report.trace,
        "devices": report.devices,
        "placement": report.placement,
        "totals": report.totals,
        "variables": report.variables,
        "transfers": report.transfers,
        "findings": [finding_document(finding) for finding in report.findings],
        "rules": [{"rule": o.rule, "outcome": o.outcome, "reason": o.reason} for o in report.rules],
        "answers": report.answers,
        "notes": [{"slug": note.slug, "text": note.text, "count": note.count} for note in report.notes],
        "verdict": report.verdict,
    }
    return {key: plain_value(value) for key, value in document.items()}


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return one finding as the contract has it: costs in microseconds."""
    cost = finding.cost_ns_per_step
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "detail": finding.detail,
        "fix": finding.fix,
        "evidence": list(finding.evidence),
        "cost_us_per_step": None if cost is None else number(cost / 1000),
        "bytes_per_step": finding.bytes_per_step,
        "confidence": finding.confidence,
        "cost_basis": finding.cost_basis,
        "subjects": list(finding.subjects),
    }
