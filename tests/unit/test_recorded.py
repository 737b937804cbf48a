"""What capture stored beside RunMetadata reaches devices, nodes and variables; what does not fit is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    CPU0,
    CPU1,
    EPOCH_US,
    function_graphs,
    graph,
    lane,
    load,
    node,
    op,
    recv,
    rows,
    run_metadata,
    send,
    stat,
)
from tfplace.analyze.study import analyze
from tfplace.errors import UsageError

ARGUMENT = {
    "index": 3,
    "kind": "variable",
    "name": "dense/kernel:0",
    "requested_device": "/device:CPU:0",
    "source": "train.py:41",
}
FUNCTION = {"graph": "function:0", "name": "__inference_step_7", "arguments": [ARGUMENT]}
LINES = {"function:0": {"lines": ["train.py:88"], "of": {"y": 0, "bad": 7}}}


def step_function() -> Any:
    cpu = graph(
        CPU0,
        node("kernel", "_Arg", T="resource", index=3, _handle_dtypes=["float32"], _handle_shapes=["[64,10]"]),
        node("read", "ReadVariableOp", "kernel", dtype="float32"),
        send("edge_1_read", "read", CPU0, CPU1),
    )
    cpu1 = graph(CPU1, recv("in", "edge_1_read", CPU0, CPU1), node("y", "Neg", "in", T="float32"))
    return run_metadata(functions=[function_graphs([cpu, cpu1])])


def test_the_stored_accelerator_is_used_unless_another_is_asked_for() -> None:
    stored = {"accelerator": "CPU:1"}
    assert load(step_function(), context=stored).devices["role"].tolist() == ["host", "device"]
    asked = load(step_function(), context=stored, accelerator="CPU:0")
    assert asked.devices["role"].tolist() == ["device", "host"]


def test_a_stored_accelerator_that_is_not_there_is_passed_over_but_one_asked_for_is_an_error() -> None:
    assert load(step_function(), context={"accelerator": "CPU:7"}).devices["role"].tolist() == ["host", "host"]
    with pytest.raises(UsageError, match="no device 'CPU:7'"):
        load(step_function(), accelerator="CPU:7")


def test_an_argument_gets_its_name_line_and_requested_device() -> None:
    context = {"accelerator": "CPU:1", "functions": [FUNCTION], "nodes": LINES}
    variables = analyze(load(step_function(), context=context)).variables
    assert rows(variables, "name", "named", "source", "requested_device", "verdict") == [
        ("dense/kernel", True, "train.py:41", "/device:CPU:0", "unnecessary")
    ]
    assert variables["reason"][0].startswith("the program asked for /device:CPU:0")


def test_nodes_get_the_line_that_made_them() -> None:
    trace = load(step_function(), context={"nodes": LINES})
    assert dict(rows(trace.nodes, "name", "source"))["y"] == "train.py:88"
    assert dict(rows(trace.nodes, "name", "source"))["read"] is None


@pytest.mark.parametrize(
    "context",
    [
        {"functions": "x"},
        {"functions": [None, 3, {"graph": 1, "arguments": 4}, {"graph": "function:0", "arguments": [None, {}]}]},
        {"functions": [{"graph": "function:0", "arguments": [{"index": [3], "requested_device": 9}]}]},
        {"nodes": {"function:0": {"lines": 1, "of": []}, "x": None}, "variables": [], "accelerator": 4},
    ],
)
def test_what_does_not_fit_is_passed_over(context: dict[str, Any]) -> None:
    variables = analyze(load(step_function(), context=context)).variables
    assert variables["name"].tolist() == ["argument 3 (float32 [64,10])"]


def test_what_capture_noted_reaches_the_notes() -> None:
    stored = {
        "notes": [{"slug": "late-attach", "text": "The function had run before.", "count": 2}, {"text": 3}, None],
        "faults": ["profiler stop: OSError"],
        "simulated": "2 x Simulated GPU",
    }
    notes = {note.slug: (note.text, note.count) for note in load(step_function(), context=stored).notes}
    assert notes["late-attach"] == ("The function had run before.", 2)
    assert "profiler stop: OSError" in notes["capture-fault"][0]
    assert "simulated" in notes["simulated-edge-copies"][0]


def test_step_numbers_that_repeat_tell_nothing() -> None:
    window = {"steps": [{"num": 0, "start_ns": EPOCH_US * 1000, "end_ns": EPOCH_US * 1000 + 5000}]}
    message = run_metadata(dev_stats=[lane(CPU0, op("a", "NoOp", start=0, duration=1))])
    assert load(message, context=window).steps["step_num"].tolist() == [0]
    assert load(message, message, context=window).steps["step_num"].isna().all()


def test_a_simulated_gpu_is_known_by_its_kernels_when_what_capture_stored_is_lost() -> None:
    row = stat("MatMul", 1, 2, "simulated_MatMul simulated:1")
    trace = load(run_metadata(dev_stats=[lane("/device:GPU:0/stream:13", row)]))
    assert trace.simulated == "simulated GPU, by the labels of its kernels"
    assert analyze(trace).gpu_busy_share is None
