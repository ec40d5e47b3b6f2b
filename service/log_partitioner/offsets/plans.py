"""Plans what `offsets` changes: committed offsets that are set, offsets that are skipped, a group that another adopts.

Owns the conditions, and the cost in records that are published twice or skipped; changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from log_partitioner.batch.messages import Sender, dead_letter_message, flush_messages
from log_partitioner.boundary import Message
from log_partitioner.errors import SettingsError, StartPositionError
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.flush_record import (
    AdoptedTopicPartition,
    Adoption,
    FlushedTopicPartition,
    FlushRecord,
    FlushTotals,
)
from log_partitioner.formats.model import SKIPPED, CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.formats.offset_metadata import Ways
from log_partitioner.offsets.survey import Standing, Survey
from log_partitioner.runtime.positions import LISTED_MAX, describe_foreign, listed

Target = Literal["committed", "flushed", "beginning"] | int


class Change(NamedTuple):
    """The change of one committed offset.

    `after` is None if the offset stays as it is; `note` says why, and `is_met` whether it is as requested already.
    `twice` counts the offsets that will be published again, `skipped` those that will never be published.
    """

    tp: TopicPartition
    before: CommittedOffset | None
    after: CommittedOffset | None
    note: str = ""
    is_met: bool = True
    twice: int = 0
    skipped: int = 0


def plan_changes(survey: Survey, target: Target, partitions: Collection[int] = ()) -> list[Change]:
    """Say for each TopicPartition what `set --to` changes.

    Raises:
        SettingsError: an offset without exactly one partition, or one that the log does not have.
        HistoryUnknownError: the flush records cannot be read.
    """
    if isinstance(target, int) and len(partitions) != 1:
        raise SettingsError(["--to OFFSET takes exactly one --partition"])
    return [
        _change(survey, standing, target, is_named=standing.tp.partition in partitions)
        for standing in survey.standings(partitions)
    ]


def _change(survey: Survey, standing: Standing, target: Target, *, is_named: bool) -> Change:
    tp, before = standing.tp, standing.committed
    if isinstance(target, int) and not standing.first <= target <= standing.end:
        raise SettingsError([f"--to {target}: {tp} has the offsets {standing.first} to {standing.end}"])
    if target == "committed":
        if before is None:
            return Change(tp, None, None, "nothing is committed", is_met=False)
        offset = before.offset
    elif target == "flushed":
        if problem := _not_at_flushed(survey, standing):
            return Change(tp, before, None, problem, is_met=False)
        assert standing.flushed is not None, "there is a flush record"
        offset = standing.flushed
    else:
        offset = standing.first if target == "beginning" else target
    known = None if before is None else offset_metadata.decode(before.metadata).ways
    ways = {"committed": known, "flushed": standing.ways}.get(str(target))  # any other start begins anew
    after = _after(survey, standing, offset, keeps_epoch=not is_named, ways=ways)
    if after == before:
        return Change(tp, before, None, "it is there")
    twice, skipped = _cost(survey, standing, offset)
    return Change(tp, before, after, twice=twice, skipped=skipped)


def _not_at_flushed(survey: Survey, standing: Standing) -> str:
    """Say why a TopicPartition cannot go on where its flush records end; empty if it can."""
    if standing.flushed is None:
        return "no flush record of this group names it"
    if standing.committed is not None and survey.is_of_another_topic(standing.committed):
        return "it is of another topic of this name: --to committed or --to beginning"
    if not standing.first <= standing.flushed <= standing.end:
        return f"flush records end at {standing.flushed}, the log has {standing.first} to {standing.end} only"
    return ""


def _after(survey: Survey, standing: Standing, offset: int, *, keeps_epoch: bool, ways: Ways | None) -> CommittedOffset:
    """Return what to commit; it says when a person has set it, unless flush records say the same.

    If the same offset of this very topic stays, its leader epoch does, too, unless the partition is named: then its log
    may have been rewritten.
    """
    before = standing.committed
    told = offset_metadata.decode("" if before is None else before.metadata)
    stays = before is not None and before.offset == offset
    is_same = before is not None and stays and survey.is_of_this_topic(before)
    if standing.flushed is not None and offset < standing.flushed:
        set_ms: int | None = survey.now_ms()  # whatever was set before: flush records may be younger
    elif is_same:
        set_ms = told.set_ms
    else:
        set_ms = None if offset == standing.flushed else survey.now_ms()
    epoch = before.leader_epoch if before is not None and is_same and keeps_epoch else None
    return CommittedOffset(offset, epoch, offset_metadata.encode(survey.topic_id, set_ms=set_ms, ways=ways))


def _cost(survey: Survey, standing: Standing, offset: int) -> tuple[int, int]:
    """Count offsets that are published twice, and that are skipped, as far as flush records, or a start, tell."""
    before, first = standing.committed, standing.first
    if standing.flushed is not None:
        known = max(standing.flushed, first)
        return max(0, known - max(offset, first)), max(0, offset - known)
    if before is not None and before.offset == offset:
        return 0, 0
    begun = before.offset if before is not None and survey.is_of_this_topic(before) else first
    return 0, max(0, offset - max(begun, first))


GENERATION = 0  # no assignment has made it


class Skip(NamedTuple):
    """Offsets [first, end) to be skipped, and the commit that stands for their records."""

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
        ways = offset_metadata.decode(self.after.metadata).ways
        line = FlushedTopicPartition(
            topic=self.tp.topic, partition=self.tp.partition, first_offset=self.first, next_offset=self.after.offset,
            min_offset=self.first, max_offset=self.first, timestamp_max_ms=None, idle_since_ms=None,
            records=1, entries=1, dead_letters=1, first_ways=ways, next_ways=ways,
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


def plan_skip(survey: Survey, partition: int, first: int, end: int, *, group_id: str) -> Skip:
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
    ways = None if committed is None else offset_metadata.decode(committed.metadata).ways
    after = CommittedOffset(end, None, survey.topics.metadata_of(tp, ways))
    return Skip(tp, first, after, dict(survey.topics.ids), survey.now_ms())


class AdoptionPlan(NamedTuple):
    """The offsets to commit for the group that goes on, and the adoption message to publish with them."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    adoption: Adoption


