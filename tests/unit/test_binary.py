"""Binary traces: every column equals what protobuf itself reads, whatever legal form the bytes have."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.read_reference import plain_columns, reference_columns
from tests.text_variants import random_message
from tests.wire_variants import field, rewritten
from tfplace.read.binary import columns
from tfplace.read.binary.file import read_binary
from tfplace.read.binary.wire import WireError, device_block, fields, read_varint, whole_part, write_varint
from tfplace.read.protos import GraphDef, RunMetadata, StepStats, message_class
from tfplace.read.text.lenient import parse_lenient

KINDS = ("RunMetadata", "StepStats", "GraphDef")


def assert_equal(kind: str, decoded: Any, expected: Any) -> None:
    if kind != "GraphDef":
        stats = expected.step_stats if kind == "RunMetadata" else expected
        if kind == "RunMetadata" and not expected.HasField("step_stats"):
            assert decoded.step_stats is None
        else:
            assert plain_columns(decoded.step_stats) == reference_columns(stats)
    if kind == "RunMetadata":
        expected.ClearField("step_stats")
    if kind != "StepStats":
        expected.DiscardUnknownFields()
        decoded.message.DiscardUnknownFields()
        assert decoded.message == expected


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS), plain=st.booleans())
def test_every_column_equals_protobuf(seed: int, kind: str, plain: bool) -> None:
    rng = random.Random(seed)
    message = random_message(kind, rng)
    data = message.SerializeToString()
    if not plain:
        data = rewritten(data, rng, message.DESCRIPTOR)
    assert_equal(kind, read_binary(data, kind), message_class(kind).FromString(data))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS))
def test_damaged_bytes_are_an_error_or_what_protobuf_reads(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    data = bytearray(random_message(kind, rng).SerializeToString() or b"\x0a\x00")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 1, 1, 3))] = bytes([rng.randrange(256)])
    try:
        decoded = read_binary(bytes(data), kind)
    except WireError:
        return
    try:
        expected = message_class(kind).FromString(bytes(data))
    except DecodeError:
        return  # in a part that tfplace does not look at
    if decoded.step_stats is not None:
        stats = expected.step_stats if kind == "RunMetadata" else expected
        ours, theirs = plain_columns(decoded.step_stats), reference_columns(stats)
        del ours["thread_names"], theirs["thread_names"]  # protobuf drops entries that hold unknown fields
        assert ours == theirs


def step(*names: str) -> Any:
    message = RunMetadata()
    device = message.step_stats.dev_stats.add(device="/device:GPU:0")
    for number, name in enumerate(names):
        event = device.node_stats.add(node_name=name, all_start_micros=number)
        event.output.add(slot=1).tensor_description.shape.dim.add(size=number)
    return message


@pytest.mark.parametrize(
    "number", [0, 1, 127, 128, 2**14, 2**31, 2**49 - 1, 2**49, 2**56 - 1, 2**56, 2**62, 2**63 - 1, -1]
)
def test_numbers_of_every_length(number: int) -> None:
    stats = StepStats()
    event = stats.dev_stats.add().node_stats.add(all_start_nanos=number, scheduled_nanos=number, op_end_rel_micros=5)
    event.output.add().tensor_description.shape.dim.add(size=number)
    raw = read_binary(stats.SerializeToString(), "StepStats").step_stats
    assert raw is not None
    assert raw.times["all_start_nanos"].tolist() == [number]
    assert raw.times["scheduled_nanos"].tolist() == [number]
    assert raw.times["op_end_rel_micros"].tolist() == [5]
    assert raw.output_shape == ["[?]" if number == -1 else f"[{number}]"]


def test_absent_is_told_from_zero_and_unknown_rank() -> None:
    stats = StepStats()
    event = stats.dev_stats.add(device="d").node_stats.add()
    event.output.add()
    event.output.add().tensor_description.SetInParent()
    event.output.add().tensor_description.shape.SetInParent()
    event.output.add().tensor_description.shape.unknown_rank = True
    event.output.add().tensor_description.allocation_description.SetInParent()
    raw = read_binary(stats.SerializeToString(), "StepStats").step_stats
    assert raw is not None
    assert raw.output_shape == [None, None, "[]", None, None]
    assert raw.output_bytes.tolist() == [-1, -1, -1, -1, 0]
    assert raw.output_row.tolist() == [0] * 5


def test_many_events_over_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH", 7)
    message = step(*(f"n{i}" for i in range(50)))
    message.step_stats.dev_stats.add(device="empty")
    message.step_stats.dev_stats.add(device="b").node_stats.add(node_name="x" * 100_000)
    assert_equal("RunMetadata", read_binary(message.SerializeToString(), "RunMetadata"), message)


def test_names_that_are_not_utf8_are_kept_and_counted() -> None:
    event = field(1, b"a\xff") + field(8, "ok")
    node = (
        field(1, b"n\xfe")
        + field(2, "Op")
        + field(3, b"\xff:0")
        + field(5, field(1, "s") + field(2, field(2, b"\xff")))
    )
    data = field(1, field(1, field(1, b"d") + field(2, event))) + field(3, field(1, node))
    decoded = read_binary(data, "RunMetadata")
    assert decoded.step_stats is not None
    assert decoded.step_stats.node_name == ["a\ufffd"]
    (graph,) = decoded.message.partition_graphs
    assert (graph.node[0].name, graph.node[0].input[0]) == ("n\ufffd", "\ufffd:0")
    assert graph.node[0].attr["s"].s == b"\xff"  # bytes stay bytes
    assert decoded.mangled == 3


def test_lenient_parsing_still_refuses_what_is_no_message() -> None:
    with pytest.raises(DecodeError):
        parse_lenient("GraphDef", b"\x0a\x7f")


def test_several_step_stats_in_one_file_are_merged() -> None:
    data = step("a").SerializeToString() + step("b", "c").SerializeToString()
    assert_equal("RunMetadata", read_binary(data, "RunMetadata"), RunMetadata.FromString(data))


def test_a_file_cut_anywhere_keeps_its_complete_events_and_nodes() -> None:
    message = step("first", "second", "third")
    graph = message.partition_graphs.add()
    for name in ("p", "q"):
        graph.node.add(name=name, op="Const").attr["T"].type = 1
    data = message.SerializeToString()
    boundary = next(fields(data, 0, len(data))).end
    for end in range(1, len(data)):
        decoded = read_binary(data[:end], "RunMetadata")
        assert bool(decoded.cut) == (end != boundary), end
        names = decoded.step_stats.node_name if decoded.step_stats else []
        assert names == ["first", "second", "third"][: len(names)], end
        assert len(names) == 3 or end < boundary
        if names:
            assert decoded.step_stats is not None
            assert decoded.step_stats.device_names == ["/device:GPU:0"]
            assert decoded.step_stats.output_shape == [f"[{i}]" for i in range(len(names))]
        nodes = [node.name for graph in decoded.message.partition_graphs for node in graph.node]
        assert nodes == ["p", "q"][: len(nodes)]


def test_a_record_longer_than_its_message_is_damage_and_no_cut() -> None:
    event = field(1, "x")
    device = field(1, "d") + b"\x12\x50" + event  # says 0x50 bytes
    with pytest.raises(WireError) as caught:
        read_binary(field(1, field(1, device)) + field(3, b""), "RunMetadata")
    assert caught.value.offset == 9


@pytest.mark.parametrize("data", [b"\x07", b"\x00\x01", b"\xff" * 11, b"\x0c", b"\x0b\x14"])
def test_bytes_that_are_no_field_are_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        read_binary(data, "RunMetadata")


def test_damage_inside_a_graph_names_where_the_graph_begins() -> None:
    good = step("a").SerializeToString()
    with pytest.raises(WireError) as caught:
        read_binary(good + field(3, field(1, b"\x0a\x50")), "RunMetadata")
    assert caught.value.offset == len(good)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 20, (1 << 64) - 1])
def test_varints(value: int) -> None:
    data = write_varint(value)
    assert read_varint(data, 0, len(data)) == (value, len(data))
    assert read_varint(data, 0, len(data) - 1) == (-1, len(data) - 1)


def test_long_records_and_unknown_fields_between_events() -> None:
    device = field(2, field(1, "x" * 20_000)) + field(9, 1) + field(2, b"") + field(3, field(1, 7) + field(2, "main"))
    block = device_block(device, 0, len(device))
    assert [end - start for start, end in zip(block.starts, block.ends, strict=True)] == [20_004, 0]
    assert block.thread_names == {7: "main"}


def test_the_whole_part_of_function_graphs() -> None:
    message = RunMetadata()
    function = message.function_graphs.add()
    function.partition_graphs.add().node.add(name="a")
    function.pre_optimization_graph.node.add(name="b")
    function.pre_optimization_graph.node.add(name="c")
    data = message.SerializeToString()
    kept = RunMetadata.FromString(whole_part(data[:-1], 0, len(data) - 1, "RunMetadata"))
    del function.pre_optimization_graph.node[1]
    assert kept == message


def test_progress_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH", 2)
    seen: list[tuple[int, int]] = []
    data = step("a", "b", "c").SerializeToString()
    read_binary(data, "RunMetadata", lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [len(data)] * 2
    assert seen == sorted(seen)
    assert seen[-1][0] == len(data)


def test_a_graph_alone() -> None:
    graph = GraphDef()
    graph.node.add(name="x", op="Const")
    graph.versions.producer = 22
    assert_equal("GraphDef", read_binary(graph.SerializeToString(), "GraphDef"), graph)
