"""The flushes and backfills topics: flush records, adoptions, backfill records (docs/FORMATS.md).

Owns these messages' fields and their JSON form; `encode_*` and `decode_*` are pairs. Owns the lineage of a group, too:
whose flushes are its own history, decided by group, TopicPartition and offset alone, so that references and dead
letters can be judged as flush records are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from log_partitioner.formats.offset_metadata import Ways
from log_partitioner.formats.reference import FORMAT_VERSION, decode_known

PART_NUMBERS_BYTES = 20  # room for `part` and `parts`, which are known last


class FlushedTopicPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One owned TopicPartition in a flush record.

    first_offset is the committed position from which the batch started, next_offset the one it commits;
    min_offset and max_offset are None if nothing was read. idle_since_ms is wall-clock time, None while
    records come. The conservation law: entries == in files + dead_letters.

    If replays are discarded (DESIGN 3.8), first_ways and next_ways have the places recorded at these offsets by way,
    the least recently used way first, and discarded_replays counts records; a discarded record has no entries.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    min_offset: int | None
    max_offset: int | None
    timestamp_max_ms: int | None
    idle_since_ms: int | None
    records: int
    entries: int
    dead_letters: int
    first_ways: Ways | None = None
    next_ways: Ways | None = None
    discarded_replays: int = 0


class FlushTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over one flush; `dead_letters` counts entries, `dead_letter_records` the messages."""

    records: int
    entries: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    references: int
    bytes: int


class FlushRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces one flush: the offsets that it covers, and the outcome of their entries.

    One too large for its topic comes in `parts`, each with some of the TopicPartitions and everything else alike but
    for `topic_ids`; all parts of a batch together are the flush record (`merge_parts`). `topic_ids` are Kafka's ids of
    the source topics of these TopicPartitions, as far as they are known.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    part: int = 1
    parts: int = 1
    group_id: str
    topic_ids: dict[str, str]
    worker: str
    boot: str
    seq: int
    generation: int
    reason: str
    started_at_ms: int
    ended_at_ms: int
    step_seconds: dict[str, float]
    topic_partitions: tuple[FlushedTopicPartition, ...]
    totals: FlushTotals


class BackfilledTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One TopicPartition in a backfill's record: the range it looked at, and the entries it has published so far."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    entries_in_files: int
    dead_letters: int


class BackfillTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over everything that a backfill has published so far; `dead_letters` counts entries."""

    references: int
    entries_in_files: int
    dead_letters: int
    dead_letter_records: int
    bytes: int


class BackfillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Announces the progress of a backfill; one in each of its transactions, the last one of a batch id counts.

    `published` of `messages` (references and dead letters, in the order of its outbox) are committed: a restart goes on
    there. The run is finished when they are equal. `outbox` is the SHA-256 of the list of these messages.
    """

    format_version: int = FORMAT_VERSION
    batch_id: str
    group_id: str
    worker: str
    generation: int
    started_at_ms: int
    committed_at_ms: int
    outbox: str
    published: int
    messages: int
    topic_partitions: tuple[BackfilledTopicPartition, ...]
    totals: BackfillTotals

    @property
    def is_finished(self) -> bool:
        """Whether everything is published."""
        return self.published == self.messages


decode_flush_record = partial(decode_known, msgspec.json.Decoder(FlushRecord))
"""Read a flush record, or one part of it; raises as `decode_known`."""
decode_backfill_record = partial(decode_known, msgspec.json.Decoder(BackfillRecord))
"""Read a backfill's record; raises as `decode_known`."""
encode_flush_record = msgspec.json.Encoder().encode
encode_backfill_record = msgspec.json.Encoder().encode


