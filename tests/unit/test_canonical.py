"""Canonical text is read the fast way, equal to protobuf in every column; anything else never is."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.read_reference import plain_columns, reference_columns
from tests.text_variants import random_message, spoil
from tfplace.read.protos import GraphDef, RunMetadata, message_class
from tfplace.read.text import canonical, graphtext
from tfplace.read.text.file import read_any, read_plain, read_text
from tfplace.read.text.gate import NotCanonical
from tfplace.read.text.tokenizer import TextError

KINDS = ("RunMetadata", "StepStats", "GraphDef")
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in protobuf's own reading


def stats_of(kind: str, message: Any) -> Any:
    """Return the StepStats of a message, None where it has none."""
    if kind == "RunMetadata":
        return message.step_stats if message.HasField("step_stats") else None
    return message if kind == "StepStats" else None


def graphs_of(kind: str, message: Any) -> list[bytes]:
    if kind == "StepStats":
        return []
    graphs = [message] if kind == "GraphDef" else [*message.partition_graphs, *message.function_graphs]
    return [graph.SerializeToString(deterministic=True) for graph in graphs]


def assert_equal(kind: str, decoded: Any, expected: Any) -> None:
    stats = stats_of(kind, expected)
    assert (decoded.step_stats is None) == (stats is None)
    if stats is not None:
        assert plain_columns(decoded.step_stats) == reference_columns(stats)
    assert graphs_of(kind, decoded.message) == graphs_of(kind, expected)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS), writer=st.sampled_from(("str", "text_format")))
def test_what_protobuf_writes_goes_the_fast_way_and_is_equal(seed: int, kind: str, writer: str) -> None:
    message = random_message(kind, random.Random(seed))
    text = str(message) if writer == "str" else text_format.MessageToString(message)
    assert_equal(kind, read_plain(text.encode(), kind), message)
    assert_equal(kind, read_any(text.encode(), kind), message)


def spoil_lines(text: str, rng: random.Random) -> str:
    """Return text with some lines doubled, dropped, exchanged, moved in or lengthened."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        change = rng.randrange(6)
        if change == 0:
            lines.insert(at, lines[other])
        elif change == 1 and len(lines) > 1:
            del lines[at]
        elif change == 2:
            lines[at], lines[other] = lines[other], lines[at]
        elif change == 3:
            lines[at] = "  " + lines[at]
        elif change == 4:
            lines[at] = lines[at].replace(": ", ": 0")
        else:
            lines[at] += rng.choice((" ", ";", "}", " {", '"', ' "x"', "0", " # c"))
    return "\n".join(lines)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS), by_line=st.booleans())
