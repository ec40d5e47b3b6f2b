"""Orphans: whatever may be wanted stays, kind by kind; and what is known of that is read as far as it reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pytest

from log_partitioner.adapters.object_store import ListedObject
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.flush_record import encode_backfill_record
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import (
    check_key,
    data_key,
    dead_letter_key,
    pack_key,
    schema_key,
    stored_record_key,
)
from log_partitioner.operations.orphan_rules import SKEW_MS, NamedKeys, NamingEvidence, Stays, reach_of, why_it_stays
from log_partitioner.operations.orphans import read_evidence
from tests.golden.example import BACKFILL_RECORD, GOLDEN

PREFIX = "logs"
BATCH = "20260304T050607Z-1f2e3d4c-17"  # as begun at:
BEGUN_MS = 1_772_600_767_000
RUN = "backfill-20260305T090000Z-0a1b2c3d"
KEY = PartitionKey("~/ä user", "2026-03-04", 5)
UPLOADED_MS = BEGUN_MS + 30_000
NOW_MS = BEGUN_MS + 10 * 86_400_000
ORPHANS = [
    data_key(PREFIX, KEY, batch_id=BATCH, number=3),
    data_key(PREFIX, KEY, batch_id=BATCH, number=3, attempt=2),
    pack_key(PREFIX, ("2026-03-04", 5), batch_id=BATCH, number=0),
    pack_key(PREFIX, None, batch_id=BATCH, number=0, attempt=1),
    pack_key(PREFIX, None, batch_id=f"{RUN}-01234567", number=0),
]
EVIDENCE = NamingEvidence(NamedKeys([]), {"1f2e3d4c", RUN}, {RUN}, BEGUN_MS - SKEW_MS - 1, NOW_MS - 86_400_000)


@pytest.mark.parametrize("key", ORPHANS)
def test_object_of_rows_that_nothing_names_is_an_orphan(key: str) -> None:
    """Each form of key, by each kind of writer."""
    assert why_it_stays(PREFIX, ListedObject(key, 1, UPLOADED_MS), EVIDENCE) is None


@pytest.mark.parametrize("key", ORPHANS)
def test_object_that_any_reference_names_stays(key: str) -> None:
    """The group does not matter, nor what became of its rows since."""
    known = EVIDENCE._replace(named=NamedKeys(["other", key, "another"]))
    assert why_it_stays(PREFIX, ListedObject(key, 1, UPLOADED_MS), known) is Stays.NAMED


STAY = {
    "young": (ORPHANS[0], EVIDENCE.before_ms + 1, {}, Stays.YOUNG),
    "young-in-a-copied-bucket": (ORPHANS[0], NOW_MS, {}, Stays.YOUNG),
    "of-a-backfill-that-goes-on": (ORPHANS[4], UPLOADED_MS, {"finished": ()}, Stays.AWAITED),
    "of-another-deployment": (ORPHANS[0], UPLOADED_MS, {"writers": ("ffffffff", RUN)}, Stays.UNKNOWN),
    "of-a-backfill-of-another-deployment": (ORPHANS[4], UPLOADED_MS, {"writers": ("1f2e3d4c",)}, Stays.UNKNOWN),
    "before-the-references": (ORPHANS[0], UPLOADED_MS, {"reach_ms": BEGUN_MS - SKEW_MS}, Stays.FORGOTTEN),
    "before-the-references-copied": (ORPHANS[0], NOW_MS - 2 * 86_400_000, {"reach_ms": BEGUN_MS}, Stays.FORGOTTEN),
    "of-a-backfill-before-the-references": (ORPHANS[4], UPLOADED_MS, {"reach_ms": UPLOADED_MS}, Stays.FORGOTTEN),
    "where-nothing-is-known-of-references": (ORPHANS[0], UPLOADED_MS, {"reach_ms": None}, Stays.FORGOTTEN),
    "dead-letter": (dead_letter_key(PREFIX, batch_id=BATCH, number=1), UPLOADED_MS, {}, Stays.NO_ROWS),
    "stored-record": (stored_record_key(PREFIX, batch_id=BATCH, number=1), UPLOADED_MS, {}, Stays.NO_ROWS),
    "schema": (schema_key(PREFIX, "ab" * 32), UPLOADED_MS, {}, Stays.NO_ROWS),
    "check": (check_key(PREFIX), UPLOADED_MS, {}, Stays.NO_ROWS),
    "outbox": (f"{PREFIX}/_backfill/r1/manifest.json", UPLOADED_MS, {}, Stays.NO_ROWS),
    "somebody-else's-file": (f"{PREFIX}/pack/notes.avro", UPLOADED_MS, {}, Stays.NO_ROWS),
    "somebody-else's-table": (f"{PREFIX}/user=ann/part-{BATCH}-0.avro", UPLOADED_MS, {}, Stays.NO_ROWS),
    "another-prefix": (ORPHANS[0].replace("logs/", "logs-2/"), UPLOADED_MS, {}, Stays.NO_ROWS),
}


@pytest.mark.parametrize("case", STAY)
def test_object_that_may_be_wanted_stays(case: str) -> None:
    """One case for each kind."""
    key, modified_ms, changes, why = STAY[case]
    assert why_it_stays(PREFIX, ListedObject(key, 1, modified_ms), EVIDENCE._replace(**changes)) is why


P0, P1, P2 = (TopicPartition("references", number) for number in range(3))


@pytest.mark.parametrize(
    ("begins", "reach_ms"),
    [
        ({}, None),
        ({P0: (0, None)}, None),
        ({P0: (0, 5), P1: (0, None)}, 5),
        ({P0: (0, 5), P1: (7, 9), P2: (0, 2)}, 9),
        ({P0: (0, 5), P1: (7, None)}, None),
    ],
    ids=["no-topic", "nothing-yet", "one-not-used-yet", "cut", "cut-to-nothing"],
)
def test_topic_reaches_back_to_the_latest_beginning_of_its_partitions(
    begins: Mapping[TopicPartition, tuple[int, int | None]], reach_ms: int | None
) -> None:
    """A reference may be in any partition; if one has lost all its records, the reach is not known."""
    assert reach_of(begins) == reach_ms


class MemoryTopics:
    """Topics of one partition each, which begin at offset 3."""

    def __init__(self, **topics: list[bytes]) -> None:
        self._topics = {TopicPartition(topic, 0): values for topic, values in topics.items()}
        self.open: list[str] = []

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the only partition."""
        assert may_be_absent
        return [tp for tp in self._topics if tp.topic == topic]

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[Mapping[TopicPartition, tuple[int, int]], list[str]]:
        """Give offsets, and what is open."""
        return {tp: (3, 3 + len(self._topics[tp])) for tp in tps}, self.open

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield everything, a second apart."""
        for tp in ranges:
            for number, value in enumerate(self._topics[tp]):
                yield SourceRecord(tp, 3 + number, 1000 * number + 500, None, value, ())


REFERENCES = (GOLDEN / "references.json").read_bytes()
FLUSHES = [(GOLDEN / "flush_record.json").read_bytes()]
KAFKA = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("app",))
GOES_ON = msgspec.structs.replace(BACKFILL_RECORD, batch_id="backfill-b", published=1)
DONE = msgspec.structs.replace(BACKFILL_RECORD, batch_id="backfill-a", published=BACKFILL_RECORD.messages)


def test_what_is_known_is_read_from_references_and_run_records() -> None:
    """Named objects, who has written them, the backfills that are done, and how far that reaches."""
    runs = [encode_backfill_record(one) for one in (msgspec.structs.replace(DONE, published=1), DONE, GOES_ON)]
    of_run = REFERENCES.replace(b"20260304T050607Z-1f2e3d4c-17-0.avro", b"backfill-a-01234567-0.avro")
    topics = MemoryTopics(references=[REFERENCES, of_run], backfills=[*runs, b"{}"])

    known = read_evidence(topics, KAFKA, PREFIX, before_ms=7)

    assert "logs/pack/20260304T050607Z-1f2e3d4c-17-0.avro" in known.named
    assert "logs/pack/20260304T050607Z-1f2e3d4c-17-1.avro" not in known.named
    assert (known.writers, known.finished, known.reach_ms) == ({"1f2e3d4c", "backfill-a"}, {"backfill-a"}, 500)


def test_object_stays_whose_writer_announces_in_another_topic_of_references() -> None:
    """Two deployments may share bucket, prefix and the topics of flushes and backfills."""
    others = REFERENCES.replace(b"1f2e3d4c", b"ffffffff")
    topics = MemoryTopics(references=[others], flushes=FLUSHES, backfills=[encode_backfill_record(DONE)])

    known = read_evidence(topics, KAFKA, PREFIX, before_ms=NOW_MS)

    for key in (pack_key(PREFIX, None, batch_id=one, number=1) for one in (BATCH, "backfill-a-01234567")):
        assert why_it_stays(PREFIX, ListedObject(key, 1, UPLOADED_MS), known) is Stays.UNKNOWN


def test_object_that_a_reference_names_in_another_bucket_stays() -> None:
    """The bucket was copied, and readers of the copy find it by its key."""
    topics = MemoryTopics(references=[REFERENCES.replace(b'"my-logs"', b'"old-logs"')])
    key = "logs/pack/20260304T050607Z-1f2e3d4c-17-0.avro"
    known = read_evidence(topics, KAFKA, PREFIX, before_ms=NOW_MS)
    assert why_it_stays(PREFIX, ListedObject(key, 1, UPLOADED_MS), known) is Stays.NAMED


@pytest.mark.parametrize("value", [b"{}", REFERENCES.replace(b'"format_version": 1', b'"format_version": 2')])
def test_message_of_references_that_cannot_be_read_may_name_anything(value: bytes) -> None:
    """Then nothing is an orphan."""
    with pytest.raises(CouldNotTellError, match="references-0 offset 4"):
        read_evidence(MemoryTopics(references=[REFERENCES, value]), KAFKA, PREFIX, before_ms=7)


def test_transaction_that_is_open_may_hide_references() -> None:
    """Then nothing is an orphan, either."""
    topics = MemoryTopics(references=[REFERENCES])
    topics.open = ["references-0: a transaction has been open"]
    with pytest.raises(CouldNotTellError, match="has been open"):
        read_evidence(topics, KAFKA, PREFIX, before_ms=7)
