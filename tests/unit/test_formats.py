"""docs/FORMATS.md: its examples are the golden files, these are what the code writes, and the JSON Schemas fit both."""

import hashlib
import io
import json
from typing import Any

import fastavro
import msgspec
import pytest
from jsonschema import Draft202012Validator

from log_partitioner.batch.messages import ADOPTION_TYPE, BACKFILL_TYPE, FLUSH_TYPE, REFERENCES_TYPE
from log_partitioner.formats.dead_letter import Reason, StoredRecord, decode_stored_record
from log_partitioner.formats.flush_record import (
    AdoptedTopicPartition,
    Adoption,
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    encode_flush_record,
    split_parts,
)
from log_partitioner.formats.reference import (
    Checksum,
    CoveredRange,
    Line,
    ObjectPlace,
    ReferenceMessage,
    SchemaLocation,
    encode_message,
)
from log_partitioner.formats.replay import ReplayMark
from tests.golden.example import (
    EXAMPLE,
    FLUSH_RECORD,
    GOLDEN,
    OFFSET_METADATA,
    PACK,
    PAGE,
    ROOT,
    STORED_RECORD,
    files,
    read_with_two_gets,
    reference_message,
    text_of,
)

PAGE_TEXT = PAGE.read_text(encoding="utf-8")
KINDS = [
    *("references", "flush_record", "backfill_record", "adoption"),
    *("offset_metadata", "dead_letter_record", "replay_mark"),
]
every_kind = pytest.mark.parametrize("kind", KINDS)


def schema_of(kind: str) -> dict[str, Any]:
    """Read a JSON Schema."""
    schema: dict[str, Any] = json.loads((ROOT / "docs" / "formats" / f"{kind}.schema.json").read_text())
    return schema


def golden(kind: str) -> Any:
    """Read a golden message."""
    return json.loads((GOLDEN / f"{kind}.json").read_text())


def is_valid(kind: str, message: Any) -> bool:
    """Hold a message to its JSON Schema."""
    return bool(Draft202012Validator(schema_of(kind)).is_valid(message))


