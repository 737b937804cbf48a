"""What a crossing value is called, where its name alone would mislead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CPU0, GPU0, GPU1, graph, node, recv, run_metadata, send
from tests.unit.rules_support import study
from tfplace.analyze import ops
from tfplace.units import shape_bytes

VECTOR = {"T": "float32", "_output_shapes": ["[8]"]}
SCALAR = {"T": "float32", "_output_shapes": ["[]"]}
AXIS = node("axis", "Const", dtype="int32", value={"dtype": "int32", "shape": "[]"})
WEIGHT = node("w", "VariableV2", dtype="float32", shape="[8]")


def categories(source: list[Any], sent: str, target: list[Any], **attrs: Any) -> str:
    """Send `sent` from GPU:0 to the host, where `target` reads it as 'got'; return what it is called."""
    partitions = [
        graph(GPU0, *source, send("edge_1_x", sent, GPU0, CPU0, **{"T": "float32", **attrs})),
        graph(CPU0, recv("got", "edge_1_x", GPU0, CPU0, **attrs), *target),
    ]
    [category] = study(run_metadata(partitions)).transfers["category"].tolist()
    return str(category)


def gradient(name: str) -> Any:
    return node(name, "BiasAddGrad", **VECTOR)


# ---------------------------------------------------------------- sums and packings


def test_gradients_packed_for_an_all_reduce_are_gradients() -> None:
    """As MirroredStrategy packs them: reshaped, concatenated, summed on another GPU."""
    first = [gradient("g1"), node("flat", "Reshape", "g1", **VECTOR), gradient("g2"), AXIS]
    packed = node("concat_1", "ConcatV2", "flat", "g2", "axis", T="float32", N=2)
    partitions = [
        graph(GPU0, *first, packed, send("edge_1_concat_1", "concat_1", GPU0, GPU1, T="float32")),
        graph(GPU1, recv("got", "edge_1_concat_1", GPU0, GPU1), gradient("own"), node("AddN", "AddN", "own", "got")),
    ]
    assert study(run_metadata(partitions)).transfers["category"].tolist() == ["gradient"]


def test_a_packing_of_which_a_part_is_no_gradient_is_none() -> None:
    source = [gradient("g"), node("y", "Relu", **VECTOR), AXIS, node("c", "ConcatV2", "g", "y", "axis", T="float32")]
    assert categories(source, "c", [node("z", "Neg", "got")]) == "activation"


@pytest.mark.parametrize(("part", "category"), [("BiasAddGrad", "gradient"), ("Mean", "activation")])
def test_a_sum_is_a_gradient_only_if_it_sums_one(part: str, category: str) -> None:
    source = [node("a", part, **VECTOR), node("b", "Mean", **VECTOR), node("AddN", "AddN", "a", "b", T="float32")]
    assert categories(source, "AddN", [node("z", "Neg", "got")]) == category


# ---------------------------------------------------------------- what an update takes


def test_a_computed_learning_rate_is_no_gradient_and_updates_nothing() -> None:
    source = [node("rate", "Mul", **SCALAR), gradient("g")]
    partitions = [
        graph(GPU0, *source, send("edge_1_rate", "rate", GPU0, CPU0), send("edge_2_g", "g", GPU0, CPU0)),
        graph(
            CPU0,
            WEIGHT,
            recv("rate_", "edge_1_rate", GPU0, CPU0),
            recv("g_", "edge_2_g", GPU0, CPU0),
            node("update", "ApplyGradientDescent", "w", "rate_", "g_", T="float32"),
        ),
    ]
    analysis = study(run_metadata(partitions))
    found = dict(zip(analysis.transfers["edge_name"], analysis.transfers["category"], strict=True))
    assert found == {"edge_1_rate": "unknown", "edge_2_g": "gradient"}
    assert analysis.variables["written_bytes_per_step"].tolist() == [shape_bytes("float32", "[8]")]


@pytest.mark.parametrize(("sent", "category"), [("rate", "activation"), ("g", "gradient")])
def test_a_factor_beside_the_gradient_is_none(sent: str, category: str) -> None:
    """`w -= rate * g`, with the product on the host."""
    source = [node("rate", "Exp", **SCALAR), node("g", "Neg", **VECTOR)]
    other = node("other", "Neg", **(VECTOR if sent == "rate" else SCALAR))
    target = [WEIGHT, other, node("delta", "Mul", "got", "other", **VECTOR), node("update", "AssignSub", "w", "delta")]
    assert categories(source, sent, target) == category


@pytest.mark.parametrize(("dtype", "category"), [("int32", "activation"), ("float32", "gradient")])
def test_what_a_counter_is_raised_by_is_no_gradient(dtype: str, category: str) -> None:
    source = [node("hits", "Sign", T=dtype, _output_shapes=["[1000]"])]
    counter = node("seen", "VariableV2", dtype=dtype, shape="[1000]")
    target = [counter, node("update", "AssignAdd", "seen", "got", T=dtype)]
    assert categories(source, "hits", target, T=dtype, tensor_type=dtype) == category


def test_row_numbers_of_a_sparse_gradient_belong_to_it() -> None:
    source = [node("rows", "Neg", T="int64", _output_shapes=["[1000]"])]
    values = node("values", "Neg", T="float32")
    target = [WEIGHT, values, node("update", "ScatterSub", "w", "got", "values", T="float32", Tindices="int64")]
    assert categories(source, "rows", target, T="int64", tensor_type="int64") == "gradient"


def test_the_default_of_a_look_up_is_a_constant() -> None:
    source = [node("default", "_Arg", T="int64", index=1, _output_shapes=["[]"])]
    table = node("table", "_Arg", T="resource", index=0)
    keys = node("keys", "_Arg", T="string", index=2)
    target = [table, keys, node("find", "LookupTableFindV2", "table", "keys", "got", Tin="string", Tout="int64")]
    assert categories(source, "default", target, T="int64", tensor_type="int64") == "constant"


def test_the_inputs_of_all_update_ops_are_those_of_tensorflow() -> None:
    """Every (Resource)(Sparse)Apply op that TensorFlow has: its `grad` or `delta`, and a sparse one's `indices`."""
    pytest.importorskip("tensorflow")
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as session

    registered = op_def_pb2.OpList()
    registered.ParseFromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
    checked = 0
    for op in registered.op:
        if not ops.UPDATES.match(op.name) or "Apply" not in op.name:
            continue
        names = [argument.name for argument in op.input_arg]
        deltas = [name for slot, name in enumerate(names) if slot and ops.takes_delta(op.name, slot)]
        assert deltas == [name for name in names if name in ("grad", "delta", "indices")], op.name
        checked += 1
    assert checked > 40
