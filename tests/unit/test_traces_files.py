"""The files in traces/ are small, parse, and hold what traces/README.md says (numbers worked out there by hand)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from tfplace import load
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
WEIGHTS, TOWER, SERVED = 4_273_192, 3_560_744, 2_634_792  # bytes of the variables of one model
IMAGES, LABELS = 128 * 24 * 24 * 3 * 4, 128 * 8  # of cifar10's batch
DENSE = 64 * 784 * 4  # a batch of 64 flat images
ROWS, IDS = 32 * 8 * 64 * 4, 32 * 8 * 8  # rows of the embedding that one batch looks up, and their numbers
KERAS_ROWS, KERAS_IDS = 64 * 16 * 64 * 4, 64 * 16 * 8
POOL_IN, POOL_OUT = 32 * 24 * 24 * 32 * 4, 32 * 16 * 16 * 32 * 4
GRADIENTS = 4 * (784 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 10 + 10)
MIRRORED = 4 * (784 * 256 + 256 + 256 * 10)

# file: copies down and their bytes, copies up (to the host) and their bytes
COPIES = {
    "cifar10_weights_on_cpu.pbtxt": (12, WEIGHTS + IMAGES + LABELS, 11, WEIGHTS + 4),
    "cifar10_weights_on_gpu.pbtxt": (2, IMAGES + LABELS, 1, 4),
    "cifar10_function_weights_on_cpu.pb": (12, WEIGHTS + IMAGES + LABELS, 10, WEIGHTS),
    "cifar10_function_weights_on_gpu.pb": (2, IMAGES + LABELS, 0, 0),
    "constant_on_cpu.pbtxt": (2, 50_000_000 + 16 * 1000 * 4, 1, 16 * 8),
    "cpu_accelerator_cifar10.pbtxt": (12, WEIGHTS + IMAGES + LABELS, 11, WEIGHTS + 4),
    "cpu_accelerator_embedding.pb": (3, ROWS + IDS + 256, 2, ROWS + IDS),
    "embedding_function_on_cpu.pb": (3, ROWS + IDS + 256, 2, ROWS + IDS),
    "embedding_on_cpu.pbtxt": (3, ROWS + IDS + 256, 4, ROWS + IDS + 4 + 4),
    "fetch_all_gradients.pbtxt": (2, DENSE + 512, 7, GRADIENTS + 4),
    "global_step_on_cpu.pbtxt": (3, 64 * 256 * 4 + 512 + 4, 1, 4),
    "inference_cpu_weights.pbtxt": (7, SERVED + 65_536, 1, 640),
    "inference_function_cpu_weights.pb.gz": (7, SERVED + 65_536, 0, 0),
    "input_dataset.pbtxt": (2, DENSE + 512, 1, 4),
    "input_feed.pbtxt": (2, DENSE + 512, 1, 4),
    "input_feed_steps/step_1.pb": (2, DENSE + 512, 1, 4),
    "input_feed_steps/step_2.pb": (2, DENSE + 512, 1, 4),
    "input_feed_steps/step_3.pb": (2, DENSE + 512, 1, 4),
    "int32_variable_soft_placement.pbtxt": (3, 64 * 1024 * 4 + 512 + 4_000, 2, 4_000 + 4),
    "keras_embedding_on_cpu.pb": (4, KERAS_ROWS + KERAS_IDS + 512 + 1, 4, KERAS_ROWS + KERAS_IDS + 4 + 1),
    "keras_fit.pb": (3, DENSE + 512 + 1, 2, 4 + 1),
    "keras_fit_prefetch_to_device.pb": (3, DENSE + 512 + 1, 2, 4 + 1),
    "mirrored_two_gpus.pb": (1, 4, 3, 12),
    "ping_pong_cpu_op.pbtxt": (4, 32 * 24 * 24 * 3 * 4 + 256 + POOL_OUT + POOL_IN, 3, POOL_IN + POOL_OUT + 4),
    "string_table.pbtxt": (2, 64 * 8 * 8 + 512, 1, 8),
    "two_towers_cpu_weights.pb": (16, 2 * (TOWER + 442_368 + 512), 14, 2 * (TOWER + 4)),
}
# Copies that are no edge of the graph: Keras' own between its calls, and what the prefetching thread brings.
WITHOUT_EDGE = {
    "keras_embedding_on_cpu.pb": (1, 2),
    "keras_fit.pb": (1, 2),
    "keras_fit_prefetch_to_device.pb": (3, 2),
}
GPUS = {"two_towers_cpu_weights.pb": 2, "mirrored_two_gpus.pb": 2}
SIMULATED = [path for path in FILES if not path.name.startswith("cpu_")]


def label(path: Path) -> str:
    return path.relative_to(TRACES).as_posix()


def case_of(path: Path) -> str:
    return path.parent.name if path.parent != TRACES else path.name.split(".")[0]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def read_trace(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return the message and the context; the context field must be the last one of a binary file."""
    data = plain(path)
    message = RunMetadata()
    if path.name.removesuffix(".gz").endswith(".pbtxt"):
        text = data.decode()
        context: dict[str, Any] = {}
        for line in text.split("\nstep_stats", 1)[0].splitlines():
            context |= json.loads(line.removeprefix("# tfplace: "))
        text_format.Parse(text, message, allow_unknown_field=True)
        return message, context
    message.ParseFromString(data)
    key = bytes((0xA2, 0xE8, 0x09))  # 20100 << 3 | 2 = 160802 as a varint
    start = data.rindex(key)
    length, begin = read_varint(data, start + len(key))
    assert begin + length == len(data)
    return message, json.loads(data[begin:])


