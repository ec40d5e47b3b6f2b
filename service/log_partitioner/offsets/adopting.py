"""Plans `offsets adopt`: a group of another name goes on at the offsets at which one has stopped.

Owns the conditions: neither group has a member, the stopped group agrees with its flush records, no other group has
adopted it, and the new group has not begun. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from log_partitioner.errors import StartPositionError
from log_partitioner.formats.flush_record import AdoptedTopicPartition, Adoption
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.offsets.survey import Survey
from log_partitioner.runtime.position_words import LISTED_MAX, describe_foreign, listed


class AdoptionPlan(NamedTuple):
    """The offsets to commit for the group that goes on, and the adoption message to publish with them."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    adoption: Adoption


def plan(stopped: Survey, heir: Survey, *, from_group: str, group_id: str, topic: str) -> AdoptionPlan:
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
    flushed, foreign, _ = stopped.flushes()
    for other in foreign:
        yield describe_foreign(other, from_group)
    yield from stopped.disagreements(there, flushed, from_group)
