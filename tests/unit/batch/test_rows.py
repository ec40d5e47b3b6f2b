"""The rows of a batch: in which order they are sealed, what they weigh, and a disk that refuses or has damaged them."""

import gc
import io
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import fastavro
import pytest

from log_partitioner import native
from log_partitioner.avro.row_meta import NO_TIMESTAMP_MS, TIMESTAMP_MS_MAX
from log_partitioner.avro.schema_types import EMPTY_RECORD, RecordType, Scalar
from log_partitioner.batch import rows as module
from log_partitioner.batch.rows import TEXT_BYTES, PythonTexts, Rows
from log_partitioner.batch.types import CompiledTypes
from log_partitioner.boundary import Piece, SealedFile
from log_partitioner.errors import SpoolError
from log_partitioner.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition
from tests.fakes.lanes import deliver, settings
from tests.fakes.spool import FakeSpool
from tests.strategies import empty_rows, seal_rules, sealed_objects

A = TopicPartition("app", 0)
ENTRY = RecordType({"a": Scalar.LONG53})
HOUR_US = 1_714_557_600_000_000
ROWS = 1_500


def record(tp: TopicPartition, offset: int, timestamp_ms: int | None = 5) -> SourceRecord:
    """Make a record; its value is in no row."""
    return SourceRecord(tp, offset, timestamp_ms, None, None, ())


def keyed(user: str, hour: int = 10, date: str = "2024-05-01") -> PartitionKey:
    """Make a PartitionKey."""
    return PartitionKey(user, date, hour)


def text(number: int) -> bytes:
    """Make the text of an entry."""
    return b'{"a":%d}' % number


FAST = pytest.mark.parametrize("is_fast", [False, *([True] if native.IS_INSTALLED else [])])


def filled(*keys: PartitionKey, is_fast: bool = False) -> Rows:
    """Make rows of these PartitionKeys, one each, whose texts have their numbers."""
    rows = empty_rows(is_fast=is_fast)
    for number, key in enumerate(keys):
        rows.add(record(A, number), 0, key, ENTRY, text(number), HOUR_US)
    return rows


def texts_of(rows: Rows, read: Callable[[Piece], bytes]) -> Iterator[bytes]:
    """Read the texts in the order of sealing as a writer does: one after the other."""
    order = rows.in_order()
    if isinstance(rows.texts, PythonTexts):
        return rows.texts.read(order, rows.text_sizes, read)
    slow: list[bytes] = []

    def note(text: bytes, _part: int) -> bytes:
        slow.append(text)
        return b""

    assert native.module is not None
    assert isinstance(rows.types, CompiledTypes)
    columns = rows.tp_of, rows.offsets, rows.indexes, rows.event_times_us, rows.timestamps_ms
    rules = {"block_bytes": 1, "chunk_bytes": 1, "ids": {}, "roots": {}, "compress": bytes, "sync": b""}
    types, origins = rows.types.compiled, [b""] * len(rows.tps)
    sealer = native.module.Sealer(order, *columns, origins, rows.texts, rows.text_sizes, read, types, rules)
    refusing = rows.types.number(EMPTY_RECORD)  # no entry here is an empty object: each text is handed over

    def one(at: int) -> bytes:
        sealer.write([(at, at + 1, "", 0, refusing, refusing, True)], note)
        return slow.pop()

    return map(one, range(len(order)))


def nothing(_piece: Piece) -> bytes:
    """Read where nothing was written."""
    raise AssertionError("nothing is on disk")


@pytest.mark.parametrize(
    ("timestamp_ms", "kept"),
    [
        (None, NO_TIMESTAMP_MS),
        (0, 0),
        (TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX),
        (TIMESTAMP_MS_MAX + 1, -1),
        (2**63 - 1, -1),
    ],
)
def test_timestamp_that_is_no_date_is_left_out_and_the_object_is_read(timestamp_ms: int | None, kept: int) -> None:
    """Kafka takes any int64 of a producer; Avro's readers make a date of it, up to the end of the year 9999."""
    rows = empty_rows()
    rows.add(record(A, 7, timestamp_ms), 0, keyed("ann"), ENTRY, b'{"a":1}', HOUR_US)
    rows.add(record(A, 8, 5), 0, keyed("ann"), ENTRY, b'{"a":2}', HOUR_US)
    spool = FakeSpool().open("b1")
    (sealed,) = sealed_objects(rows, spool, seal_rules())
    found = list(fastavro.reader(io.BytesIO(spool.load(sealed.file))))
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=kept)
    assert [(row["a"], row["_meta"]["timestamp"]) for row in found] == [
        (1, moment), (2, datetime(1970, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC))
    ]  # fmt: skip


