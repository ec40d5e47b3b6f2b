"""The worked example of docs/FORMATS.md: one flush of a small pack, its messages, and what a reader makes of them.

`files` gives what stands in tests/golden/format-1 and on the page; `python -m tests.golden.example` writes both anew,
which is a change of the format.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, cast

import fastavro
import msgspec

from log_partitioner.avro import container
from log_partitioner.avro.binary import encode_long
from log_partitioner.avro.pack_schema import merge
from log_partitioner.avro.schema import META, row_schema
from log_partitioner.avro.schema_types import RecordType, join_entries
from log_partitioner.batch.reference_lines import BatchNumbers, LineWriter
from log_partitioner.batch.row_writer import Blocks
from log_partitioner.batch.types import PlainTypes
from log_partitioner.config.settings import SchemaBounds
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.dead_letter import StoredRecord, encode_stored_record
from log_partitioner.formats.flush_record import (
    AdoptedTopicPartition,
    Adoption,
    BackfilledTopicPartition,
    BackfillRecord,
    BackfillTotals,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    encode_adoption,
    encode_backfill_record,
    encode_flush_record,
)
from log_partitioner.formats.model import PartitionKey, TopicPartition
from log_partitioner.formats.projection import project
from log_partitioner.formats.reference import (
    Checksum,
    Line,
    ObjectPlace,
    ReferenceMessage,
    SchemaLocation,
    decode_references,
    encode_message,
)
from log_partitioner.formats.replay import ReplayMark, encode_replay_mark
from tests.inferred import infer_entry
from tests.property.avro_reading import entry_fields, to_datum

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "format-1"
PAGE = ROOT / "docs" / "FORMATS.md"
EXAMPLE = re.compile(r"<!-- tests/golden/format-1/(\S+) -->\n\n```json\n(.*?)```\n", re.DOTALL)
WIDTH = 112

LIMITS = SchemaBounds(depth_max=16, object_keys_max=500, json_depth_max=64)
SYNC = bytes(range(16))
BATCH_ID = "20260304T050607Z-1f2e3d4c-17"
WORKER = "log-partitioner-0"
TOPIC_IDS = {"app": "Zk3vQh1yTQiM0d0mW0b6Xg"}
APP_0, APP_3 = TopicPartition("app", 0), TopicPartition("app", 3)
SPANS = {APP_0: (100, 110), APP_3: (7, 9)}
HOUR_4 = 1_772_596_800_000_000  # 2026-03-04T04:00:00Z
MINUTE = 60_000_000
EPOCH = datetime.fromtimestamp(0, tz=UTC)
RAW = {"topic": "raw", "partition": 5, "offset": 4711, "index": 1}


def row(tp: TopicPartition, offset: int, index: int, event_time_us: int, entry: Any, **more: Any) -> dict[str, Any]:
    """Make a row, its entry beside its `_meta`."""
    meta = {"user": "", "event_time": event_time_us, "id": None, "topic": tp.topic, "partition": tp.partition}
    meta |= {"offset": offset, "index": index, "timestamp": 1_772_600_760_000, "root": None}
    return {"meta": meta | more, "entry": entry}


ROWS: dict[PartitionKey, list[dict[str, Any]]] = {
    PartitionKey("ann", "2026-03-04", 4): [
        row(APP_0, 101, 0, HOUR_4 + MINUTE, {"status": 200, "path": "/", "bytes": 512}, id="e-1"),
        row(APP_0, 101, 1, HOUR_4 + 3 * MINUTE, {"status": 404, "path": "/x", "bytes": None}),
        row(APP_3, 8, 0, HOUR_4 + 2 * MINUTE, {"status": 200, "path": "/"}),
    ],
    PartitionKey("bob", "2026-03-04", 4): [
        row(APP_0, 104, 0, HOUR_4, {"status": 200, "bytes": 2**53 + 1, "ctx": {"a-b": 1}, "tags": ["x"]}, root=RAW),
    ],
    PartitionKey("é", "2026-03-04", 5): [
        row(APP_0, 109, 0, HOUR_4 + 60 * MINUTE, {"ctx": {}, "tags": [], "path": None}),
    ],
}
TYPES: dict[PartitionKey, RecordType] = {
    key: join_entries([infer_entry(one["entry"], LIMITS) for one in rows], object_keys_max=LIMITS.object_keys_max)
    for key, rows in ROWS.items()
}
MERGED = reduce(merge, TYPES.values())
SCHEMA = row_schema(MERGED)


def block(key: PartitionKey) -> bytes:
    """Write the block of one PartitionKey, by fastavro."""
    schema = json.loads(SCHEMA.text)
    data = io.BytesIO()
    for one in ROWS[key]:
        datum = {META: one["meta"] | {"user": key.user}, **to_datum(entry_fields(schema), one["entry"])}
        fastavro.schemaless_writer(data, schema, datum)
    return encode_long(len(ROWS[key])) + encode_long(data.tell()) + data.getvalue() + SYNC


HEADER = container.header(SCHEMA.text, codec="null", sync=SYNC, metadata={"lp-batch-id": BATCH_ID})
PACK = HEADER + b"".join(map(block, ROWS))


def blocks(key: PartitionKey, numbered: BatchNumbers) -> Blocks:
    """Count the rows of one PartitionKey."""
    metas = [one["meta"] for one in ROWS[key]]
    times = [meta["event_time"] for meta in metas]
    offsets = [[meta["offset"] for meta in metas if meta["partition"] == tp.partition] for tp in SPANS]
    sources = [(number, min(some), max(some), len(some)) for number, some in enumerate(offsets) if some]
    return Blocks(
        key.user,
        numbered.hour(key[1:]),
        numbered.types.number(TYPES[key]),
        len(block(key)),
        len(metas),
        min(times),
        max(times),
        sources,
    )


def reference_message() -> bytes:
    """Write the message that announces the pack."""
    types = PlainTypes(LIMITS)
    numbered = BatchNumbers([*SPANS], SPANS, types, bytes_max=900_000)
    writer = LineWriter(types.number(MERGED), numbered)
    start = len(HEADER)
    for key in ROWS:
        writer.add_line(blocks(key, numbered), start)
        start += len(block(key))
    (group,) = writer.groups()
    sha256 = hashlib.sha256(PACK).hexdigest()
    message = ReferenceMessage(
        batch_id=BATCH_ID,
        group_id="log-partitioner",
        worker=WORKER,
        generation=3,
        first_number=40,
        object=ObjectPlace(
            bucket="my-logs",
            key=f"logs/pack/{BATCH_ID}-0.avro",
            etag='"5d41402abc4b2a76b9719d911017c592"',
            version_id=None,
            size=len(PACK),
            checksum=Checksum("sha256", sha256),
            header_bytes=len(HEADER),
        ),
        schema=SchemaLocation(SCHEMA.fingerprint, f"logs/_schemas/{SCHEMA.fingerprint}.avsc"),
        sources=group.sources,
        event_time_us=group.event_time_us,
        hours=group.hours,
        schemas=group.schemas,
        references=cast("tuple[Line, ...]", group.lines),  # encoded already
    )
    return encode_message(message)


def flushed(tp: TopicPartition, **more: Any) -> FlushedTopicPartition:
    """Make the line of a TopicPartition in a flush record."""
    first_offset, next_offset = SPANS[tp]
    return FlushedTopicPartition(
        topic=tp.topic, partition=tp.partition, first_offset=first_offset, next_offset=next_offset, **more
    )


FLUSH_RECORD = FlushRecord(
    batch_id=BATCH_ID,
    group_id="log-partitioner",
    topic_ids=TOPIC_IDS,
    worker=WORKER,
    boot="1f2e3d4c",
    seq=17,
    generation=3,
    reason="interval",
    started_at_ms=1_772_600_767_000,
    ended_at_ms=1_772_600_797_500,
    step_seconds={"seal": 0.25, "upload": 1.0},
    topic_partitions=(
        flushed(
            APP_0, min_offset=101, max_offset=109, timestamp_max_ms=1_772_600_796_000, idle_since_ms=None,
            records=5, entries=6, dead_letters=1,
        ),
        flushed(
            APP_3, min_offset=8, max_offset=8, timestamp_max_ms=1_772_600_760_000, idle_since_ms=None,
            records=1, entries=1, dead_letters=0,
        ),
    ),
    totals=FlushTotals(
        records=6, entries=7, entries_in_files=6, dead_letters=1, dead_letter_records=1,
        references=3, bytes=len(PACK),
    ),
)  # fmt: skip
ADOPTION = Adoption(
    group_id="log-partitioner",
    from_group="logs-2025",
    topic_ids=TOPIC_IDS,
    adopted_at_ms=1_772_600_000_000,
    topic_partitions=(
        AdoptedTopicPartition(topic="app", partition=0, next_offset=100),
        AdoptedTopicPartition(topic="app", partition=3, next_offset=7),
    ),
)
REPLAY_MARK = ReplayMark(group_id="log-partitioner", replayed_at_ms=1_772_600_900_000, offsets=(17, 18, 40))
BACKFILL_RECORD = BackfillRecord(
    batch_id="backfill-20260305T090000Z-0a1b2c3d",
    group_id="log-partitioner",
    worker="backfill",
    generation=0,
    started_at_ms=1_772_701_200_000,
    committed_at_ms=1_772_701_260_000,
    outbox="ab" * 32,
    published=3,
    messages=5,
    topic_partitions=(
        BackfilledTopicPartition(
            topic="app", partition=0, first_offset=0, next_offset=90, entries_in_files=41, dead_letters=1
        ),
    ),
    totals=BackfillTotals(references=12, entries_in_files=41, dead_letters=1, dead_letter_records=1, bytes=20_480),
)
OFFSET_METADATA = offset_metadata.encode(TOPIC_IDS["app"])
STORED_RECORD = StoredRecord(key=None, value=b'{"no": "user"}', headers=[("trace", b"\xff\0"), ("empty", None)])


def read_with_two_gets(message: bytes, pack: bytes) -> list[list[dict[str, Any]]]:
    """Read the rows of each reference from its byte ranges, as Avro has them; times are numbers."""
    found = []
    for reference in decode_references(message):
        data = b"".join(pack[start : start + length] for start, length in reference.location.ranges)
        found.append([_with_numbers(one) for one in fastavro.reader(io.BytesIO(data))])
    return found


def _with_numbers(read: Any) -> dict[str, Any]:
    event_time_us = (read[META]["event_time"] - EPOCH) // timedelta(microseconds=1)
    timestamp_ms = (read[META]["timestamp"] - EPOCH) // timedelta(milliseconds=1)
    return {**read, META: read[META] | {"event_time": event_time_us, "timestamp": timestamp_ms}}


def exact_schemas(message: bytes) -> list[list[Any]]:
    """Give the fields of each reference's exact schema, without `_meta`."""
    whole = decode_references(message)
    return [entry_fields(project(json.loads(SCHEMA.text), reference.projection)) for reference in whole]


