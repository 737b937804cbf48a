"""ping-pong: islands of host work between two copies, on the CPU and booked on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import CPU0, CPU1, GPU0, GPU1, copy, kernel, lane, node, op, output
from tests.unit.rules_support import crossing, finding, findings, outcome, step, study


def detour(kinds: Sequence[str] = ("Unique",), *, to: str = GPU0, dtype: str = "float32", tag: str = "") -> Any:
    """GPU:0 -> host ops in a chain -> `to`."""
    down, into_host = crossing(f"edge_1{tag}_a{tag}", f"a{tag}", GPU0, CPU0)
    nodes, last = [into_host], into_host.name
    for number, kind in enumerate(kinds):
        nodes.append(node(f"host{tag}_{number}", kind, last, T=dtype))
        last = nodes[-1].name
    up, back = crossing(f"edge_2{tag}_{last}", last, CPU0, to)
    partitions: dict[str, Any] = {CPU0: [*nodes, up], GPU0: [node(f"a{tag}", "Relu", T=dtype), down]}
    partitions.setdefault(to, []).extend([back, node(f"b{tag}", "Relu", back.name, T=dtype)])
    return partitions


def merge(*parts: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for device, nodes in part.items():
            merged.setdefault(device, []).extend(nodes)
    return merged


DOWN = copy("edge_1_a", "DtoH", 4000, start=100, duration=5)
UP = copy("edge_2_host_0", "HtoD", 8000, start=150, duration=10)


def test_a_detour_over_the_cpu_costs_the_wait_between_its_two_copies() -> None:
    busy = [kernel("a", "Relu", start=0, duration=90), kernel("b", "Relu", start=130, duration=10)]
    one = finding("ping-pong", study(step(detour(), length=1000, kernels=busy, copies=[DOWN, UP])))
    assert one.cost_ns_per_step == 50_000  # 100 to 160 us, less the kernel's 10
    assert (one.cost_basis, one.confidence, one.severity) == ("measured", "joined", "warning")  # 5 % of 1 ms
    assert one.bytes_per_step == 12_000
    assert one.title == (
        "Data leaves GPU:0 for 1 Unique node on CPU:0 and comes back: 1 copy down and 1 up in the step, 12.0 kB."
    )
    assert "0.05 ms of each step passed between a copy down and the copy back with no kernel running" in one.detail
    assert one.subjects == ("host_0",)
    assert any(line.startswith("down: a, 4.0 kB, GPU:0 -> CPU:0") for line in one.evidence)


def test_a_detour_under_other_kernels_is_no_problem() -> None:
    busy = [kernel("other", "Relu", start=90, duration=80)]
    assert findings("ping-pong", study(step(detour(), kernels=busy, copies=[DOWN, UP]))) == ()


def test_without_times_a_detour_costs_its_trips_and_bytes() -> None:
    sized = [("host_0", "Unique", output(0, "float32", "[600]", 2400))]
    down = lane(GPU0, op("a", "Relu", start=0, duration=1, outputs=[output(0, "float32", "[900]", 3600)]))
    one = finding("ping-pong", study(step(detour(), outputs=sized, more_lanes=[down])))
    assert one.cost_ns_per_step == 50_000 + 6000 / 12  # one trip of 50 us, and 6,000 B at 12 GB/s
    assert (one.cost_basis, one.confidence) == ("estimated", "graph")
    assert "1 trip of 50 us each and their bytes (estimate)" in one.detail


def test_values_that_come_back_together_are_one_trip() -> None:
    parts = detour()
    up, back = crossing("edge_3_host_0", "host_0", CPU0, GPU0)
    parts[CPU0].append(up)
    parts[GPU0] += [back, node("c", "Relu", back.name, T="float32")]
    one = finding("ping-pong", study(step(parts)))
    assert "1 copy down and 2 up" in one.title
    assert "for 1 trip of 50 us each" in one.detail


def test_detours_of_one_kind_are_one_finding_and_others_apart() -> None:
    parts = merge(detour(tag="_p"), detour(tag="_q"), detour(["Where"], tag="_r"))
    both = findings("ping-pong", study(step(parts)))
    assert [len(one.subjects) for one in both] == [2, 1]
    assert "2 Unique nodes on CPU:0" in both[0].title and "2 copies down and 2 up" in both[0].title


def test_plumbing_between_the_ops_does_not_change_their_kind() -> None:
    (one,) = findings("ping-pong", study(step(detour(["Identity", "Unique", "Reshape"]))))
    assert one.subjects == ("host_1",)


def test_a_detour_from_one_gpu_to_another_counts() -> None:
    assert "Data leaves GPU:0 and GPU:1" in finding("ping-pong", study(step(detour(to=GPU1)))).title


@pytest.mark.parametrize(("nodes", "found"), [(50, 1), (51, 0)])
def test_an_island_has_at_most_fifty_nodes(nodes: int, found: int) -> None:
    assert len(findings("ping-pong", study(step(detour(["Unique"] * nodes))))) == found


def test_an_update_of_a_variable_is_not_a_detour() -> None:
    down, into = crossing("edge_1_g", "g", GPU0, CPU0)
    up, back = crossing("edge_2_w/read", "w/read", CPU0, GPU0)
    partitions = {
        CPU0: [
            node("w", "VariableV2", dtype="float32", shape="[10]"),
            into,
            node("rate", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]"}),
            node("update", "ApplyGradientDescent", "w", "rate", into.name, T="float32"),
            node("w/read", "Identity", "update", T="float32"),
            up,
        ],
        GPU0: [node("g", "Relu"), down, back, node("y", "Relu", back.name)],
    }
    assert outcome("ping-pong", study(step(partitions))).outcome == "clear"


def stitches(count: int, *, fetched: bool = True) -> tuple[dict[str, Any], list[Any]]:
    """Nodes booked on GPU:0 that work in host memory: each takes a device value down; all but the last go up again."""
    gpu: list[Any] = [node("x0", "Relu", T="float32")]
    host: list[Any] = []
    copies = []
    for i in range(count):
        down, taken = crossing(f"edge_{i}0_x{i}", f"x{i}", GPU0, GPU0, host_recv=True)
        gpu += [down, taken, node(f"stitch{i}", "DynamicStitch", "i", taken.name, T="float32", N=1)]
        copies.append(copy(f"edge_{i}0_x{i}", "DtoH", 400, start=100 * i, duration=1))
        if i == count - 1 and fetched:
            out, into = crossing(f"edge_{i}1_stitch{i}", f"stitch{i}", GPU0, CPU0, host_send=True)
            gpu.append(out)
            host += [into, node("_retval", "_Retval", into.name, T="float32", index=0)]
            break
        up, back = crossing(f"edge_{i}1_stitch{i}", f"stitch{i}", GPU0, GPU0, host_send=True)
        gpu += [up, back, node(f"x{i + 1}", "Relu", back.name, T="float32")]
        copies.append(copy(f"edge_{i}1_stitch{i}", "HtoD", 400, start=100 * i + 60, duration=1))
    gpu.insert(0, node("i", "Const", dtype="int32", value={"dtype": "int32", "shape": "[100]"}))
    return {CPU0: host, GPU0: gpu}, copies


def test_the_key_of_a_random_op_is_nothing_to_move() -> None:
    """As Keras' Dropout makes it: a seed on the GPU, key and counter in host memory, the numbers on the GPU again."""
    down, seed = crossing("edge_1_seed", "seed", GPU0, GPU0, host_recv=True, T="int64", tensor_type="int64")
    up, key = crossing("edge_2_key", "key", GPU0, GPU0, host_send=True, T="uint64", tensor_type="uint64")
    made = node("key", "StatelessRandomGetKeyCounter", seed.name, Tseed="int64", _output_shapes=["[1]", "[2]"])
    state = node("seed", "Cast", SrcT="int64", DstT="int64", _output_shapes=["[2]"])
    numbers = node("numbers", "StatelessRandomUniformV2", key.name, dtype="float32")
    partitions = {CPU0: [node("a", "NoOp")], GPU0: [state, down, seed, made, up, key, numbers]}
    fix = finding("ping-pong", study(step(partitions))).fix
    assert "Leave it: it makes the key and counter of a stateless random op (Keras' Dropout" in fix
    assert "Replace it" not in fix and "neighbours" not in fix
    assert "`jit_compile=True`" in fix