def test_equal_types_have_one_number() -> None:
    """Rows of equal types may bring type objects of their own."""
    rows = empty_rows()
    for n in range(200):
        rows.add(record(A, n), 0, keyed("ann"), RecordType({f"k{n % 3}": Scalar.BOOL}), b"{}", 0)
    assert [*rows.type_of] == [n % 3 for n in range(200)]
    assert [[*rows.types.type_of(number).by_name] for number in range(3)] == [["k0"], ["k1"], ["k2"]]


def test_order_of_sealing_is_by_hour_then_by_partition_key_then_by_arrival() -> None:
    """Rows of one PartitionKey stand together, those of one hour too; users as they came."""
    keys = [keyed("zoe", 11), keyed("ann", 9), keyed("zoe", 11), keyed("bob", 9), keyed("ann", 9, "2024-04-30"),
            keyed("ann", 9), keyed("zoe", 9)]  # fmt: skip
    rows = filled(*keys)
    assert [*rows.in_order()] == [4, 1, 5, 3, 6, 0, 2]
    assert [*rows.in_order(3)] == [4, 5, 3, 6]
    assert [*rows.in_order(7)] == []
    assert [*empty_rows().in_order()] == []


@FAST
def test_run_is_read_once_from_its_beginning_to_its_end(monkeypatch: pytest.MonkeyPatch, *, is_fast: bool) -> None:
    """A piece holds at most so many bytes, or one text that is larger; none is read twice, none before its turn."""
    monkeypatch.setattr(module, "PIECE_BYTES", 20)
    batch = FakeSpool().open("b1")
    rows = empty_rows(is_fast=is_fast)
    texts = [b"x" * size for size in (7, 7, 7, 50, 1, 19, 1, 20)]
    for number, text in enumerate(texts):
        rows.add(record(A, number), 0, keyed("ann"), ENTRY, text, HOUR_US)
    pieces: list[Piece] = []

    def append(data: bytes) -> Piece:
        pieces.append(batch.append(data))
        return pieces[-1]

    rows.spill(append)
    assert [piece.length for piece in pieces] == [14, 7, 50, 20, 1, 20]
    read: list[Piece] = []

    def note(piece: Piece) -> bytes:
        read.append(piece)
        return batch.read(piece)

    reading = texts_of(rows, note)
    assert next(reading) == texts[0]
    assert read == pieces[:1]
    assert [texts[0], *reading] == texts
    assert read == pieces


@FAST
def test_spill_frees_the_memory_of_texts_and_of_nothing_else(*, is_fast: bool) -> None:
    """A flush bounds the rest, which no spill frees."""
    rows = filled(keyed("ann"), keyed("bob"), is_fast=is_fast)
    fixed = rows.fixed_bytes
    assert rows.text_bytes < rows.memory_bytes <= rows.text_bytes + 2 * TEXT_BYTES
    rows.spill(FakeSpool().open("b1").append)
    assert (rows.memory_bytes, rows.fixed_bytes, rows.text_bytes) == (0, fixed, 14)