def plan_adoption(stopped: Survey, heir: Survey, *, from_group: str, group_id: str, topic: str) -> AdoptionPlan:
    """Say what to commit; both surveys are of the same topic, as either group.

    Raises:
        StartPositionError: it would not go on exactly where the other has stopped; nothing is changed.
        HistoryUnknownError: the flush records cannot be read.
    """
    there = {tp: one for tp, one in stopped.committed().items() if one is not None}
    if begun := [f"{tp} at {one.offset}" for tp, one in heir.committed().items() if one is not None]:
        raise StartPositionError(
            f"group {group_id} has committed offsets of topic {topic} already: {listed(begun)}. A group adopts another "
            "before it begins: choose a new kafka.group_id"
        )
    if not there:
        raise StartPositionError(f"group {from_group} has no committed offset of topic {topic}: is the name right?")
    if problems := list(_problems(stopped, there, from_group)):
        more = f" and {len(problems) - LISTED_MAX} more" if len(problems) > LISTED_MAX else ""
        raise StartPositionError("; ".join(problems[:LISTED_MAX]) + more + ". Nothing is changed")
    adoption = Adoption(
        group_id=group_id,
        from_group=from_group,
        topic_ids=dict(stopped.topics.ids),
        adopted_at_ms=stopped.now_ms(),
        topic_partitions=tuple(
            AdoptedTopicPartition(topic=tp.topic, partition=tp.partition, next_offset=one.offset)
            for tp, one in there.items()
        ),
    )
    return AdoptionPlan(there, adoption)


def _problems(stopped: Survey, there: Mapping[TopicPartition, CommittedOffset], from_group: str) -> Iterator[str]:
    flushed, foreign, *_ = stopped.flushes()
    for other in foreign:
        yield describe_foreign(other, from_group)
    yield from stopped.disagreements(there, flushed, from_group)
