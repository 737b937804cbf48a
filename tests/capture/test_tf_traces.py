"""TensorFlow's own parsers and its Timeline take every file in traces/."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
FILES = sorted(path for path in TRACES.rglob("*") if path.name.endswith((".pb", ".pbtxt", ".pb.gz", ".pbtxt.gz")))


def parsed(path):
    from google.protobuf import text_format
    from tensorflow.core.protobuf import config_pb2

    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    message = config_pb2.RunMetadata()
    if ".pbtxt" in path.name:
        text_format.Parse(data.decode(), message)
    else:
        message.ParseFromString(data)
    return message


def test_no_file_is_passed_over():
    assert len(FILES) >= 20
    assert {path.suffix for path in FILES} == {".pb", ".pbtxt", ".gz"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_tensorflow_parses_every_trace_and_draws_its_timeline(path):
    from tensorflow.python.client import timeline

    message = parsed(path)
    graphs = [*message.partition_graphs, *(one for each in message.function_graphs for one in each.partition_graphs)]
    assert any(graph.node for graph in graphs)
    rows = [row for lane in message.step_stats.dev_stats for row in lane.node_stats]
    assert rows
    drawn = json.loads(timeline.Timeline(message.step_stats).generate_chrome_trace_format(show_memory=False))
    bars = [event for event in drawn["traceEvents"] if event["ph"] == "X"]
    assert bars
    assert all(event["dur"] >= 0 for event in bars)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_trace_comes_back_unchanged_from_tensorflows_binary_and_text_forms(path):
    from google.protobuf import text_format

    message = parsed(path)
    assert type(message).FromString(message.SerializeToString()) == message
    assert text_format.Parse(text_format.MessageToString(message), type(message)()).ByteSize() > 0