def files() -> dict[str, Any]:
    """Give what stands in the golden files: bytes as they are, everything else as JSON."""
    message = reference_message()
    return {
        "pack.avro": PACK,
        "pack.avsc": SCHEMA.text.encode(),
        "references.json": json.loads(message),
        "references_whole.json": json.loads(msgspec.json.encode(decode_references(message))),
        "schema.json": json.loads(SCHEMA.text),
        "exact_schemas.json": exact_schemas(message),
        "rows.json": read_with_two_gets(message, PACK),
        "flush_record.json": json.loads(encode_flush_record(FLUSH_RECORD)),
        "adoption.json": json.loads(encode_adoption(ADOPTION)),
        "replay_mark.json": json.loads(encode_replay_mark(REPLAY_MARK)),
        "backfill_record.json": json.loads(encode_backfill_record(BACKFILL_RECORD)),
        "offset_metadata.json": json.loads(OFFSET_METADATA),
        "dead_letter_record.json": json.loads(encode_stored_record(STORED_RECORD)),
    }


def pretty(value: Any, indent: str = "", room: int = WIDTH) -> str:
    """Write JSON for people: on one line what fits on one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) <= room - len(indent):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + pretty(item, deeper) for item in value) + f"\n{indent}]"
    members = (
        f"{deeper}{json.dumps(name)}: {pretty(item, deeper, room - len(name) - 4)}" for name, item in value.items()
    )
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"


def text_of(content: Any) -> bytes:
    """Give the bytes of a golden file."""
    return content if isinstance(content, bytes) else (pretty(content) + "\n").encode()


def main() -> None:
    """Write golden files and the examples of the page anew."""
    for name, content in files().items():
        (GOLDEN / name).write_bytes(text_of(content))
    page = EXAMPLE.sub(
        lambda found: f"<!-- tests/golden/format-1/{found[1]} -->\n\n```json\n{(GOLDEN / found[1]).read_text()}```\n",
        PAGE.read_text(encoding="utf-8"),
    )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
