"""Every way of training, captured: same results bit by bit, and the weights on the CPU are named with their line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
FIFTY = {"STEPS": "50"}


def place(program: str, text: str) -> str:
    """Return 'cifar.py:19': where `text` is first in a program."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return f"/{program}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


@pytest.fixture(scope="module")
def plain(zygote):
    """Results without any capture, by program and arguments."""
    known: dict[tuple[str, ...], str] = {}

    def results(*command: str, env: dict[str, str] | None = None) -> str:
        if command not in known:
            ran = zygote.run(*command, env=env)
            assert ran.code == 0, ran.err
            known[command] = ran.out
        return known[command]

    return results


WAYS = [
    (("cifar.py", "above"), ("cifar.py", "none")),
    (("cifar.py", "below"), ("cifar.py", "none")),
    (("cifar.py", "method"), ("cifar.py", "none")),
    (("cifar.py", "tape"), ("cifar.py", "tape-none")),
    (("cifar_v1.py", "hook"), ("cifar_v1.py", "none")),
    (("cifar_v1.py", "session"), ("cifar_v1.py", "plain-none")),
    (("keras_fit.py", "callback", "fit"), ("keras_fit.py", "none", "fit")),
    (("keras_fit.py", "callback", "evaluate"), ("keras_fit.py", "none", "evaluate")),
    (("keras_fit.py", "callback", "predict"), ("keras_fit.py", "none", "predict")),
    (("cifar.py", "capture-first"), ("cifar.py", "none")),
    (("mirrored.py", "capture-first"), ("mirrored.py", "none")),
    (("keras_fit.py", "capture", "batches"), ("keras_fit.py", "none", "batches")),
    (("mirrored.py", "above"), ("mirrored.py", "none")),
    (("mirrored.py", "below"), ("mirrored.py", "none")),
    (("recorded.py", "cifar.py", "none"), ("cifar.py", "none")),
    (("recorded.py", "cifar.py", "tape-none"), ("cifar.py", "tape-none")),
    (("recorded.py", "cifar_v1.py", "none"), ("cifar_v1.py", "none")),
    (("recorded.py", "cifar_v1.py", "plain-none"), ("cifar_v1.py", "plain-none")),
    (("recorded.py", "keras_fit.py", "none", "fit"), ("keras_fit.py", "none", "fit")),
    (("recorded.py", "mirrored.py", "none"), ("mirrored.py", "none")),
]


@pytest.mark.parametrize(("captured", "reference"), WAYS, ids=" ".join)
def test_results_are_bit_equal_over_50_steps_and_a_trace_is_written(run, plain, captured, reference):
    ran = run(*captured, env=FIFTY)
    assert ran.code == 0, ran.err
    assert not ran.warnings
    assert ran.out == plain(*reference, env=FIFTY)
    assert len(ran.out.split()) > 1  # results, and the digest of the weights
    assert ran.trace is not None
    assert ran.trace.context["faults"] == []
    timed = ran.trace.context["steps"]
    assert len(timed) == (1 if captured[1].startswith("capture") else 3)
    assert any(lane.node_stats for lane in ran.trace.message.step_stats.dev_stats)
    for step in timed:
        starts = [row.all_start_micros for lane in ran.trace.message.step_stats.dev_stats for row in lane.node_stats]
        assert any(step["start_ns"] <= start * 1000 + 999 and start * 1000 <= step["end_ns"] for start in starts)


def sends(trace):
    for name, graphs in trace.graphs().items():
        for graph in graphs:
            nodes = {node.name: node for node in graph.node}
            for node in graph.node:
                if node.op == "_Send":
                    yield name, node, nodes[node.input[0].partition(":")[0]]


@pytest.mark.parametrize("way", [("cifar.py", "above"), ("cifar.py", "below"), ("recorded.py", "cifar.py", "none")])
def test_weights_on_the_cpu_have_name_line_device_and_size_and_are_sent(run, way):
    trace = run(*way).trace
    weights = {one["name"]: one for one in trace.arguments()}
    assert weights["conv1/weights"]["source"].endswith(place("cifar.py", "conv1/weights"))
    assert weights["fc1/weights"]["source"].endswith(place("cifar.py", "fc1/weights"))
    assert weights["fc1/biases"]["source"].endswith(place("cifar.py", "fc1/biases"))
    assert weights["conv1/weights"]["shape"] == "[5,5,3,16]"
    assert weights["conv1/weights"]["dtype"] == "float32"
    assert weights["conv1/weights"]["device"].endswith("CPU:0")
    assert weights["conv1/weights"]["requested_device"].endswith("CPU:0")
    assert weights["fc1/biases"]["device"].endswith(("CPU:1", "GPU:0"))
    lines = {producer.name: trace.line_of(graph, node.name) for graph, node, producer in sends(trace)}
    assert lines["MatMul/ReadVariableOp"].endswith(place("cifar.py", "tf.matmul(hidden"))


def test_fixed_twin_sends_no_weight(run):
    sent, fixed = (list(sends(run("cifar.py", "above", *twin).trace)) for twin in ((), ("fixed",)))
    assert [producer.name for _, _, producer in sent if producer.op == "ReadVariableOp"]
    assert not [producer.name for _, _, producer in fixed if producer.op == "ReadVariableOp"]
    assert fixed


