"""Why a host node of a GPU job is on the host: the first reason that fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CPU0, GPU0, function_graphs, graph, load, node, recv, rows, run_metadata, send
from tests.unit.test_transfers import study
from tfplace.analyze.study import analyze

GPU = graph(GPU0, recv("in", "edge_1_x", CPU0, GPU0), node("y", "Neg", "in", T="float32"))


def reasons(*nodes: Any, sent: str = "") -> dict[str, tuple[str, bool]]:
    ends = [send("edge_1_x", sent, CPU0, GPU0)] if sent else []
    analysis = study(run_metadata([graph(CPU0, *nodes, *ends), GPU]))
    return {
        analysis.flow.name[node_id]: (reason, harmless)
        for node_id, reason, harmless in rows(analysis.reasons, "node_id", "reason", "harmless")
    }


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (node("x", "AddV2", T="int32"), "int32-host"),
        (node("x", "StringJoin", N=2), "no-gpu-kernel"),
        (node("x", "Const", dtype="string", value={"dtype": "string", "shape": "[]"}), "string"),
        (node("x", "LookupTableFindV2", Tin="string", Tout="int64"), "resource"),
        (node("x", "IteratorGetNext", output_types=["float32"], output_shapes=["[2]"]), "input-pipeline"),
        (node("x", "MatMul", T="float32"), "unknown"),
        (node("x", "Shape", T="int64", out_type="int64"), "grappler"),
        (node("x", "SomeCustomOp", T="float32"), "unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.op,
)
def test_reason_of_a_host_node(item: Any, reason: str) -> None:
    assert reasons(item)["x"][0] == reason


def test_a_member_of_the_group_without_a_kernel_holds_the_others() -> None:
    found = reasons(
        node("blocked", "CountUpTo", T="float32"),
        node("x", "MatMul", T="float32", _class=["loc:@blocked"]),
    )
    assert found["x"][0] == "colocation"


def test_who_reads_a_host_variable_is_where_the_variable_is() -> None:
    found = reasons(
        node("w", "VariableV2", dtype="float32", shape="[4]"),
        node("w/read", "Identity", "w", T="float32"),
        sent="w/read",
    )
    assert found["w/read"] == ("variable", False)


def test_harmless_means_that_nothing_of_it_reaches_a_gpu() -> None:
    found = reasons(
        node("a", "MatMul", T="float32"),
        node("b", "MatMul", "a", "a", T="float32"),
        node("c", "MatMul", "a", "a", T="float32"),
        sent="b",
    )
    assert {name: harmless for name, (_, harmless) in found.items()} == {"a": False, "b": False, "c": True}


def test_what_the_program_asked_for_comes_first() -> None:
    partitions = [graph(CPU0, node("x", "AddV2", T="int32")), graph(GPU0, node("y", "Neg", T="float32"))]
    asked = [node("x", "AddV2", T="int32", device="/device:CPU:0"), node("y", "Neg", T="float32")]
    analysis = analyze(load(run_metadata(functions=[function_graphs(partitions, pre=asked)])))
    assert rows(analysis.reasons, "reason", "detail") == [("user-request", "the program asked for /device:CPU:0")]


REPLICAS = [node("loss", "Mean", T="float32"), node("replica_1/loss", "Mean", T="float32")]


@pytest.mark.parametrize(
    ("summed", "reason"),
    [
        (("loss", "replica_1/loss"), "strategy-request"),
        (("loss", "other"), "user-request"),  # not of two replicas
        (("loss", "replica_1/loss", "other"), "user-request"),  # a sum of the program's own
    ],
)
def test_a_sum_over_replicas_was_placed_by_the_strategy(summed: tuple[str, ...], reason: str) -> None:
    host = [*REPLICAS, node("other", "Mean", T="float32"), node("AddN", "AddN", *summed, T="float32")]
    asked = [node(one.name, one.op, device="/device:CPU:0") for one in host]
    analysis = analyze(load(run_metadata(functions=[function_graphs([graph(CPU0, *host), GPU], pre=asked)])))
    told = dict(zip(analysis.reasons["node_id"], analysis.reasons["reason"], strict=True))
    assert told[analysis.flow.find("AddN")[0]] == reason


def test_without_an_accelerator_there_is_nothing_to_explain_away() -> None:
    analysis = study(run_metadata([graph(CPU0, node("x", "MatMul", T="float32"))]))
    assert analysis.reasons["harmless"].tolist() == [True]


def test_placement_counts_nodes_by_device_and_op() -> None:
    analysis = study(run_metadata([graph(CPU0, node("a", "NoOp"), node("b", "NoOp")), GPU]))
    assert rows(analysis.placement, "device_id", "op", "nodes") == [(0, "NoOp", 2), (1, "Neg", 1), (1, "_Recv", 1)]
