"""Where to start a TopicPartition: its committed offset, or by an explicit policy; never a silent jump (DESIGN 4.3).

A position without a committed offset is committed at once, for all TopicPartitions of the topic: whoever owns one
later starts where the policy said, not where the topic ends by then. A TopicPartition that has no committed offset
while others of its topic have was added later, and is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from service.core.model import TopicPartition
from service.errors import StartPositionError
from service.runtime.ports import Consumer

Bootstrap = Literal["beginning", "end", "fail"]


class StartPosition(NamedTuple):
    """Where a TopicPartition starts, and whether a commit, the policy, or its being new says so."""

    offset: int
    source: Literal["committed", "bootstrap", "added"]


def start_positions(
    consumer: Consumer, tps: Iterable[TopicPartition], *, bootstrap: Bootstrap, timeout_s: float
) -> dict[TopicPartition, StartPosition]:
    """Find the start position of each; blocks for the broker's answers.

    Raises:
        StartPositionError: no committed offset, and the policy is to fail.
        StopError: the broker does not answer.
    """
    wanted = sorted(tps)
    committed = consumer.committed(wanted, timeout_s=timeout_s)
    found = {tp: StartPosition(offset, "committed") for tp, offset in committed.items() if offset is not None}
    for topic in sorted({tp.topic for tp in wanted if tp not in found}):
        found |= _bootstrap_topic(consumer, topic, bootstrap, timeout_s=timeout_s)
    return {tp: found[tp] for tp in wanted}


def _bootstrap_topic(
    consumer: Consumer, topic: str, bootstrap: Bootstrap, *, timeout_s: float
) -> dict[TopicPartition, StartPosition]:
    everything = consumer.partitions_of(topic, timeout_s=timeout_s)
    committed = consumer.committed(everything, timeout_s=timeout_s)
    known = {tp: offset for tp, offset in committed.items() if offset is not None}
    if not known and bootstrap == "fail":
        raise StartPositionError(
            f"group has no committed offset for topic {topic}, and kafka.bootstrap is fail: "
            "set it to beginning or end for the first start, or commit offsets for this group"
        )
    at_end = bootstrap == "end" and not known
    source: Literal["bootstrap", "added"] = "added" if known else "bootstrap"
    found = {}
    for tp in everything:
        if tp not in known:
            first, end = consumer.watermarks(tp, timeout_s=timeout_s)
            found[tp] = StartPosition(end if at_end else first, source)
    consumer.commit_start({tp: position.offset for tp, position in found.items()})
    return found | {tp: StartPosition(offset, "committed") for tp, offset in known.items()}