@pytest.mark.parametrize("way", ["hook", "session"])
def test_v1_weights_have_lines(run, way):
    trace = run("cifar_v1.py", way).trace
    assert trace.context["variables"]["conv1/weights"].endswith(place("cifar_v1.py", "conv1/weights"))
    assert trace.context["variables"]["fc1/weights"].endswith(place("cifar_v1.py", "fc1/weights"))


def test_v1_requested_devices_are_kept(run):
    requested = run("cifar_v1.py", "hook").trace.context["requested_devices"]
    assert requested["devices"][requested["of"]["conv1/weights"]] == "/device:CPU:0"
    assert requested["devices"][requested["of"]["Conv2D"]] in ("/device:CPU:1", "/device:GPU:0")


def test_outer_tape_gives_forward_and_backward_functions(run):
    trace = run("cifar.py", "tape").trace
    names = [function["name"] for function in trace.context["functions"] if function["graph"]]
    assert any(name.startswith("__forward_") for name in names)
    assert any(name.startswith("__inference___backward_") for name in names)


def test_keras_weights_have_paths(run):
    trace = run("keras_fit.py", "callback", "fit").trace
    names = {one["name"] for one in trace.arguments()}
    assert {"net/first/kernel", "net/last/bias"} <= names or {"first/kernel", "net/last/bias"} <= names
    assert [one["name"] for one in trace.arguments("iterator")] == ["dataset iterator"]


def test_keras_steps_per_execution_counts_executions(run):
    trace = run("keras_fit.py", "callback", "fit", env={"SPE": "5"}).trace
    assert len(trace.context["steps"]) == 3


def test_keras_late_attach_gets_graphs_and_says_so(run):
    ran = run("keras_fit.py", "late", "fit")
    assert ran.code == 0, ran.err
    assert len(ran.trace.message.function_graphs) == 1
    assert "late-attach" in ran.trace.notes()


KERAS_JIT = ("keras_fit.py", "callback", "fit", "fixed", "jit")


@pytest.mark.parametrize("program", [("cifar.py", "jit", "host"), KERAS_JIT], ids=" ".join)
def test_jit_says_what_is_hidden_and_lists_the_variables(run, program):
    ran = run(*program)
    assert ran.code == 0, ran.err
    assert "xla-hides-placement" in ran.trace.notes()
    assert all(one["name"] and one["device"] for one in ran.trace.arguments())
    assert ran.trace.arguments()


def test_step_that_xla_compiled_as_a_whole_has_its_variables_with_all_that_is_known_of_them(run):
    trace = run("cifar.py", "jit", "host").trace
    (function,) = trace.context["functions"]
    assert function["jit"] is True
    assert function["graph"] is None
    assert function["steps"] == [0, 1, 2, 3, 4]
    variables = {one["name"]: one for one in function["arguments"] if one["kind"] == "variable"}
    assert variables.keys() == {"conv1/weights", "fc1/weights", "fc1/biases"}
    for name, shape, size in (
        ("conv1/weights", "[5,5,3,16]", 4800),
        ("fc1/weights", "[576,10]", 23040),
        ("fc1/biases", "[10]", 40),
    ):
        one = variables[name]
        assert (one["shape"], one["bytes"], one["dtype"]) == (shape, size, "float32")
        assert one["device"].endswith("/device:CPU:0")
        assert one["source"].endswith(place("cifar.py", name))
    assert [one["bytes"] for one in function["arguments"] if one["kind"] == "input"] == [8 * 24 * 24 * 3 * 4, 8 * 8]


@pytest.mark.skipif("TFPLACE_TEST_GPUS" in os.environ, reason="XLA refuses variables of another device only there")
def test_error_of_the_program_is_its_own_and_shows_no_frame_of_ours(run):
    ran = run("keras_fit.py", "callback", "fit", "fixed", "mixed-jit")
    assert ran.code == 1
    assert "located in device" in ran.err
    assert "/tfplace/capture/" not in ran.err.rpartition("Graph execution error")[2]
    assert ran.trace.all_steps()[-1]["failed"]


def test_mirrored_variables_are_named_per_replica(run):
    trace = run("mirrored.py", "above").trace
    assert {one["name"] for one in trace.arguments()} >= {"weights", "weights/replica_1", "bias", "bias/replica_1"}


def test_capture_of_one_step_in_the_middle(run):
    ran = run("cifar.py", "capture")
    assert ran.code == 0, ran.err
    assert len(ran.trace.context["steps"]) == 1
    assert ran.trace.message.function_graphs
    assert ran.trace.message.step_stats.dev_stats
    assert "late-attach" in ran.trace.notes()
    assert len(ran.warnings) == 1
    assert "repeated one step" in ran.warnings[0]
    assert "repeated one step" in next(n["text"] for n in ran.trace.context["notes"] if n["slug"] == "late-attach")


def test_timeline_of_tensorflow_draws_every_trace(run):
    from tensorflow.python.client import timeline

    for command in (("cifar.py", "above"), ("cifar_v1.py", "hook")):
        stats = run(*command).trace.message.step_stats
        assert '"ph": "X"' in timeline.Timeline(stats).generate_chrome_trace_format(show_memory=False)
