"""References from their topic: what is none stops with a word for a person, schemas are kept within a bound."""

import hashlib
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from log_partitioner.formats.model import PartitionKey, RootLink, SourceRecord, TopicPartition
from log_partitioner.formats.reference import SchemaLocation, encode_message
from log_partitioner_pipeline.errors import ObjectError, PipelineError
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.reference_rows import expand, reference_of
from log_partitioner_pipeline.references import SchemaTexts, decode, once, time_spans
from tests.pipeline.packs import KEY, Entry, split_message, write_object

(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


class Store:
    """Schemas whose text is their key, but for those that were altered, and which of them were read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.altered: dict[str, str] = {}

    def read_text(self, _bucket: str, key: str) -> str:
        """Read a schema."""
        self.read.append(key)
        return self.altered.get(key, key)


def schema_of(text: str) -> SchemaLocation:
    """Return the place of a schema of this text in the store."""
    return SchemaLocation(hashlib.sha256(text.encode()).hexdigest(), text)


def message(offset: int, value: bytes | None) -> SourceRecord:
    """Give a message of the references topic."""
    return SourceRecord(TopicPartition("references", 2), offset, 0, None, value, ())


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"reference_id":"\xff"}'])
def test_what_is_no_reference(value: bytes | None) -> None:
    """A message without a value, or with bytes that are no text, is named by its place."""
    with pytest.raises(PipelineError, match="references-2 offset 7"):
        decode(message(7, value))


def test_every_line_of_a_message_is_a_reference() -> None:
    """References come in the order of messages and lines; a line or message that comes again gives none."""
    pack = write_object(Entry(PartitionKey(f"u{at}", *KEY[1:]), {"n": at}) for at in range(4))
    halves = [encode_message(one) for one in split_message(pack.message, lines_max=2)]
    messages = [message(at, value) for at, value in enumerate([*halves, *halves, encode_message(pack.message)])]
    found = once(one for message in messages for one in decode(message))
    assert found == pack.references
    assert [one.reference_id for one in found] == ["b-0", "b-1", "b-2", "b-3"]


def test_a_reference_as_a_row_of_a_frame_and_back() -> None:
    """Nothing is lost but the text of its schema; a message that is none is a row without an id."""
    values: list[dict[str, Any]] = [{"x": {}}, {"x": {"a": None}, "n": 1}]
    pack = write_object(
        [Entry(PartitionKey(f"u{at}", *KEY[1:]), one, root=RootLink("r", 0, 5)) for at, one in enumerate(values)],
        with_text=True,
    )
    messages = [encode_message(pack.message), b"none"]
    at = {"partition": 3, "timestamp_ms": 9, "key": b"b"}
    (batch,) = expand(
        [pa.RecordBatch.from_pylist([at | {"offset": n, "value": one} for n, one in enumerate(messages)])]
    )
    *rows, unreadable = batch.to_pylist()
    without_text = [
        msgspec.structs.replace(one, schema=msgspec.structs.replace(one.schema, text=None)) for one in pack.references
    ]
    assert [reference_of(row) for row in rows] == without_text
    assert [(row["message_partition"], row["message_offset"], row["line"]) for row in rows] == [(3, 0, 0), (3, 0, 1)]
    header_bytes = pack.message.object.header_bytes
    assert [(row["header_bytes"], row["start"] + row["length"]) for row in rows][-1] == (
        header_bytes,
        len(pack.content),
    )
    known = {name: value for name, value in unreadable.items() if value is not None}
    assert known == {"message_partition": 3, "message_offset": 1, "message_timestamp_ms": 9}


def test_schemas_are_kept_within_a_bound() -> None:
    """A driver runs for weeks, and a hostile client has a new schema every minute."""
    store = Store()
    texts = SchemaTexts(cast("Objects", store), chars_max=8)

    def ask(*names: str) -> dict[str, str]:
        return texts.of(msgspec.structs.replace(REFERENCE, schema=schema_of(name)) for name in names)

    both = {schema_of(name).fingerprint: name for name in ("aaaa", "bbbb")}
    assert ask("aaaa", "bbbb", "aaaa") == both
    assert ask("aaaa", "bbbb") == both
    assert store.read == ["aaaa", "bbbb"]
    ask("cccc", "bbbb", "aaaa")
    assert store.read == ["aaaa", "bbbb", "cccc", "aaaa"]


@pytest.mark.parametrize("is_carried", [False, True])
def test_an_altered_schema_is_refused(is_carried: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """By the name of its object, or of the reference that carries it; columns would be those of another schema."""
    store = Store()
    store.altered["aaaa"] = '{"altered":1}'
    schema = schema_of("aaaa")
    if is_carried:
        schema = msgspec.structs.replace(schema, text='{"altered":1}')
    reference = msgspec.structs.replace(REFERENCE, schema=schema)
    where = f"reference {REFERENCE.reference_id}" if is_carried else f"s3://{REFERENCE.location.bucket}/aaaa"
    with pytest.raises(ObjectError, match=f"{where} .*{schema.fingerprint}"):
        SchemaTexts(cast("Objects", store)).of([reference])


def test_spans_of_event_times() -> None:
    """Every entry is in one; if there are too many, the closest are joined."""

    def spans(*times: tuple[int, int], spans_max: int = 20) -> list[tuple[int, int]]:
        made = [
            msgspec.structs.replace(REFERENCE, event_time_min_us=first, event_time_max_us=last) for first, last in times
        ]
        return time_spans(made, spans_max=spans_max)

    assert spans() == []
    assert spans((5, 9), (0, 1), (1, 2), (6, 7)) == [(0, 2), (5, 9)]
    assert spans((100, 101), (0, 1), (3, 4), (50, 50), (52, 53), spans_max=3) == [(0, 4), (50, 53), (100, 101)]
    assert spans((100, 101), (0, 1), (50, 50), spans_max=1) == [(0, 101)]