def test_text_that_is_no_longer_canonical_is_read_or_refused_as_by_protobuf(
    seed: int, kind: str, by_line: bool
) -> None:
    rng = random.Random(seed)
    text = (spoil_lines if by_line else spoil)(str(random_message(kind, rng)), rng)
    try:
        expected = text_format.Parse(text, message_class(kind)(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError):
        expected = None
    try:
        decoded = read_text(text.encode(), kind)
    except TextError:
        assert expected is None
        return
    if decoded.mangled:
        return
    assert (expected is None) == bool(decoded.cut)
    if expected is not None:
        assert_equal(kind, decoded, expected)


CANONICAL = """step_stats {
  dev_stats {
    device: "/device:GPU:0"
    node_stats {
      node_name: "x"
      all_start_micros: 31
      output {
        slot: 1
        tensor_description {
          dtype: DT_FLOAT
          shape {
            dim {
              size: 32
            }
          }
        }
      }
      timeline_label: "x = Const()"
    }
  }
}
"""
TWISTS = [
    ("all_start_micros: 31", "all_start_micros: 31;"),
    ("all_start_micros: 31", "all_start_micros: 31 # c"),
    ("all_start_micros: 31", "all_start_micros: 0x1f"),
    ("all_start_micros: 31", "all_start_micros: 037"),
    ("all_start_micros: 31", "all_start_micros: 31 op_end_rel_micros: 5"),
    ("all_start_micros: 31", "all_start_micros:31"),
    ("all_start_micros: 31", "all_start_micros: +31"),
    ("node_stats {", "node_stats: {"),
    ("node_stats {", "node_stats <"),
    ("node_stats {", "node_stats {  "),
    ('node_name: "x"', 'node_name: "x" "y"'),
    ('node_name: "x"', "node_name: 'x'"),
    ('node_name: "x"', 'node_name: "x"\n      "y"'),
    ('node_name: "x"', 'new_field: 1\n      node_name: "x"'),
    ("      all_start", "\tall_start"),
    ("      all_start", "     all_start"),
    ("size: 32", "size: [32]"),
    ("dtype: DT_FLOAT", "dtype: 1"),
    ("dtype: DT_FLOAT", "dtype: DT_WHATEVER"),
    ("slot: 1", "slot: 4294967296"),
    ("slot: 1", "slot: -0"),
    ("slot: 1", "slot: 1\n        slot: 2"),
    ("step_stats {", "# comment\nstep_stats {"),
    ("step_stats {", "step_stats {\n  # comment"),
    ("step_stats {", "\n\nstep_stats {"),
    ("step_stats {", "step_stats {\n\n"),
]


@pytest.mark.parametrize(("old", "new"), TWISTS)
def test_one_twist_is_never_misread(old: str, new: str) -> None:
    text = CANONICAL.replace(old, new, 1)
    try:
        expected = text_format.Parse(text, RunMetadata(), allow_unknown_field=True)
    except text_format.ParseError:
        with pytest.raises(TextError):
            read_text(text.encode(), "RunMetadata")
        return
    assert_equal("RunMetadata", read_text(text.encode(), "RunMetadata"), expected)


@pytest.mark.parametrize(
    "text",
    [
        CANONICAL,
        CANONICAL.replace("31", "-9223372036854775808"),
        CANONICAL.replace("DT_FLOAT", "77"),
        "\n# c\n" + CANONICAL + "# d\n",
    ],
)
def test_comments_and_blanks_outside_all_braces_do_not_slow_it_down(text: str) -> None:
    expected = text_format.Parse(text, RunMetadata())
    assert_equal("RunMetadata", read_plain(text.encode(), "RunMetadata"), expected)


@pytest.mark.parametrize("size", [1, 50, 100, 200, 1000])
def test_chunks_keep_every_event_on_its_device(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    message = RunMetadata()
    for lane in range(5):
        device = message.step_stats.dev_stats.add(device=f"/device:GPU:{lane}")
        for number in range(lane * 7):
            device.node_stats.add(node_name=f"n{lane}_{number}", all_start_micros=number).output.add(slot=number)
        device.thread_names[lane] = "main"
    monkeypatch.setattr(canonical, "_CHUNK", size)
    for kind, held in (("RunMetadata", message), ("StepStats", message.step_stats)):
        assert_equal(kind, read_plain(str(held).encode(), kind), held)


def test_a_second_name_of_a_device_in_a_later_chunk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "_CHUNK", 1)
    event = '    node_stats {\n      node_name: "x"\n    }\n'
    text = f'step_stats {{\n  dev_stats {{\n    device: "a"\n{event}    device: "b"\n{event}  }}\n}}\n'
    with pytest.raises(NotCanonical):
        read_plain(text.encode(), "RunMetadata")


def test_strings_with_escapes_of_all_kinds_and_other_scripts() -> None:
    message = RunMetadata()
    device = message.step_stats.dev_stats.add(device="naïve ✓ \\ \" '")
    for name in ("plain", 'a"b', "tab\t", "✓", "\\", "\\\\", "x\\", "\x00", "# {", "x" * 10_000, ""):
        device.node_stats.add(node_name=name, timeline_label=name[::-1])
    for text in (str(message), text_format.MessageToString(message, as_utf8=True)):
        assert_equal("RunMetadata", read_plain(text.encode(), "RunMetadata"), message)


def test_bytes_that_are_not_utf8_are_replaced_and_counted() -> None:
    decoded = read_plain(CANONICAL.encode().replace(b"x = Const()", b"x = \xff"), "RunMetadata")
    assert decoded.step_stats is not None
    assert decoded.step_stats.timeline_label == ["x = \ufffd"]
    assert decoded.mangled == 1


def test_a_graph_whose_attributes_look_balanced_only_together_is_not_canonical() -> None:
    text = (
        'node {\n  name: "a"\n  attr {\n    key: "k"\n    value {\n      i: 1\n    }\n    }\n  }\n'
        'other {\n  attr {\n    key: "l"\n    value {\n      i: 2\n    }\n  }\n}\n'
    )
    expected = text_format.Parse(text, GraphDef(), allow_unknown_field=True)
    assert len(expected.node[0].attr) == 1
    assert_equal("GraphDef", read_text(text.encode(), "GraphDef"), expected)


@pytest.mark.parametrize(
    "text",
    [
        "versions {\n  producer: 1\n}\nversions {\n  producer: 2\n}\n",
        'node {\n  name: "a"\n  name: "b"\n}\n',
        'node {\n  op: "a"\n  name: "b"\n  op: "c"\n}\n',
        'node {\n  attr {\n    key: "a"\n    key: "b"\n  }\n}\n',
        "node {\n  experimental_debug_info {\n  }\n  experimental_debug_info {\n  }\n}\n",
    ],
)
def test_repeated_fields_of_graphs_that_may_not_repeat_are_refused(text: str) -> None:
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, GraphDef(), allow_unknown_field=True)
    with pytest.raises(TextError):
        read_text(text.encode(), "GraphDef")


def test_equal_attributes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    real = graphtext.parse_text

    def counting(data: bytes, *rest: Any, **named: Any) -> Any:
        read.append(data)
        return real(data, *rest, **named)

    monkeypatch.setattr(graphtext, "parse_text", counting)
    graph = GraphDef()
    for number in range(100):
        graph.node.add(name=f"n{number}").attr["T"].type = 1
    assert_equal("GraphDef", read_plain(str(graph).encode(), "GraphDef"), graph)
    assert sum(data.count(b"attr") for data in read) == 1


def test_cost_graphs_and_other_unknown_fields_are_passed_over() -> None:
    text = 'cost_graph {\n  node {\n    name: "x"\n    id: 3\n    is_final: true\n  }\n}\n' + CANONICAL
    assert_equal("RunMetadata", read_plain(text.encode(), "RunMetadata"), text_format.Parse(CANONICAL, RunMetadata()))
    for broken in (text.replace("id: 3", "id: 3 }"), text.replace("  }\n}\nstep", "  }\n}\n}\nstep")):
        with pytest.raises(TextError):
            read_text(broken.encode(), "RunMetadata")
