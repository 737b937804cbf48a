"""cpu-reason, colocated-to-cpu, request-not-honoured."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    CPU0,
    CPU1,
    GPU0,
    GPU1,
    copy,
    function_graphs,
    graph,
    kernel,
    lane,
    node,
    op,
    output,
    run_metadata,
)
from tests.unit.rules_support import crossing, finding, outcome, step, study, weights

# ---------------------------------------------------------------- cpu-reason


def host_work(*, back: bool = True) -> dict[str, Any]:
    """A string op and an int32 sum on the host; the sum's result goes to the GPU where `back`."""
    partitions: dict[str, Any] = {
        CPU0: [
            node("names", "Const", dtype="string", value={"dtype": "string", "shape": "[2]"}),
            node("length", "StringLength", "names", T="string"),
            node("count", "AddV2", "length", "length", T="int32"),
        ],
        GPU0: [node("y", "NoOp")],
    }
    if back:
        out, into = crossing("edge_1_count", "count", CPU0, GPU0, T="int32", tensor_type="int32")
        partitions[CPU0].append(out)
        partitions[GPU0] += [into, node("f", "Cast", into.name, SrcT="int32", DstT="float32")]
    return partitions


def test_nodes_on_the_host_are_counted_by_reason_with_what_they_send() -> None:
    sizes = [("count", "AddV2", output(0, "int32", "[3000]", 12_000))]
    one = finding("cpu-reason", study(step(host_work(), outputs=sizes)))
    assert one.title == "3 nodes of this step run on CPU:0: 12.0 kB a step cross between them and a GPU."
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (12_000, 1000, "info")
    assert one.evidence[0].startswith("int32-host: 1 node (0 harmless, 12.0 kB a step sent to a GPU): count (AddV2)")
    assert any(line.startswith("string: ") for line in one.evidence)


def strategy_sum() -> Any:
    """`strategy.reduce` of one loss per GPU: the sum is on the host, as the strategy asks."""
    down1, got1 = crossing("edge_1_loss", "loss", GPU0, CPU0, T="float32")
    down2, got2 = crossing("edge_2_loss", "replica_1/loss", GPU1, CPU0, T="float32")
    up, got3 = crossing("edge_3_AddN", "AddN", CPU0, GPU0, T="float32")
    total = node("AddN", "AddN", got1.name, got2.name, T="float32", N=2)
    partitions = [
        graph(GPU0, node("loss", "Mean", T="float32"), down1, got3, node("y", "Neg", got3.name, T="float32")),
        graph(GPU1, node("replica_1/loss", "Mean", T="float32"), down2),
        graph(CPU0, got1, got2, total, up),
    ]
    asked = [node("AddN", "AddN", T="float32", device="/device:CPU:0")]
    return study(run_metadata(functions=[function_graphs(partitions, pre=asked)]))


def test_the_nodes_that_cross_are_named_first() -> None:
    partitions = host_work()
    partitions[CPU0][:0] = [node(f"before_{number}", "AddV2", T="int32") for number in range(5)]
    sizes = [("count", "AddV2", output(0, "int32", "[3000]", 12_000))]
    line = finding("cpu-reason", study(step(partitions, outputs=sizes))).evidence[0]
    assert line.startswith("int32-host: 6 nodes (5 harmless, 12.0 kB a step sent to a GPU): count (AddV2), ")


@pytest.mark.parametrize("rule", ["cpu-reason", "ping-pong"])
def test_the_strategys_own_request_is_told_with_what_changes_it(rule: str) -> None:
    one = finding(rule, strategy_sum())
    told = " ".join((one.detail, *one.evidence))
    assert "the distribution strategy asked for /device:CPU:0, to sum over its replicas there" in told
    assert "the program asked" not in told
    assert '`strategy.reduce` sums on the CPU unless it is called under `with tf.device("/GPU:0")`.' in one.fix
    assert "  " not in one.fix


def test_host_work_that_no_gpu_sees_is_called_harmless() -> None:
    one = finding("cpu-reason", study(step(host_work(back=False))))
    assert one.title == "3 nodes of this step run on CPU:0: harmless, no GPU gives to or takes from them."
    assert (one.severity, one.cost_ns_per_step, one.fix) == ("info", None, "Nothing to change.")


def test_a_result_that_is_sent_to_the_host_for_one_op_is_costed() -> None:
    down, into = crossing("edge_1_y", "y", GPU0, CPU0)
    message = step(
        {CPU0: [into, node("add", "Add", into.name, into.name, T="float32")], GPU0: [node("y", "MatMul"), down]},
        length=1000,
        kernels=[kernel("y", "MatMul", start=0, duration=100)],
        copies=[copy("edge_1_y", "DtoH", 1_000_000, start=200, duration=80)],
    )
    one = finding("cpu-reason", study(message))
    assert one.title == "1 node of this step runs on CPU:0: 1.0 MB a step cross between it and a GPU."
    assert (one.cost_ns_per_step, one.cost_basis, one.severity) == (80_000, "measured", "warning")  # 8 % of 1 ms
    assert "1.0 MB a step taken from a GPU" in one.evidence[0]