def split_parts(record: FlushRecord, *, bytes_max: int) -> list[FlushRecord]:
    """Return a flush record in parts that have at most so many bytes of JSON each, in one if it has.

    A part has one TopicPartition at least, even if that alone is more.
    """
    if len(encode_flush_record(record)) <= bytes_max:
        return [record]
    lines, ids = record.topic_partitions, record.topic_ids
    longest = max(len(encode_flush_record((line, {line.topic: ids.get(line.topic)}))) for line in lines)
    head = msgspec.structs.replace(record, topic_partitions=(), topic_ids={})
    at_once = max(1, (bytes_max - PART_NUMBERS_BYTES - len(encode_flush_record(head))) // longest)
    some = [lines[at : at + at_once] for at in range(0, len(lines), at_once)]
    return [
        msgspec.structs.replace(
            record,
            part=part,
            parts=len(some),
            topic_partitions=few,
            topic_ids={line.topic: ids[line.topic] for line in few if line.topic in ids},
        )
        for part, few in enumerate(some, 1)
    ]


def merge_parts(parts: Iterable[FlushRecord]) -> tuple[list[FlushRecord], list[str]]:
    """Return whole flush records, in the order of their first parts, and the problems of those that are not whole.

    One with parts that are missing, doubled or unlike each other has the TopicPartitions of those there are. Records
    of one part stay as many as they are: that is for the caller to judge.
    """
    by_batch: dict[str, list[FlushRecord]] = {}
    for part in parts:
        by_batch.setdefault(part.batch_id, []).append(part)
    whole, problems = [], []
    for batch_id, some in by_batch.items():
        if all(part.parts == 1 for part in some):
            whole += some
            continue
        some.sort(key=lambda part: part.part)
        numbers = [(part.part, part.parts) for part in some]
        if numbers != [(number, len(some)) for number in range(1, len(some) + 1)]:
            of = ", ".join(f"{part} of {parts}" for part, parts in numbers)
            problems.append(f"batch {batch_id}: its flush record has the parts {of}")
        ids = {topic: topic_id for part in some for topic, topic_id in part.topic_ids.items()}
        first, *others = (
            msgspec.structs.replace(part, part=1, parts=1, topic_partitions=(), topic_ids=ids) for part in some
        )
        if any(other != first for other in others) or any(not part.topic_ids.items() <= ids.items() for part in some):
            problems.append(f"batch {batch_id}: the parts of its flush record differ in what they share")
        lines = tuple(line for part in some for line in part.topic_partitions)
        whole.append(msgspec.structs.replace(first, topic_partitions=lines))
    return whole, problems


ADOPTED_AT_ONCE = 5_000  # TopicPartitions in one message: 500 KB with names of 50 characters


class AdoptedTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One TopicPartition of an adoption: the next offset of the group that stopped, at which the other goes on."""

    topic: str
    partition: int
    next_offset: int


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """Announces that `group_id` goes on where `from_group` stopped.

    It is committed with these offsets of `group_id`, in one transaction, and stands in each partition of the topic:
    who reads one backwards meets it before any flush record of `from_group`. `topic_ids` are Kafka's ids of the source
    topics, as far as they are known.
    """

    format_version: int = FORMAT_VERSION
    group_id: str
    from_group: str
    topic_ids: dict[str, str]
    adopted_at_ms: int
    topic_partitions: tuple[AdoptedTopicPartition, ...]


class _Kind(msgspec.Struct):
    """Tells the two apart without headers."""

    from_group: str | None = None


_kind_decoder = msgspec.json.Decoder(_Kind)
decode_adoption = partial(decode_known, msgspec.json.Decoder(Adoption))
"""Read an adoption; raises as `decode_known`."""
encode_adoption = msgspec.json.Encoder().encode


def decode_flushes(value: bytes) -> FlushRecord | Adoption:
    """Decode a message of the flushes topic: a flush record, one part of it, or an adoption.

    Raises:
        msgspec.DecodeError: neither, or of a format version that this code does not know.
    """
    try:
        is_adoption = _kind_decoder.decode(value).from_group is not None
    except (msgspec.ValidationError, UnicodeError, RecursionError):
        is_adoption = False
    return decode_adoption(value) if is_adoption else decode_flush_record(value)


class Lineage:
    """Decides which flushes are the history of one group: its own, and flushes of adopted groups up to the adoption.

    Adoption is transitive: groups that an adopted group had adopted belong to the history, too. Everything else is
    foreign: other groups, and flushes of an adopted group beyond the adopted offset. Two topics of one name are the
    same if their ids are equal, or if one id is unknown.
    """

    def __init__(self, group_id: str, adoptions: Iterable[Adoption]) -> None:
        by_group: dict[str, list[Adoption]] = {}
        for adoption in adoptions:
            by_group.setdefault(adoption.group_id, []).append(adoption)
        self._adopted: dict[tuple[str, str, int], list[tuple[str | None, int]]] = {}
        groups = [group_id]
        for group in groups:  # grows meanwhile: no group twice, whatever the adoptions say
            for adoption in by_group.get(group, ()):
                if adoption.from_group not in groups:
                    groups.append(adoption.from_group)
                for line in adoption.topic_partitions:
                    place = adoption.from_group, line.topic, line.partition
                    end = adoption.topic_ids.get(line.topic), line.next_offset
                    self._adopted.setdefault(place, []).append(end)
        self.group_id = group_id
        self.groups = tuple(groups)
        """The group itself, then the groups that it has adopted, directly or not."""

    def has(self, group_id: str, topic: str, partition: int, next_offset: int, topic_id: str | None = None) -> bool:
        """Return whether this group's flushes of a TopicPartition, up to `next_offset`, are part of the history."""
        return group_id == self.group_id or any(
            next_offset <= end and (adopted_id is None or topic_id is None or adopted_id == topic_id)
            for adopted_id, end in self._adopted.get((group_id, topic, partition), ())
        )

    def ends(self) -> dict[tuple[str, str, int], int]:
        """Return the offsets up to which adopted groups belong to the history, by group, topic and partition."""
        return {place: max(end for _, end in ends) for place, ends in self._adopted.items()}

    def has_flush(self, record: FlushRecord) -> bool:
        """Return whether a flush record is part of the history: all of its TopicPartitions are."""
        return all(
            self.has(record.group_id, line.topic, line.partition, line.next_offset, record.topic_ids.get(line.topic))
            for line in record.topic_partitions
        )


def heads(groups: Iterable[str], adoptions: Iterable[Adoption]) -> list[str]:
    """Return the groups that no other group has adopted; each is the head of a history."""
    adopted = {adoption.from_group for adoption in adoptions}
    return sorted(set(groups) - adopted)


def adoptions_of(adoption: Adoption) -> list[Adoption]:
    """Split an adoption into as many as are needed for each to fit into a message, each for its TopicPartitions."""
    lines = adoption.topic_partitions
    some = (lines[start : start + ADOPTED_AT_ONCE] for start in range(0, len(lines), ADOPTED_AT_ONCE))
    return [msgspec.structs.replace(adoption, topic_partitions=few) for few in some]
