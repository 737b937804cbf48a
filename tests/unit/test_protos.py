"""The schema of the private pool is TensorFlow's own, as far as it goes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tfplace.read import protos
from tfplace.read.protos import lenient_class, message_class

COMPARE = """
from tfplace.read import protos
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2

theirs = config_pb2.RunMetadata.DESCRIPTOR.file.pool
ours = protos.message_class("RunMetadata").DESCRIPTOR.file.pool
for name in protos._MESSAGES:
    mine, original = (pool.FindMessageTypeByName("tensorflow." + name) for pool in (ours, theirs))
    for field in mine.fields:
        other = original.fields_by_number[field.number]
        for attribute in ("name", "type", "has_presence"):
            assert getattr(field, attribute) == getattr(other, attribute), (name, field.name, attribute)
        repeated = "is_repeated" if hasattr(field, "is_repeated") else "label"
        assert getattr(field, repeated) == getattr(other, repeated), (name, field.name)
        if field.message_type:
            assert field.message_type.full_name == other.message_type.full_name
            assert field.message_type.GetOptions().map_entry == other.message_type.GetOptions().map_entry
        assert (field.containing_oneof is None) == (other.containing_oneof is None), (name, field.name)
known = {value.name: value.number for value in ours.FindEnumTypeByName("tensorflow.DataType").values}
for value in types_pb2._DATATYPE.values:
    assert known[value.name] == value.number, value.name
print("equal")
"""


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="compares with TensorFlow's own descriptors")
def test_numbers_and_types_of_all_fields_are_tensorflows() -> None:
    run = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "equal", run.stderr[-2000:]


def test_references_follow_their_types_by_a_hundred() -> None:
    types = message_class("TensorDescription").DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
    assert types["DT_FLOAT"].number == 1
    assert types["DT_FLOAT_REF"].number == 101
    assert types["DT_RESOURCE"].number == protos.DATA_TYPES.index("RESOURCE") == 20


def test_an_attribute_that_is_zero_is_told_from_none() -> None:
    value = message_class("AttrValue")
    assert value(i=0).WhichOneof("value") == "i"
    assert value().WhichOneof("value") is None


def test_the_lenient_twin_reads_the_same_bytes() -> None:
    device = message_class("DeviceStepStats")(device="d", thread_names={3: "main"})
    twin = lenient_class("DeviceStepStats").FromString(device.SerializeToString())
    assert twin.device == b"d"
    assert [(entry.key, entry.value) for entry in twin.thread_names] == [(3, b"main")]
    assert twin.SerializeToString() == device.SerializeToString()