def test_examples_of_the_page_are_the_golden_files() -> None:
    """Letter by letter; `python -m tests.golden.example` writes both."""
    examples = EXAMPLE.findall(PAGE_TEXT)
    assert PAGE_TEXT.count("```json") == len(examples)
    assert {name for name, _ in examples} >= {f"{kind}.json" for kind in KINDS}
    for name, text in examples:
        assert (GOLDEN / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", files())
def test_golden_file_is_what_the_code_writes(name: str) -> None:
    """Format 1 is published: what changes here is a new version."""
    assert (GOLDEN / name).read_bytes() == text_of(files()[name])


def test_golden_pack_is_read_by_two_range_gets_and_as_a_whole() -> None:
    """The ranges of each reference are an Avro file of its rows; so is the object, of all rows."""
    rows = golden("rows")
    assert read_with_two_gets((GOLDEN / "references.json").read_bytes(), PACK) == rows
    with (GOLDEN / "pack.avro").open("rb") as file:
        reader = fastavro.reader(file)
        assert reader.metadata["avro.schema"] == (GOLDEN / "pack.avsc").read_text()
        whole = list(reader)
    assert [row["_meta"]["user"] for row in whole] == [row["_meta"]["user"] for some in rows for row in some]


def test_golden_message_says_of_the_pack_what_is_true() -> None:
    """Size, checksum, header and schema are those of the object."""
    message = golden("references")
    place, schema = message["object"], message["schema"]
    assert (len(PACK), hashlib.sha256(PACK).hexdigest()) == (place["size"], place["checksum"]["value"])
    assert list(fastavro.reader(io.BytesIO(PACK[: place["header_bytes"]]))) == []
    assert schema["fingerprint"] == hashlib.sha256((GOLDEN / "pack.avsc").read_bytes()).hexdigest()
    assert schema["object"].endswith(f"/_schemas/{schema['fingerprint']}.avsc")


def test_stored_record_and_metadata_read_back() -> None:
    """The two that are no messages."""
    assert decode_stored_record((GOLDEN / "dead_letter_record.json").read_bytes()) == STORED_RECORD
    assert json.dumps(golden("offset_metadata"), separators=(",", ":")) == OFFSET_METADATA


@every_kind
def test_schema_is_one_and_the_golden_message_fits(kind: str) -> None:
    """JSON Schema, draft 2020-12."""
    schema = schema_of(kind)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(golden(kind))


@every_kind
def test_schema_demands_every_field_and_takes_new_ones(kind: str) -> None:
    """A message without one of the fields is none; one more is no new version."""
    message = golden(kind)
    assert is_valid(kind, {**message, "new": 1})
    for name in message:
        assert not is_valid(kind, {key: value for key, value in message.items() if key != name})


def test_schemas_have_the_fields_of_the_code_and_no_other() -> None:
    """At the top and in each object inside."""
    references, flush, backfill, adoption = map(schema_of, KINDS[:4])
    inside = references["properties"]
    for struct, schema in [
        (ReferenceMessage, references), (ObjectPlace, inside["object"]), (SchemaLocation, inside["schema"]),
        (Checksum, inside["object"]["properties"]["checksum"]), (CoveredRange, inside["sources"]["items"]),
        (FlushRecord, flush), (FlushTotals, flush["properties"]["totals"]),
        (FlushedTopicPartition, flush["properties"]["topic_partitions"]["items"]),
        (BackfillRecord, backfill), (BackfillTotals, backfill["properties"]["totals"]),
        (BackfilledTopicPartition, backfill["properties"]["topic_partitions"]["items"]),
        (Adoption, adoption), (AdoptedTopicPartition, adoption["properties"]["topic_partitions"]["items"]),
        (StoredRecord, schema_of("dead_letter_record")), (ReplayMark, schema_of("replay_mark")),
    ]:  # fmt: skip
        fields = msgspec.structs.fields(struct)
        omitted = struct.__struct_config__.omit_defaults
        assert list(schema["properties"]) == [field.encode_name for field in fields]
        assert schema["required"] == [field.encode_name for field in fields if field.required or not omitted]
        assert all("description" in one or "$ref" in one for one in schema["properties"].values())
    assert len(references["$defs"]["line"]["prefixItems"]) == len(msgspec.structs.fields(Line))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (1, -1),
        (2, 0),
        (4, -1),
        (6, -1),
        (7, 0),
        (8, []),
        (8, [0, 0, -1, 1]),
    ],
)
def test_schema_refuses_a_line_that_is_none(place: int, value: object) -> None:
    """Negative numbers, references without entries, places of other types."""
    message = golden("references")
    message["references"][1][place] = value
    assert not is_valid("references", message)


@pytest.mark.parametrize("projection", [5, [[0]], [[0, "new"]], [[0, {"keys": "null"}]], ["long53"], [-1]])
def test_schema_refuses_what_is_no_projection(projection: object) -> None:
    """None of the forms of the page."""
    assert is_valid("references", golden("references") | {"schemas": [None, [], [[0, {"items": [[1, "null"]]}], 2]]})
    assert not is_valid("references", golden("references") | {"schemas": [projection]})


def test_messages_in_other_forms_fit_their_schema() -> None:
    """A message with the schema's text; a part of a flush record."""
    message = msgspec.json.decode(reference_message(), type=ReferenceMessage)
    schema = msgspec.structs.replace(message.schema, text="{}")
    full = msgspec.structs.replace(message, schema=schema)
    assert is_valid("references", json.loads(encode_message(full)))
    for part in split_parts(FLUSH_RECORD, bytes_max=1):
        assert is_valid("flush_record", json.loads(encode_flush_record(part)))


def test_page_names_every_type_reason_and_version() -> None:
    """A reader compares with these words."""
    for word in [REFERENCES_TYPE, FLUSH_TYPE, ADOPTION_TYPE, BACKFILL_TYPE, *Reason]:
        assert f"`{word}`" in PAGE_TEXT
