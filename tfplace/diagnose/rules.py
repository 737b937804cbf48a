"""The list of all rules, in the order in which they are run and listed, and the order of findings."""

from __future__ import annotations

from collections.abc import Iterable

from tfplace.diagnose import (
    capture_rules,
    input_rules,
    ping_pong,
    placement_rules,
    transfer_rules,
    variable_rules,
    xla_rules,
)
from tfplace.diagnose.rule import HIDING_RULE, Finding, Outcome, Rule

ALL_RULES: tuple[Rule, ...] = (
    Rule(
        "capture-quality",
        "what the trace lacks, and which rules are off because of it",
        capture_rules.capture_quality,
    ),
    Rule(
        "variable-on-cpu",
        "weights on the CPU that are copied to a GPU in every step, though nothing keeps them there",
        variable_rules.variable_on_cpu,
    ),
    Rule(
        "table-on-cpu",
        "tables on the CPU of which only the gathered rows cross",
        variable_rules.table_on_cpu,
    ),
    Rule(
        "update-on-cpu",
        "gradients that travel to the CPU because the variable is updated there",
        variable_rules.update_on_cpu,
    ),
    Rule(
        "multi-gpu-parameters",
        "variables on the CPU that are copied to several GPUs in every step",
        variable_rules.multi_gpu_parameters,
    ),
    Rule(
        "cpu-reason",
        "why nodes of a GPU job run on the CPU, and which of them are harmless",
        placement_rules.cpu_reason,
    ),
    Rule(
        "colocated-to-cpu",
        "nodes that could run on a GPU but share a colocation group with one that cannot",
        placement_rules.colocated_to_cpu,
    ),
    Rule(
        "request-not-honoured",
        "nodes that asked for a GPU and were placed on the CPU",
        placement_rules.request_not_honoured,
    ),
    Rule(
        "xla-hides-placement",
        "XLA clusters, inside which the trace shows no placement",
        xla_rules.xla_hides_placement,
    ),
    Rule(
        "ping-pong",
        "data that leaves a GPU for work in host memory and comes back within the step",
        ping_pong.ping_pong,
    ),
    Rule(
        "constant-copied",
        "large constants on the CPU that are copied to a GPU in every step",
        transfer_rules.constant_copied,
    ),
    Rule(
        "feed-copied",
        "feeds and arguments that are copied to a GPU inside every step",
        input_rules.feed_copied,
    ),
    Rule(
        "whole-dataset-fed",
        "feeds of a whole data set of which the step uses a small part",
        input_rules.whole_dataset_fed,
    ),
    Rule(
        "fetch-copied",
        "results that every step hands back from a GPU",
        transfer_rules.fetch_copied,
    ),
    Rule(
        "input-not-staged",
        "batches of the input pipeline that are copied inside the step",
        input_rules.input_not_staged,
    ),
    Rule(
        "pageable-copy",
        "large copies from or to pageable host memory",
        input_rules.pageable_copy,
    ),
    Rule(
        "exposed-copies",
        "steps in which the GPU waits for copies because no kernel runs beside them",
        transfer_rules.exposed_copies,
    ),
    Rule(
        "tiny-copies",
        "steps with very many small copies",
        transfer_rules.tiny_copies,
    ),
    Rule(
        "prefetch-ineffective",
        "input that is staged on a GPU without gaining from it",
        input_rules.prefetch_ineffective,
    ),
    Rule(
        "staging-misuse",
        "staging areas that are filled and emptied for the same batch in one step",
        input_rules.staging_misuse,
    ),
    Rule(
        "gpu-gpu-through-host",
        "edges between two GPUs whose data went through host memory",
        transfer_rules.gpu_gpu_through_host,
    ),
    Rule(
        "transfer-in-loop",
        "edges inside a while loop that cross the bus in every iteration",
        transfer_rules.transfer_in_loop,
    ),
    Rule(
        "debug-op-copies",
        "checks, prints, summaries and Python callbacks that take values from a GPU in every step",
        transfer_rules.debug_op_copies,
    ),
)
"""Every rule: first what can be trusted, then placement, then transfers."""


def order_findings(outcomes: Iterable[Outcome]) -> list[Finding]:
    """Return the findings of all outcomes in the order to read them.

    What hides the step first; then the highest cost per step, unknown costs last; then most bytes per step; ties stay
    in the order of the outcomes, which is that of `ALL_RULES`: the cause (variable-on-cpu) before what follows from it
    (update-on-cpu).
    """
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    return sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[bool, bool, float, bool, int]:
    cost, moved = finding.cost_ns_per_step, finding.bytes_per_step
    return (finding.rule != HIDING_RULE, cost is None, -(cost or 0.0), moved is None, -(moved or 0))
