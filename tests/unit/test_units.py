import pytest

from tfplace.units import (
    dtype_bytes,
    format_bytes,
    format_ms,
    format_ns,
    format_us,
    parse_shape,
    shape_bytes,
    shape_elements,
)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", 4),
        ("float32_ref", 4),
        ("half", None),
        ("float16", 2),
        ("bfloat16", 2),
        ("float8_e4m3fn", 1),
        ("complex128", 16),
        ("bool", 1),
        ("int4", 1),
        ("string", None),
        ("resource", None),
        ("variant", None),
        ("", None),
        (None, None),
    ],
)
def test_bytes_of_one_element(dtype, expected):
    assert dtype_bytes(dtype) == expected


def test_every_dtype_name_that_a_graph_can_hold_has_a_size_or_has_none_on_purpose():
    from tfplace.read.tables.graph import DTYPE_NAMES

    without = {name for name in DTYPE_NAMES.values() if dtype_bytes(name) is None}
    assert without == {"string", "resource", "variant", "string_ref", "resource_ref", "variant_ref"}


@pytest.mark.parametrize(
    ("shape", "sizes", "elements"),
    [
        ("[32,10]", (32, 10), 320),
        ("[]", (), 1),
        ("[0,5]", (0, 5), 0),
        ("[?,10]", None, None),
        ("[-1]", None, None),
        ("[1,]", None, None),
        ("garbage", None, None),
        (None, None, None),
    ],
)
def test_shapes_are_parsed_or_unknown(shape, sizes, elements):
    assert parse_shape(shape) == sizes
    assert shape_elements(shape) == elements


def test_size_is_elements_times_width_and_unknown_where_either_is():
    assert shape_bytes("float32", "[64,10]") == 2560
    assert shape_bytes("float64", "[]") == 8
    assert shape_bytes("float32", "[?,10]") is None
    assert shape_bytes("string", "[3]") is None
    assert shape_bytes(None, "[3]") is None


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (400, "400 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9600, "9.6 kB"),
        (393_216, "393 kB"),
        (999_950, "1.0 MB"),  # never '1000 kB'
        (4_300_000, "4.3 MB"),
        (1_073_741_824, "1.07 GB"),
        (5_504_029_632, "5.50 GB"),
        (3e20, "300 EB"),
        (-5000, "-5.0 kB"),
    ],
)
def test_sizes_for_people(num_bytes, text):
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "unknown"),
        (0, "0 ns"),
        (400, "400 ns"),
        (9_600, "9.60 us"),
        (342_000, "342 us"),
        (999_600, "1.00 ms"),
        (12_340_000, "12.3 ms"),
        (2_500_000_000, "2.50 s"),
        (1e12, "1000 s"),
        (-400, "-400 ns"),
    ],
)
def test_times_for_people(nanoseconds, text):
    assert format_ns(nanoseconds) == text


def test_times_given_in_other_units():
    assert format_us(0.36) == "360 ns"
    assert format_ms(0.36) == "360 us"
    assert format_ms(None) == format_us(None) == "unknown"
