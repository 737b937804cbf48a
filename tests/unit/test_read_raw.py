"""Files to RawTrace: every encoding gives the same, bad input gives one sentence, degraded input gives notes."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import (
    CPU0,
    GPU0,
    copy,
    function_graphs,
    gpu_lanes,
    graph,
    lane,
    node,
    op,
    output,
    recv,
    run_metadata,
    send,
)
from tests.read_reference import plain_columns, reference_columns
from tests.text_variants import random_message
from tests.wire_variants import field
from tfplace.errors import TfplaceError, UnreadableTraceError, UnsupportedFormatError
from tfplace.read import source
from tfplace.read.binary import columns
from tfplace.read.binary.wire import fields
from tfplace.read.protos import RunMetadata
from tfplace.read.raw import RawTrace
from tfplace.read.run_metadata import raw_from_bytes, raw_from_message, read_raw

STEP = run_metadata(
    partitions=[
        graph(CPU0, node("w", "VariableV2", dtype="float32", shape="[2,3]"), send("edge_1_w", "w", CPU0, GPU0)),
        graph(GPU0, recv("w/_1", "edge_1_w", CPU0, GPU0), node("y", "Relu", "w/_1", T="float32")),
    ],
    dev_stats=[
        lane(CPU0, op("w", "VariableV2", start=10, duration=2, outputs=[output(0, "float32", "[2,3]", 24)])),
        *gpu_lanes(0, copies=[copy("edge_1_w", "HtoD", 24, start=20, duration=3)]),
    ],
    functions=[function_graphs([graph(CPU0, node("f", "Const"))])],
)
SMALL = run_metadata(
    partitions=[graph("", node("p", "Const"), node("q", "Relu", "p"))],
    dev_stats=[
        lane("/gpu:0", op("a", "Const", start=1, duration=2, outputs=[output(0, "float32", "[2]", 8)])),
        lane("/cpu:0", op("b", "Relu", start=3, duration=2)),
    ],
)
CONTEXT = {"tf_version": "2.21.0", "note": "naïve"}


def same(one: RawTrace, other: RawTrace) -> bool:
    assert one.step_stats is not None
    assert other.step_stats is not None
    return (
        plain_columns(one.step_stats) == plain_columns(other.step_stats)
        and [(g.role, g.name) for g in one.graphs] == [(g.role, g.name) for g in other.graphs]
        and all(a.graph == b.graph for a, b in zip(one.graphs, other.graphs, strict=True))
    )


def test_every_encoding_of_a_step_gives_the_same() -> None:
    expected = raw_from_message(STEP, "step", "RunMetadata binary")
    assert expected.step_stats is not None
    assert plain_columns(expected.step_stats) == reference_columns(STEP.step_stats)
    assert [g.name for g in expected.graphs] == [
        "partition:0",
        "partition:1",
        "function:0/partition:0",
        "function:0/pre",
        "function:0/post",
    ]
    text = str(STEP)
    as_json = json_format.MessageToJson(STEP)
    encodings: dict[str, bytes] = {
        "RunMetadata text": text.encode(),
        "RunMetadata binary": STEP.SerializeToString(),
        "RunMetadata JSON": as_json.encode(),
    }
    for name, data in encodings.items():
        for packed, suffix in ((data, ""), (gzip.compress(data), " (gzip)")):
            raw = raw_from_bytes(packed, "any")
            assert raw.format == name + suffix
            assert same(raw, expected)
            assert raw.notes == []
    for odd in (
        b"\xef\xbb\xbf" + text.encode(),
        text.replace("\n", "\r\n").encode(),
        text.encode("utf-16"),
        ("# first\n" + text).encode(),
        text.replace("{", "<").replace("}", ">").encode(),
        json.dumps(text).encode(),
        json.dumps(as_json).encode(),
        gzip.compress(text.encode()[:100]) + gzip.compress(text.encode()[100:]),
    ):
        assert same(raw_from_bytes(odd), expected)


def test_step_stats_and_graphs_alone() -> None:
    for data in (str(STEP.step_stats).encode(), STEP.step_stats.SerializeToString()):
        raw = raw_from_bytes(data)
        assert raw.format.startswith("StepStats")
        assert raw.graphs == []
        assert raw.step_stats is not None
        assert plain_columns(raw.step_stats) == reference_columns(STEP.step_stats)
    alone = STEP.partition_graphs[1]
    for data in (str(alone).encode(), alone.SerializeToString(), json_format.MessageToJson(alone).encode()):
        raw = raw_from_bytes(data)
        assert raw.step_stats is None
        assert [(g.role, g.name) for g in raw.graphs] == [("graph", "graph:0")]
        assert raw.graphs[0].graph == alone


def test_pre_and_post_graphs_have_their_roles() -> None:
    message = RunMetadata()
    function = message.function_graphs.add()
    function.partition_graphs.add().node.add(name="a")
    function.pre_optimization_graph.node.add(name="b")
    function.post_optimization_graph.node.add(name="c")
    raw = raw_from_bytes(message.SerializeToString())
    assert [(g.role, g.name, g.graph.node[0].name) for g in raw.graphs] == [
        ("partition", "function:0/partition:0", "a"),
        ("pre", "function:0/pre", "b"),
        ("post", "function:0/post", "c"),
    ]
    assert raw.step_stats is None


def test_a_path_a_pipe_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.png"  # the name does not matter
    path.write_bytes(STEP.SerializeToString())
    assert read_raw(str(path)).source == str(path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(str(STEP).encode())))
    raw = read_raw("-")
    assert (raw.source, raw.format) == ("-", "RunMetadata text")
    reader, writer = os.pipe()
    os.write(writer, STEP.SerializeToString())
    os.close(writer)
    assert same(read_raw(f"/dev/fd/{reader}"), raw)
    os.close(reader)


# ---------------------------------------------------------------- what capture stored


def test_context_in_text_spans_comment_lines() -> None:
    stored = json.dumps(CONTEXT, ensure_ascii=False)
    for text in (
        f"# tfplace: {stored}\n{STEP}",
        f"{STEP}# tfplace: {stored[:20]}\n# tfplace: {stored[20:]}\n",
        f"# tfplace: {stored[:20]}\r\n# tfplace: {stored[20:]}\r\n" + str(STEP).replace("\n", "\r\n"),
    ):
        raw = raw_from_bytes(text.encode())
        assert raw.context == CONTEXT
        assert raw.notes == []


def test_context_in_binary_is_an_unknown_field() -> None:
    stored = json.dumps(CONTEXT).encode()
    raw = raw_from_bytes(STEP.SerializeToString() + field(20100, stored))
    assert raw.context == CONTEXT
    message = RunMetadata.FromString(STEP.SerializeToString() + field(20100, stored))
    assert raw_from_message(message).context == CONTEXT
    assert raw_from_message(STEP).context == {}


def test_no_context_is_taken_from_a_string() -> None:
    message = run_metadata(dev_stats=[lane(CPU0, op('x\n# tfplace: {"a": 1}', "Const", start=1, duration=1))])
    for data in (str(message).encode(), message.SerializeToString()):
        raw = raw_from_bytes(data)
        assert raw.context == {}
        assert raw.notes == []


@pytest.mark.parametrize("stored", ["{", "[1]", "\xff", "3"])
def test_damaged_context_is_a_note(stored: str) -> None:
    for data in (
        f"# tfplace: {stored}\n{STEP}".encode("latin-1"),
        STEP.SerializeToString() + field(20100, stored.encode("latin-1")),
    ):
        raw = raw_from_bytes(data)
        assert raw.context == {}
        assert [note.slug for note in raw.notes if note.slug != "invalid-utf8"] == ["context-damaged"]


# ---------------------------------------------------------------- degraded input


def events_of(raw: RawTrace) -> list[str]:
    return raw.step_stats.node_name if raw.step_stats else []


@pytest.mark.parametrize("encoding", ["text", "unusual text", "binary", "gzip text", "gzip binary"])
def test_a_file_cut_at_any_byte_gives_its_complete_part_or_one_error(encoding: str) -> None:
    text = str(SMALL).encode()
    data = SMALL.SerializeToString() if "binary" in encoding else text
    if encoding == "unusual text":
        data = text.replace(b" {\n", b" { # c\n")
    if "gzip" in encoding:
        data = gzip.compress(data)
    seen = set()
    for end in range(len(data) + 1):
        try:
            raw = raw_from_bytes(data[:end], "cut.pb")
        except TfplaceError as error:
            assert "cut.pb" in error.message
            continue
        events = events_of(raw)
        assert events == ["a", "b"][: len(events)]
        nodes = [n.name for g in raw.graphs for n in g.graph.node]
        assert nodes == ["p", "q"][: len(nodes)]
        assert raw.step_stats is None or raw.step_stats.device.tolist() == [0, 1][: len(events)]
        seen.add((len(events), len(nodes)))
        assert [note.slug for note in raw.notes] == ["truncated"] or "gzip" in encoding or is_complete(data, end)
    if "gzip" not in encoding:
        assert seen == {(1, 0), (2, 0), (2, 1), (2, 2)}


def is_complete(data: bytes, end: int) -> bool:
    """Tell whether the cut is just behind one of the outermost fields, where nobody can see it."""
    part = data[:end]
    if data[:1] == b"\x0a":
        return all(found.whole for found in fields(part, 0, end))
    return part.rstrip().endswith(b"}") and part.count(b"{") == part.count(b"}")


def test_the_note_of_a_cut_file_says_where_and_what_was_kept() -> None:
    data = str(STEP).encode()
    (note,) = raw_from_bytes(data[: data.index(b"partition_graphs") + 100], "a.pbtxt").notes
    assert note.text.startswith("a.pbtxt breaks off at line ")
    assert f"{len(events_of(raw_from_message(STEP)))} events" in note.text
    with pytest.raises(UnreadableTraceError, match="before its first complete event"):
        raw_from_bytes(data[:40], "a.pbtxt")


def test_strings_that_are_not_utf8_are_a_note() -> None:
    event = field(1, b"a\xff") + field(2, 5)
    raw = raw_from_bytes(field(1, field(1, field(1, "/gpu:0") + field(2, event))))
    assert events_of(raw) == ["a\ufffd"]
    assert [(note.slug, note.count) for note in raw.notes] == [("invalid-utf8", 1)]
    raw = raw_from_bytes(str(STEP).encode().replace(b'"w"', b'"w\xff"', 1))
    assert events_of(raw)[0] == "w\ufffd"
    assert [note.slug for note in raw.notes] == ["invalid-utf8"]


def test_unknown_fields_are_skipped_everywhere() -> None:
    plain = raw_from_message(STEP)
    text = (
        str(STEP)
        .replace("node_stats {", "node_stats { new_field { a: [1, 2] }", 1)
        .replace("node {", "node { newer: <b: 1>", 1)
    )
    assert same(raw_from_bytes(text.encode()), plain)
    as_json = json.loads(json_format.MessageToJson(STEP))
    as_json["newField"] = {"a": 1}
    as_json["stepStats"]["devStats"][0]["nodeStats"][0]["newField"] = [1, 2]
    assert same(raw_from_bytes(json.dumps(as_json).encode()), plain)


def test_a_very_long_name_is_kept_whole() -> None:
    name = "x" * 10_000 + "\x1b[31m<script>"
    message = run_metadata(dev_stats=[lane(CPU0, op(name, "Const", start=1, duration=1))])
    for data in (str(message).encode(), message.SerializeToString(), json_format.MessageToJson(message).encode()):
        assert events_of(raw_from_bytes(data)) == [name]


def test_lone_surrogates_in_json_are_replaced() -> None:
    as_json = '{"stepStats": {"devStats": [{"device": "d", "nodeStats": [{"nodeName": "a\\ud800"}]}]}}'
    assert events_of(raw_from_bytes(as_json.encode())) == ["a\ufffd"]


# ---------------------------------------------------------------- bad input


def refused(call: Any, *arguments: Any) -> TfplaceError:
    with pytest.raises(TfplaceError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no file" in refused(read_raw, str(tmp_path / "none.pb")).message
    assert "is a folder" in refused(read_raw, str(tmp_path)).message
    assert "device or a socket" in refused(read_raw, "/dev/null").message
    assert "no file has such a name" in refused(read_raw, "a\0b").message
    assert r"\x1b" in refused(read_raw, str(tmp_path / "\x1b[31m")).message
    path = tmp_path / "locked.pb"
    path.write_bytes(STEP.SerializeToString())

    def deny(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    def fail(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(source, "open", deny, raising=False)
    assert "permission denied" in refused(read_raw, str(path)).message
    monkeypatch.setattr(source, "open", fail, raising=False)
    assert "Input/output error" in refused(read_raw, str(path)).message


def test_closed_standard_input_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "empty" in refused(read_raw, "-").message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (gzip.compress(b"", mtime=0), "is empty (0 bytes)"),
        (b"step_stats { }\n", "no events and no graphs"),
        (field(1, b""), "no events and no graphs"),
        (b'{"stepStats": {}}', "no events and no graphs"),
        (b"\x1f\x8b\x08\x00cut", "breaks off at byte 7 of its compressed data"),
        (gzip.compress(b"step_stats {}" * 50, mtime=0)[:-8] + bytes(8), "gzip data do not decompress"),
        (gzip.compress(gzip.compress(b"step_stats {}", mtime=0), mtime=0), "gzip twice"),
        (b"step_stats { dev_stats { device: 5 } }\n", "no legal text of a RunMetadata: line 1, column 34"),
        (b'{"stepStats": {"devStats": 3}}', "is no RunMetadata in JSON"),
        (b'{"stepStats": {"devStats": [{"nodeStats": [{"allStartMicros": "x"}]}]}}', "is no RunMetadata in JSON"),
        (field(1, field(1, field(1, "d") + field(2, field(1, "n")))) + field(3, b"\x0a\x50"), "is damaged"),
    ],
)
def test_bad_content_is_one_sentence(data: bytes, words: str) -> None:
    error = refused(raw_from_bytes, data, "file.x")
    assert words in error.message
    assert "file.x" in error.message


def test_other_formats_are_refused_as_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "trace.pbtxt"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert isinstance(refused(read_raw, str(path)), UnsupportedFormatError)


# ---------------------------------------------------------------- manners


def test_progress_ascends_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH", 1)
    for data in (
        str(STEP).encode(),
        str(STEP).encode().replace(b"{", b"<").replace(b"}", b">"),
        STEP.SerializeToString(),
    ):
        seen: list[tuple[int, int]] = []
        raw_from_bytes(data, progress=lambda done, total, seen=seen: seen.append((done, total)))  # type: ignore[misc]
        assert seen
        assert all(0 < done <= total for done, total in seen)


def test_garbage_collection_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    raw_from_bytes(STEP.SerializeToString())
    refused(raw_from_bytes, b"step_stats { dev_stats { device: 5 } }\n")
    assert gc.isenabled()
    gc.disable()
    try:
        raw_from_bytes(STEP.SerializeToString())
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_tensorflow_is_not_imported() -> None:
    code = "import sys, tfplace.read.run_metadata; print('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 40), encoding=st.sampled_from(("text", "binary", "JSON", "gzip", "random")))
def test_whatever_the_bytes_there_is_a_trace_or_one_sentence(seed: int, encoding: str) -> None:
    rng = random.Random(seed)
    message = random_message(rng.choice(("RunMetadata", "StepStats", "GraphDef")), rng)
    made = {
        "text": lambda: str(message).encode(),
        "binary": message.SerializeToString,
        "JSON": lambda: json_format.MessageToJson(message).encode(),
        "gzip": lambda: gzip.compress(message.SerializeToString()),
        "random": lambda: rng.randbytes(100),
    }
    data = bytearray(made[encoding]())
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 1, 3, 50))] = rng.randbytes(rng.choice((0, 1, 4)))
    try:
        raw = raw_from_bytes(bytes(data), "any.pb")
    except TfplaceError as error:
        assert "any.pb" in error.message
        assert "\n" not in error.message
        return
    assert raw.step_stats is not None or raw.graphs
