"""What a rule is, what it may answer, and the list of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.thresholds import Thresholds


@dataclass(frozen=True)
class Finding:
    """One thing to know or change.

    Attributes:
        rule: Slug of the rule.
        severity: info, warning or error.
        title: One sentence with a number.
        detail: Cause and evidence in words.
        fix: The change to make in code; TF2 / Keras 3 first, or TF1 first where the trace is TF1.
        evidence: Lines naming nodes, devices, bytes, times.
        cost_ns_per_step: Null where neither times nor bytes tell.
        cost_basis: 'measured' (from the trace's times), 'estimated' (bytes over a stated bus speed) or null.
        bytes_per_step: Bytes over the bus per step that the finding speaks of; null unknown.
        confidence: graph (placement only), timed (times only), joined (both).
        subjects: Names of the variables, nodes or edges concerned.
    """

    rule: str
    severity: str
    title: str
    detail: str
    fix: str
    evidence: tuple[str, ...] = ()
    cost_ns_per_step: float | None = None
    cost_basis: str | None = None
    bytes_per_step: int | None = None
    confidence: str = "graph"
    subjects: tuple[str, ...] = ()


class Skip(Exception):
    """Raised by a rule that could not look, with the reason: 'no partition graphs'."""


class BelowLimit(Exception):
    """Raised by a rule that looked and saw something too small for a finding, with what it saw and the limit."""


@dataclass(frozen=True)
class Outcome:
    """What became of a rule: found, clear (reason: what was below the limit), skipped (reason) or failed (reason)."""

    rule: str
    outcome: str
    reason: str | None = None
    findings: tuple[Finding, ...] = field(default=(), repr=False)


RuleFunction = Callable[[Analysis, Thresholds], Iterable[Finding]]


@dataclass(frozen=True)
class Rule:
    """A diagnosis: a function over an Analysis, and what people read about it.

    Attributes:
        slug: Name on the command line and in JSON; docs/rules.md has a section of that name.
        summary: One line: what it finds.
        check: Yields findings; raises Skip where it cannot look, BelowLimit where all it saw is too small.
    """

    slug: str
    summary: str
    check: RuleFunction


def run_rules(rules: Iterable[Rule], analysis: Analysis, thresholds: Thresholds) -> list[Outcome]:
    """Run every rule; one that fails never hides the others.

    Returns:
        One Outcome per rule, in the order given.
    """
    outcomes = []
    for rule in rules:
        try:
            findings = tuple(rule.check(analysis, thresholds))
        except Skip as skip:
            outcomes.append(Outcome(rule.slug, "skipped", str(skip)))
        except BelowLimit as below:
            outcomes.append(Outcome(rule.slug, "clear", str(below)))
        except Exception as error:  # a rule's own fault must not cost the user the report
            outcomes.append(Outcome(rule.slug, "failed", f"{type(error).__name__}: {error}"))
        else:
            outcomes.append(Outcome(rule.slug, "found" if findings else "clear", None, findings))
    return _doubt(outcomes, analysis)


HIDING_RULE = "xla-hides-placement"


def _doubt(outcomes: list[Outcome], analysis: Analysis) -> list[Outcome]:
    """Turn 'clear' into 'skipped' where a part of the step could not be seen: nothing found would prove nothing."""
    cut = any(note.slug == "truncated" for note in analysis.trace.notes)
    hidden = any(outcome.rule == HIDING_RULE and outcome.outcome == "found" for outcome in outcomes)
    if not cut and not hidden:
        return outcomes
    reason = "the file was cut short" if cut else "an XLA cluster hides what runs inside it"
    return [Outcome(outcome.rule, "skipped", reason) if outcome.outcome == "clear" else outcome for outcome in outcomes]
