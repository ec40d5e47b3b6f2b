"""A schema of Protobuf with fields of each type, and messages of it."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from log_partitioner.formats.schema import Schema
from log_partitioner.protoc import compile_schema

_INTEGERS = ["int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"]
_SCALARS = ["double", "float", *_INTEGERS, "bool", "string", "bytes"]
_KEYS = [kind for kind in _SCALARS if kind not in ("double", "float", "bytes")]
_KNOWN = ["Timestamp", "Duration", "Struct", "Value", "ListValue", "Any", "FieldMask", "Empty"]
_KNOWN += ["DoubleValue", "Int64Value", "BoolValue", "StringValue", "BytesValue"]
_NAMED = [f"google.protobuf.{name}" for name in _KNOWN]
_FILES = ["any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"]
_LINES = [
    *(f"{kind} plain_{kind} = {number};" for number, kind in enumerate(_SCALARS, start=1)),
    *(f"optional {kind} maybe_{kind} = {number};" for number, kind in enumerate(_SCALARS, start=21)),
    *(f"repeated {kind} some_{kind} = {number};" for number, kind in enumerate(_SCALARS, start=41)),
    *(f"map<{kind}, Level> by_{kind} = {number};" for number, kind in enumerate(_KEYS, start=61)),
    *(f"{name} known_{number} = {number};" for number, name in enumerate(_NAMED, start=81)),
    "Level level = 101; repeated Level levels = 102; All inner = 103; repeated All inners = 104;",
    "map<string, All> all_by_name = 105; oneof one { string text = 106; All message = 107; }",
    "repeated google.protobuf.Timestamp times = 108; map<int32, google.protobuf.Value> values = 109;",
    "Older older = 110; string _unknown = 111;",
]
SOURCE = f"""
syntax = "proto3";
package tests;
{"".join(f'import "google/protobuf/{name}.proto";' for name in _FILES)}
import "older.proto";
message All {{ {" ".join(_LINES)} message Within {{ int32 n = 1; }} }}
enum Level {{ option allow_alias = true; NONE = 0; LOW = 1; LITTLE = 1; MINUS = -1; }}
message Other {{ string user = 1; message Deep {{ string user = 1; }} }}
"""
OLDER = """
syntax = "proto2";
package tests;
message Older {
  optional string text = 1;
  optional int32 number = 2 [default = 7];
  optional group Grouped = 3 { optional bytes data = 1; }
  map<string, int32> counts = 5;
  extensions 100 to 199;
}
extend Older { optional string further = 100; }
"""
SCHEMA = Schema(SOURCE, (("older.proto", OLDER),))


def message_class(name: str = "tests.All") -> Any:
    """Return the class of a message of the schema."""
    return GetMessageClass(compile_schema(SCHEMA).message(name=name))


def descriptors() -> bytes:
    """Return the schema as protoc compiles it."""
    return FileDescriptorSet(file=compile_schema(SCHEMA)._files).SerializeToString()


_OF_KIND: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]) | st.integers(-9, 9),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]) | st.integers(-9, 9),
    FieldDescriptor.CPPTYPE_UINT32: st.sampled_from([0, 1, 2**32 - 1]),
    FieldDescriptor.CPPTYPE_UINT64: st.sampled_from([0, 1, 2**64 - 1, 2**53 + 1]),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from([0, 1, -1, 5]),
}


def _value(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=3))
    if field.type == FieldDescriptor.TYPE_STRING:
        return draw(st.text(max_size=4))
    return draw(_OF_KIND[field.cpp_type])


def _fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    fields = [one for one in message.DESCRIPTOR.fields if depth or one.message_type is None]
    for field in draw(st.lists(st.sampled_from(fields), max_size=4)) if fields else []:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, inner = _value(draw, entry.fields_by_name["key"]), entry.fields_by_name["value"]
            if inner.message_type is not None:
                _fill(draw, getattr(message, field.name)[key], depth - 1)
            else:
                getattr(message, field.name)[key] = _value(draw, inner)
        elif entry is not None:
            made = getattr(message, field.name)
            made = made.add() if field.is_repeated else made
            if not field.is_repeated:
                made.SetInParent()
            _fill(draw, made, depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(draw, field) for _ in range(draw(st.integers(0, 3)))])
        else:
            setattr(message, field.name, _value(draw, field))


@st.composite
def messages(draw: st.DrawFn, name: str = "tests.All") -> bytes:
    """Write a message; some have fields that the schema lacks, as of a later one."""
    message = message_class(name)()
    _fill(draw, message, 3)
    payload: bytes = message.SerializeToString()
    later = [
        b"\xf8\x7f\x07",
        b"\xfa\x7f\x02hi",
        b"\xf9\x7f" + bytes(8),
        b"\xfd\x7f" + bytes(4),
        b"\xfb\x7f\x08\x01\xfc\x7f",
    ]
    return payload + draw(st.sampled_from([b"", b"", *later]))