def test_an_op_booked_on_the_gpu_that_works_in_host_memory_is_caught() -> None:
    partitions, copies = stitches(4)
    one = finding("ping-pong", study(step(partitions, length=1000, copies=copies), tf_era="TF1"))
    assert one.title == (
        "All 4 DynamicStitch nodes, though placed on GPU:0, took their inputs in host memory, so data goes down and up "
        "around each: 4 copies down and 3 up in the step, 2.8 kB."
    )
    assert one.bytes_per_step == 7 * 400
    assert one.cost_ns_per_step == 3 * 61_000  # from each copy down to the end of its copy up
    assert one.subjects == ("stitch0", "stitch1", "stitch2", "stitch3")
    assert "Upgrade TensorFlow" in one.fix and "tf.gather" in one.fix and "keep the chain on one side" in one.fix
    assert "no kernel" not in one.detail  # this trace has no kernels to speak of


def test_one_node_of_several_is_not_called_all() -> None:
    partitions, copies = stitches(2)
    partitions[GPU0].append(node("quiet", "DynamicStitch", "i", "x0", T="float32", N=1))
    title = finding("ping-pong", study(step(partitions, length=1000, copies=copies))).title
    assert title.startswith("2 of 3 DynamicStitch nodes, though placed on GPU:0, took their inputs in host memory")


