"""The trace shows what the device counted, in the lanes and words of TensorFlow's own converter."""

import pytest
from simulated_runs import program


@pytest.fixture(scope="module")
def step():
    return program("v1_session", "1,2GB")


@pytest.mark.parametrize("name", ["v1_session", "v1_control_flow"])
def test_copies_in_step_stats_equal_what_the_device_counted(name):
    result = program(name, "1,2GB")
    assert result["rows"] == result["counted"] != {}


def test_a_step_copies_the_feed_and_the_weights_up_and_gradient_and_loss_down(step):
    # x 32 x 64 and w 64 x 10 floats go up; w's gradient, the loss, the learning rate and the momentum come down.
    assert step["rows"] == {"H2D": [2, 8192 + 2560], "D2H": [4, 2560 + 3 * 4]}


def test_each_copy_has_a_send_between_the_same_devices(step):
    data = {producer: (source, destination) for _, producer, source, destination in step["sends"]}
    for name, label in step["memcpy"]:
        producer = name.rsplit("/_", 1)[0]
        assert data[producer] == (("CPU:0", "GPU:0") if label.startswith("MemcpyH2D") else ("GPU:0", "CPU:0"))


def test_copies_are_named_after_the_send_or_the_recv(step):
    assert {name.rsplit(":", 1)[1] for name, _ in step["memcpy"]} <= {"_Send", "_Recv"}


def test_downloads_end_in_pinned_memory_and_numpy_feeds_are_pageable(step):
    kinds = {name.rsplit("/_", 1)[0]: label.split()[1:3] for name, label in step["memcpy"]}
    assert kinds["loss"] == ["kind_src:device", "kind_dst:pinned"]
    assert kinds["_arg_x_0_0"] == ["kind_src:pageable", "kind_dst:device"]


def test_constants_that_go_up_at_the_first_run_are_booked_apart_from_the_step():
    result = program("first_run", "1,1GB")
    # One matrix of 256 x 256 floats is the constant; the feed and the fetch have the same size.
    assert result["uploads"] == [[1, 262144], [0, 0]]
    assert result["rows"] == result["counted"] == {"H2D": [1, 262144], "D2H": [1, 262144]}


def test_lanes_are_those_of_a_real_gpu(step):
    gpu = [lane for lane in step["lanes"] if lane.startswith("/device")]
    assert gpu == [
        "/device:GPU:0/memcpy",
        "/device:GPU:0/stream:13",
        "/device:GPU:0/stream:14<MemcpyH2D>",
        "/device:GPU:0/stream:15<MemcpyD2H>",
        "/device:GPU:0/stream:all",
    ]


def test_kernel_lanes_hold_device_kernels_only(step):
    ops = {name.rsplit(":", 1)[1] for name in step["kernels"]}
    assert {"MatMul", "Mean", "ApplyMomentum", "ResourceApplyMomentum"} <= ops
    assert not ops & {"_Send", "_Recv", "Const", "Identity", "NoOp", "Reshape", "Shape", "VariableV2", "ReadVariableOp"}


def test_no_kernel_has_two_rows(step):
    assert len(step["kernels"]) == len(set(step["kernels"]))


def test_the_profilers_planes_carry_whole_annotations():
    result = program("profile", "1,2GB")
    by_name = {}
    for line, name, stats in result["rows"]:
        by_name.setdefault(name, []).append((line, stats))
    ((line, up),) = by_name["MemcpyH2D"]
    assert line == "Stream #14(MemcpyH2D)"
    assert up["memcpy_details"] == "kind_src:pinned kind_dst:device size:512 dest:0 async:1"  # 16 x 8 floats
    assert (up["from"], up["to"]) == ("Cumsum", "matmul")
    assert up["edge_name"].endswith("_Cumsum")
    assert up["annotation"].startswith("Cumsum/_")
    assert "#::#edge_name=" in up["annotation"]
    assert up["tf_op"].rsplit(":", 1)[1] in ("_Send", "_Recv")
    ids = [stats["correlation_id"] for rows in by_name.values() for _, stats in rows]
    assert len(ids) == len(set(ids)) == len(result["rows"])
    assert {name for name in by_name if name.startswith("simulated_")} == {"simulated_MatMul", "simulated_Sum"}


def test_the_profilers_planes_equal_what_the_device_counted():
    result = program("profile", "1,2GB")
    totals = {}
    for _, name, stats in result["rows"]:
        if name.startswith("Memcpy"):
            size = int(next(d for d in stats["memcpy_details"].split() if d.startswith("size:"))[5:])
            count, num_bytes = totals.get(name[6:], (0, 0))
            totals[name[6:]] = (count + 1, num_bytes + size)
    assert {k: list(v) for k, v in totals.items()} == result["counted"]
