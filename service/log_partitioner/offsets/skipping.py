"""Plans `offsets skip`: one dead letter for a range of offsets, its flush record, and the offset behind the range.

Owns the conditions: the range begins at the group's next offset, the flush records agree, and the log has the range.
Changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from log_partitioner.batch.messages import Sender, dead_letter_message, flush_messages
from log_partitioner.boundary import Message
from log_partitioner.errors import SettingsError, StartPositionError
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushRecord, FlushTotals
from log_partitioner.formats.model import SKIPPED, CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.offsets.survey import Survey

GENERATION = 0  # no assignment has made it


class Skip(NamedTuple):
    """Offsets [first, end) to be skipped, and what is committed instead of their records."""

    tp: TopicPartition
    first: int
    after: CommittedOffset
    topic_ids: dict[str, str]
    at_ms: int

    def messages(self, sender: Sender, *, message_bytes_max: int) -> Iterator[Message]:
        """Yield the dead letter, and the flush record that covers the offsets."""
        batch_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self.at_ms / 1000))}-{sender.boot}-1"
        record = SourceRecord(self.tp, self.first, None, None, None, (), unreadable=SKIPPED)
        letter = DeadLetter(record, Reason.SKIPPED, SKIPPED, None, end_offset=self.after.offset)
        yield dead_letter_message(letter, sender, batch_id=batch_id, object_key=None)
        line = FlushedTopicPartition(
            topic=self.tp.topic, partition=self.tp.partition, first_offset=self.first, next_offset=self.after.offset,
            min_offset=self.first, max_offset=self.first, timestamp_max_ms=None, idle_since_ms=None,
            records=1, entries=1, dead_letters=1,
        )  # fmt: skip
        flush_record = FlushRecord(
            batch_id=batch_id, group_id=sender.kafka.group_id, topic_ids=self.topic_ids, worker=sender.worker,
            boot=sender.boot, seq=1, generation=GENERATION, reason=Reason.SKIPPED.value, started_at_ms=self.at_ms,
            ended_at_ms=self.at_ms, step_seconds={}, topic_partitions=(line,),
            totals=FlushTotals(
                records=1, entries=1, entries_in_files=0, dead_letters=1, dead_letter_records=1,
                references=0, bytes=0,
            ),
        )  # fmt: skip
        yield from flush_messages(flush_record, sender, message_bytes_max=message_bytes_max, at_ms=self.at_ms)


def plan(survey: Survey, partition: int, first: int, end: int, *, group_id: str) -> Skip:
    """Say what to commit so that the group goes on at `end`.

    Raises:
        SettingsError: the log does not have these offsets.
        StartPositionError: the group does not go on at `first`, or its flush records do not end there.
        HistoryUnknownError: the flush records cannot be read.
    """
    (standing,) = survey.standings([partition])
    tp, committed = standing.tp, standing.committed
    if not standing.first <= first < end <= standing.end:
        raise SettingsError([f"--from {first} --to {end}: {tp} has the offsets {standing.first} to {standing.end}"])
    if first != (standing.first if committed is None else committed.offset):
        raise StartPositionError(
            f"{tp}: the group goes on at {survey.describe(committed)}, and not at {first}. A worker that is stopped "
            "commits what it has read before"
        )
    there = {} if committed is None else {tp: committed}
    for problem in survey.disagreements(there, {} if standing.flushed is None else {tp: standing.flushed}, group_id):
        raise StartPositionError(problem)
    if committed is not None:
        survey.topics.keep(tp, committed.metadata)
    after = CommittedOffset(end, None, survey.topics.metadata_of(tp))
    return Skip(tp, first, after, dict(survey.topics.ids), survey.now_ms())