def graphs(message: Any) -> list[Any]:
    return [*message.partition_graphs, *(g for f in message.function_graphs for g in f.partition_graphs)]


def device_of(text: bytes) -> str:
    return text.decode().rpartition("device:")[2]


def data_sends(message: Any) -> list[tuple[str, str, str]]:
    """Return (producer:slot, from, to) of each edge that carries data from one device to another."""
    sends = []
    for graph in graphs(message):
        for node in graph.node:
            if node.op in ("_Send", "_HostSend") and "/ctrl/_" not in node.input[0]:
                source = node.input[0] if ":" in node.input[0] else f"{node.input[0]}:0"
                ends = device_of(node.attr["send_device"].s), device_of(node.attr["recv_device"].s)
                sends.append((source, *ends))
    return sends


def direction(source: str, destination: str) -> str:
    if source == "CPU:0":
        return "H2D"
    return "D2H" if destination == "CPU:0" else "P2P"


def sizes(message: Any) -> dict[str, int]:
    """Return {'node:slot': bytes}: measured where the Session timed the step, from the static shapes elsewhere."""
    item = {1: 4, 9: 8}  # DT_FLOAT, DT_INT64
    static = {}
    for graph in graphs(message):
        shapes = {n.name: list(n.attr["_output_shapes"].list.shape) for n in graph.node if "_output_shapes" in n.attr}
        for node in graph.node:
            name, _, slot = node.input[0].partition(":") if node.op == "_Send" else ("", "", "")
            if name in shapes:
                shape = shapes[name][int(slot or 0)]
                static[f"{name}:{slot or 0}"] = item[node.attr["T"].type] * math.prod(dim.size for dim in shape.dim)
    measured = {
        f"{node.node_name}:{output.slot}": output.tensor_description.allocation_description.requested_bytes
        for device in message.step_stats.dev_stats
        for node in device.node_stats
        for output in node.output
    }
    return static | measured


