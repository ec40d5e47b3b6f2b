"""A deployment without a worker: what one would have delivered, written by hand in a layout of the test's choice.

So what reads it is tested against another writer than the product's own.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal

import msgspec
from confluent_kafka import Message

from log_partitioner.formats.dead_letter import DeadLetter, Reason, headers_of
from log_partitioner.formats.flush_record import (
    AdoptedTopicPartition,
    Adoption,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
    decode_flush_record,
    encode_adoption,
    encode_flush_record,
    split_parts,
)
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import data_key, pack_key
from log_partitioner.formats.reference import Reference, decode_references, encode_message
from tests.pipeline.groups import commit
from tests.pipeline.packs import Entry, Written, split_message, write_object
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

Layout = Literal["file", "pack", "split"]
"""An object for each PartitionKey; one for all of a flush; the same, announced in messages of a few lines each."""

LINES_MAX = 3
PREFIX = "logs"
PARTS_BYTES_MAX = 600
WORKER = "by-hand"
_OTHERS = count(1)  # so that no two have a batch id in common


class ByHand:
    """Topics, a bucket, and what stands in them; it is what tests of the pipeline want of a `Deployment`."""

    def __init__(self, *, kafka: KafkaHelper, s3: S3Helper, names: Names, layout: Layout, partitions: int = 3) -> None:
        self.kafka = kafka
        self.s3 = s3
        self.layout = layout
        self.group = names.group()
        self.source = kafka.create_topic(names.topic("source"), partitions=partitions)
        self.references_topic = kafka.create_topic(names.topic("references"), partitions=2)
        self.flushes_topic = kafka.create_topic(names.topic("flushes"), partitions=1)
        self.dead_letters_topic = kafka.create_topic(names.topic("dead"), partitions=1)
        self.bucket = s3.create_bucket(names.bucket())
        self.declared: Callable[[dict[str, Any]], dict[str, Any]] = dict
        """Give the values that a format would make of an entry, with types that JSON lacks."""
        self._reached = dict.fromkeys(range(partitions), 0)
        self._flushes = 0

    def beside(self, group: str, *, source: str | None = None) -> "ByHand":
        """Give another group with the same output topics and bucket, of this source or another one; it begins anew."""
        other = copy(self)
        other.group, other.source = group, source or self.source
        other._reached, other._flushes = dict.fromkeys(self._reached, 0), 100 * next(_OTHERS)
        return other

    def adopted_by(self, group: str) -> "ByHand":
        """Let another group go on where this one has stopped."""
        other = self.beside(group)
        other._reached = dict(self._reached)
        lines = (
            AdoptedTopicPartition(topic=self.source, partition=n, next_offset=at) for n, at in self._reached.items()
        )
        adoption = Adoption(
            group_id=group, from_group=self.group, topic_ids={}, adopted_at_ms=0, topic_partitions=tuple(lines)
        )
        self.kafka.produce(self.flushes_topic, [ToProduce(value=encode_adoption(adoption))])
        commit(self.kafka, group, self.source, other._reached)
        return other

    def environment(self) -> dict[str, str]:
        """Give the environment of a job."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOGP_")}
        return inherited | {
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "LOGP_KAFKA__GROUP_ID": self.group,
            "LOGP_KAFKA__SOURCE_TOPICS": json.dumps([self.source]),
            "LOGP_KAFKA__REFERENCES_TOPIC": self.references_topic,
            "LOGP_KAFKA__FLUSHES_TOPIC": self.flushes_topic,
            "LOGP_KAFKA__DEAD_LETTERS_TOPIC": self.dead_letters_topic,
            **self.s3.endpoint.variables(self.bucket),
            "LOGP_S3__PREFIX": PREFIX,
            "LOGP_TIME__PATHS": '["time"]',
            "LOGP_ID__PATHS": '["id"]',
        }

    def deliver(self, records: list[ToProduce]) -> list[tuple[int, int]]:
        """Write records and, as one flush, what becomes of them; gives (partition, offset) of each.

        A record is an entry or a list of entries with `user`, `time` in milliseconds, and maybe `id`; who has no user
        is dead.
        """
        places = self.kafka.produce(self.source, records)
        self.flush(records, places)
        return places

    def flush(self, records: list[ToProduce], places: list[tuple[int, int]]) -> None:
        """Write, as one flush, what becomes of records that stand at these places."""
        batch_id, self._flushes = f"batch-{self._flushes}", self._flushes + 1
        deliverable: dict[PartitionKey, list[Entry]] = {}
        letters: list[DeadLetter] = []
        for record, (partition, offset) in sorted(zip(records, places, strict=True), key=lambda one: one[1]):
            value = json.loads(record.value or b"")
            entries = value if isinstance(value, list) else [value]
            dead = tuple(index for index, one in enumerate(entries) if "user" not in one)
            if dead:
                source = SourceRecord(
                    TopicPartition(self.source, partition), offset, record.timestamp_ms, record.key, record.value, ()
                )
                letters.append(DeadLetter(source, Reason.NO_USER, "no user", dead))
            for index, one in enumerate(entries):
                if index not in dead:
                    entry = _entry(self.declared(one), partition, offset, index, record.timestamp_ms)
                    deliverable.setdefault(entry.key, []).append(entry)
        spans = self._spans(places)
        written = self._objects(deliverable, batch_id, spans)
        for one in written:
            self._put(one)
        self._announce(written, batch_id)
        for letter in letters:
            headers = {name: text or b"" for name, text in headers_of(letter, batch_id=batch_id, group_id=self.group)}
            self.kafka.produce(self.dead_letters_topic, [ToProduce(value=letter.record.value, headers=headers)])
        flush = self._flush_record(batch_id, records, places, deliverable, letters, written)
        parts = [ToProduce(value=encode_flush_record(one)) for one in split_parts(flush, bytes_max=PARTS_BYTES_MAX)]
        self.kafka.produce(self.flushes_topic, parts)
        self._reached = {number: after for number, (_, after) in spans.items()}
        commit(self.kafka, self.group, self.source, self._reached)

    def _spans(self, places: list[tuple[int, int]]) -> dict[int, tuple[int, int]]:
        after = dict(self._reached)
        for partition, offset in places:
            after[partition] = max(after[partition], offset + 1)
        return {number: (first, after[number]) for number, first in self._reached.items()}

    def _objects(
        self, deliverable: dict[PartitionKey, list[Entry]], batch_id: str, covered: dict[int, tuple[int, int]]
    ) -> list[Written]:
        common: dict[str, Any] = {"batch_id": batch_id, "bucket": self.bucket, "topic": self.source, "covered": covered}
        common |= {"codec": "zstandard", "rows_per_block": 5, "with_text": self._flushes % 2 == 0}
        if self.layout != "file":
            key = pack_key(PREFIX, None, batch_id=batch_id, number=0)
            return [write_object([one for some in deliverable.values() for one in some], object_key=key, **common)]
        return [
            write_object(
                some, object_key=data_key(PREFIX, key, batch_id=batch_id, number=at), first_number=at, **common
            )
            for at, (key, some) in enumerate(deliverable.items())
        ]

    def _put(self, one: Written) -> None:
        client = self.s3.client
        client.put_object(Bucket=self.bucket, Key=one.message.object.key, Body=one.content)
        client.put_object(Bucket=self.bucket, Key=one.message.schema.object, Body=one.schema.text.encode())

    def _announce(self, written: list[Written], batch_id: str) -> None:
        lines_max = LINES_MAX if self.layout == "split" else 1_000_000
        messages = [message for one in written for message in split_message(one.message, lines_max=lines_max)]
        ours = [msgspec.structs.replace(one, group_id=self.group) for one in messages]
        values = [ToProduce(value=encode_message(one), key=batch_id.encode()) for one in ours]
        self.kafka.produce(self.references_topic, values)

    def _flush_record(
        self,
        batch_id: str,
        records: list[ToProduce],
        places: list[tuple[int, int]],
        deliverable: dict[PartitionKey, list[Entry]],
        letters: list[DeadLetter],
        written: list[Written],
    ) -> FlushRecord:
        filed = Counter(entry.partition for some in deliverable.values() for entry in some)
        dead = Counter[int]()
        for letter in letters:
            dead[letter.record.tp.partition] += letter.entries
        lines = []
        for number, (first, after) in self._spans(places).items():
            offsets = [offset for partition, offset in places if partition == number]
            times = [record.timestamp_ms for record, place in zip(records, places, strict=True) if place[0] == number]
            line = FlushedTopicPartition(
                topic=self.source,
                partition=number,
                first_offset=first,
                next_offset=after,
                min_offset=min(offsets, default=None),
                max_offset=max(offsets, default=None),
                timestamp_max_ms=max(times, default=None),
                idle_since_ms=None,
                records=len(offsets),
                entries=filed[number] + dead[number],
                dead_letters=dead[number],
            )
            lines.append(line)
        now_ms = round(datetime.now(tz=UTC).timestamp() * 1000)
        return FlushRecord(
            batch_id=batch_id,
            group_id=self.group,
            topic_ids={},
            worker="w",
            boot="boot",
            seq=self._flushes,
            generation=1,
            reason="interval",
            started_at_ms=now_ms - 1000,
            ended_at_ms=now_ms,
            step_seconds={},
            topic_partitions=tuple(lines),
            totals=FlushTotals(
                records=len(records),
                entries=filed.total() + dead.total(),
                entries_in_files=filed.total(),
                dead_letters=dead.total(),
                dead_letter_records=len(letters),
                references=sum(len(one.message.references) for one in written),
                bytes=sum(len(one.content) for one in written),
            ),
        )

    def references(self) -> list[Reference]:
        """All references."""
        messages = self.kafka.read_committed(self.references_topic)
        return [one for message in messages for one in decode_references(message.value() or b"")]

    def flush_records(self) -> list[FlushRecord]:
        """All flush records, or their parts."""
        return [decode_flush_record(one.value() or b"") for one in self.kafka.read_committed(self.flushes_topic)]

    def dead_letters(self) -> list[Message]:
        """All dead letters."""
        return self.kafka.read_committed(self.dead_letters_topic)


def _entry(values: dict[str, Any], partition: int, offset: int, index: int, timestamp_ms: int) -> Entry:
    moment = datetime.fromtimestamp(values["time"] / 1000, tz=UTC)
    key = PartitionKey(values["user"], moment.strftime("%Y-%m-%d"), moment.hour)
    return Entry(key, values, offset, partition, index, values["time"] * 1000, timestamp_ms)
