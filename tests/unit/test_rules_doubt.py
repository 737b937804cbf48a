"""Where a part of the step could not be seen, 'found nothing' is 'could not look'."""

from __future__ import annotations

import dataclasses

from tests.builders import CPU0, GPU0, graph, load, node, run_metadata
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import HIDING_RULE, run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.trace import Note, Trace


def outcomes(trace: Trace) -> dict[str, tuple[str, str | None]]:
    found = run_rules(ALL_RULES, analyze(trace), Thresholds())
    return {one.rule: (one.outcome, one.reason) for one in found}


def plain(*nodes: object) -> Trace:
    return load(run_metadata([graph(CPU0, node("c", "NoOp")), graph(GPU0, node("y", "Neg", T="float32"), *nodes)]))


def test_a_whole_file_is_clear_and_a_cut_one_is_not() -> None:
    assert outcomes(plain())["ping-pong"] == ("clear", None)
    cut = dataclasses.replace(plain(), notes=(Note("truncated", "The file ends too early."),))
    assert outcomes(cut)["ping-pong"] == ("skipped", "the file was cut short")
    assert "clear" not in {outcome for outcome, _ in outcomes(cut).values()}


def test_an_xla_cluster_leaves_nothing_clear_and_is_told_first() -> None:
    trace = plain(node("cluster", "_XlaRun"))
    told = outcomes(trace)
    assert told[HIDING_RULE][0] == "found"
    assert told["ping-pong"] == ("skipped", "an XLA cluster hides what runs inside it")
    assert order_findings(run_rules(ALL_RULES, analyze(trace), Thresholds()))[0].rule == HIDING_RULE
