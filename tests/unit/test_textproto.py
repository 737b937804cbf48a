"""The reader of any legal protobuf text agrees with google.protobuf.text_format.Parse, or refuses as it does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text_variants import Writer, accepted, random_message, spoil
from tfplace.read.protos import message_class
from tfplace.read.text.tokenizer import TextError, TextResult, parse_text

KINDS = ("RunMetadata", "StepStats", "GraphDef")
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in protobuf's own reading


def parse(kind: str, text: str) -> TextResult:
    """Return the result with the node_stats put back into their messages."""
    root = message_class(kind)()
    result = parse_text(text.encode("utf-8"), root)
    if kind in ("RunMetadata", "StepStats") and not result.cut_line:
        stats = root.step_stats if kind == "RunMetadata" else root
        for device, block in zip(stats.dev_stats, result.blocks, strict=True):
            for start, end in zip(block.starts, block.ends, strict=True):
                device.node_stats.add().MergeFromString(bytes(result.data[start:end]))
    return result


def by_protobuf(kind: str, text: str) -> Any:
    return text_format.Parse(text, message_class(kind)(), allow_unknown_field=True)


def same(one: Any, other: Any) -> bool:
    return bool(one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS), odd=st.sampled_from((0.0, 0.1, 0.3, 0.6)))
def test_any_legal_text_reads_as_protobuf_reads_it(seed: int, kind: str, odd: float) -> None:
    rng = random.Random(seed)
    text = Writer(rng, odd).text(random_message(kind, rng))
    result = parse(kind, text)
    assert (result.cut_line, result.mangled) == (0, 0)
    assert same(result.message, by_protobuf(kind, text))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 40), kind=st.sampled_from(KINDS), odd=st.sampled_from((0.0, 0.3)))
def test_spoilt_text_is_refused_where_protobuf_refuses_it(seed: int, kind: str, odd: float) -> None:
    rng = random.Random(seed)
    text = spoil(Writer(rng, odd).text(random_message(kind, rng)), rng)
    try:
        expected = by_protobuf(kind, text)
    except (text_format.ParseError, ValueError):
        expected = None
    try:
        result = parse(kind, text)
    except TextError:
        assert expected is None
        return
    if result.mangled:  # protobuf refuses strings that are not UTF-8, tfplace counts them
        return
    if expected is None and not accepted("new_field: [{}]"):  # protobuf before 5 refuses more unknown fields
        return
    assert (expected is None) == bool(result.cut_line)
    assert expected is None or same(result.message, expected)


LEGAL = [
    'node { name: "x"; op: "y", }',
    'node <name: "x" op: "y">',
    'node: { name : "x" }',
    'node { name: "a" "b" \'c\' # comment\n  "d" input: [ "e" \'f\', "g" ] }',
    "node { name: 'quo\"te' }",
    "version: 0x1f",
    "version: 017",
    "version: -0",
    "version: 1_000",
    "versions { bad_consumers: [] }",
    "versions { bad_consumers: [1, 0x2, 03] bad_consumers: 4 }",
    "node [{ name: 'x' }, < name: 'y' >]",
    "node: [ ]",
    "node: [{}] node {}",
    "version: 0 version: 3",
    'node { attr { key: "a" value { i: -9223372036854775808 } } }',
    'node { attr { key: "a" value { f: 1.5f } } attr { key: "b" value { f: -inf } } }',
    'node { attr { key: "a" value { f: nan } } attr { key: "b" value { f: 1e3 } } }',
    'node { attr { key: "a" value { b: t } } attr { value { b: False } key: "b" } }',
    'node { attr { key: "a" value { type: 1 } } attr { key: "a" value { type: DT_INT32 } } }',
    'node { attr { key: "a" value { type: 999 } } }',
    'node { attr { key: "s" value { s: "\\x41\\101\\n\\\\\\"\\u00e9\\377" } } }',
    'node { attr { key: "l" value { list { s: ["a", "b" "c"] type: [DT_FLOAT, 3] b: [true, 0] f: [1, 2.5] } } } }',
    "new_field: 5 node {}",
    'new_field: "a" "b" node {}',
    "new_field { deep { er: [1, inf, A, 'x'] } [ext.name] { a: 1 } [type.googleapis.com/a.B]: 4 } node {}",
    *(["new_field: [{ a: 1 }, <>] node {}"] if accepted("new_field: [{}]") else []),
    "7: 8 node {}",
    "new-field+: word node {}",
    "\ufeffnode {}"[1:],
    "\tnode\v{\f}\u2003",
    "# only a comment",
    "node {\r\n}\r\n",
    "",
]


@pytest.mark.parametrize("text", LEGAL)
def test_legal_forms(text: str) -> None:
    assert same(parse("GraphDef", text).message, by_protobuf("GraphDef", text))


ILLEGAL = [
    ("node { name: x }", 1, 14),
    ("node { name: 5 }", 1, 14),
    ('node { name: "a" name: "b" }', 1, 24),
    ("version: 1 version: 2", 1, 21),
    ("versions {} versions {}", 1, 22),
    ('node { attr { key: "a" value { i: 1 s: "b" } } }', 1, 40),
    ("version: 08", 1, 10),
    ("version: 1.5", 1, 10),
    ("version: 99999999999", 1, 10),
    ("version: [1]", 1, 10),
    ("versions { bad_consumers: [1,, 2] }", 1, 30),
    ("versions { bad_consumers: [1 2] }", 1, 30),
    ("node [{} {}]", 1, 10),
    ("node [{},]", 1, 10),
    ("node [{}; {}]", 1, 8),
    ('node { name: "unclosed }\n }', 1, 14),
    ('node { name: "bad \\x" }', 1, 14),
    ('node {\n  name "x"\n}', 2, 8),
    ('node {\n  op: "y";;\n}', 2, 11),
    ("node { }}", 1, 9),
    ("node { >", 1, 8),
    ("[a.b] { }", 1, 1),
    ("version: = 3", 1, 10),
    ("\u00e9\u00e9: 1", 1, 1),
    ("new_field: 0x1g", 1, 12),
    ("new_field: [1 2]", 1, 15),
    ("new_field { a 5 }", 1, 15),
    ("new_field { ] }", 1, 13),
]


@pytest.mark.parametrize(("text", "line", "column"), ILLEGAL)
def test_illegal_forms_are_refused_with_line_and_column(text: str, line: int, column: int) -> None:
    text += "\n"
    with pytest.raises((text_format.ParseError, ValueError)):
        by_protobuf("GraphDef", text)
    with pytest.raises(TextError) as caught:
        parse("GraphDef", text)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)


def test_an_error_far_into_a_long_text_names_its_line() -> None:
    text = "".join(f'node {{\n  name: "n{i}"\n}}\n' for i in range(40_000))
    with pytest.raises(TextError) as caught:
        parse("GraphDef", text + "node {\n  name: 5\n}\n" + text)
    assert (caught.value.line, caught.value.column) == (120_002, 9)


def test_text_on_one_line_is_read_whatever_its_length() -> None:
    text = "".join(f'node {{ name: "n{i}" }} ' for i in range(100_000))
    assert [node.name for node in parse("GraphDef", text).message.node[99_998:]] == ["n99998", "n99999"]
    with pytest.raises(TextError) as caught:
        parse("GraphDef", text + "} " + text)
    assert (caught.value.line, caught.value.column) == (1, len(text) + 1)


def test_a_string_of_many_escapes_is_one_string() -> None:
    data = bytes(range(256)) * 2000
    escaped = "".join(f"\\{byte:03o}" if byte != 34 else '\\"' for byte in data)
    message = parse("GraphDef", f'node {{ attr {{ key: "v" value {{ s: "{escaped}" }} }} }}').message
    assert message.node[0].attr["v"].s == data


def test_strings_that_are_not_utf8_are_kept_and_counted() -> None:
    text = b'node { name: "a\xff" op: "\\377b" input: "c" }'
    result = parse_text(text, message_class("GraphDef")())
    node = result.message.node[0]
    assert (node.name, node.op, node.input[0], result.mangled) == ("a\ufffd", "\ufffdb", "c", 2)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('node { name: "a" }\nnode { name: "b" attr { key: "k', ["a"]),
        ('node { name: "a" }\nnode { name: "b', ["a"]),
        ('node { name: "a" }\nnode { name', ["a"]),
        ('node { name: "a" }\nno', ["a"]),
        ('node { name: "a" }\nnode [{ name: "b" }, { name: "c" ', ["a", "b"]),
        ('node { name: "a" }\nnew_field { x: [1, ', ["a"]),
        ('node { name: "a" }\nnew_field { x: { y: 0x', ["a"]),
        ('node { name: "a" }\nversions { producer: 2', ["a"]),
        ('node { name: "a" }\nversions:', ["a"]),
    ],
)
def test_text_that_breaks_off_keeps_what_was_complete(text: str, names: list[str]) -> None:
    result = parse("GraphDef", text)
    assert result.cut_line == 2
    assert [node.name for node in result.message.node] == names
    assert not result.message.HasField("versions")


def test_events_before_the_break_are_kept_with_their_device() -> None:
    text = 'step_stats { dev_stats { device: "d" node_stats { node_name: "a" } node_stats { node_name: "b'
    result = parse_text(text.encode(), message_class("RunMetadata")())
    assert [(block.name, len(block.starts)) for block in result.blocks] == [("d", 1)]


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    deep = 'attr { key: "f" value { func { ' * 400 + "} } } " * 400
    with pytest.raises(TextError, match="nested"):
        parse("GraphDef", f"node {{ {deep} }}")
    skipped = "new_field { " * 100_000
    assert parse("GraphDef", skipped).cut_line == 1
