"""A file is told by its content: the traces that tfplace reads, and what else people have beside them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from google.protobuf import json_format

from tests.builders import CPU0, graph, lane, node, op, run_metadata
from tests.wire_variants import double, field
from tfplace.errors import TfplaceError, UnreadableTraceError, UnsupportedFormatError
from tfplace.read.detect import detect
from tfplace.read.protos import GraphDef, RunMetadata, StepStats

STEP = run_metadata([graph(CPU0, node("x", "Const"))], [lane(CPU0, op("x", "Const", start=1, duration=2))])


def told(data: bytes | str) -> str:
    content = detect(data.encode() if isinstance(data, str) else data, "trace.any")
    return f"{content.kind} {content.encoding}"


def refused(data: bytes | str) -> TfplaceError:
    with pytest.raises(TfplaceError) as caught:
        told(data)
    assert "trace.any" in caught.value.message
    assert caught.value.message.endswith(".")
    return caught.value


MESSAGES = {"RunMetadata": STEP, "StepStats": STEP.step_stats, "GraphDef": STEP.partition_graphs[0]}


@pytest.mark.parametrize("kind", MESSAGES)
def test_text_binary_and_json_of_each_kind(kind: str) -> None:
    message = MESSAGES[kind]
    assert told(str(message)) == f"{kind} text"
    assert told(message.SerializeToString()) == f"{kind} binary"
    for names in (True, False):
        as_json = json_format.MessageToJson(message, preserving_proto_field_name=names)
        assert told(as_json) == f"{kind} JSON"
        assert told(json.dumps(as_json)) == f"{kind} JSON"
        assert told(json.dumps(json.dumps(as_json))) == f"{kind} JSON"
    assert told(json.dumps(str(message))) == f"{kind} text"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("# comment\n\n  # step_stats {\n dev_stats: {}", "StepStats"),
        ("step_stats<>", "RunMetadata"),
        ("partition_graphs [{}]", "RunMetadata"),
        ("function_graphs\n{\n}", "RunMetadata"),
        ("cost_graph { }\nstep_stats { }", "RunMetadata"),
        ("new_field: 3\nstep_stats { }", "RunMetadata"),
        ("new_field { step_stats: 1 }\nnode { }", "GraphDef"),
        ("version: 22\nnode { }", "GraphDef"),
        ("library {}", "GraphDef"),
        ("node { name: '\x01\x02' }", "GraphDef"),
    ],
)
def test_text_however_it_begins(text: str, kind: str) -> None:
    assert told(text) == f"{kind} text"


def test_binaries_with_new_fields_and_of_odd_content() -> None:
    new = field(900, b"new") + field(77, 5)
    assert told(STEP.SerializeToString() + new) == "RunMetadata binary"
    assert told(field(20100, '{"a": 1}')) == "RunMetadata binary"
    only_graphs = RunMetadata(partition_graphs=STEP.partition_graphs)
    assert told(only_graphs.SerializeToString()) == "RunMetadata binary"
    functions = RunMetadata()
    functions.function_graphs.add().partition_graphs.add().CopyFrom(STEP.partition_graphs[0])
    assert told(functions.SerializeToString()) == "RunMetadata binary"
    library = GraphDef()
    library.library.function.add().signature.name = "f"
    assert told(library.SerializeToString()) == "GraphDef binary"
    lanes = StepStats()
    lanes.dev_stats.add(device="/device:GPU:0")
    assert told(lanes.SerializeToString()) == "StepStats binary"
    mangled = field(1, field(1, field(1, b"/gpu:0") + field(2, field(1, b"\xff\xfe"))))
    assert told(mangled) == "RunMetadata binary"


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_binary_that_is_cut_off_is_still_what_it_was(kind: str) -> None:
    data = MESSAGES[kind].SerializeToString()
    for end in range(len(data) // 2, len(data)):
        assert told(data[:end]) == f"{kind} binary", end


PLANE = field(2, "/device:GPU:0") + field(3, field(1, 14) + field(2, "Stream #14"))
PLANE += field(5, field(1, 3) + field(2, field(1, 3) + field(2, "kind")))
ANY = field(1, "type.googleapis.com/tensorflow.profiler.PerGenericStepDetails")
META_GRAPH = field(1, field(4, "serve") + field(5, "2.4.0")) + field(2, STEP.partition_graphs[0].SerializeToString())


def records(*contents: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(one)) + b"crc1" + one + b"crc2" for one in contents)


EVENT = double(1) + field(3, "brain.Event:2")
OTHERS: list[tuple[bytes | str, str]] = [
    (field(1, PLANE) + field(4, "host"), "XSpace"),
    (field(1, field(1, 2) + PLANE), "XSpace"),
    ('planes {\n  name: "/host:CPU"\n}\n', "XSpace"),
    (field(1, field(1, 1) + field(2, field(1, "/host:CPU"))) + field(4, field(1, 1)), "local.trace"),
    (field(1, field(1, "gemm") + field(5, b"\1\1\1") + field(6, b"\1\1\1") + field(7, 99)), "kernel_stats"),
    (field(4, field(1, field(1, 1) + field(2, "Host") + field(3, "IDLE"))), "tensorflow_stats"),
    (field(2, field(2, double(1)) + field(4, ANY)) + field(3, b"") + field(6, b""), "overview page"),
    (field(2, double(1)) + field(4, ANY), "input pipeline"),
    (field(1, 1) + field(2, META_GRAPH), "SavedModel"),
    (META_GRAPH, "MetaGraphDef"),
    ("saved_model_schema_version: 1\nmeta_graphs {\n}", "SavedModel"),
    ('model_checkpoint_path: "model-3"\n', "checkpoint"),
    (b"\0" * 100 + bytes.fromhex("57fb808b247547db"), "checkpoint"),
    (records(EVENT), "events file (TensorBoard log) with no RunMetadata"),
    (records(EVENT, field(8, field(1, "step") + field(2, b""))), "1 RunMetadata in it, which is empty"),
    (records(EVENT, field(8, field(1, "step") + field(2, b"abc"))), "1 RunMetadata in it"),
    (
        records(
            EVENT,
            *[field(5, field(1, field(1, "b") + field(9, "graph_run_metadata_graph") + field(8, field(8, b""))))] * 2,
        ),
        "2 RunMetadata in it, all empty",
    ),
    (records(b"\x0a\x00example", b"more"), "TFRecord"),
    (json.dumps({"traceEvents": [{"name": "process_name", "args": {"name": "/device:GPU:0 Compute"}}]}), "Timeline"),
    (json.dumps({"metadata": {"highres-ticks": True}, "traceEvents": [{"ph": "M"}, {}]}), "trace.json"),
    (json.dumps({"schemaVersion": 1, "traceEvents": []}), "Kineto"),
    (json.dumps({"x": "y" * 2_000_000, "traceEvents": [], "schemaVersion": 1}), "Kineto"),
    (json.dumps({"traceEvents": [{"ph": "X", "cat": "gpu_memcpy"}]}), "Kineto"),
    ('[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1},\n', "Horovod"),
    ('{"traceEvents": [{"ph": "B", "name": "CYCLE_START"}, {}]}', "Horovod"),
    ('[{"ph": "X", "name": "a"}]', "timeline for Chrome"),
    ('{"memoryProfilePerAllocator": {"GPU_0_bfc": {}}}', "memory profile"),
    ('{"cells": [], "nbformat": 4}', "notebook"),
    ('{"a": 1, "b": 2, "c": 3, "d": 4}', "a, b, c, ..."),
    ("[1, 2]", "list"),
    ('"just a string"', "just a string"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
    (b"\x7fELF\2\1\1", "ELF"),
    (b"PK\3\4\x14\0", "zip"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x28\xb5\x2f\xfd\0", "zstd"),
    (b"\x80\4\x95", "pickle"),
    (b"\x1c\0\0\0TFL3", "Lite"),
    (b"\0" * 257 + b"ustar\0", "tar"),
    ("<!DOCTYPE html>\n<html>", "HTML"),
    ("\n<?xml version='1.0'?>", "XML"),
    ("#!/usr/bin/env python\nimport tensorflow as tf\n", "source"),
    ("import tensorflow as tf\n", "source"),
    ("# train\nfrom x import y\n", "source"),
    ("2020-01-01 10:00:00.1: I tensorflow/core", "log"),
    ("Traceback (most recent call last):\n", "log"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    ("a,b,c\n1,2,3\n", "begins with 'a,b,c'"),
    ("\x1b[31mred\n", "begins with '\\x1b[31mred'"),
    ("name: 3\n", "begins with 'name: 3'"),
    (bytes(range(200, 256)), "begins with the bytes c8 c9"),
    (field(1, b"\xff\0") + field(2, 5) + field(9, 1), "protobuf message of a kind"),
]


@pytest.mark.parametrize(("data", "words"), OTHERS)
def test_other_files_are_named_in_one_sentence_with_a_hint(data: bytes | str, words: str) -> None:
    error = refused(data)
    assert isinstance(error, UnsupportedFormatError)
    assert words in error.message
    assert error.hint
    assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b" \n\t\n", "blanks and comments only"),
        (b"# a\n# b", "blanks and comments only"),
        (b"{}", "without fields"),
        (b'{"stepStats": {"devStats": [', "breaks off at line 1"),
        (b'{"stepStats": {"devStats": "unclo', "breaks off"),
        (b'{"stepStats": nonsense}', "not legal at line 1, column 15"),
        (b"[" * 100_000, "nested"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
    ],
)
def test_empty_and_broken_files_are_unreadable(data: bytes, words: str) -> None:
    error = refused(data)
    assert isinstance(error, UnreadableTraceError)
    assert words in error.message


def test_a_binary_that_was_saved_as_text_is_said_to_be_damaged() -> None:
    plane = field(1, field(2, "/device:GPU:0") + b"".join(field(9, bytes([200 + i] * 40)) for i in range(9)))
    error = refused(plane.decode("utf-8", "replace").encode())
    assert isinstance(error, UnreadableTraceError)
    assert "XSpace" in error.message
    assert "saved as text" in error.message


def test_the_name_of_the_file_does_not_matter_and_is_made_printable() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"x\\x1b.pb is a PNG"):
        detect(b"\x89PNG\r\n\x1a\n", "x\x1b.pb")


@pytest.mark.parametrize("value", ["x", 5, None, True])
def test_json_that_is_no_object(value: Any) -> None:
    refused(json.dumps(value))
