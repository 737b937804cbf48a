"""variable-on-cpu, table-on-cpu, update-on-cpu, multi-gpu-parameters, with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CPU0, CPU1, GPU0, GPU1, copy, gpu_lanes, kernel, lane, node, op, output
from tests.unit.rules_support import crossing, finding, findings, outcome, step, study, weights

MB = 1_000_000


# ---------------------------------------------------------------- variable-on-cpu


def test_weights_on_the_cpu_cost_their_bytes_over_the_stated_bus() -> None:
    one = finding("variable-on-cpu", study(step(weights("[500,600]"))))
    assert one.bytes_per_step == 500 * 600 * 4 == 1_200_000
    assert one.cost_ns_per_step == 100_000  # 1,200,000 B at 12 B/ns
    assert (one.cost_basis, one.confidence, one.severity) == ("estimated", "graph", "warning")
    assert one.title == "1 variable (1.2 MB) on CPU:0 is copied to GPU:0 in every step: 1.2 MB a step."
    assert "about 0.1 ms a step at 12 GB/s (estimate)" in one.detail
    assert one.subjects == ("w",)
    assert "w, float32 [500,600], 1.2 MB, on CPU:0, sent to GPU:0, 1.2 MB a step" in one.evidence[0]
    assert "tfplace report" in one.fix


def test_another_bus_speed_gives_another_estimate() -> None:
    one = finding("variable-on-cpu", study(step(weights("[500,600]"))), bus_gbps=24)
    assert one.cost_ns_per_step == 50_000


@pytest.mark.parametrize(("shape", "severity"), [("[500,500]", "warning"), ("[500,499]", "info")])
def test_the_warning_starts_at_one_megabyte_a_step(shape: str, severity: str) -> None:
    assert finding("variable-on-cpu", study(step(weights(shape)))).severity == severity


def test_small_weights_warn_when_they_take_one_percent_of_a_real_step() -> None:
    copies = [copy("edge_0_w/read", "HtoD", 40_000, start=100, duration=10)]
    kernels = [kernel("y0", "Relu", start=200, duration=50)]
    small = weights("[100,100]")
    one = finding("variable-on-cpu", study(step(small, length=1000, copies=copies, kernels=kernels)))
    assert one.cost_ns_per_step == 10_000  # the whole copy: no kernel runs before 200 us
    assert (one.cost_basis, one.confidence, one.severity) == ("measured", "joined", "warning")
    longer = study(step(small, length=1001, copies=copies, kernels=kernels))
    assert finding("variable-on-cpu", longer).severity == "info"


def test_copy_time_under_a_kernel_is_not_counted() -> None:
    copies = [copy("edge_0_w/read", "HtoD", 1_200_000, start=100, duration=100)]
    kernels = [kernel("y0", "Relu", start=130, duration=500)]
    one = finding("variable-on-cpu", study(step(weights("[500,600]"), copies=copies, kernels=kernels)))
    assert one.cost_ns_per_step == 30_000


def test_several_weights_are_one_finding_and_figures_are_per_step() -> None:
    two = weights("[500,600]")
    two[CPU0] += [
        node("b", "VariableV2", dtype="float32", shape="[10]"),
        node("b/read", "Identity", "b", T="float32"),
    ]
    out, into = crossing("edge_9_b/read", "b/read", CPU0, GPU0)
    two[CPU0].append(out)
    two[GPU0] += [into, node("z", "Relu", into.name, T="float32")]
    three_steps = study(*[step(two, length=1000) for _ in range(3)])
    one = finding("variable-on-cpu", three_steps)
    assert three_steps.step_count == 3
    assert one.bytes_per_step == 1_200_040
    assert one.subjects == ("w", "b")
    assert one.title.startswith("2 variables (1.2 MB) on CPU:0 are copied to GPU:0 in every step")


@pytest.mark.parametrize("dtype", ["int32", "string"])
def test_int32_and_string_variables_are_never_unnecessary(dtype: str) -> None:
    analysis = study(step(weights("[500,600]", dtype)))
    assert outcome("variable-on-cpu", analysis).outcome == "clear"
    assert "unnecessary" not in analysis.variables["verdict"].tolist()


def test_bytes_that_are_not_known_are_not_zero() -> None:
    one = finding("variable-on-cpu", study(step(weights("[?,10]"))))
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (None, None, "info")
    assert "an unknown number of bytes a step" in one.title


def test_weights_on_the_gpu_are_clear() -> None:
    on_gpu = weights(on=GPU0)
    on_gpu[CPU0] = [node("other", "NoOp")]
    assert outcome("variable-on-cpu", study(step(on_gpu))).outcome == "clear"


def test_variables_are_not_looked_for_without_a_gpu_or_without_nodes() -> None:
    no_gpu = outcome("variable-on-cpu", study(step(weights(to=[CPU1]))))
    assert (no_gpu.outcome, no_gpu.reason) == (
        "skipped",
        "no GPU in the trace; --accelerator CPU:1 treats a logical CPU device as one",
    )
    times_only = study(step({}, kernels=[kernel("y", "Relu", start=1, duration=1)]))
    assert "no partition graphs" in str(outcome("variable-on-cpu", times_only).reason)


def test_a_logical_cpu_can_play_the_gpu_and_its_times_are_not_used() -> None:
    analysis = study(step(weights("[500,600]", to=[CPU1]), length=100), accelerator="CPU:1")
    one = finding("variable-on-cpu", analysis)
    assert one.cost_basis == "estimated"
    assert one.severity == "warning"  # 0.1 ms against 0.08 ms; the host's 0.1 ms step is not compared with


def test_times_of_a_simulated_gpu_are_not_used() -> None:
    copies = [copy("edge_0_w/read", "HtoD", 1_200_000, start=100, duration=777)]
    kernels = [kernel("y0", "Relu", start=130, duration=500)]
    analysis = study(step(weights("[500,600]"), copies=copies, kernels=kernels), simulated="1 simulated GPU, 16 GB")
    one = finding("variable-on-cpu", analysis)
    assert (one.cost_ns_per_step, one.cost_basis, one.confidence) == (100_000, "estimated", "graph")


def test_a_variable_that_cannot_be_judged_is_a_skip_not_a_clear() -> None:
    unknown = weights("[500,600]")
    unknown[GPU0].append(node("odd", "MyCustomOp", "edge_0_w/read/_recv", T="float32"))
    unknown[CPU0].append(node("local", "MyCustomOp", "w", T="float32"))
    result = outcome("variable-on-cpu", study(step(unknown)))
    assert result.outcome == "skipped"
    assert "1 variable on the host could not be judged" in str(result.reason)


def test_tf1_traces_get_the_tf1_fix_first() -> None:
    first = finding("variable-on-cpu", study(step(weights()), tf_era="TF1")).fix
    assert first.startswith("TF1: ") and "TF2 / Keras 3: " in first
    assert finding("variable-on-cpu", study(step(weights()), tf_era="TF2")).fix.startswith("TF2 / Keras 3: ")


# ---------------------------------------------------------------- table-on-cpu


def embedding(update: str = "ScatterSub") -> dict[str, Any]:
    """A table [1000,64] (256,000 B) on the CPU; 20 rows of 256 B go down, their gradient comes up."""
    out, into = crossing("edge_1_rows", "rows", CPU0, GPU0)
    back, up = crossing("edge_2_g", "gradients/g", GPU0, CPU0)
    return {
        CPU0: [
            node("table", "VariableV2", dtype="float32", shape="[1000,64]"),
            node("ids", "Const", dtype="int64", value={"dtype": "int64", "shape": "[20]"}),
            node("rows", "Gather", "table", "ids", Tparams="float32", Tindices="int64"),
            out,
            up,
            node("update", update, "table", "ids", up.name, T="float32", Tindices="int64"),
        ],
        GPU0: [into, node("gradients/g", "Relu", into.name, T="float32"), back],
    }


ROWS = [("rows", "Gather", output(0, "float32", "[20,64]", 5120))]
GRADIENT = lane(GPU0, op("gradients/g", "Relu", start=50, duration=1, outputs=[output(0, "float32", "[20,64]", 5120)]))


def test_rows_of_a_table_are_told_apart_from_the_table() -> None:
    analysis = study(step(embedding(), outputs=ROWS, more_lanes=[GRADIENT]))
    one = finding("table-on-cpu", analysis)
    assert one.title == "Only rows of table (256 kB) cross: 5.1 kB a step to GPU:0, 5.1 kB of gradient back."
    assert one.bytes_per_step == 10_240  # rows down, their gradient up
    assert "both ways together" in one.detail
    assert one.cost_ns_per_step == pytest.approx(10_240 / 12)
    assert one.severity == "info"
    assert "dense" not in one.detail
    assert outcome("variable-on-cpu", analysis).outcome == "clear"
    assert outcome("update-on-cpu", analysis).outcome == "clear"


def test_a_dense_update_of_a_table_is_named() -> None:
    dense = embedding()
    dense[CPU0][-1] = node("update", "ApplyGradientDescent", "table", "ids", "edge_2_g/_recv", T="float32")
    one = finding("table-on-cpu", study(step(dense, outputs=ROWS, more_lanes=[GRADIENT])))
    assert "update (ApplyGradientDescent) is dense" in one.detail


def test_several_tables_are_one_finding() -> None:
    two = embedding()
    out, into = crossing("edge_8_more", "more", CPU0, GPU0)
    two[CPU0] += [
        node("big", "VariableV2", dtype="float32", shape="[9000,64]"),
        node("more", "Gather", "big", "ids", Tparams="float32", Tindices="int64"),
        out,
    ]
    two[GPU0] += [into, node("y", "Relu", into.name)]
    sizes = [*ROWS, ("more", "Gather", output(0, "float32", "[20,64]", 5120))]
    one = finding("table-on-cpu", study(step(two, outputs=sizes, more_lanes=[GRADIENT])))
    assert one.title == "Only rows of 2 tables (2.6 MB) cross: 10.2 kB a step to GPU:0, 5.1 kB of gradient back."
    assert set(one.subjects) == {"table", "big"}


def test_a_table_of_which_nothing_is_sent_is_clear() -> None:
    quiet = {CPU0: embedding()[CPU0][:3], GPU0: [node("y", "NoOp")]}
    assert outcome("table-on-cpu", study(step(quiet))).outcome == "clear"


# ---------------------------------------------------------------- update-on-cpu


def trained(shape: str = "[500,600]", dtype: str = "float32") -> dict[str, Any]:
    """Weights on the CPU whose gradient, as large as they are, comes up to an ApplyGradientDescent."""
    partitions = weights(shape, dtype)
    back, up = crossing("edge_7_g", "gradients/g", GPU0, CPU0, T=dtype, tensor_type=dtype)
    partitions[GPU0] += [node("gradients/g", "Relu", "edge_0_w/read/_recv", T=dtype), back]
    rate = node("rate", "Const", dtype=dtype, value={"dtype": dtype, "shape": "[]"})
    partitions[CPU0] += [up, rate, node("update", "ApplyGradientDescent", "w", "rate", up.name, T=dtype)]
    return partitions


def test_gradients_that_travel_to_the_cpu_are_counted_once() -> None:
    one = finding("update-on-cpu", study(step(trained())))
    assert one.bytes_per_step == 1_200_000
    assert one.cost_ns_per_step == 100_000
    assert one.title == "Gradients of 1 variable travel to CPU:0 in every step: 1.2 MB a step."
    assert "2.4 MB a step cross for them" in one.detail
    assert "update (ApplyGradientDescent)" in one.detail


def test_measured_gradients_and_the_time_of_the_update_itself() -> None:
    copies = [
        copy("edge_0_w/read", "HtoD", 1_200_000, start=0, duration=100),
        copy("edge_7_g", "DtoH", 1_200_000, start=300, duration=90),
    ]
    kernels = [kernel("y0", "Relu", start=100, duration=100)]
    message = step(trained(), copies=copies, kernels=kernels, outputs=[])
    one = finding("update-on-cpu", study(message))
    assert (one.cost_ns_per_step, one.cost_basis, one.severity) == (90_000, "measured", "warning")  # 9 % of 1 ms


def test_no_update_on_the_host_is_clear() -> None:
    assert outcome("update-on-cpu", study(step(weights()))).outcome == "clear"


def test_updates_of_int32_variables_are_left_alone() -> None:
    assert outcome("update-on-cpu", study(step(trained(dtype="int32")))).outcome == "clear"


# ---------------------------------------------------------------- multi-gpu-parameters


def test_weights_sent_to_two_gpus_cost_twice() -> None:
    one = finding("multi-gpu-parameters", study(step(weights("[500,600]", to=[GPU0, GPU1]))))
    assert one.bytes_per_step == 2_400_000
    assert one.cost_ns_per_step == 200_000
    assert "copied to each of GPU:0 and GPU:1 in every step: 2.4 MB a step" in one.title
    assert "measure both" in one.detail


def test_the_gpus_start_apart_by_the_difference_of_their_first_kernels() -> None:
    copies = [copy("edge_0_w/read", "HtoD", 1_200_000, start=0, duration=100)]
    others = [copy("edge_1_w/read", "HtoD", 1_200_000, start=100, duration=100)]
    lanes = gpu_lanes(1, kernels=[kernel("y1", "Relu", start=240, duration=10)], copies=others)
    message = step(
        weights("[500,600]", to=[GPU0, GPU1]),
        copies=copies,
        kernels=[kernel("y0", "Relu", start=100, duration=10)],
        more_lanes=lanes,
    )
    one = finding("multi-gpu-parameters", study(message))
    assert "start 0.14 ms apart" in one.detail
    assert one.cost_ns_per_step == 200_000  # both copies, neither under a kernel of its own GPU


def test_one_gpu_is_not_several() -> None:
    assert outcome("multi-gpu-parameters", study(step(weights()))).outcome == "clear"
    assert findings("multi-gpu-parameters", study(step(weights("[10]", "int32", to=[GPU0, GPU1])))) == ()
