"""Where to start a TopicPartition: its committed offset, or by an explicit policy; never a silent jump (DESIGN 4.3).

A position without a committed offset is committed at once. With the policy `end` those of the whole topic are: whoever
owns one later starts where the policy said, not where the topic ends by then. Otherwise only our own are: the broker
takes a commit for a TopicPartition of another member, too, and where that member has flushed meanwhile, ours would
set its offset back. A TopicPartition that has no committed offset while others of its topic have was added later, and
is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from service.core import offset_metadata
from service.core.deadline import Deadline
from service.core.model import CommittedOffset, TopicPartition
from service.errors import StartPositionError
from service.runtime.ports import Consumer

Bootstrap = Literal["beginning", "end", "fail"]


class StartPosition(NamedTuple):
    """Where a TopicPartition starts, committed by now, and whether a commit, the policy, or its being new says so."""

    committed: CommittedOffset
    source: Literal["committed", "bootstrap", "added"]


def start_positions(
    consumer: Consumer,
    tps: Iterable[TopicPartition],
    *,
    bootstrap: Bootstrap,
    topic_ids: Mapping[str, str],
    deadline: Deadline,
) -> dict[TopicPartition, StartPosition]:
    """Return the start position of each; blocks for the broker's answers. One deadline for all of them.

    Where a position is committed here, its metadata names the topic's id of `topic_ids`, if it is among them.

    Raises:
        StartPositionError: no committed offset, and the policy is to fail.
        StopError: the broker does not answer in time.
    """
    wanted = sorted(tps)
    committed = consumer.committed(wanted, deadline=deadline)
    found = {tp: StartPosition(offset, "committed") for tp, offset in committed.items() if offset is not None}
    missing = [tp for tp in wanted if tp not in found]
    for topic in sorted({tp.topic for tp in missing}):
        ours = [tp for tp in missing if tp.topic == topic]
        metadata = offset_metadata.encode(topic_ids.get(topic)).text
        found |= _bootstrap_topic(consumer, topic, ours, bootstrap, metadata, deadline)
    return {tp: found[tp] for tp in wanted}


def _bootstrap_topic(
    consumer: Consumer,
    topic: str,
    ours: list[TopicPartition],
    bootstrap: Bootstrap,
    metadata: str,
    deadline: Deadline,
) -> dict[TopicPartition, StartPosition]:
    everything = consumer.partitions_of(topic, deadline=deadline)
    committed = consumer.committed(everything, deadline=deadline)
    is_new = all(offset is None for offset in committed.values())
    if is_new and bootstrap == "fail":
        raise StartPositionError(
            f"group has no committed offset for topic {topic}, and kafka.bootstrap is fail: "
            "set it to beginning or end for the first start, or commit offsets for this group"
        )
    if is_new and bootstrap == "end":
        return _commit_ends(consumer, everything, metadata, deadline)
    source: Literal["bootstrap", "added"] = "bootstrap" if is_new else "added"
    # Asked a second time: others may have owned ours, flushed and gone, where we were stopped in between.
    found = {tp: StartPosition(offset, "committed") for tp in ours if (offset := committed[tp]) is not None}
    firsts = {tp: consumer.watermarks(tp, deadline=deadline)[0] for tp in ours if tp not in found}
    starts = {tp: CommittedOffset(first, metadata=metadata) for tp, first in firsts.items()}
    if starts:
        consumer.commit_start(starts, deadline=deadline)
    return found | {tp: StartPosition(start, source) for tp, start in starts.items()}


def _commit_ends(
    consumer: Consumer, everything: list[TopicPartition], metadata: str, deadline: Deadline
) -> dict[TopicPartition, StartPosition]:
    """Commit the ends of a whole topic, but for what others have committed while we asked for them."""
    ends = {tp: consumer.watermarks(tp, deadline=deadline)[1] for tp in everything}
    committed = consumer.committed(everything, deadline=deadline)
    starts = {tp: CommittedOffset(ends[tp], metadata=metadata) for tp, found in committed.items() if found is None}
    if starts:
        consumer.commit_start(starts, deadline=deadline)
    return {
        tp: StartPosition(starts[tp], "bootstrap") if found is None else StartPosition(found, "committed")
        for tp, found in committed.items()
    }
