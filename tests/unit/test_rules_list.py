"""The list of rules, its page in docs, the order of findings, and what becomes of a rule that fails."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.rules_support import outcome, step, study, weights
from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.facts import about, milliseconds
from tfplace.diagnose.rule import Finding, Outcome, Rule, run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.diagnose.words import feed_name, listing, plural, size

DOCS = Path(__file__).parents[2] / "docs" / "rules.md"
SECTION = re.compile(r"^## (?P<slug>[a-z-]+)$", re.MULTILINE)
PARTS = ("**Finds**", "**How measured.**", "**When it is wrong.**", "TF1", "**Thresholds:**")


def sections() -> dict[str, str]:
    text = DOCS.read_text(encoding="utf-8")
    marks = list(SECTION.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return {mark["slug"]: text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}


def test_each_rule_has_its_section_and_each_section_its_rule() -> None:
    assert set(sections()) == {rule.slug for rule in ALL_RULES}


@pytest.mark.parametrize("slug", [rule.slug for rule in ALL_RULES])
def test_a_section_says_what_why_how_when_wrong_and_the_fixes(slug: str) -> None:
    text = sections()[slug]
    assert [part for part in PARTS if part not in text] == []
    assert "**Why it costs.**" in text or "**Why it matters.**" in text


def test_every_threshold_is_explained() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [f.name for f in dataclasses.fields(Thresholds) if f"`{f.name}`" not in text] == []


def test_no_section_names_a_threshold_that_does_not_exist() -> None:
    known = {field.name for field in dataclasses.fields(Thresholds)}
    named = {
        word
        for text in sections().values()
        for line in text.split("**Thresholds:**")[1:]
        for word in re.findall(r"`(\w+)`", line)
    }
    assert named <= known


def test_every_threshold_has_unit_reason_and_source() -> None:
    for field in dataclasses.fields(Thresholds):
        assert all(field.metadata[key] for key in ("unit", "reason", "source")), field.name
        assert isinstance(field.default, (int, float))


def test_slugs_are_unique_and_summaries_one_line() -> None:
    assert len({rule.slug for rule in ALL_RULES}) == len(ALL_RULES) == 23
    for rule in ALL_RULES:
        assert "\n" not in rule.summary and not rule.summary.endswith(".")


def finding(rule: str, cost: float | None, num_bytes: int | None) -> Finding:
    return Finding(rule, "info", "t", "d", "f", cost_ns_per_step=cost, bytes_per_step=num_bytes)


def test_findings_come_by_cost_then_bytes_then_rule_order() -> None:
    outcomes = [
        Outcome("a", "found", None, (finding("a", None, None), finding("a", 5.0, 10))),
        Outcome("b", "clear"),
        Outcome("c", "found", None, (finding("c", 7.0, None), finding("c", 5.0, 20), finding("c", None, 3))),
        Outcome("d", "found", None, (finding("d", 5.0, 20), finding("d", 0.0, 99))),
    ]
    ordered = [(one.rule, one.cost_ns_per_step, one.bytes_per_step) for one in order_findings(outcomes)]
    assert ordered == [
        ("c", 7.0, None),
        ("c", 5.0, 20),
        ("d", 5.0, 20),
        ("a", 5.0, 10),
        ("d", 0.0, 99),
        ("c", None, 3),
        ("a", None, None),
    ]


def test_a_rule_that_fails_does_not_hide_the_others() -> None:
    def broken(analysis: Analysis, thresholds: Thresholds) -> Iterator[Finding]:
        raise ValueError("oops")
        yield

    rules = [Rule("broken", "", broken), next(r for r in ALL_RULES if r.slug == "variable-on-cpu")]
    failed, found = run_rules(rules, study(step(weights())), Thresholds())
    assert (failed.outcome, failed.reason, found.outcome) == ("failed", "ValueError: oops", "found")


@pytest.mark.parametrize("slug", [rule.slug for rule in ALL_RULES])
def test_no_rule_fails_on_an_empty_or_a_bare_trace(slug: str) -> None:
    outcome(slug, study(step({})))
    outcome(slug, study(step(weights())))
    outcome(slug, study(step(weights("[?,10]"))))
    outcome(slug, study(step({}, length=10)))


def test_severity_comes_from_the_cost_against_the_step_or_in_ms() -> None:
    """Weights of 1,200,000 B take 0.1 ms, those of 120,000,000 B 10 ms at 12 GB/s."""
    for shape, severity in (("[500,600]", "warning"), ("[30000,999]", "warning"), ("[30000,1000]", "error")):
        (one,) = outcome("variable-on-cpu", study(step(weights(shape)))).findings
        assert one.severity == severity
    for length, severity in ((499, "error"), (500, "error"), (501, "warning")):  # 0.1 ms is 20 % of 500 us
        analysis = study(step(weights("[500,600]"), length=length))
        (one,) = outcome("variable-on-cpu", analysis).findings
        assert (one.severity, one.cost_basis) == (severity, "estimated")


def test_numbers_in_sentences() -> None:
    assert [milliseconds(ns) for ns in (123_456_789, 12_345_678, 360_000, 4_000, 400)] == [
        "123 ms", "12.3 ms", "0.36 ms", "0.004 ms", "less than 0.001 ms",
    ]  # fmt: skip
    assert (about(360_000), about(1)) == ("about 0.36 ms", "less than 0.001 ms")
    assert (size(8000), size(12_000), size(None)) == ("8.0 kB", "12.0 kB", "an unknown number of bytes")
    assert (plural(1, "copy", "copies"), plural(2.5, "copy", "copies")) == ("1 copy", "2.5 copies")
    assert (listing([]), listing("a"), listing("ab"), listing("abc"), listing("abcde")) == (
        "none", "a", "a and b", "a, b and c", "a, b, c and 2 more",
    )  # fmt: skip
    assert [feed_name(t) for t in ("_arg_a/b_0_3", "_recv_x_0", "images")] == ["a/b", "x", "images"]
