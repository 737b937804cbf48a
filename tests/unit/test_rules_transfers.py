"""The rules about kinds of transfer: constants, fetches, exposed and tiny copies, GPU to GPU, loops, debugging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import CPU0, GPU0, GPU1, copy, gpu_lanes, kernel, lane, node, op, output
from tests.unit.rules_support import crossing, finding, findings, outcome, step, study, weights

NO_COPIES = step({}, length=100, kernels=[kernel("y", "Relu", start=1, duration=1)])
"""A step of which neither graphs nor copies were recorded."""


@pytest.mark.parametrize(
    "slug",
    ["constant-copied", "fetch-copied", "exposed-copies", "tiny-copies", "transfer-in-loop", "debug-op-copies"],
)
def test_rules_about_copies_are_skipped_where_none_could_be_seen(slug: str) -> None:
    result = outcome(slug, study(NO_COPIES))
    assert result.outcome == "skipped"
    assert "no partition graphs and no GPU copies" in str(result.reason)
    assert outcome(slug, study(step({CPU0: [node("a", "NoOp")]}))).outcome == "skipped"  # no GPU


# ---------------------------------------------------------------- constant-copied


def constant(shape: str, reader: str = "MatMul", *, tag: str = "") -> dict[str, Any]:
    out, into = crossing(f"edge_1{tag}_c{tag}", f"c{tag}", CPU0, GPU0)
    value = {"dtype": "float32", "shape": shape}
    return {
        CPU0: [node(f"c{tag}", "Const", dtype="float32", value=value), out],
        GPU0: [into, node(f"y{tag}", reader, into.name, into.name, T="float32")],
    }


def test_a_large_constant_is_copied_in_every_step() -> None:
    one = finding("constant-copied", study(step(constant("[300,1000]"))))
    assert one.title == "1 constant on CPU:0 is copied to GPU:0 in every step: 1.2 MB a step."
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (1_200_000, 100_000, "warning")
    assert "slice" not in one.fix
    assert one.evidence == ("c, 1.2 MB, CPU:0 -> GPU:0, read by y (MatMul)",)


def test_a_constant_of_which_a_part_is_used_should_be_sliced_first() -> None:
    assert "take the slice" in finding("constant-copied", study(step(constant("[300,1000]", "GatherV2")))).fix


@pytest.mark.parametrize(("shape", "result"), [("[250,1000]", "found"), ("[249999]", "clear")])
def test_constants_count_from_one_megabyte(shape: str, result: str) -> None:
    told = outcome("constant-copied", study(step(constant(shape))))
    assert told.outcome == result
    assert (told.reason is not None and "below the limit of 1.0 MB" in told.reason) == (result == "clear")


# ---------------------------------------------------------------- fetch-copied


def fetched(name: str = "loss", num_bytes: int = 4, shape: str = "[]") -> Any:
    down, into = crossing(f"edge_1_{name}", name, GPU0, CPU0)
    partitions = {
        CPU0: [into, node("_retval_0", "_Retval", into.name, T="float32", index=0)],
        GPU0: [node(name, "Mean", T="float32"), down],
    }
    lanes = [lane(GPU0, op(name, "Mean", start=1, duration=1, outputs=[output(0, "float32", shape, num_bytes)]))]
    return step(partitions, more_lanes=lanes, length=1000)


def test_a_scalar_fetch_is_worth_a_word_not_a_warning() -> None:
    one = finding("fetch-copied", study(fetched()))
    assert one.title == "Every step hands back 1 value from GPU:0: 4 B a step."
    assert one.severity == "info"
    assert "Small results cost the wait, not the bytes." in one.detail


@pytest.mark.parametrize(("size", "severity"), [(1_000_000, "warning"), (100_000, "info")])
def test_fetches_warn_from_one_megabyte(size: int, severity: str) -> None:
    assert finding("fetch-copied", study(fetched("logits", size, f"[{size // 4}]"))).severity == severity


@pytest.mark.parametrize(("size", "shape"), [(40_000, "[10000]"), (4, "[]")])
def test_fetched_gradients_warn_whatever_their_size_and_are_named(size: int, shape: str) -> None:
    one = finding("fetch-copied", study(fetched("gradients/w_grad", size, shape)))
    assert one.severity == "warning"
    assert "Among them gradients, variables or updates: gradients/w_grad." in one.detail


def handed_back(*nodes: Any, value: str) -> Any:
    """A step on the GPU of which the caller fetches one value."""
    down, into = crossing("edge_1_out", value, GPU0, CPU0, T="float32", tensor_type="float32")
    fetch = node("_retval_0", "_Retval", into.name, T="float32", index=0)
    return study(step({CPU0: [into, fetch], GPU0: [*nodes, down]}))


W = node("w", "VariableV2", dtype="float32", shape="[2]")


@pytest.mark.parametrize(
    ("nodes", "value", "told"),
    [
        ([W, node("w/read", "Identity", "w", T="float32")], "w/read", True),
        ([W, node("g", "Relu"), node("train", "ApplyGradientDescent", "w", "g", "g", T="float32")], "train", True),
        ([node("x", "Relu"), node("Conv", "Conv2DBackpropFilter", "x"), node("s", "Identity", "Conv")], "s", True),
        ([W, node("ids", "Relu"), node("rows", "GatherV2", "w", "ids", T="float32")], "rows", False),
        ([W, node("loss", "Mean", "w", T="float32")], "loss", False),
        ([node("a", "Relu"), node("loss", "AddN", "a", T="float32")], "loss", False),
    ],
    ids=["variable", "update", "gradient", "rows of a variable", "made of a variable", "sum of losses"],
)
def test_state_that_is_fetched_is_told_from_results(nodes: list[Any], value: str, told: bool) -> None:
    one = finding("fetch-copied", handed_back(*nodes, value=value))
    assert (one.severity, "Among them gradients, variables or updates" in one.detail) == (
        ("warning", True) if told else ("info", False)
    )


def test_without_a_graph_a_sum_of_losses_is_no_gradient() -> None:
    name = "total_loss"
    copies = [copy(f"edge_7_{name}", "DtoH", 4, start=10, duration=1)]
    lanes = [
        lane(GPU0, op(name, "AddN", start=1, duration=1, outputs=[output(0, "float32", "[]", 4)])),
        lane(CPU0, op("_retval_total_loss_0_0", "_Retval", name, start=20, duration=1)),
    ]
    analysis = study(step({}, length=1000, copies=copies, more_lanes=lanes))
    assert all(one.severity == "info" for one in findings("fetch-copied", analysis))


def test_nothing_fetched_from_the_gpu_is_clear() -> None:
    assert outcome("fetch-copied", study(step(weights()))).outcome == "clear"


# ---------------------------------------------------------------- exposed-copies


def exposed(duration: int, length: int = 1000) -> Any:
    """One copy of 1.2 MB with no kernel beside it but a later one."""
    copies = [copy("edge_0_w/read", "HtoD", 1_200_000, start=10, duration=duration)]
    kernels = [kernel("y0", "Relu", start=10 + duration, duration=100)]
    return study(step(weights("[500,600]"), length=length, copies=copies, kernels=kernels))


@pytest.mark.parametrize(
    ("duration", "severity"), [(99, None), (100, "warning"), (199, "warning"), (200, "error"), (400, "error")]
)
def test_copying_alone_warns_from_a_tenth_and_errs_from_a_fifth(duration: int, severity: str | None) -> None:
    result = outcome("exposed-copies", exposed(duration))
    assert (result.findings[0].severity if result.findings else None) == severity


def test_the_exposed_time_is_split_by_what_the_copies_carry() -> None:
    one = finding("exposed-copies", exposed(150))
    assert one.title == "15% of each step is copying with no kernel beside it: 0.15 ms a step (measured)."
    assert one.cost_ns_per_step == 150_000
    assert "variable H2D 0.15 ms" in one.detail and "Kernels hide 0% of these copies" in one.detail
    assert "see the rule variable-on-cpu" in one.fix


def test_exposed_time_needs_real_times_and_kernels() -> None:
    copies = [copy("edge_0_w/read", "HtoD", 1_200_000, start=10, duration=500)]
    simulated = study(step(weights("[500,600]"), copies=copies), simulated="1 simulated GPU")
    assert outcome("exposed-copies", simulated).reason == "no times of a real GPU in the trace"
    without_kernels = study(step(weights("[500,600]"), copies=copies))
    assert "kernels were not timed" in str(outcome("exposed-copies", without_kernels).reason)


# ---------------------------------------------------------------- tiny-copies


def many(count: int, num_bytes: int = 8, *, gap: int = 5, length: int = 10_000) -> Any:
    """`count` copies of 2 us, each followed after `gap` us by the next; a kernel at the end."""
    copies = [copy("unknown", "DtoH", num_bytes, start=i * (2 + gap), duration=2) for i in range(count)]
    kernels = [kernel("y", "Relu", start=count * (2 + gap), duration=50)]
    return study(step({GPU0: [node("y", "Relu")]}, length=length, copies=copies, kernels=kernels))


def test_many_small_copies_cost_their_time_and_the_gaps_after_them() -> None:
    one = finding("tiny-copies", many(50))
    assert one.cost_ns_per_step == 50 * (2000 + 5000)
    assert (one.cost_basis, one.confidence, one.bytes_per_step) == ("measured", "timed", 400)
    assert one.title == "50 small copies in the step move only 400 B in all."
    assert one.severity == "warning"  # 0.35 of 10 ms
    assert one.evidence[0] == "below 256 B: 50 copies a step"


def test_a_long_gap_is_booked_on_the_copy_only_up_to_a_limit() -> None:
    assert finding("tiny-copies", many(50, gap=90)).cost_ns_per_step == 50 * (2000 + 20_000)


@pytest.mark.parametrize(("count", "size", "result"), [(49, 8, "clear"), (50, 3999, "found"), (50, 4000, "clear")])
def test_fewer_or_larger_copies_are_clear(count: int, size: int, result: str) -> None:
    assert outcome("tiny-copies", many(count, size)).outcome == result


def test_small_copies_below_three_percent_of_the_step_are_clear() -> None:
    assert outcome("tiny-copies", many(50, length=11_666)).outcome == "found"  # 350 us are just over 3 %
    assert outcome("tiny-copies", many(50, length=11_700)).outcome == "clear"


def test_untimed_small_copies_are_estimated_at_ten_microseconds_each() -> None:
    cpu: list[Any] = []
    gpu: list[Any] = []
    for i in range(60):
        out, into = crossing(f"edge_{i}_c{i}", f"c{i}", CPU0, GPU0)
        cpu += [node(f"c{i}", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]"}), out]
        gpu += [into, node(f"y{i}", "Relu", into.name)]
    one = finding("tiny-copies", study(step({CPU0: cpu, GPU0: gpu})))
    assert (one.cost_ns_per_step, one.cost_basis, one.bytes_per_step) == (600_000, "estimated", 240)


# ---------------------------------------------------------------- gpu-gpu-through-host


def relayed(copies: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    out, into = crossing("edge_1_a", "a", GPU0, GPU1)
    partitions = {
        CPU0: [node("n", "NoOp")],
        GPU0: [node("a", "Relu", T="float32"), out],
        GPU1: [into, node("b", "Relu", into.name, T="float32")],
    }
    lanes = gpu_lanes(1, kernels=[kernel("b", "Relu", start=900, duration=10)], copies=list(others))
    kernels = [kernel("a", "Relu", start=0, duration=10)]
    return study(step(partitions, length=1000, copies=copies, kernels=kernels, more_lanes=lanes))


def test_data_between_gpus_that_went_over_the_host_crossed_twice() -> None:
    down = copy("edge_1_a", "DtoH", 1_000_000, start=20, duration=80)
    up = copy("edge_1_a", "HtoD", 1_000_000, start=110, duration=90)
    one = finding("gpu-gpu-through-host", relayed([down], [up]))
    assert one.title == (
        "1 tensor between GPUs (GPU:0 -> GPU:1) went through host memory: 2.0 MB a step over the bus, each byte twice."
    )
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (2_000_000, 170_000, "warning")


def test_a_copy_from_gpu_to_gpu_is_clear() -> None:
    direct = copy("edge_1_a", "PtoP", 1_000_000, start=20, duration=80)
    assert outcome("gpu-gpu-through-host", relayed([direct])).outcome == "clear"


def test_a_copy_down_alone_is_not_a_relay() -> None:
    down = copy("edge_1_a", "DtoH", 1_000_000, start=20, duration=80)
    assert outcome("gpu-gpu-through-host", relayed([down])).outcome == "clear"


def test_the_way_between_gpus_is_not_known_without_copies() -> None:
    result = outcome("gpu-gpu-through-host", relayed([]))
    assert (result.outcome, "was not recorded" in str(result.reason)) == ("skipped", True)
    assert outcome("gpu-gpu-through-host", study(step(weights()))).outcome == "clear"  # one GPU


# ---------------------------------------------------------------- transfer-in-loop


def loop(copies: Sequence[Any] = ()) -> Any:
    """A while frame on the host whose counter goes to the GPU in each iteration; a weight crosses outside of it."""
    out, into = crossing("edge_5_next", "next", CPU0, GPU0, T="float32")
    partitions = weights("[10]")
    partitions[CPU0] += [
        node("start", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]"}),
        node("enter", "Enter", "start", T="float32", frame_name="f"),
        node("next", "NextIteration", "enter", T="float32"),
        out,
        node("exit", "Exit", "enter", T="float32"),
        node("after", "Relu", "exit", T="float32"),
    ]
    partitions[GPU0] += [into, node("body", "Relu", into.name, T="float32")]
    sizes = [("next", "NextIteration", output(0, "float32", "[]", 4))]
    kernels = [kernel("y0", "Relu", start=900, duration=1)] if copies else []
    return study(step(partitions, copies=copies, kernels=kernels, outputs=sizes))


def test_an_edge_inside_a_loop_is_counted_per_step() -> None:
    copies = [copy("edge_5_next", "HtoD", 4, start=10 * i, duration=2) for i in range(7)]
    copies.append(copy("edge_0_w/read", "HtoD", 40, start=500, duration=2))
    one = finding("transfer-in-loop", loop(copies))
    assert one.title == "1 tensor crosses the bus inside a loop: 7 copies a step, 28 B."
    assert (one.cost_ns_per_step, one.cost_basis) == (14_000, "measured")
    assert one.subjects == ("next",)


def test_without_copies_a_loop_costs_so_much_each_time() -> None:
    one = finding("transfer-in-loop", loop())
    assert one.title == "1 tensor crosses the bus inside a loop: once per iteration, 4 B each time."
    assert "How often the loop runs is not in the trace." in one.detail


def test_an_edge_that_crosses_once_is_no_loop() -> None:
    copies = [copy("edge_5_next", "HtoD", 4, start=0, duration=2)]
    assert outcome("transfer-in-loop", loop(copies)).outcome == "clear"
    twice = [copy("edge_0_w/read", "HtoD", 1_200_000, start=i, duration=1) for i in (0, 100)]
    no_loop = study(step(weights("[500,600]"), copies=twice))  # two steps in one file, say
    assert outcome("transfer-in-loop", no_loop).outcome == "clear"


# ---------------------------------------------------------------- debug-op-copies


@pytest.mark.parametrize("kind", ["Assert", "ScalarSummary", "PyFunc", "EagerPyFunc", "PrintV2", "CheckNumerics"])
def test_debugging_ops_on_the_host_cost_the_copies_they_take(kind: str) -> None:
    down, into = crossing("edge_1_y", "y", GPU0, CPU0)
    message = step(
        {CPU0: [into, node("look", kind, into.name, T="float32")], GPU0: [node("y", "Relu"), down]},
        length=1000,
        kernels=[kernel("y", "Relu", start=0, duration=10)],
        copies=[copy("edge_1_y", "DtoH", 40_000, start=20, duration=15)],
    )
    one = finding("debug-op-copies", study(message))
    assert one.title == (
        f"1 node for checking or logging ({kind}) takes values from GPU:0 in every step: 40.0 kB a step."
    )
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (40_000, 15_000, "warning")
    assert one.subjects == ("look",)


def test_a_debugging_op_one_host_node_further_counts() -> None:
    down, into = crossing("edge_1_y", "y", GPU0, CPU0)
    chain = [into, node("text", "AsString", into.name), node("look", "Assert", "text")]
    one = finding("debug-op-copies", study(step({CPU0: chain, GPU0: [node("y", "Relu"), down]})))
    assert one.subjects == ("look",)
    assert len(one.evidence) == 1


def test_a_check_on_the_gpu_copies_nothing() -> None:
    partitions = weights()
    partitions[GPU0].append(node("check", "CheckNumerics", "y0", T="float32"))
    assert outcome("debug-op-copies", study(step(partitions))).outcome == "clear"