def test_every_trace_has_its_expectation() -> None:
    assert sorted(label(path) for path in FILES) == sorted(COPIES)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_trace_is_under_300_kb_and_names_its_origin(path: Path) -> None:
    assert path.stat().st_size < 300_000
    message, context = read_trace(path)
    assert len(graphs(message)) >= (1 if "prefetch" in path.name else 2)
    assert context["script"] == f"traces/make.py {case_of(path)}"
    assert context["tf_version"].startswith("2.")
    assert context["faults"] == []
    assert context["kernels"]["ops"]["MatMul"]


@pytest.mark.parametrize("path", FILES, ids=label)
def test_trace_names_source_lines_and_no_folder_of_a_machine(path: Path) -> None:
    data = plain(path)
    programs = {name.decode() for name in re.findall(rb'"([^"]*\.py):\d+"', data)}
    assert len(programs - {"traces/make.py"}) == 1  # make.py calls the functions and so made their arguments
    assert all((TRACES.parent / name).is_file() for name in programs)
    assert not re.search(rb"site-packages|dist-packages|/home/|/root/|/usr/|/tmp/|/Users/|[A-Z]:\\\\", data)


@pytest.mark.parametrize("path", SIMULATED, ids=label)
def test_trace_says_that_it_is_simulated_with_gpus_and_memory(path: Path) -> None:
    _, context = read_trace(path)
    simulated = load(path).simulated
    assert simulated == context["simulated"]
    assert simulated is not None
    assert simulated.startswith(f"{GPUS.get(path.name, 1)} x ")
    assert "16 GB" in simulated
    assert "accelerator" not in context


def test_of_the_two_on_logical_cpus_one_says_which_plays_the_accelerator() -> None:
    first, second = (read_trace(TRACES / f"cpu_accelerator_{name}")[1] for name in ("cifar10.pbtxt", "embedding.pb"))
    assert first["accelerator"] == "CPU:1"
    assert "accelerator" not in second
    assert "simulated" not in first | second


@pytest.mark.parametrize("path", SIMULATED, ids=label)
def test_copies_are_those_worked_out_by_hand_and_those_that_the_device_counted(path: Path) -> None:
    message, context = read_trace(path)
    rows: dict[str, list[int]] = {}
    for lane in message.step_stats.dev_stats:
        for row in lane.node_stats if lane.device.endswith("/memcpy") else ():
            found = re.match(r"Memcpy(\w+) .*size:(\d+)", row.timeline_label)
            assert found is not None
            count, size = rows.get(found[1], (0, 0))
            rows[found[1]] = [count + 1, size + int(found[2])]
    down, down_bytes, up, up_bytes = COPIES[label(path)]
    by_hand = {"H2D": [down, down_bytes], "D2H": [up, up_bytes]}
    if path.name.startswith("mirrored"):
        by_hand["P2P"] = [2, 2 * MIRRORED]
    by_hand = {key: value for key, value in by_hand.items() if value != [0, 0]}
    assert rows == by_hand
    assert context["device_counted"] == by_hand


@pytest.mark.parametrize("path", FILES, ids=label)
def test_each_copy_has_its_edge_in_the_graph(path: Path) -> None:
    edges = Counter(direction(source, to) for _, source, to in data_sends(read_trace(path)[0]))
    down, _, up, _ = COPIES[label(path)]
    without_down, without_up = WITHOUT_EDGE.get(label(path), (0, 0))
    assert (edges["H2D"], edges["D2H"]) == (down - without_down, up - without_up)
    assert edges["P2P"] == (2 if path.name.startswith("mirrored") else 0)


@pytest.mark.parametrize("path", [path for path in FILES if path not in SIMULATED], ids=label)
def test_trace_on_logical_cpus_crosses_what_was_worked_out_by_hand(path: Path) -> None:
    message, _ = read_trace(path)
    size = sizes(message)
    down = [size[name] for name, source, _ in data_sends(message) if source == "CPU:0"]
    up = [size[name] for name, source, _ in data_sends(message) if source == "CPU:1"]
    assert (len(down), sum(down), len(up), sum(up)) == COPIES[label(path)]


