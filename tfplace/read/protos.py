"""The few TensorFlow messages a trace is made of, in a descriptor pool of our own.

A private pool takes 0.04 s instead of the seconds of `import tensorflow`, and never clashes with
TensorFlow's own registrations when both are in one process.

Source: tensorflow/core/framework/{step_stats,graph,node_def,attr_value,tensor_shape,tensor,
function,types,allocation_description,tensor_description,op_def}.proto and
tensorflow/core/protobuf/config.proto (RunMetadata).
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _F.TYPE_INT32,
    "int64": _F.TYPE_INT64,
    "uint32": _F.TYPE_UINT32,
    "uint64": _F.TYPE_UINT64,
    "bool": _F.TYPE_BOOL,
    "float": _F.TYPE_FLOAT,
    "double": _F.TYPE_DOUBLE,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
}

_DATA_TYPE_NAMES = (
    "INVALID FLOAT DOUBLE INT32 UINT8 INT16 INT8 STRING COMPLEX64 INT64 BOOL QINT8 QUINT8 QINT32 BFLOAT16 "
    "QINT16 QUINT16 UINT16 COMPLEX128 HALF RESOURCE VARIANT UINT32 UINT64 FLOAT8_E5M2 FLOAT8_E4M3FN "
    "FLOAT8_E4M3FNUZ FLOAT8_E4M3B11FNUZ FLOAT8_E5M2FNUZ INT4 UINT4 INT2 UINT2 FLOAT4_E2M1FN"
)
DATA_TYPES = _DATA_TYPE_NAMES.split()

# One line a message: fields as 'name number type', '*' = repeated, '{K V}' = map.
# Fields nobody here reads are left out: protobuf keeps them as unknown fields.
_MESSAGES = {
    "AllocationDescription": "requested_bytes 1 int64, allocated_bytes 2 int64, allocator_name 3 string, "
    "allocation_id 4 int64, has_single_reference 5 bool, ptr 6 uint64",
    "TensorShapeProto.Dim": "size 1 int64, name 2 string",
    "TensorShapeProto": "dim 2 *TensorShapeProto.Dim, unknown_rank 3 bool",
    "TensorDescription": "dtype 1 DataType, shape 2 TensorShapeProto, allocation_description 4 AllocationDescription",
    "AllocationRecord": "alloc_micros 1 int64, alloc_bytes 2 int64",
    "AllocatorMemoryUsed": "allocator_name 1 string, total_bytes 2 int64, peak_bytes 3 int64, live_bytes 4 int64, "
    "allocator_bytes_in_use 5 int64, allocation_records 6 *AllocationRecord",
    "NodeOutput": "slot 1 int32, tensor_description 3 TensorDescription",
    "MemoryStats": "temp_memory_size 1 int64, device_temp_memory_size 2 int64, persistent_memory_size 3 int64, "
    "device_persistent_memory_size 4 int64, persistent_tensor_alloc_ids 5 *int64, "
    "device_persistent_tensor_alloc_ids 6 *int64",
    "NodeExecStats": "node_name 1 string, all_start_micros 2 int64, op_start_rel_micros 3 int64, "
    "op_end_rel_micros 4 int64, all_end_rel_micros 5 int64, memory 6 *AllocatorMemoryUsed, output 7 *NodeOutput, "
    "timeline_label 8 string, scheduled_micros 9 int64, thread_id 10 uint32, "
    "referenced_tensor 11 *AllocationDescription, memory_stats 12 MemoryStats, all_start_nanos 13 int64, "
    "op_start_rel_nanos 14 int64, op_end_rel_nanos 15 int64, all_end_rel_nanos 16 int64, scheduled_nanos 17 int64",
    "DeviceStepStats": "device 1 string, node_stats 2 *NodeExecStats, thread_names 3 {uint32 string}",
    "StepStats": "dev_stats 1 *DeviceStepStats",
    "TensorProto": "dtype 1 DataType, tensor_shape 2 TensorShapeProto, version_number 3 int32, tensor_content 4 bytes, "
    "float_val 5 *float, double_val 6 *double, int_val 7 *int32, string_val 8 *bytes, scomplex_val 9 *float, "
    "int64_val 10 *int64, bool_val 11 *bool, dcomplex_val 12 *double, half_val 13 *int32, uint32_val 16 *uint32, "
    "uint64_val 17 *uint64",
    "NameAttrList": "name 1 string, attr 2 {string AttrValue}",
    "AttrValue.ListValue": "s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, type 6 *DataType, "
    "shape 7 *TensorShapeProto, tensor 8 *TensorProto, func 9 *NameAttrList",
    "AttrValue": "list 1 AttrValue.ListValue, s 2 bytes, i 3 int64, f 4 float, b 5 bool, type 6 DataType, "
    "shape 7 TensorShapeProto, tensor 8 TensorProto, placeholder 9 string, func 10 NameAttrList",
    "NodeDef.ExperimentalDebugInfo": "original_node_names 1 *string, original_func_names 2 *string",
    "NodeDef": "name 1 string, op 2 string, input 3 *string, device 4 string, attr 5 {string AttrValue}, "
    "experimental_debug_info 6 NodeDef.ExperimentalDebugInfo",
    "VersionDef": "producer 1 int32, min_consumer 2 int32, bad_consumers 3 *int32",
    "OpDef.ArgDef": "name 1 string, description 2 string, type 3 DataType, type_attr 4 string, number_attr 5 string, "
    "type_list_attr 6 string, is_ref 16 bool",
    "OpDef": "name 1 string, input_arg 2 *OpDef.ArgDef, output_arg 3 *OpDef.ArgDef",
    "FunctionDef.ArgAttrs": "attr 1 {string AttrValue}",
    "FunctionDef": "signature 1 OpDef, node_def 3 *NodeDef, ret 4 {string string}, attr 5 {string AttrValue}, "
    "control_ret 6 {string string}, arg_attr 7 {uint32 FunctionDef.ArgAttrs}, "
    "resource_arg_unique_id 8 {uint32 uint32}",
    "FunctionDefLibrary": "function 1 *FunctionDef",
    "GraphDef": "node 1 *NodeDef, library 2 FunctionDefLibrary, version 3 int32, versions 4 VersionDef",
    "RunMetadata.FunctionGraphs": "partition_graphs 1 *GraphDef, pre_optimization_graph 2 GraphDef, "
    "post_optimization_graph 3 GraphDef",
    "RunMetadata": "step_stats 1 StepStats, partition_graphs 3 *GraphDef, "
    "function_graphs 4 *RunMetadata.FunctionGraphs",
}


def _add_field(message: descriptor_pb2.DescriptorProto, text: str) -> None:
    name, number, kind = text.split(" ", 2)
    field = message.field.add(name=name, number=int(number), label=_F.LABEL_OPTIONAL)
    if kind.startswith("{"):
        key, value = kind[1:-1].split(" ")
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, f"key 1 {key}")
        _add_field(entry, f"value 2 {value}")
        field.label, field.type = _F.LABEL_REPEATED, _F.TYPE_MESSAGE
        field.type_name = f".tensorflow.{message.name}.{entry.name}"
        return
    if kind.startswith("*"):
        field.label, kind = _F.LABEL_REPEATED, kind[1:]
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "DataType":
        field.type, field.type_name = _F.TYPE_ENUM, ".tensorflow.DataType"
    else:
        field.type, field.type_name = _F.TYPE_MESSAGE, f".tensorflow.{kind}"


def _build_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tfplace/trace.proto", package="tensorflow", syntax="proto3")
    types = file.enum_type.add(name="DataType")
    for number, name in enumerate(DATA_TYPES):
        types.value.add(name=f"DT_{name}", number=number)
    for number, name in enumerate(DATA_TYPES[1:], start=101):
        types.value.add(name=f"DT_{name}_REF", number=number)
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for full_name in sorted(_MESSAGES, key=lambda n: n.count(".")):
        outer, _, inner = full_name.rpartition(".")
        made[full_name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
    for full_name, fields in _MESSAGES.items():
        message = made[full_name]
        for text in fields.split(", "):
            _add_field(message, text)
        for field in message.field:  # maps of nested messages need the outer name too
            if field.type_name.startswith(f".tensorflow.{message.name}.") and "." in full_name:
                field.type_name = field.type_name.replace(
                    f".tensorflow.{message.name}.", f".tensorflow.{full_name}.", 1
                )
    made["AttrValue"].oneof_decl.add(name="value")  # so that `b: false` and `i: 0` differ from nothing
    for field in made["AttrValue"].field:
        field.oneof_index = 0
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_build_file().SerializeToString())


def message_class(name: str) -> Any:
    """Return the message class of `tensorflow.<name>` in the private pool."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"tensorflow.{name}"))


@functools.cache
def lenient_class(name: str) -> Any:
    """Return a twin of `tensorflow.<name>` that takes any bytes for a string.

    protobuf refuses a whole message for one string that is not UTF-8. In the twin strings are bytes, and map fields
    are lists of their entries; the wire format is the same.
    """
    return message_factory.GetMessageClass(_lenient_pool().FindMessageTypeByName(f"tensorflow.{name}"))


@functools.cache
def _lenient_pool() -> descriptor_pool.DescriptorPool:
    file = _build_file()
    messages = list(file.message_type)
    for message in messages:
        messages.extend(message.nested_type)
        message.ClearField("options")
        for field in message.field:
            if field.type == _F.TYPE_STRING:
                field.type = _F.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


RunMetadata = message_class("RunMetadata")
StepStats = message_class("StepStats")
GraphDef = message_class("GraphDef")