def test_a_chain_in_host_memory_longer_than_an_island_is_still_caught_when_booked_on_the_gpu() -> None:
    partitions, copies = stitches(60)
    assert (
        "All 60 DynamicStitch nodes" in finding("ping-pong", study(step(partitions, length=9000, copies=copies))).title
    )


def test_a_shape_that_comes_down_and_steers_a_gpu_op_is_no_detour() -> None:
    """The Reshape takes its shape in host memory, but its result stays on the GPU until it is fetched."""
    down, shape = crossing("edge_1_s", "s", GPU0, GPU0, host_recv=True, T="int32", tensor_type="int32")
    up, back = crossing("edge_2_n", "n", GPU0, GPU0, host_send=True, T="int32", tensor_type="int32")
    gpu = [
        node("s", "Relu", T="float32"),
        down,
        shape,
        node("x", "Relu", T="float32"),
        node("r", "Reshape", "x", shape.name, T="float32", Tshape="int32"),
        node("m", "MatMul", "r", "r", T="float32"),
        node("n", "Shape", "m", T="float32", out_type="int32"),
        up,
        back,
        node("z", "Cast", back.name, SrcT="int32", DstT="float32"),
    ]
    assert outcome("ping-pong", study(step({CPU0: [], GPU0: gpu}))).outcome == "clear"


def test_data_that_only_goes_down_is_no_detour() -> None:
    down, into = crossing("edge_1_a", "a", GPU0, CPU0)
    partitions = {CPU0: [into, node("host", "Unique", into.name)], GPU0: [node("a", "Relu"), down]}
    assert outcome("ping-pong", study(step(partitions))).outcome == "clear"


def test_detours_are_found_on_logical_cpu_devices() -> None:
    down, into = crossing("edge_1_a", "a", CPU1, CPU0)
    up, back = crossing("edge_2_u", "u", CPU0, CPU1)
    partitions = {
        CPU0: [into, node("u", "Unique", into.name, T="float32"), up],
        CPU1: [node("a", "Relu"), down, back, node("b", "Relu", back.name)],
    }
    one = finding("ping-pong", study(step(partitions, length=100), accelerator="CPU:1"))
    assert one.cost_basis == "estimated"


def test_a_detour_is_seen_in_node_stats_alone() -> None:
    """No graph: nodes and edges come from labels, the ends of copies from their names."""
    host = op("host", "Where", "a/_1", start=110, duration=20)
    gpu = [op("a", "Relu", start=0, duration=1), op("b", "Relu", "host/_3", start=160, duration=1)]
    copies = [
        copy("edge_1_a", "DtoH", 4000, start=100, duration=5),
        copy("edge_2_host", "HtoD", 8000, start=150, duration=10),
    ]
    message = step({}, copies=copies, more_lanes=[lane(CPU0, host), lane(GPU0, *gpu)])
    one = finding("ping-pong", study(message))
    assert one.title.startswith("Data leaves GPU:0 for 1 Where node on CPU:0 and comes back: 1 copy down and 1 up")
    assert (one.cost_ns_per_step, one.confidence) == (60_000, "timed")


def test_nothing_to_see_is_a_skip() -> None:
    times_only = study(step({}, length=100, kernels=[kernel("y", "Relu", start=1, duration=1)]))
    assert outcome("ping-pong", times_only).outcome == "skipped"
