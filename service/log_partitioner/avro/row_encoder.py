"""Entry -> Avro bytes, byte-identical to fastavro: by walking the type at first, by a generated straight line later.

An encoder accepts exactly the entries that its type already holds (`join(type, infer(entry)) is type`) and raises
`SchemaMismatch` for all others: no wrong row is ever written. `exact_encoder` skips checks that an entry's type
settles.

Every nullable value is written as union branch 0 (null) or 1, which is the byte 00 or 02. Most types see a handful of
entries, and compiling costs as much as walking hundreds: a type is compiled once it has encoded WALKED_ENTRIES entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

import msgspec

from log_partitioner.avro.binary import encode_long, encode_string, pack_double
from log_partitioner.avro.bounded_cache import BoundedCache
from log_partitioner.avro.infer import INT64_MAX, INT64_MIN, LONG53_MAX, require_depth
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type
from log_partitioner.config.settings import SchemaBounds

EncodeEntry = Callable[[dict[str, Any], bytearray], None]

WALKED_ENTRIES = 64
CACHED_FIELDS_MAX = 200_000  # of all types together; a compiled encoder holds some 800 bytes per field
_SMALL = 4096
_encode_json = msgspec.json.Encoder().encode


class _PresentLongs(dict[int, bytes]):
    """Branch 1 and a long; the small ones are ready."""

    def __missing__(self, value: int) -> bytes:
        return b"\2" + encode_long(value)


_PRESENT_LONG = _PresentLongs({number: b"\2" + encode_long(number) for number in range(-_SMALL, _SMALL)})


class SchemaMismatch(Exception):  # noqa: N818 - says what the entry is
    """The entry does not fit the type; the caller drops the bytes written to the output so far."""


class EntryEncoder:
    """The encoder of one type; `encode(entry, out)` raises SchemaMismatch or TooDeepError.

    Look `encode` up anew for each entry: it is replaced by the compiled one after WALKED_ENTRIES.
    """

    __slots__ = ("_limits", "_type", "_walked", "encode")

    def __init__(self, entry_type: RecordType, limits: SchemaBounds) -> None:
        self._type = entry_type
        self._limits = limits
        self._walked = 0
        self.encode: EncodeEntry = self._walk

    def _walk(self, entry: dict[str, Any], out: bytearray) -> None:
        self._walked += 1
        if self._walked > WALKED_ENTRIES:
            self.encode = compile_encoder(self._type, self._limits)
            self.encode(entry, out)
        else:
            walk_entry(self._type, entry, out, self._limits)


_encoders: BoundedCache[tuple[RecordType, SchemaBounds], EntryEncoder] = BoundedCache(
    lambda key: EntryEncoder(*key), weigh=lambda key: 1 + key[0].fields, weight_max=CACHED_FIELDS_MAX
)


def entry_encoder(entry_type: RecordType, limits: SchemaBounds) -> EntryEncoder:
    """Return the encoder of entries of this type; one for all who ask."""
    return _encoders.get((entry_type, limits))


def walk_entry(
    record: RecordType, entry: dict[str, Any], out: bytearray, limits: SchemaBounds, *, depth: int = 1
) -> None:
    """Encode an entry by walking its type; same bytes and refusals as the compiled encoder."""
    if not entry.keys() <= record.by_name.keys():
        raise SchemaMismatch
    for name, child in record.by_name.items():
        _walk_nullable(child, entry.get(name), out, limits, depth=depth + 1)


def encode_some(
    fields: Iterable[tuple[str, int, Type]],
    fields_in_all: int,
    limits: SchemaBounds,
    entry: dict[str, Any],
    out: bytearray,
) -> None:
    """Encode an entry that has values in some of the fields of its object: name, number and type of each, ascending."""
    following, values = 0, sum(value is not None for value in entry.values())
    for name, number, child in fields:
        value = entry.get(name)
        if value is not None:
            out += bytes(number - following)
            _walk_nullable(child, value, out, limits, depth=2)
            following = number + 1
            values -= 1
    if values:
        raise SchemaMismatch
    out += bytes(fields_in_all - following)


def _walk_nullable(child: Type, value: Any, out: bytearray, limits: SchemaBounds, *, depth: int) -> None:
    kind = type(value)
    if value is None:
        out.append(0)
    elif isinstance(child, Scalar):
        _walk_scalar(child, value, out, limits, depth=depth)
    elif isinstance(child, ArrayType) and kind is list:
        out.append(2)
        if value:
            out += encode_long(len(value))
        for item in value:
            _walk_nullable(child.item, item, out, limits, depth=depth + 1)
        out.append(0)
    elif isinstance(child, MapType) and kind is dict:
        out.append(2)
        if value:
            out += encode_long(len(value))
        for name, item in value.items():
            out += encode_string(name)
            _walk_nullable(child.value, item, out, limits, depth=depth + 1)
        out.append(0)
    elif isinstance(child, RecordType) and kind is dict:
        out.append(2)
        if child.by_name:
            walk_entry(child, value, out, limits, depth=depth)
        elif value:
            raise SchemaMismatch
        else:
            out.append(0)
    else:
        raise SchemaMismatch


def _walk_scalar(scalar: Scalar, value: Any, out: bytearray, limits: SchemaBounds, *, depth: int) -> None:
    kind = type(value)
    if scalar is Scalar.JSON:
        out += _json_text(value, limits, depth)
    elif scalar is Scalar.STRING and kind is str:
        out.append(2)
        out += encode_string(value)
    elif (scalar is Scalar.LONG53 and kind is int and -LONG53_MAX <= value <= LONG53_MAX) or (
        scalar is Scalar.LONG64 and kind is int and INT64_MIN <= value <= INT64_MAX
    ):
        out += _PRESENT_LONG[value]
    elif scalar is Scalar.DOUBLE and (kind is float or (kind is int and -LONG53_MAX <= value <= LONG53_MAX)):
        out.append(2)
        out += pack_double(value)
    elif scalar is Scalar.BOOL and kind is bool:
        out += b"\2\1" if value else b"\2\0"
    else:
        raise SchemaMismatch


def compile_encoder(entry_type: RecordType, limits: SchemaBounds) -> EncodeEntry:
    """Compile the encoder of entries of this type."""
    return _compile(entry_type, limits, depth=1)


def _json_text(value: Any, limits: SchemaBounds, depth: int) -> bytes:
    """Write branch 1 and the JSON text of a value that stands at `depth`."""
    if type(value) in (dict, list):
        require_depth(value, limits, depth=depth)
    text = _encode_json(value)
    return _PRESENT_LONG[len(text)] + text


def _compile(record: RecordType, limits: SchemaBounds, *, depth: int) -> EncodeEntry:
    """Return the function `encode(entry, out)` of one record type; one for all that it stands in."""
    return _record_encoders.get((record, limits, depth))


def _compile_record(record: RecordType, limits: SchemaBounds, depth: int) -> EncodeEntry:
    writer = _Writer(limits)
    writer.line(0, "def encode(entry, out):")
    writer.line(1, "if not entry.keys() <= KEYS: raise SchemaMismatch")
    writer.line(1, "get = entry.get")
    for name, child in record.by_name.items():
        writer.line(1, f"value = get({name!r})")
        writer.line(1, "if value is None: out += b'\\0'")
        writer.present(1, child, "value", depth + 1)
    namespace = {**writer.constants, "KEYS": frozenset(record.by_name)}
    exec(compile("\n".join(writer.lines), "<row encoder>", "exec"), namespace)  # noqa: S102 - our own text; keys only as reprs
    encode: EncodeEntry = namespace["encode"]
    return encode


def exact_encoder(entry_type: RecordType, written: RecordType, limits: SchemaBounds) -> EncodeEntry:
    """Return the encoder of entries of exactly this type, under the wider one of their object; one for all callers.

    The encoder skips checks that the exact type settles: absent fields are constants, strings and numbers are not
    tested. The bytes equal those of `compile_encoder(written)`; an entry of another type yields wrong bytes, or an
    error.
    """
    return _exact_encoders.get((entry_type, written, limits))


def _compile_exact(entry_type: RecordType, written: RecordType, limits: SchemaBounds) -> EncodeEntry:
    writer = _Writer(limits)
    writer.line(0, "def encode(entry, out):")
    pieces: list[str] = []
    for name, child in written.by_name.items():
        own = entry_type.by_name.get(name, Scalar.NULL)
        exact = "b'\\0'" if own is Scalar.NULL else _EXACT.get((own, child))
        if exact is not None:
            pieces.append(exact.replace("VALUE", f"entry[{name!r}]"))
            continue
        writer.line(1, f"out += join(({', '.join(pieces)},))" if pieces else "pass")
        pieces = []
        writer.line(1, f"value = entry[{name!r}]")
        writer.line(1, "if value is None: out += b'\\0'")
        writer.present(1, child, "value", 2)
    writer.line(1, f"out += join(({', '.join(pieces)},))" if pieces else "pass")
    namespace = dict(writer.constants)
    exec(compile("\n".join(writer.lines), "<exact row encoder>", "exec"), namespace)  # noqa: S102 - as below
    encode: EncodeEntry = namespace["encode"]
    return encode


_exact_encoders: BoundedCache[tuple[RecordType, RecordType, SchemaBounds], EncodeEntry] = BoundedCache(
    lambda key: _compile_exact(*key), weigh=lambda key: 1 + key[0].fields, weight_max=CACHED_FIELDS_MAX
)


_record_encoders: BoundedCache[tuple[RecordType, SchemaBounds, int], EncodeEntry] = BoundedCache(
    lambda key: _compile_record(*key), weigh=lambda key: 1 + key[0].fields, weight_max=CACHED_FIELDS_MAX
)


class _Writer:
    """Writes the source of one encoder; nested records are functions of their own among its constants."""

    def __init__(self, limits: SchemaBounds) -> None:
        self.limits = limits
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {
            "SchemaMismatch": SchemaMismatch,
            "present_long": _PRESENT_LONG,
            "long": encode_long,
            "double": pack_double,
            "present_double": Struct("<Bd").pack,
            "join": b"".join,
            "json_text": _json_text,
            "limits": limits,
        }

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def present(self, indent: int, child: Type, value: str, depth: int) -> None:
        """Write the branches that follow `if value is None`; the last one refuses a value that does not fit."""
        if isinstance(child, Scalar):
            for condition, action in _SCALAR_BRANCHES[child]:
                self.line(indent, f"elif {condition}: {action}".replace("VALUE", value).replace("DEPTH", str(depth)))
        elif isinstance(child, ArrayType):
            self.line(indent, f"elif type({value}) is list:")
            self.array(indent + 1, child.item, value, depth)
        elif isinstance(child, MapType):
            self.line(indent, f"elif type({value}) is dict:")
            self.map(indent + 1, child.value, value, depth)
        elif not child.by_name:
            self.line(indent, f"elif type({value}) is dict and not {value}: out += b'\\2\\0'")
        else:
            function = f"record_{len(self.constants)}"
            self.constants[function] = _compile(child, self.limits, depth=depth)
            self.line(indent, f"elif type({value}) is dict: out += b'\\2'; {function}({value}, out)")
        if child is not Scalar.JSON:
            self.line(indent, "else: raise SchemaMismatch")

    def array(self, indent: int, item: Type, value: str, depth: int) -> None:
        """Write one block of items and its end."""
        self.line(indent, "out += b'\\2'")
        self.line(indent, f"if {value}: out += long(len({value}))")
        self.items(indent, f"for item in {value}:", "", item, depth)

    def map(self, indent: int, item: Type, value: str, depth: int) -> None:
        """Write one block of keys and values and its end; a map never has more keys than fit its type."""
        self.line(indent, "out += b'\\2'")
        self.line(indent, f"if {value}: out += long(len({value}))")
        self.items(
            indent,
            f"for key, item in {value}.items():",
            "key = key.encode(); out += long(len(key)); out += key",
            item,
            depth,
        )

    def items(self, indent: int, loop: str, before: str, item: Type, depth: int) -> None:
        """Write the loop; arrays of arrays become functions, Python allows 20 nested blocks."""
        self.line(indent, loop)
        if before:
            self.line(indent + 1, before)
        if isinstance(item, (ArrayType, MapType)):
            function = f"items_{len(self.constants)}"
            self.constants[function] = _compile_value(item, self.limits, depth=depth + 1)
            self.line(indent + 1, f"{function}(item, out)")
        else:
            self.line(indent + 1, "if item is None: out += b'\\0'")
            self.present(indent + 1, item, "item", depth + 1)
        self.line(indent, "out += b'\\0'")


def _compile_value(child: Type, limits: SchemaBounds, *, depth: int) -> Callable[[Any, bytearray], None]:
    writer = _Writer(limits)
    writer.line(0, "def encode(value, out):")
    writer.line(1, "if value is None: out += b'\\0'")
    writer.present(1, child, "value", depth)
    namespace = dict(writer.constants)
    exec(compile("\n".join(writer.lines), "<row encoder>", "exec"), namespace)  # noqa: S102 - as above
    encode: Callable[[Any, bytearray], None] = namespace["encode"]
    return encode


_IN_LONG53 = f"type(VALUE) is int and {-LONG53_MAX} <= VALUE <= {LONG53_MAX}"
_SCALAR_BRANCHES: dict[Scalar, list[tuple[str, str]]] = {
    Scalar.NULL: [],
    Scalar.BOOL: [("VALUE is True", "out += b'\\2\\1'"), ("VALUE is False", "out += b'\\2\\0'")],
    Scalar.LONG53: [(_IN_LONG53, "out += present_long[VALUE]")],
    Scalar.LONG64: [
        (
            f"type(VALUE) is int and {-(2**63)} <= VALUE < {2**63}",
            "out += present_long[VALUE]",
        )
    ],
    Scalar.DOUBLE: [
        ("type(VALUE) is float", "out += b'\\2'; out += double(VALUE)"),
        (_IN_LONG53, "out += b'\\2'; out += double(VALUE)"),
    ],
    Scalar.STRING: [
        (
            "type(VALUE) is str",
            "text = VALUE.encode(); out += present_long[len(text)]; out += text",
        )
    ],
    Scalar.JSON: [("True", "out += json_text(VALUE, limits, DEPTH)")],
}
_LONG, _DOUBLE = "present_long[VALUE]", "present_double(2, VALUE)"
# The bytes of a value that is there, by its own type and that of its field.
_EXACT: dict[tuple[Type, Type], str] = {
    (Scalar.STRING, Scalar.STRING): "present_long[len(text := VALUE.encode())], text",
    (Scalar.LONG53, Scalar.LONG53): _LONG,
    (Scalar.LONG53, Scalar.LONG64): _LONG,
    (Scalar.LONG64, Scalar.LONG64): _LONG,
    (Scalar.LONG53, Scalar.DOUBLE): _DOUBLE,
    (Scalar.DOUBLE, Scalar.DOUBLE): _DOUBLE,
    (Scalar.BOOL, Scalar.BOOL): "b'\\2\\1' if VALUE else b'\\2\\0'",
}
