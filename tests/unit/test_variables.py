"""Verdicts and movement of variables, on traces made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CPU0, CPU1, GPU0, GPU1, function_graphs, graph, node, recv, rows, run_metadata, send
from tests.unit.test_transfers import NAMED, study, training_step


def read_by_gpu(
    *definition: Any, value: str = "w/read", dtype: str = "float32", gpus: tuple[str, ...] = (GPU0,)
) -> Any:
    """A host variable whose value goes to each of `gpus`."""
    sends = [send(f"edge_{i}_{value}", value, CPU0, gpu, T=dtype) for i, gpu in enumerate(gpus)]
    readers = [
        graph(gpu, recv(f"in{i}", f"edge_{i}_{value}", CPU0, gpu), node(f"y{i}", "Neg", f"in{i}", T=dtype))
        for i, gpu in enumerate(gpus)
    ]
    return run_metadata([graph(CPU0, *definition, *sends), *readers])


def ref_variable(dtype: str = "float32", shape: str = "[256,10]") -> list[Any]:
    return [node("w", "VariableV2", dtype=dtype, shape=shape), node("w/read", "Identity", "w", T=dtype)]


COLUMNS = ("name", "dtype", "shape", "num_bytes", "verdict", "copied_each_step", "read_bytes_per_step")


def test_weights_on_the_host_that_only_the_gpu_reads_are_unnecessary() -> None:
    variables = study(read_by_gpu(*ref_variable())).variables
    assert rows(variables, *COLUMNS) == [("w", "float32", "[256,10]", 10240, "unnecessary", True, 10240)]
    assert rows(variables, "destinations", "written_bytes_per_step", "has_gpu_kernel") == [((1,), 0, True)]


def test_the_gradient_that_comes_back_is_counted_as_written() -> None:
    variables = study(training_step(NAMED)).variables
    assert rows(variables, "verdict", "read_bytes_per_step", "written_bytes_per_step") == [
        ("unnecessary", 10240, 10240)
    ]


def test_bytes_are_per_destination() -> None:
    variables = study(read_by_gpu(*ref_variable(), gpus=(GPU0, GPU1))).variables
    assert rows(variables, "read_bytes_per_step", "destinations") == [(2 * 10240, (1, 2))]
    assert rows(variables, "destination_bytes") == [((10240, 10240),)]


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [("int32", "keeps int32 variables in host memory"), ("string", "string lives on the host only")],
)
def test_int32_and_strings_are_never_unnecessary(dtype: str, reason: str) -> None:
    variables = study(read_by_gpu(*ref_variable(dtype), dtype=dtype)).variables
    assert variables["verdict"].tolist() == ["justified"]
    assert reason in variables["reason"][0]


def test_an_op_without_a_gpu_kernel_justifies() -> None:
    extra = node("print", "StringFormat", "w/read", T=["float32"])
    checked = node("seen", "IsVariableInitialized", "w", dtype="float32")
    blocked = node("count", "CountUpTo", "w", T="float32", limit=3)
    variables = study(read_by_gpu(*ref_variable(), extra, checked, blocked)).variables
    assert rows(variables, "verdict", "reason") == [("justified", "CountUpTo has no GPU kernel for float32")]


def test_a_variable_that_stays_on_the_host_is_harmless() -> None:
    variables = study(read_by_gpu(*ref_variable(), node("v", "VariableV2", dtype="float32", shape="[4]"))).variables
    assert rows(variables, "name", "verdict", "copied_each_step", "read_bytes_per_step") == [
        ("w", "unnecessary", True, 10240),
        ("v", "harmless", False, 0),
    ]


def test_resource_variable_by_its_handle() -> None:
    definition = [
        node("handle", "VarHandleOp", dtype="float32", shape="[8]", shared_name="layer/bias"),
        node("read", "ReadVariableOp", "handle", dtype="float32"),
    ]
    variables = study(read_by_gpu(*definition, value="read")).variables
    assert rows(variables, *COLUMNS) == [("layer/bias", "float32", "[8]", 32, "unnecessary", True, 32)]


def resource_argument() -> list[Any]:
    return [
        node("kernel", "_Arg", T="resource", index=3, _handle_dtypes=["float32"], _handle_shapes=["[64,10]"]),
        node("read", "ReadVariableOp", "kernel", dtype="float32"),
    ]


def test_a_resource_argument_without_a_name_is_shown_as_what_is_known() -> None:
    variables = study(read_by_gpu(*resource_argument(), value="read")).variables
    assert rows(variables, "name", "named", "num_bytes", "verdict") == [
        ("argument 3 (float32 [64,10])", False, 2560, "unnecessary")
    ]


def test_an_iterator_argument_is_no_variable() -> None:
    definition = [
        node("iterator", "_Arg", T="resource", index=0),
        node("next", "IteratorGetNext", "iterator", output_types=["float32"], output_shapes=["[2]"]),
    ]
    analysis = study(read_by_gpu(*definition, value="next"))
    assert analysis.variables.empty
    assert analysis.transfers["category"].tolist() == ["input"]


def test_optimizer_slots_are_written_and_not_read_by_the_gpu() -> None:
    cpu = graph(
        CPU0,
        node("w", "VariableV2", dtype="float32", shape="[4]"),
        node("w/Momentum", "VariableV2", dtype="float32", shape="[4]"),
        recv("g", "edge_1_g", GPU0, CPU0),
        node("rate", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]"}),
        node("update", "ApplyMomentum", "w", "w/Momentum", "rate", "g", "rate", T="float32"),
    )
    gpu = graph(GPU0, node("grad", "Relu", T="float32"), send("edge_1_g", "grad", GPU0, CPU0))
    analysis = study(run_metadata([cpu, gpu]))
    assert rows(analysis.variables, "name", "verdict", "written_bytes_per_step") == [
        ("w", "harmless", 16),
        ("w/Momentum", "harmless", 0),
    ]
    update = analysis.flow.find("update")[0]
    assert analysis.variables["writers"].tolist() == [(update,), (update,)]


def test_on_device_and_no_accelerator() -> None:
    on_gpu = study(run_metadata([graph(GPU0, *ref_variable())])).variables
    assert on_gpu["verdict"].tolist() == ["on-device"]
    cpu_only = study(run_metadata([graph(CPU0, *ref_variable())])).variables
    assert cpu_only["verdict"].tolist() == ["harmless"]


def test_a_logical_cpu_can_play_the_accelerator() -> None:
    cpu1 = graph(CPU1, recv("in", "edge_1_w", CPU0, CPU1), node("y", "Neg", "in", T="float32"))
    message = run_metadata([graph(CPU0, *ref_variable(), send("edge_1_w", "w/read", CPU0, CPU1)), cpu1])
    assert study(message).variables["verdict"].tolist() == ["harmless"]
    assert study(message, accelerator="CPU:1").variables["verdict"].tolist() == ["unnecessary"]


def test_names_come_from_what_capture_stored() -> None:
    context = {
        "functions": [
            {"graph": "partition:0", "arguments": [{"index": 3, "kind": "variable", "name": "dense/kernel:0"}]}
        ]
    }
    message = read_by_gpu(*resource_argument(), value="read")
    assert study(message, context=context).variables["named"].tolist() in ([True], [False])


def test_a_reference_handed_on_by_its_update_is_still_the_variable() -> None:
    counted = node("count", "AssignAdd", "w", "one", T="int32")
    one = node("one", "Const", dtype="int32", value={"dtype": "int32", "shape": "[4]"})
    variable = node("w", "VariableV2", dtype="int32", shape="[4]")
    variables = study(read_by_gpu(variable, one, counted, value="count", dtype="int32")).variables
    assert rows(variables, "verdict", "read_bytes_per_step") == [("justified", 16)]


def test_a_table_whose_look_ups_go_to_the_gpu_is_justified() -> None:
    table = node("table", "HashTableV2", key_dtype="string", value_dtype="int64")
    keys = node("keys", "_Arg", T="string", index=0)
    missing = node("missing", "Const", dtype="int64", value={"dtype": "int64", "shape": "[]"})
    found = node("found", "LookupTableFindV2", "table", "keys", "missing", Tin="string", Tout="int64")
    variables = study(read_by_gpu(table, keys, missing, found, value="found", dtype="int64")).variables
    assert rows(variables, "name", "kind", "verdict", "rows_only") == [("table", "table", "justified", True)]


def same_names(*graphs: str) -> dict[str, Any]:
    two = [{"index": index, "kind": "variable", "name": "Variable"} for index in (0, 1)]
    return {"functions": [{"graph": graph, "arguments": two} for graph in graphs]}


def two_arguments() -> Any:
    arguments = [
        node(f"arg{i}", "_Arg", T="resource", index=i, _handle_dtypes=["float32"], _handle_shapes=["[4]"])
        for i in (0, 1)
    ]
    reads = [node(f"read{i}", "ReadVariableOp", f"arg{i}", dtype="float32") for i in (0, 1)]
    return function_graphs([graph(GPU0, *arguments, *reads)])


def test_two_variables_of_one_name_in_one_graph_stay_two() -> None:
    variables = study(run_metadata((), (), [two_arguments()]), context=same_names("function:0")).variables
    assert rows(variables, "name", "num_bytes") == [("Variable", 16), ("Variable", 16)]


def test_a_variable_of_forward_and_backward_function_is_one() -> None:
    backward = two_arguments()
    backward.partition_graphs[0].node.add(name="other", op="NoOp", device=GPU0)  # not the same graph again
    message = run_metadata((), (), [two_arguments(), backward])
    variables = study(message, context=same_names("function:0", "function:1")).variables
    assert variables["name"].tolist() == ["Variable", "Variable"]
    assert [len(readers) for readers in variables["readers"]] == [2, 2]