@pytest.mark.parametrize("path", [path for path in FILES if "function" in path.name], ids=label)
def test_function_arguments_match_the_args_of_the_graph(path: Path) -> None:
    message, context = read_trace(path)
    (function,) = context["functions"]
    arguments = {argument["index"]: argument for argument in function["arguments"]}
    args = {node.attr["index"].i: node for g in graphs(message) for node in g.node if node.op == "_Arg"}
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
        ("cifar10_function_weights_on_gpu.pb", CIFAR10, "GPU:0"),
        ("inference_function_cpu_weights.pb.gz", INFERENCE, "CPU:0"),
    ],
)
def test_function_variables_have_the_names_and_sizes_of_the_program(
    name: str, weights: dict[str, int], device: str
) -> None:
    (function,) = read_trace(TRACES / name)[1]["functions"]
    variables = [one for one in function["arguments"] if one["kind"] == "variable"]
    assert {one["name"]: 4 * math.prod(json.loads(one["shape"])) for one in variables} == weights
    assert {one["device"].rpartition("device:")[2] for one in variables} == {device}
    assert {one["requested_device"].rpartition("device:")[2] for one in variables} == {device}


@pytest.mark.parametrize(
    ("name", "device"), [("cifar10_weights_on_cpu.pbtxt", "CPU:0"), ("cifar10_weights_on_gpu.pbtxt", "GPU:0")]
)
def test_session_variables_have_the_names_and_sizes_of_the_program(name: str, device: str) -> None:
    message, _ = read_trace(TRACES / name)
    variables = [node for graph in message.partition_graphs for node in graph.node if node.op == "VariableV2"]
    assert {node.name: 4 * math.prod(dim.size for dim in node.attr["shape"].shape.dim) for node in variables} == CIFAR10
    assert {node.device.rpartition("device:")[2] for node in variables} == {device}


def test_the_int32_variable_asked_for_the_gpu_and_is_on_the_cpu() -> None:
    trace = load(TRACES / "int32_variable_soft_placement.pbtxt")
    names = dict(zip(trace.devices["device_id"], trace.devices["name"], strict=True))
    nodes = trace.nodes.set_index("name")
    assert nodes.loc["seen", "requested_device"] == "/device:GPU:0"
    assert names[nodes.loc["seen", "device_id"]] == "CPU:0"
    assert names[nodes.loc["softmax/weights", "device_id"]] == "GPU:0"


def test_the_constant_of_50_mb_is_there_without_its_content() -> None:
    message, _ = read_trace(TRACES / "constant_on_cpu.pbtxt")
    (codebook,) = [node for graph in graphs(message) for node in graph.node if node.name == "codebook"]
    tensor = codebook.attr["value"].tensor
    assert [dim.size for dim in tensor.tensor_shape.dim] == [12_500, 1000]
    assert tensor.tensor_content == b""
    assert codebook.device.endswith("CPU:0")


def test_prefetch_to_device_puts_the_iterator_on_the_gpu() -> None:
    homes = {}
    for name in ("keras_fit.pb", "keras_fit_prefetch_to_device.pb"):
        message, _ = read_trace(TRACES / name)
        (node,) = [node for graph in graphs(message) for node in graph.node if node.op == "IteratorGetNext"]
        homes[name] = node.device.rpartition("device:")[2]
    assert homes == {"keras_fit.pb": "CPU:0", "keras_fit_prefetch_to_device.pb": "GPU:0"}


def test_make_has_a_case_for_every_file() -> None:
    spec = importlib.util.spec_from_file_location("traces_make", TRACES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    sys.modules["traces_make"] = make  # dataclasses look their module up there
    try:
        spec.loader.exec_module(make)
    finally:
        del sys.modules["traces_make"]
    assert sorted(file for case in make.CASES.values() for file in case.files) == sorted(COPIES)
