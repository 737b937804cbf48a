"""The rules on recorded traces: those in `traces/`, and real GPU traces where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import Finding, Outcome, run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.read.load import load_trace

ROOT = Path(__file__).parents[2]
OWN = ROOT / "traces"
REAL = ROOT.parent / "shared" / "traces"

needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="no folder of recorded GPU traces beside the checkout")


def report(path: Path, accelerator: str | None = None) -> tuple[Analysis, list[Outcome], list[Finding]]:
    analysis = analyze(load_trace([str(path)], accelerator=accelerator))
    outcomes = run_rules(ALL_RULES, analysis, Thresholds())
    return analysis, outcomes, order_findings(outcomes)


def by_rule(found: list[Finding]) -> dict[str, Finding]:
    return {one.rule: one for one in found}


def own(name: str, accelerator: str | None = None) -> dict[str, Finding]:
    _, outcomes, found = report(OWN / name, accelerator)
    assert [o for o in outcomes if o.outcome == "failed"] == []
    return by_rule(found)


# ---------------------------------------------------------------- traces/, numbers from its README


@pytest.mark.parametrize("name", ["cifar10_weights_on_cpu.pbtxt", "cifar10_function_weights_on_cpu.pb"])
def test_the_tutorials_weights_on_the_cpu_go_down_and_their_gradients_come_up(name: str) -> None:
    found = own(name)
    one = found["variable-on-cpu"]
    assert one.bytes_per_step == 4_273_192
    assert one.cost_basis == "estimated"
    assert 4_273_192 / 12 <= (one.cost_ns_per_step or 0) <= 4_273_192 / 4  # pinned .. pageable
    assert one.title == "10 variables (4.3 MB) on CPU:0 are copied to GPU:0 in every step: 4.3 MB a step."
    assert len(one.subjects) == len(one.evidence) == 10
    assert found["update-on-cpu"].bytes_per_step == 4_273_192
    assert found["feed-copied"].bytes_per_step == 885_760


@pytest.mark.parametrize("name", ["cifar10_weights_on_gpu.pbtxt", "cifar10_function_weights_on_gpu.pb"])
def test_the_twins_are_clear(name: str) -> None:
    found = own(name)
    assert not {"variable-on-cpu", "update-on-cpu", "table-on-cpu", "multi-gpu-parameters"} & set(found)


def test_two_towers_take_the_weights_twice() -> None:
    found = own("two_towers_cpu_weights.pb")
    assert found["multi-gpu-parameters"].bytes_per_step == 7_121_488
    assert found["variable-on-cpu"].bytes_per_step == 7_121_488
    assert found["update-on-cpu"].bytes_per_step == 7_121_488


def test_of_the_embedding_rows_cross_not_the_table() -> None:
    found = own("embedding_on_cpu.pbtxt")
    one = found["table-on-cpu"]
    assert (
        one.title == "Only rows of embedding/table (25.6 MB) cross: 65.5 kB a step to GPU:0, 67.6 kB of gradient back."
    )
    assert "variable-on-cpu" not in found


def test_inference_with_cpu_weights_copies_them_in_every_call() -> None:
    found = own("inference_cpu_weights.pbtxt")
    assert found["variable-on-cpu"].bytes_per_step == 2_634_792
    assert "update-on-cpu" not in found


def test_a_feed_and_a_dataset_are_told_apart() -> None:
    assert own("input_feed.pbtxt")["feed-copied"].bytes_per_step == 201_216
    assert own("input_dataset.pbtxt")["input-not-staged"].bytes_per_step == 201_216
    assert own("input_feed_steps")["feed-copied"].bytes_per_step == 201_216


def test_a_logical_cpu_plays_the_accelerator_where_it_is_named() -> None:
    found = own("cpu_accelerator_cifar10.pbtxt", "CPU:1")
    assert found["variable-on-cpu"].bytes_per_step == 4_273_192
    assert found["variable-on-cpu"].cost_ns_per_step == pytest.approx(4_273_192 / 12)
    assert "table-on-cpu" in own("cpu_accelerator_embedding.pb", "CPU:1")
    assert "table-on-cpu" not in own("cpu_accelerator_embedding.pb")  # its file names no accelerator


@pytest.mark.parametrize(
    ("name", "rule", "num_bytes"),
    [
        ("constant_on_cpu.pbtxt", "constant-copied", 50_000_000),
        ("int32_variable_soft_placement.pbtxt", "ping-pong", 8_000),
        ("string_table.pbtxt", "ping-pong", 4_104),
    ],
)
def test_each_case_is_told_by_its_rule(name: str, rule: str, num_bytes: int) -> None:
    assert own(name)[rule].bytes_per_step == num_bytes


@pytest.mark.parametrize("name", ["ping_pong_cpu_op.pbtxt", "int32_variable_soft_placement.pbtxt"])
def test_soft_placement_is_told(name: str) -> None:
    assert "request-not-honoured" in own(name)


def test_a_host_counter_that_no_gpu_reads_is_harmless() -> None:
    analysis, _, _ = report(OWN / "global_step_on_cpu.pbtxt")
    counter = analysis.variables[analysis.variables["name"] == "global_step"].iloc[0]
    assert (counter["verdict"], counter["dtype"], counter["num_bytes"]) == ("harmless", "int64", 8)


# ---------------------------------------------------------------- real GPUs


@needs_real
def test_dynamic_stitch_of_issue_7251_is_the_first_finding() -> None:
    _, _, found = report(REAL / "rm_text_gpu0_dynstitch.pbtxt")
    first = found[0]
    assert first.rule == "ping-pong"
    assert first.title == (
        "All 10 DynamicStitch nodes, though placed on GPU:0, took their inputs in host memory, so data goes down and "
        "up around each: 11 copies down and 9 up in the step, 8.0 kB."
    )
    assert first.cost_ns_per_step == 1_200_000  # the nine trips: 200, 135, 126, 156, 152, 118, 113, 101 and 99 us
    assert (first.cost_basis, first.confidence, first.severity) == ("measured", "joined", "warning")
    assert [word in first.fix for word in ("Upgrade TensorFlow", "tf.gather", "keep the chain on one side")] == [
        True
    ] * 3
    assert sum(line.startswith("down: ") for line in first.evidence) == 11
    assert sum(line.startswith("up: ") for line in first.evidence) == 9


def real_files() -> list[str]:
    return sorted(path.name for path in REAL.glob("rm_*")) if REAL.is_dir() else []


@needs_real
@pytest.mark.parametrize("name", real_files())
def test_no_rule_fails_or_raises_a_false_alarm_about_weights_on_real_traces(name: str) -> None:
    analysis, outcomes, found = report(REAL / name)
    assert [o for o in outcomes if o.outcome == "failed"] == []
    assert not {"variable-on-cpu", "update-on-cpu", "multi-gpu-parameters"} & {one.rule for one in found}
    needless = analysis.variables[analysis.variables["verdict"] == "unnecessary"]
    assert needless["dtype"].isin(["int32", "string"]).sum() == 0
    assert (needless["num_bytes"].fillna(0) > 8).sum() == 0
    for one in found:
        assert any(c.isdigit() for c in one.title) or one.rule == "capture-quality", one.title
        assert one.fix and one.detail
