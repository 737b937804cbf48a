"""The files in traces/ are small, parse, and hold what traces/README.md says (numbers worked out there by hand)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tfplace.read.protos import RunMetadata

TRACES = Path(__file__).parents[2] / "traces"
FILES = sorted(
    path for path in TRACES.rglob("*") if path.name.endswith((".pb", ".pbtxt", ".gz")) and "__" not in str(path)
)
CIFAR10 = {
    "conv1/weights": 19_200,
    "conv1/biases": 256,
    "conv2/weights": 409_600,
    "conv2/biases": 256,
    "local3/weights": 3_538_944,
    "local3/biases": 1_536,
    "local4/weights": 294_912,
    "local4/biases": 768,
    "softmax_linear/weights": 7_680,
    "softmax_linear/biases": 40,
}
INFERENCE = {
    "hidden1/weights": 2_097_152,
    "hidden1/biases": 2_048,
    "hidden2/weights": 524_288,
    "hidden2/biases": 1_024,
    "logits/weights": 10_240,
    "logits/biases": 40,
}
# file: sends of data down, their bytes, sends up, their bytes, control edges over the border
EXPECTED = {
    "cifar10_weights_on_cpu.pbtxt": (12, 4_273_192 + 884_736 + 1_024, 11, 4_273_192 + 4, 2),
    "cifar10_weights_on_gpu.pbtxt": (2, 884_736 + 1_024, 1, 4, 1),
    "cifar10_function_weights_on_cpu.pb": (12, 4_273_192 + 884_736 + 1_024, 10, 4_273_192, 3),
    "cifar10_function_weights_on_gpu.pb": (2, 884_736 + 1_024, 0, 0, 1),
    "two_towers_cpu_weights.pb": (16, 2 * (3_560_744 + 442_368 + 512), 14, 2 * (3_560_744 + 4), 4),
    "embedding_on_cpu.pbtxt": (3, 65_536 + 2_048 + 256, 3, 65_536 + 2_048 + 4, 1),
    "embedding_function_on_cpu.pb": (3, 65_536 + 2_048 + 256, 2, 65_536 + 2_048, 1),
    "inference_cpu_weights.pbtxt": (7, 2_634_792 + 65_536, 1, 640, 0),
    "inference_function_cpu_weights.pb.gz": (7, 2_634_792 + 65_536, 0, 0, 1),
    "input_feed.pbtxt": (2, 200_704 + 512, 1, 4, 0),
    "input_dataset.pbtxt": (2, 200_704 + 512, 1, 4, 0),
    "input_feed_steps/step_1.pb": (2, 200_704 + 512, 1, 4, 0),
    "input_feed_steps/step_2.pb": (2, 200_704 + 512, 1, 4, 0),
    "input_feed_steps/step_3.pb": (2, 200_704 + 512, 1, 4, 0),
}


def label(path: Path) -> str:
    return path.relative_to(TRACES).as_posix()


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


def read_trace(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the message and the context; the context field must be the last one of a binary file."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    message = RunMetadata()
    if path.name.removesuffix(".gz").endswith(".pbtxt"):
        first = data.split(b"\n", 1)[0].decode()
        assert first.startswith("# tfplace: ")
        text_format.Parse(data.decode(), message, allow_unknown_field=True)
        return message, json.loads(first.removeprefix("# tfplace: "))
    message.ParseFromString(data)
    at = data.rindex(b'{"accelerator"')
    key = bytes((0xA2, 0xE8, 0x09))  # 20100 << 3 | 2 = 160802 as a varint
    start = data.rindex(key, 0, at)
    length, begin = read_varint(data, start + len(key))
    assert (begin, begin + length) == (at, len(data))
    return message, json.loads(data[at:])


def sizes(message: Any) -> dict[str, int]:
    """Return {'node:slot': bytes}: measured where the step was timed, from the static shapes elsewhere."""
    measured = {
        f"{node.node_name}:{output.slot}": output.tensor_description.allocation_description.requested_bytes
        for device in message.step_stats.dev_stats
        for node in device.node_stats
        for output in node.output
    }
    item = {1: 4, 9: 8}  # DT_FLOAT, DT_INT64
    static = {
        f"{node.input[0]}:0": item[node.attr["T"].type] * math.prod(dim.size for dim in shapes[node.input[0]].dim)
        for graph in message.partition_graphs
        for shapes in [{n.name: s for n in graph.node for s in n.attr["_output_shapes"].list.shape[:1]}]
        for node in graph.node
        if node.op == "_Send" and not measured and node.input[0] in shapes
    }
    return measured | static


def test_every_trace_has_its_expectation() -> None:
    assert [label(path) for path in FILES] == sorted(EXPECTED)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_trace_is_under_300_kb_and_names_its_origin(path: Path) -> None:
    assert path.stat().st_size < 300_000
    message, context = read_trace(path)
    assert len(message.partition_graphs) >= 2
    assert context["accelerator"] == ("CPU:1,CPU:2" if "towers" in path.name else "CPU:1")
    assert context["made_by"] == f"traces/make.py {path.name.split('.')[0]}" or "steps" in label(path)
    assert context["tf_version"].startswith("2.")


@pytest.mark.parametrize("path", FILES, ids=label)
def test_trace_crosses_what_was_worked_out_by_hand(path: Path) -> None:
    message, _ = read_trace(path)
    size = sizes(message)
    down, up, control = [], [], 0
    for graph in message.partition_graphs:
        for node in graph.node:
            if node.op != "_Send":
                continue
            source = node.input[0] if ":" in node.input[0] else f"{node.input[0]}:0"
            if "/ctrl/_" in source:
                control += 1
                continue
            from_host = node.attr["send_device"].s.endswith(b"CPU:0")
            (down if from_host else up).append(size[source])
    assert (len(down), sum(down), len(up), sum(up), control) == EXPECTED[label(path)]


@pytest.mark.parametrize("path", [path for path in FILES if "function" in path.name], ids=label)
def test_function_arguments_match_the_args_of_the_graph(path: Path) -> None:
    message, context = read_trace(path)
    (function,) = context["functions"]
    arguments = {argument["index"]: argument for argument in function["arguments"]}
    args = {node.attr["index"].i: node for g in message.partition_graphs for node in g.node if node.op == "_Arg"}
    assert len(message.function_graphs) == 1
    assert function["graph"] == "function:0"
    assert sorted(arguments) == sorted(args) == list(range(len(args)))
    for index, node in args.items():
        assert node.device == arguments[index]["device"]
        shapes = node.attr["_handle_shapes"].list.shape
        assert (arguments[index]["kind"] == "variable") == bool(shapes)
        if shapes:
            assert arguments[index]["shape"] == f"[{','.join(str(dim.size) for dim in shapes[0].dim)}]"


@pytest.mark.parametrize(
    ("name", "weights", "device"),
    [
        ("cifar10_function_weights_on_cpu.pb", CIFAR10, "CPU:0"),
        ("cifar10_function_weights_on_gpu.pb", CIFAR10, "CPU:1"),
        ("inference_function_cpu_weights.pb.gz", INFERENCE, "CPU:0"),
    ],
)
def test_function_variables_have_the_names_and_sizes_of_the_program(
    name: str, weights: dict[str, int], device: str
) -> None:
    (function,) = read_trace(TRACES / name)[1]["functions"]
    variables = [one for one in function["arguments"] if one["kind"] == "variable"]
    assert {one["name"].removesuffix(":0"): 4 * math.prod(json.loads(one["shape"])) for one in variables} == weights
    assert {one["device"].rpartition("device:")[2] for one in variables} == {device}
    assert {one["requested_device"].rpartition("device:")[2] for one in variables} == {device}


@pytest.mark.parametrize(
    ("name", "device"), [("cifar10_weights_on_cpu.pbtxt", "CPU:0"), ("cifar10_weights_on_gpu.pbtxt", "CPU:1")]
)
def test_session_variables_have_the_names_and_sizes_of_the_program(name: str, device: str) -> None:
    message, _ = read_trace(TRACES / name)
    variables = [node for graph in message.partition_graphs for node in graph.node if node.op == "VariableV2"]
    assert {node.name: 4 * math.prod(dim.size for dim in node.attr["shape"].shape.dim) for node in variables} == CIFAR10
    assert {node.device.rpartition("device:")[2] for node in variables} == {device}


def test_make_has_a_case_for_every_file() -> None:
    spec = importlib.util.spec_from_file_location("traces_make", TRACES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["traces_make"] = make  # dataclasses look their module up there
    try:
        spec.loader.exec_module(make)
    finally:
        del sys.modules["traces_make"]
    assert sorted(file for case in make.CASES.values() for file in case.files) == sorted(EXPECTED)
