"""xla-hides-placement: clusters in the graph, and functions compiled as a whole, of which only capture tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import CPU0, CPU1, GPU0, lane, node, op, run_metadata
from tests.unit.rules_support import crossing, finding, outcome, step, study, weights
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import run_rules
from tfplace.diagnose.rules import ALL_RULES
from tfplace.diagnose.thresholds import Thresholds
from tfplace.errors import UnreadableTraceError
from tfplace.read.context import CONTEXT_FIELD
from tfplace.read.load import load_trace
from tfplace.report.build import build_report
from tfplace.report.page import FILE, build_page

FAILS = "jit_compile=True fails on it with 'resource located in CPU'"

# ---------------------------------------------------------------- clusters in the graph

HANDLE = {"T": "resource", "index": 0, "_handle_dtypes": ["int32"], "_handle_shapes": ["[]"]}


def test_a_cluster_on_the_cpu_takes_variables_there_without_failing() -> None:
    cluster = node("cluster", "StatefulPartitionedCall", "arg", _XlaMustCompile=True)
    partitions = {CPU0: [node("arg", "_Arg", **HANDLE), cluster], GPU0: [node("y", "NoOp")]}
    one = finding("xla-hides-placement", study(step(partitions)))
    assert one.title.startswith("1 XLA cluster in this step hides what runs inside")
    assert one.evidence[1] == "argument 0 (int32 []) (int32) is handed in from CPU:0"
    assert "1 variable handed in from the host: see below." in one.detail
    assert "jit_compile=False" in one.fix


def test_a_cluster_on_a_gpu_fails_on_a_variable_of_the_host() -> None:
    out, into = crossing("edge_1_arg", "arg", CPU0, GPU0, T="resource", tensor_type="resource")
    cluster = node("cluster", "StatefulPartitionedCall", into.name, _XlaMustCompile=True)
    one = finding(
        "xla-hides-placement", study(step({CPU0: [node("arg", "_Arg", **HANDLE), out], GPU0: [into, cluster]}))
    )
    assert one.evidence[1] == f"argument 0 (int32 []) (int32) is handed in from CPU:0: {FAILS}"


def test_the_ops_of_auto_clustering_count_too_and_each_is_counted() -> None:
    nodes = [node("a", "_XlaRun"), node("b", "_XlaRun")]
    one = finding("xla-hides-placement", study(step({GPU0: nodes})))
    assert one.title.startswith("2 XLA clusters in this step hide what runs inside")


def test_no_cluster_is_clear_and_no_nodes_are_a_skip() -> None:
    assert outcome("xla-hides-placement", study(step(weights()))).outcome == "clear"
    assert outcome("xla-hides-placement", study(run_metadata())).outcome == "skipped"


# ---------------------------------------------------------------- functions compiled as a whole


def argument(index: int, kind: str, name: str, device: str, shape: str, source: str | None = None) -> dict[str, Any]:
    return {
        "index": index,
        "kind": kind,
        "name": name,
        "dtype": "float32",
        "shape": shape,
        "device": device,
        "source": source,
    }


def compiled(*arguments: dict[str, Any], failed: bool = False) -> dict[str, Any]:
    """Return what capture stores of a step of jit_compile=True: no graph, only what the function takes."""
    function = {
        "graph": None,
        "name": "__inference_step_25",
        "python_name": "step",
        "steps": [2],
        "jit": True,
        "arguments": list(arguments),
    }
    steps = [{"num": 2, "start_ns": 10, "end_ns": 20, "wall_ns": 10, "failed": failed}]
    return {"tf_version": "2.21.0", "functions": [function], "steps": steps}


KERNEL = argument(1, "variable", "dense/kernel:0", GPU0, "[512,512]", "train.py:2")
SCALE = argument(2, "variable", "scale:0", CPU0, "[512]", "train.py:3")
BATCH = argument(0, "input", "x", GPU0, "[8,512]")


def on_gpu(*, failed: bool = False) -> Any:
    return study(run_metadata(dev_stats=[lane(GPU0)]), context=compiled(BATCH, KERNEL, SCALE, failed=failed))


def test_a_compiled_step_names_its_variables_those_on_the_cpu_first() -> None:
    one = finding("xla-hides-placement", on_gpu())
    assert one.title.startswith("1 XLA cluster in this step hides what runs inside")
    assert one.evidence == (
        "step (__inference_step_25), compiled as a whole",
        "scale (float32 [512], 2.0 kB) is handed in from CPU:0, made at train.py:3",
        "dense/kernel (float32 [512,512], 1.0 MB) is handed in from GPU:0, made at train.py:2",
    )
    assert "1 variable (2.0 kB) on CPU:0 and 1 variable (1.0 MB) on GPU:0" in one.detail
    assert one.subjects == ("step (__inference_step_25)",)


def test_a_compiled_step_that_failed_beside_a_gpu_says_on_which_variables() -> None:
    lines = finding("xla-hides-placement", on_gpu(failed=True)).evidence
    assert lines[0] == "step (__inference_step_25), compiled as a whole; it raised an error in a step"
    assert [line.endswith(FAILS) for line in lines] == [False, True, False]


def test_where_a_cpu_plays_the_accelerator_its_variables_are_not_on_the_host() -> None:
    context = compiled(argument(0, "variable", "w", CPU1, "[4]"), SCALE)
    lines = finding("xla-hides-placement", study(run_metadata(), context=context, accelerator="CPU:1")).evidence
    assert [line.partition(" (")[0] for line in lines[1:]] == ["scale", "w"]


def test_every_rule_that_cannot_look_gives_xla_as_the_reason_and_its_cure() -> None:
    analysis = on_gpu()
    outcomes = {one.rule: one for one in run_rules(ALL_RULES, analysis, Thresholds())}
    skipped = {one.reason for one in outcomes.values() if one.outcome == "skipped"}
    assert skipped == {"XLA compiled the step as a whole", "an XLA cluster hides what runs inside it"}
    [graphs] = outcomes["capture-quality"].findings
    assert graphs.title == "0 partition graphs in the trace: XLA compiled the step as a whole (jit_compile=True)."
    assert "--no-jit" in graphs.fix


def test_no_part_of_the_page_of_a_compiled_step_sends_the_user_after_run_options() -> None:
    trace = on_gpu().trace
    page = str(build_page(build_report(trace), FILE))
    assert "RunOptions" not in page
    assert "output_partition_graphs" not in page
    assert "jit_compile=False" in page


def test_whether_weights_are_copied_xla_hides_and_what_is_known_is_told() -> None:
    answers = build_report(on_gpu().trace).answers
    assert answers["weights_copied"] == (
        "The trace cannot tell: XLA compiled step (__inference_step_25) as a whole (jit_compile=True) and hides it; "
        "it takes 1 variable (2.0 kB) on CPU:0 and 1 variable (1.0 MB) on GPU:0."
    )
    assert "XLA compiled the step" in answers["input_copied"]


def test_weights_outside_of_the_compiled_function_are_still_answered() -> None:
    mixed = study(step(weights(to=[GPU0])), context=compiled(KERNEL))
    answer = build_report(mixed.trace).answers["weights_copied"]
    assert answer.startswith("The trace cannot tell: XLA compiled step (__inference_step_25)")
    assert " Outside of it: Yes: 1 variable, 1.0 MB, once per step and GPU" in answer


@pytest.mark.parametrize(
    "functions",
    [7, [None], [{"jit": True, "arguments": 5, "steps": 1}], [{"jit": True, "arguments": [{"kind": "variable"}]}]],
)
def test_what_does_not_fit_is_passed_over(functions: Any) -> None:
    context = {"functions": functions, "steps": 3}
    analysis = analyze(study(step(weights()), context={"functions": functions}).trace)
    analysis.trace.context.update(context)
    assert outcome("xla-hides-placement", analysis).outcome in ("found", "clear")


# ---------------------------------------------------------------- its file


def write(path: Path, context: dict[str, Any]) -> str:
    """Write what capture leaves of a compiled step on a plain CPU: the context alone, in a binary RunMetadata."""
    data = json.dumps(context).encode()
    path.write_bytes(_varint(CONTEXT_FIELD << 3 | 2) + _varint(len(data)) + data)
    return str(path)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def test_a_file_of_a_compiled_step_on_a_cpu_is_reported_on_not_refused(tmp_path: Path) -> None:
    home = argument(1, "variable", "dense/w:0", CPU0, "[8,8]", "train.py:2")
    trace = load_trace([write(tmp_path / "trace.pb", compiled(home))])
    assert trace.devices["name"].tolist() == ["CPU:0"]
    report = build_report(trace)
    assert report.verdict.startswith("1 XLA cluster in this step hides what runs inside")
    [one] = [finding for finding in report.findings if finding.rule == "xla-hides-placement"]
    assert one.evidence[1] == "dense/w (float32 [8,8], 256 B) is handed in from CPU:0, made at train.py:2"


def test_a_file_without_events_graphs_and_functions_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTraceError, match="holds no events and no graphs"):
        load_trace([write(tmp_path / "trace.pb", {"tf_version": "2.21.0", "functions": []})])


def test_times_of_kernels_do_not_bring_the_wrong_cure_back() -> None:
    """On a real GPU the kernels of the cluster are timed, under names that lead to no graph."""
    lanes = [lane(GPU0, op("fusion", "fusion", start=1, duration=2))]
    analysis = study(run_metadata(dev_stats=lanes), context=compiled(KERNEL))
    texts = [one.fix for one in outcome("capture-quality", analysis).findings]
    assert not any("RunOptions" in text for text in texts)
