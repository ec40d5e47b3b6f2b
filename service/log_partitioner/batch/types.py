"""The types of a batch's rows as numbers: equal types have one number, and joins are remembered.

By plain Python, or by compiled code, whose types outlive a batch; both follow `schema_types` and `pack_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from log_partitioner import native
from log_partitioner.avro.pack_schema import merge, projection
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_entries
from log_partitioner.config.settings import SchemaBounds

if TYPE_CHECKING:
    import log_partitioner_native

TYPE_BYTES = 500  # of memory for a type, beside twice its estimated schema (tests/unit/batch/test_rows.py)

REMEMBERED_MAX = 16  # types of one PartitionKey; a join of more is hardly asked for again


class Types(Protocol):
    """Numbers types of entries, and joins and merges them within the bounds of one schema; for one thread."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that all of it takes, rather too many."""

    def number(self, entry_type: RecordType, /) -> int:
        """Return the number of a type."""

    def type_of(self, number: int, /) -> RecordType:
        """Return the type of a number."""

    def size(self, number: int, /) -> int:
        """Return the estimated bytes of a type's schema."""

    def width(self, number: int, /) -> int:
        """Return how many top-level fields a type has."""

    def shared(self, left: int, right: int, /) -> int:
        """Return how many of the second's top-level names the first has, too."""

    def join(self, numbers: Sequence[int], /) -> int | None:
        """Return the join of types; None if it passes a bound of one schema."""

    def merged(self, left: int, right: int, /) -> int | None:
        """Return the merged type of a pack that takes one more; None if it passes a bound of one schema."""

    def projection(self, own: int, merged: int, /) -> bytes:
        """Return the projection that makes an exact type out of a merged one, as JSON."""

    def __len__(self) -> int:
        """Return how many types there are."""

    def keep_only(self, kept: int, numbers: Sequence[int], /) -> list[int]:
        """Keep of the types behind the first `kept` these alone; returns the numbers that they have then."""


class PlainTypes:
    """Types of one batch by plain Python."""

    def __init__(self, bounds: SchemaBounds) -> None:
        self.memory_bytes = 0
        self._bounds = bounds
        self._types: list[RecordType] = []
        self._numbers: dict[RecordType, int] = {}
        self._joined: dict[frozenset[int], int | None] = {}

    def number(self, entry_type: RecordType) -> int:
        """Return the number of a type."""
        number = self._numbers.setdefault(entry_type, len(self._types))
        if number == len(self._types):
            self._types.append(entry_type)
            self.memory_bytes += TYPE_BYTES + 2 * entry_type.size
        return number

    def type_of(self, number: int) -> RecordType:
        """Return the type of a number."""
        return self._types[number]

    def size(self, number: int) -> int:
        """Return the estimated bytes of a type's schema."""
        return self._types[number].size

    def width(self, number: int) -> int:
        """Return how many top-level fields a type has."""
        return len(self._types[number].by_name)

    def shared(self, left: int, right: int) -> int:
        """Return how many of the second's top-level names the first has, too."""
        return len(self._types[left].by_name.keys() & self._types[right].by_name.keys())

    def join(self, numbers: Sequence[int]) -> int | None:
        """Return the join of types; None if it passes a bound of one schema."""
        if len(numbers) == 1:
            return numbers[0]
        distinct = frozenset(numbers)
        if distinct in self._joined:
            return self._joined[distinct]
        types = [self._types[number] for number in distinct]
        joined = self._fitting(join_entries(types, object_keys_max=self._bounds.object_keys_max))
        if len(distinct) <= REMEMBERED_MAX:
            self._joined[distinct] = joined
        return joined

    def merged(self, left: int, right: int) -> int | None:
        """Return the merged type of a pack that takes one more; None if it passes a bound of one schema."""
        return self._fitting(merge(self._types[left], self._types[right]))

    def _fitting(self, made: RecordType) -> int | None:
        bounds = self._bounds
        return self.number(made) if made.fields <= bounds.fields_max and made.size <= bounds.bytes_max else None

    def projection(self, own: int, merged: int) -> bytes:
        """Return the projection that makes an exact type out of a merged one, as JSON."""
        return msgspec.json.encode(projection(self._types[own], self._types[merged]))

    def __len__(self) -> int:
        """Return how many types there are."""
        return len(self._types)

    def keep_only(self, kept: int, numbers: Sequence[int]) -> list[int]:
        """Keep of the types behind the first `kept` these alone; returns the numbers that they have then."""
        types, dropped = [self._types[number] for number in numbers], self._types[kept:]
        del self._types[kept:]
        for one in dropped:
            del self._numbers[one]
            self.memory_bytes -= TYPE_BYTES + 2 * one.size
        return [self.number(one) for one in types]


class CompiledTypes:
    """Types by compiled code."""

    def __init__(self, compiled: log_partitioner_native.Types) -> None:
        self.compiled = compiled
        self.size, self.width, self.shared = compiled.size, compiled.width, compiled.shared
        self.join, self.merged, self.projection = compiled.join, compiled.merged, compiled.projection
        self.keep_only = compiled.keep_only
        self._numbers: dict[RecordType, int] = {}
        self._types: dict[int, RecordType] = {}
        self._bytes = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that all of it takes, rather too many."""
        return self.compiled.memory_bytes + self._bytes

    def __len__(self) -> int:
        """Return how many types there are."""
        return len(self.compiled)

    def number(self, entry_type: RecordType) -> int:
        """Return the number of a type."""
        number = self._numbers.get(entry_type)
        if number is None:
            number = self._numbers[entry_type] = self.compiled.intern(_described(entry_type))
            self._bytes += TYPE_BYTES + 2 * entry_type.size
        return number

    def type_of(self, number: int) -> RecordType:
        """Return the type of a number."""
        if number not in self._types:
            made = _described_type(self.compiled.described(number))
            assert isinstance(made, RecordType), f"{number} is no entry's"
            self._types[number] = made
            self._numbers[made] = number
        return self._types[number]


def make_types(bounds: SchemaBounds, *, is_fast: bool) -> Types:
    """Return an empty set of types, in compiled code if that seals the rows."""
    if not is_fast:
        return PlainTypes(bounds)
    assert native.module is not None, "the fast lane is not installed"
    return CompiledTypes(native.module.Types(bounds._asdict()))


def _described(entry_type: Type) -> Any:
    """Describe a type as compiled code reads it."""
    if isinstance(entry_type, Scalar):
        return entry_type.value
    if isinstance(entry_type, ArrayType):
        return "array", _described(entry_type.item)
    if isinstance(entry_type, MapType):
        return "map", _described(entry_type.value)
    return "record", [(name, _described(child)) for name, child in entry_type.by_name.items()]


def _described_type(described: Any) -> Type:
    if isinstance(described, str):
        return Scalar(described)
    kind, parts = described
    if kind == "array":
        return ArrayType(_described_type(parts))
    if kind == "map":
        return MapType(_described_type(parts))
    return RecordType({name: _described_type(child) for name, child in parts})