def test_a_step_with_nothing_on_the_host_is_clear() -> None:
    analysis = study(step({CPU0: [node("n", "NoOp")], GPU0: [node("y", "MatMul", T="float32")]}))
    assert outcome("cpu-reason", analysis).outcome == "clear"


def test_reasons_are_not_looked_for_without_a_gpu() -> None:
    assert outcome("cpu-reason", study(step({CPU0: [node("a", "AddV2", T="int32")]}))).outcome == "skipped"


# ---------------------------------------------------------------- colocated-to-cpu


def colocated(blocker: str = "StringJoin", dtype: str = "string") -> Any:
    """w (1.2 MB) is read on the GPU; it shares the group loc:@w with a node that has no GPU kernel."""
    partitions = weights("[500,600]")
    partitions[CPU0].append(node("held", blocker, T=dtype, N=1, _class=["loc:@w"]))
    return partitions


def test_a_variable_held_by_its_colocation_group_is_named_with_the_member_that_holds_it() -> None:
    analysis = study(step(colocated("MatrixSolveLs", "float32")))
    assert set(analysis.reasons.loc[analysis.reasons["reason"] == "colocation", "node_id"]) == {0}
    one = finding("colocated-to-cpu", analysis)
    assert one.subjects == ("w",)
    assert "held (MatrixSolveLs" in one.detail
    assert "MatrixSolveLs" in one.evidence[0]


def test_a_group_without_a_blocker_is_clear() -> None:
    assert outcome("colocated-to-cpu", study(step(colocated("Relu", "float32")))).outcome == "clear"


def test_colocation_needs_graphs() -> None:
    times_only = study(step({}, length=100, kernels=[kernel("y", "Relu", start=1, duration=1)]))
    assert "no partition graphs" in str(outcome("colocated-to-cpu", times_only).reason)


# ---------------------------------------------------------------- request-not-honoured


def placed(request: str) -> Any:
    """A tf.function whose int32 add asked for `request` and ran on the host; its result goes to the GPU."""
    out, into = crossing("edge_1_sum", "sum", CPU0, GPU0, T="int32", tensor_type="int32")
    partitions = [
        graph(CPU0, node("sum", "AddV2", T="int32"), out),
        graph(GPU0, into, node("f", "Cast", into.name, SrcT="int32", DstT="float32")),
    ]
    pre = [node("sum", "AddV2", device=request, T="int32"), node("f", "Cast", "sum", SrcT="int32", DstT="float32")]
    lanes = [lane(CPU0, op("sum", "AddV2", start=0, duration=1, outputs=[output(0, "int32", "[3]", 12)]))]
    return run_metadata(dev_stats=lanes, functions=[function_graphs(partitions, pre)])


def test_a_gpu_request_that_ended_on_the_host_is_reported_with_its_reason() -> None:
    one = finding("request-not-honoured", study(placed("/device:GPU:0")))
    assert one.title == "1 node asked for a GPU and was placed on CPU:0."
    assert one.evidence == (
        "sum (AddV2): asked for /device:GPU:0, got CPU:0, TensorFlow keeps int32 values in host memory",
    )
    assert (one.bytes_per_step, one.cost_ns_per_step, one.severity) == (12, 1.0, "info")


def test_a_cpu_request_and_no_request_are_honoured() -> None:
    assert outcome("request-not-honoured", study(placed("/device:CPU:0"))).outcome == "clear"
    assert outcome("request-not-honoured", study(placed(""))).outcome == "clear"


def test_a_request_for_the_cpu_that_plays_the_accelerator_counts_as_one() -> None:
    partitions = [graph(CPU0, node("sum", "AddV2", T="int32")), graph(CPU1, node("y", "Relu", T="float32"))]
    pre = [node("sum", "AddV2", device="/device:CPU:1", T="int32"), node("y", "Relu", T="float32")]
    message = run_metadata(functions=[function_graphs(partitions, pre)])
    one = finding("request-not-honoured", study(message, accelerator="CPU:1"))
    assert "asked for /device:CPU:1, got CPU:0" in one.evidence[0]


def test_ops_that_follow_their_variable_are_not_blamed() -> None:
    partitions = weights("[500,600]")
    message = run_metadata(
        functions=[
            function_graphs(
                [graph(device, *nodes) for device, nodes in partitions.items()],
                [
                    node("w", "VariableV2", dtype="float32", shape="[500,600]"),
                    node("w/read", "Identity", "w", device="/device:GPU:0", T="float32"),
                ],
            )
        ]
    )
    assert outcome("request-not-honoured", study(message)).outcome == "clear"


def test_requests_that_were_not_recorded_are_a_skip() -> None:
    result = outcome("request-not-honoured", study(step(weights())))
    assert (result.outcome, "does not record requested devices" in str(result.reason)) == ("skipped", True)
