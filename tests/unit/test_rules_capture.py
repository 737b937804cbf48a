"""capture-quality: what a trace lacks is said, with the rules that are off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.builders import CPU0, CPU1, GPU0, GPU1, copy, gpu_lanes, kernel, lane, node, op, output, run_metadata
from tests.unit.rules_support import crossing, finding, findings, outcome, step, study, weights
from tfplace.analyze.study import analyze
from tfplace.diagnose.capture_rules import NEED_COPIES, NEED_GRAPHS, NEED_TIMES, WEAK_WITHOUT_GRAPHS
from tfplace.diagnose.rules import ALL_RULES
from tfplace.model.trace import Note
from tfplace.read.load import load_trace

TRACES = Path(__file__).parents[2] / "traces"
KERNELS = [kernel("y0", "Relu", start=200, duration=50)]
COPIES = [copy("edge_0_w/read", "HtoD", 1_048_576, start=1, duration=90)]


def titles(analysis: Any, **thresholds: float) -> list[str]:
    return [one.title for one in findings("capture-quality", analysis, **thresholds)]


def test_a_whole_trace_of_a_gpu_is_clear() -> None:
    analysis = study(step(weights(), length=1000, kernels=KERNELS, copies=COPIES))
    assert outcome("capture-quality", analysis).outcome == "clear"


def test_without_graphs_the_rules_that_are_off_are_named() -> None:
    one = finding("capture-quality", study(step({}, length=1000, kernels=KERNELS, copies=COPIES)))
    assert one.title.startswith("0 partition graphs in the trace: it holds timed nodes only")
    assert "Off because of it: colocated-to-cpu, gpu-gpu-through-host, staging-misuse." in one.detail
    assert "output_partition_graphs=True" in one.fix


def test_the_rules_named_as_off_are_rules() -> None:
    named = {*NEED_GRAPHS, *NEED_TIMES, *NEED_COPIES, *WEAK_WITHOUT_GRAPHS}
    assert named <= {rule.slug for rule in ALL_RULES}


def test_a_graph_alone_has_no_times() -> None:
    one = finding("capture-quality", study(step(weights())))
    assert one.title == "0 timed nodes in the trace: there is no step_stats."
    assert "exposed-copies" in one.detail


def test_a_gpu_without_rows_was_not_traced_which_is_not_no_transfers() -> None:
    one = finding("capture-quality", study(step(weights(), length=1000)))
    assert one.title == "1 GPU in the trace, but 0 rows of kernels or copies: the GPU was not traced."
    assert (one.severity, "not 'no transfers'" in one.detail) == ("warning", True)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in one.fix


def test_edges_over_the_bus_without_a_copy_mean_untraced_copies() -> None:
    one = finding("capture-quality", study(step(weights(), length=1000, kernels=KERNELS)))
    assert one.title == "1 edge crosses the bus, but the trace has 0 copies: copies were not traced."


def test_one_of_two_gpus_without_rows_is_named() -> None:
    analysis = study(step(weights(to=[GPU0, GPU1]), length=1000, kernels=KERNELS, copies=COPIES))
    (title,) = titles(analysis)
    assert title == "1 of 2 GPUs left no rows of kernels or copies."
    both = gpu_lanes(1, kernels=[kernel("y1", "Relu", start=1, duration=1)])
    analysis = study(step(weights(to=[GPU0, GPU1]), length=1000, kernels=KERNELS, copies=COPIES, more_lanes=both))
    assert titles(analysis) == []


def test_a_trace_without_a_gpu_says_so() -> None:
    one = finding("capture-quality", study(step({CPU0: [node("a", "NoOp")]}, length=10)))
    assert one.title == "No GPU took part: the trace names 1 device, none of them a GPU."
    assert one.fix.startswith("`tfplace simulate` runs the program on GPUs that are not there")
    assert "--accelerator CPU:1" in one.fix


def test_an_empty_trace_lacks_everything() -> None:
    assert len(titles(study(run_metadata()))) == 3


def test_a_simulated_gpu_and_a_cpu_that_plays_one_are_said_aloud() -> None:
    simulated = study(step(weights(), length=1000, kernels=KERNELS, copies=COPIES), simulated="1 GPU of 16 GB")
    one = finding("capture-quality", simulated)
    assert one.title == (
        "The GPU is simulated (1 GPU of 16 GB): placement, edges and bytes are real, times are not a GPU's."
    )
    (title,) = titles(study(step(weights(to=[CPU1]), length=10), accelerator="CPU:1"))
    assert title == "CPU:1 plays the accelerator: 1 logical CPU device, no GPU."


def unsized(unknown: int, known: int) -> Any:
    cpu: list[Any] = []
    gpu: list[Any] = []
    outputs = []
    for i in range(unknown + known):
        out, into = crossing(f"edge_{i}_x{i}", f"x{i}", CPU0, GPU0)
        cpu += [node(f"x{i}", "Relu", T="float32"), out]
        gpu += [into, node(f"y{i}", "Relu", into.name)]
        if i >= unknown:
            outputs.append((f"x{i}", "Relu", output(0, "float32", "[2]", 8)))
    lanes = gpu_lanes(0, kernels=[kernel("y0", "Relu", start=1, duration=1)])
    return study(step({CPU0: cpu, GPU0: gpu}, outputs=outputs, more_lanes=lanes))


@pytest.mark.parametrize(("unknown", "told"), [(1, False), (2, True)])
def test_more_than_a_tenth_without_size_is_told(unknown: int, told: bool) -> None:
    sizes = [title for title in titles(unsized(unknown, 10 - unknown)) if "no size" in title]
    assert sizes == (["2 of 10 copies have no size (20%)."] if told else [])


def test_half_a_pair_is_told() -> None:
    partitions = weights()
    partitions[CPU0].append(node("lone", "Relu", T="float32"))
    partitions[CPU0].append(crossing("edge_9_lone", "lone", CPU0, GPU0)[0])
    assert "Half of a Send / Recv pair is missing (1)." in titles(study(step(partitions)))


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        ("truncated-text", "The file ends too early (2)."),
        ("clock-rebased", "Host and GPU rows are on two clocks (2)."),
        ("copies-without-direction", "Copies do not say where they went (2)."),
        (
            "late-attach",
            "A function had run before the capture began, and was instantiated a second time to see its graphs (2).",
        ),
    ],
)
def test_damage_that_was_noted_while_reading_is_a_finding(slug: str, words: str) -> None:
    analysis = study(step(weights(), length=1000, kernels=KERNELS, copies=COPIES))
    trace = dataclasses.replace(analysis.trace, notes=(Note(slug, "So it is.", 2), Note("harmless-note", "x", 1)))
    assert titles(dataclasses.replace(analysis, trace=trace)) == [words]


def stretched(**changes: Any) -> list[str]:
    """Return what is said of a step on a GPU with the context of a captured file, changed."""
    context = {**load_trace([str(TRACES / "cifar10_function_weights_on_gpu.pb")]).context, **changes}
    del context["simulated"]  # no time of a simulated GPU is used
    message = step(weights(), length=1000, kernels=KERNELS, copies=COPIES)
    return [title for title in titles(study(message, context=context)) if "longer" in title]


def test_a_step_stretched_by_tracing_is_told() -> None:
    assert stretched() == []  # 36 ms on 337 ms
    untraced = 336_917_417
    assert stretched(overhead_ns_per_step=round(0.2 * untraced)) == []
    assert stretched(overhead_ns_per_step=round(0.21 * untraced)) == [
        "Tracing made the step 21% longer than an untraced one."
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"overhead": {"untraced_step_ns": None}},
        {"overhead": {"untraced_step_ns": 0}},
        {"overhead": None},
        {"overhead_ns_per_step": None},
        {"overhead_ns_per_step": "many"},
    ],
)
def test_what_tracing_added_is_not_guessed_at(changes: dict[str, Any]) -> None:
    assert stretched(**{"overhead_ns_per_step": 10**12, **changes}) == []


def test_times_that_nobody_uses_cannot_mislead() -> None:
    trace = load_trace([str(TRACES / "cifar10_function_weights_on_gpu.pb")])
    trace.context["overhead_ns_per_step"] = 10**12
    assert not [title for title in titles(analyze(trace)) if "longer" in title]  # a simulated GPU


def test_hostile_names_do_not_reach_the_text() -> None:
    name = "\x1b[31mred\u202e" + "x" * 10_000
    out, into = crossing("edge_0_h", name, CPU0, GPU0)
    partitions = {
        CPU0: [node(name, "Const", dtype="float32", value={"dtype": "float32", "shape": "[1000,1000]"}), out],
        GPU0: [into, node("y", "Relu", into.name)],
    }
    one = finding("constant-copied", study(step(partitions)))
    text = " ".join([one.title, one.detail, one.fix, *one.evidence])
    assert text.isprintable()
    assert len(text) < 2000
    assert one.subjects == (name,)


def test_lanes_are_used_only_from_real_accelerators() -> None:
    host_only = step({CPU0: [node("a", "Relu")]}, more_lanes=[lane(CPU0, op("a", "Relu", start=0, duration=1))])
    assert outcome("exposed-copies", study(host_only)).outcome == "skipped"
