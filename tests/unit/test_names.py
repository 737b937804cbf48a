import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.names import DeviceName, edge_producer, parse_device, printable, strip_suffix

JOB = {"job": "localhost", "replica": 0, "task_index": 0}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:0", DeviceName(**JOB, type="GPU", ordinal=0)),
        ("/job:localhost/replica:0/task:0/cpu:0", DeviceName(**JOB, type="CPU", ordinal=0)),
        ("/gpu:1/memcpy", DeviceName(type="GPU", ordinal=1, lane="memcpy")),
        ("/device:GPU:0/stream:all", DeviceName(type="GPU", ordinal=0, lane="stream:all")),
        ("/device:GPU:0/stream:14<MemcpyH2D>", DeviceName(type="GPU", ordinal=0, lane="stream:14<MemcpyH2D>")),
        ("/device:GPU:0/sync", DeviceName(type="GPU", ordinal=0, lane="sync")),
        (
            "/gpu:0 (Quadro P5000)/context#0/stream#2:MemcpyHtoD",
            DeviceName(type="GPU", ordinal=0, lane="context#0/stream#2:MemcpyHtoD", model="Quadro P5000"),
        ),
        ("/host:CPU", DeviceName(type="CPU", host_threads=True)),
        ("GPU:1", DeviceName(type="GPU", ordinal=1)),
        ("/device:CPU:1", DeviceName(type="CPU", ordinal=1)),
        ("gpu", DeviceName(type="GPU")),
        ("/device:GPU:*", DeviceName(type="GPU")),
        ("/device:XLA_GPU:0", DeviceName(type="XLA_GPU", ordinal=0)),
        ("/job:ps/task:3", DeviceName(job="ps", task_index=3)),
        ("", DeviceName()),
        ("hello", DeviceName()),
    ],
)
def test_device_names_of_every_era(name, expected):
    assert parse_device(name) == expected


def test_parts_of_a_device_name():
    name = parse_device("/job:worker/replica:0/task:1/device:XLA_GPU:2")
    assert (name.task, name.kind, name.short, name.is_full) == (
        "/job:worker/replica:0/task:1",
        "OTHER",
        "XLA_GPU:2",
        True,
    )
    assert (parse_device("/gpu:0/memcpy").task, parse_device("/gpu:0/memcpy").is_full) == (None, False)
    assert parse_device("nothing").short == ""


def test_a_number_too_long_for_a_device_is_no_number():
    assert parse_device("/device:GPU:99999999999999999999").ordinal is None


@given(st.text())
def test_no_device_name_is_too_odd(text):
    parse_device(text)
    parse_device("/job:" + text + "/device:GPU:0" + text)


@pytest.mark.parametrize(
    ("edge", "producer"),
    [
        ("edge_9_x", "x"),
        ("edge_9__arg_Placeholder_0_0", "_arg_Placeholder_0_0"),
        ("edge__recv_Placeholder_0", "_recv_Placeholder_0"),
        ("edge_12_a/b_3", "a/b_3"),
        ("Placeholder:0", "Placeholder"),
        ("a/b:12", "a/b"),
        ("plain", None),
        (":0", None),
    ],
)
def test_producer_in_an_edge_name(edge, producer):
    assert edge_producer(edge) == producer


def test_only_the_partitioners_suffix_is_stripped():
    assert strip_suffix("x/_5") == "x"
    assert strip_suffix("while/loop/_29/_23") == "while/loop/_29"
    assert strip_suffix("x_5") == "x_5"
    assert strip_suffix("x/_5a") == "x/_5a"
    assert strip_suffix("/_5") == "/_5"


def test_printable_leaves_good_names_alone():
    assert printable("conv1/weights/Ädam") == "conv1/weights/Ädam"
    assert printable(None) == ""


def test_printable_shows_what_would_act_on_a_terminal():
    assert printable("a\x1b[31mb") == "a\\x1b[31mb"
    assert printable("a\u202eb") == "a\\u202eb"
    assert printable("two\nlines\r") == "two\\nlines\\r"
    assert printable("\ud800") == "\\ud800"


def test_printable_keeps_both_ends_of_a_long_name():
    text = printable("start" + "x" * 10_000 + "end", limit=40)
    assert len(text) == 40
    assert text.startswith("start")
    assert text.endswith("end")
    assert "…" in text


@given(st.text(), st.integers(min_value=4, max_value=60))
def test_printable_is_always_printable_and_short(text, limit):
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
