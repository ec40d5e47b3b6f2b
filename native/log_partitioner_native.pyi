# What the fast lane offers; native/src says what it does. Columns are bytes of native numbers, as `array` takes them.

from array import array
from collections.abc import Callable, Sequence
from typing import Any

VERSION: str

class Columns:
    rows: int
    size: int
    def __init__(self, columns: Any, places: tuple[int, ...], /) -> None: ...
    def schema(self, fields: Any, /) -> int: ...
    def plan(self, record: Any, schema: int, /) -> int: ...
    def add(self, block: bytes, rows: int, plan: int, reference: str, /) -> None: ...
    def take(self) -> list[Any]: ...

class Poll:
    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        tps: Sequence[int],
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        rules: Sequence[int],
        /,
    ) -> None: ...

class Taken:
    records: int
    entries: int
    key_of: bytes
    type_of: bytes
    tp_of: bytes
    offsets: bytes
    indexes: bytes
    event_times_us: bytes
    timestamps_ms: bytes
    text_sizes: bytes
    text_bytes: int
    source_bytes: int
    fallbacks: int
    weight: int
    new_keys: list[tuple[str, int]]
    new_tps: list[int]
    ids: list[tuple[int, str]]
    covered: list[tuple[int, int, int, int, int, int, int]]
    gaps: list[tuple[int, int, int]]

class Lane:
    types: Types
    def __init__(self, rules: Sequence[dict[str, Any] | None], bounds: dict[str, int], bytes_max: int, /) -> None: ...
    def begin(self, is_full: bool, /) -> None: ...
    def key_number(self, user: str, hour: int, following: int, /) -> int: ...
    def take(
        self,
        poll: Poll,
        first: int,
        stop: int,
        weight_max: int,
        bytes_max: int,
        rows_tps: Sequence[int],
        next_offsets: Sequence[int],
        tps: int,
        keys: int,
        texts: Texts,
        /,
    ) -> Taken: ...

class Texts:
    memory_bytes: int
    def __len__(self) -> int: ...
    def append(self, text: bytes, /) -> None: ...
    def spill(self, order: array[int], append: Callable[[bytes], Any], piece_bytes: int, /) -> None: ...

class Types:
    memory_bytes: int
    def __init__(self, bounds: dict[str, int], /) -> None: ...
    def intern(self, described: Any, /) -> int: ...
    def described(self, number: int, /) -> Any: ...
    def size(self, number: int, /) -> int: ...
    def width(self, number: int, /) -> int: ...
    def shared(self, left: int, right: int, /) -> int: ...
    def join(self, numbers: Sequence[int], /) -> int | None: ...
    def merged(self, left: int, right: int, /) -> int | None: ...
    def __len__(self) -> int: ...
    def keep_only(self, kept: int, numbers: Sequence[int], /) -> list[int]: ...
    def projection(self, own: int, merged: int, /) -> bytes: ...
    def runs(
        self, order: array[int], key_of: array[int], type_of: array[int], sizes: array[int], /
    ) -> list[tuple[int, int, int, int, int | None]]: ...

class Sealer:
    def __init__(
        self,
        order: array[int],
        tp_of: array[int],
        offsets: array[int],
        indexes: array[int],
        event_times_us: array[int],
        timestamps_ms: array[int],
        origins: Sequence[bytes],
        texts: Texts,
        sizes: array[int],
        read: Callable[[Any], bytes],
        types: Types,
        rules: dict[str, Any],
        /,
    ) -> None: ...
    def write(
        self,
        parts: Sequence[tuple[int, int, str, int, int, int, bool]],
        slow: Callable[[bytes, int], bytes],
        /,
    ) -> Chunk: ...

class Chunk:
    data: bytes
    rows: int
    def __len__(self) -> int: ...
    def blocks(self, number: int, /) -> tuple[str, int, int, int, int, int, int, list[tuple[int, int, int, int]]]: ...
    def fitting(self, first: int, last: int, room: int, /) -> tuple[int, int]: ...
    def rows_of(self, first: int, last: int, /) -> list[tuple[int, int]]: ...

class Lines:
    lines: int
    def __init__(self, rules: dict[str, Any], types: Types, merged: int, /) -> None: ...
    def add(self, chunk: Chunk, first: int, last: int, start: int, /) -> None: ...
    def groups(self) -> list[tuple[list[tuple[int, int]], int, list[int], list[bytes], int, bytes]]: ...

def crc32(data: bytes | bytearray, before: int = 0, /) -> int: ...
def in_order(key_of: array[int], first: int, ranked: array[int], /) -> bytes: ...