@FAST
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_spill_that_is_refused_leaves_the_rows_whole_and_may_be_tried_again(
    failing: int, monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    """In the middle of a piece too: they are in memory as before, can be sealed, and can be spilled later."""
    monkeypatch.setattr(module, "PIECE_BYTES", 20)
    spool = FakeSpool()
    batch = spool.open("b1")
    rows = filled(*[keyed(f"user-{n % 3}", n % 2) for n in range(6)], is_fast=is_fast)
    order = rows.in_order()
    memory, expected = rows.memory_bytes, [text(number) for number in order]
    calls = iter(range(99))
    spool.refuses = lambda operation: operation == "append" and next(calls) == failing
    with pytest.raises(SpoolError):
        rows.spill(batch.append)
    assert rows.memory_bytes == memory
    assert [*texts_of(rows, nothing)] == expected
    rows.spill(batch.append)
    rows.add(record(A, 6), 0, keyed("ann", 20), ENTRY, text(6), HOUR_US)
    assert [*texts_of(rows, batch.read)] == [*expected, text(6)]


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
def test_piece_that_is_shorter_than_its_texts_ends_the_reading() -> None:
    """Compiled code trusts no piece: a missing text is an error, and never another row's text."""
    batch = FakeSpool().open("b1")
    rows = filled(keyed("ann"), keyed("bob"), is_fast=True)
    rows.spill(batch.append)
    with pytest.raises(ValueError, match="the text of row 1 is not where it was written"):
        [*texts_of(rows, lambda piece: batch.read(piece)[:-1])]


class _Forgetful:
    """A spool that keeps nothing, so that only memory is measured."""

    class _Object:
        size = 0

        def write(self, data: bytes) -> None:
            self.size += len(data)

        def finish(self) -> SealedFile:
            return SealedFile("", self.size, b"", 0)

    def create(self, _number: int) -> _Object:
        return self._Object()

    def append(self, data: bytes) -> Piece:
        return Piece(0, len(data), 0)

    read = load = delete = nothing


def measured(make: Callable[[int], None], count: int) -> int:
    """Give the bytes that so many calls leave in memory, after Python has freed the memory that it kept for reuse."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            make(number)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def add(rows: Rows, number: int, user: str = "ann", entry_type: RecordType = ENTRY) -> None:
    """Add a row as the recorder does: key, text and numbers are objects of their own."""
    key = PartitionKey(user + "" if user == "ann" else f"{user}{number}", "2024-05-01", number % 24)
    row = rows.add(record(A, 10**9 + number), number % 10**5, key, entry_type, text(number), HOUR_US + number)
    if user == "noted":
        rows.note(row, unique_id=f"{number:032}", root=RootLink(f"raw{number % 3}", 1, 10**9 + number, number))


USERS = pytest.mark.parametrize(
    "user",
    ["ann", "user-", "noted", "\U0001f600" * 30, "\u00e9" * 30, "\1" * 30, '"' * 30],
    ids=["one", "many", "noted", "emoji", "accents", "controls", "quotes"],
)


@USERS
def test_rows_take_no_more_memory_than_they_say(user: str) -> None:
    """Columns, texts, PartitionKeys and what is noted: the bound on memory is one of real bytes."""
    rows = empty_rows()
    taken = measured(lambda number: add(rows, number, user), ROWS)
    assert 0.2 * (rows.memory_bytes + rows.fixed_bytes) < taken <= rows.memory_bytes + rows.fixed_bytes


@pytest.mark.parametrize("fields", [1, 3, 20])
@pytest.mark.parametrize("name", ["k", "k" * 300, "\U0001f600" * 100], ids=["short", "long", "emoji"])
def test_types_take_no_more_memory_than_they_say(fields: int, name: str) -> None:
    """Each row of another type: dynamic keys weigh more than what stands under them."""
    rows = empty_rows()

    def add_new(number: int) -> None:
        add(rows, number, "ann", RecordType({f"{name}{number}-{n}": Scalar.LONG53 for n in range(fields)}))

    assert measured(add_new, 500) <= rows.memory_bytes + rows.fixed_bytes


@USERS
@pytest.mark.parametrize("layout", ["pack", "file"])
def test_sealing_takes_no_more_memory_than_the_rows_have_said(user: str, layout: str) -> None:
    """The plan, and the lines that are kept until the commit, are in what a row and a PartitionKey weigh."""
    rows = empty_rows()
    spool, rules = _Forgetful(), seal_rules(layout=layout, codec="zstandard")
    sealed_objects(filled(keyed("ann")), spool, rules)  # what is kept of the first batch for all others
    kept = []

    def make(number: int) -> None:
        add(rows, number, user)
        if number == ROWS - 1:
            kept.extend(sealed_objects(rows, spool, rules))

    taken = measured(make, ROWS)
    of_objects = 200_000 + 950 * len(kept)  # what is made at once; beside lines
    assert taken <= rows.memory_bytes + rows.fixed_bytes + of_objects
    assert sum(one.entries for one in kept) == ROWS


@FAST
def test_rows_of_a_sealed_batch_are_freed_at_once(*, is_fast: bool) -> None:
    """In a cycle they would wait for the collector, which looks seldom: a worker would hold many batches."""
    values = [b'{"user":"u%d","time":1767225600,"n":%d}' % (n % 3, n) for n in range(200)]
    records = [SourceRecord(TopicPartition("app", 0), n, 1_767_225_600_000, None, v, ()) for n, v in enumerate(values)]
    gc.disable()
    try:
        before = _all_rows()  # of other tests
        deliver(records, settings(), is_fast=is_fast)
        alive = [one for one in _all_rows() if not any(one is old for old in before)]
    finally:
        gc.enable()
    assert alive == []


def _all_rows() -> list[Rows]:
    return [one for one in gc.get_objects() if type(one) is Rows]
