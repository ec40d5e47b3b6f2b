"""`log-partitioner offsets go-on | begin-anew | recover`: offsets set by hand, where a worker refuses to start.

Each prints, per TopicPartition, what was committed and what is. They work only where the group has no live member: the
brokers refuse them otherwise. Exit codes: 0 what was asked for holds now; 1 it does not: refused, or not known; 2
settings or arguments are wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import NamedTuple

from service.boundary import Clock
from service.config.settings import Settings
from service.control.deadline import Deadline
from service.control.flush_history import OurGroup
from service.errors import SettingsError
from service.formats import offset_metadata
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import SourceTopics
from service.runtime.ports import Consumer, FlushRecords

ANSWER_S = 120.0  # also for a transaction that a dead worker has left open over committed offsets
FLUSH_RECORDS_S = 1800.0


class Change(NamedTuple):
    """What becomes of one committed offset; `left` says why it stays as it is, where it does."""

    tp: TopicPartition
    before: CommittedOffset | None
    after: CommittedOffset | None
    left: str = ""

    def __str__(self) -> str:
        """Write one line."""
        before = _text_of(self.before)
        return (
            f"{self.tp}: {before}, left: {self.left}" if self.left else f"{self.tp}: {before} -> {_text_of(self.after)}"
        )


class Offsets:
    """Plans changes of one topic's committed offsets; changes nothing itself."""

    def __init__(self, consumer: Consumer, flush_records: FlushRecords, topic: str, *, clock: Clock) -> None:
        self._consumer = consumer
        self._flush_records = flush_records
        self._clock = clock
        deadline = self._deadline()
        self._tps = consumer.partitions_of(topic, deadline=deadline)
        self._topics = SourceTopics(consumer.topic_ids([topic], deadline=deadline))
        self._topic_id = self._topics.ids.get(topic)

    def _deadline(self) -> Deadline:
        return Deadline.after(ANSWER_S, self._clock.now_s)

    def go_on(self, partitions: Collection[int] = ()) -> list[Change]:
        """Take the committed offsets for offsets of the topic that has this name now.

        Of partitions that are named, for offsets of the log that is there now, too: their leader epochs are dropped.
        """
        return [
            self._going_on(tp, before, is_named=tp.partition in partitions)
            for tp, before in self._committed(partitions).items()
        ]

    def _going_on(self, tp: TopicPartition, before: CommittedOffset | None, *, is_named: bool) -> Change:
        if before is None:
            return Change(tp, None, None, "there is none to go on at")
        metadata = offset_metadata.decode(before.metadata)
        if metadata.topic_id == self._topic_id and not (is_named and before.leader_epoch is not None):
            return Change(tp, before, before, "it is of this topic")
        # The leader epoch is that of the other log.
        text = offset_metadata.encode(self._topic_id, metadata.roots, began=metadata.began, set_ms=metadata.set_ms).text
        return Change(tp, before, CommittedOffset(before.offset, None, text))

    def begin_anew(self, partitions: Collection[int] = ()) -> list[Change]:
        """Begin at the first offset there is; what is committed of this very topic is left: it would be read twice."""
        return [self._beginning(tp, before) for tp, before in self._committed(partitions).items()]

    def begin_at(self, partition: int, offset: int) -> list[Change]:
        """Begin at an offset of the log that is there now, whatever is committed; never behind what is committed.

        Raises:
            SettingsError: the log has no such offset.
        """
        ((tp, before),) = self._committed([partition]).items()
        first, end = self._consumer.watermarks(tp, deadline=self._deadline())
        if not first <= offset <= end:
            raise SettingsError([f"--at {offset}: {tp} has the offsets {first} to {end}"])
        if before is not None and self._is_of_this_topic(before) and before.offset < offset and before.offset >= first:
            return [Change(tp, before, before, f"{offset} is behind what is committed: records would never be read")]
        return [Change(tp, before, self._with_id(offset))]

    def _is_of_this_topic(self, committed: CommittedOffset) -> bool:
        known = offset_metadata.decode(committed.metadata).topic_id
        return known is not None and known == self._topic_id

    def _may_be_of_this_topic(self, committed: CommittedOffset) -> bool:
        return self._is_of_this_topic(committed) or offset_metadata.decode(committed.metadata).topic_id is None

    def _beginning(self, tp: TopicPartition, before: CommittedOffset | None) -> Change:
        if before is not None and self._is_of_this_topic(before):
            return Change(tp, before, before, "it is of this topic, all before it would be published twice")
        first, _ = self._consumer.watermarks(tp, deadline=self._deadline())
        return Change(tp, before, self._with_id(first))

    def recover(self, partitions: Collection[int] = ()) -> list[Change]:
        """Go on where the newest flush records end, where nothing, or less, is committed.

        Raises:
            HistoryUnknownError: the flush records cannot be read.
        """
        committed = self._committed(partitions)
        for tp, before in committed.items():
            if before is not None:
                self._topics.keep(tp, before.metadata)
        deadline = Deadline.after(FLUSH_RECORDS_S, self._clock.now_s)
        found, _ = self._flush_records.read(committed, self._topics, deadline=deadline)
        return [self._recovered(tp, before, found.get(tp)) for tp, before in committed.items()]

    def _recovered(self, tp: TopicPartition, before: CommittedOffset | None, flushed: int | None) -> Change:
        if flushed is not None and (before is None or before.offset < flushed):
            if before is not None and not self._may_be_of_this_topic(before):
                return Change(tp, before, before, "it is of another topic of this name")
            return Change(tp, before, CommittedOffset(flushed, None, self._topics.metadata_of(tp)))
        return Change(tp, before, before, "no flush record of this group names it" if before is None else "it is there")

    def _committed(self, partitions: Collection[int]) -> dict[TopicPartition, CommittedOffset | None]:
        if unknown := sorted(set(partitions) - {tp.partition for tp in self._tps}):
            raise SettingsError([f"--partition {unknown[0]}: the topic has no such partition"])
        asked = [tp for tp in self._tps if not partitions or tp.partition in partitions]
        found = self._consumer.committed(asked, deadline=self._deadline())
        return {tp: found[tp] for tp in asked}

    def _with_id(self, offset: int) -> CommittedOffset:
        text = offset_metadata.encode(self._topic_id, set_ms=self._clock.wall_ms()).text
        return CommittedOffset(offset, None, text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    texts = {
        "go-on": "take committed offsets of another topic of this name for those of this one",
        "begin-anew": "begin at the topic's beginning where nothing is committed of this very topic",
        "recover": "go on where the flush records of this group end, where nothing, or less, is committed",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--topic", required=True, help="source topic")
        action.add_argument("--partition", type=int, action="append", default=[], help="only this one (repeatable)")
        if name == "begin-anew":
            action.add_argument("--at", type=int, metavar="OFFSET", help="begin there; takes exactly one --partition")


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands; returns the exit code.

    Raises:
        LogPartitionerError: refused, or not known.
    """
    from service.adapters.clock import SystemClock  # noqa: PLC0415
    from service.adapters.kafka_consumer import KafkaConsumer  # noqa: PLC0415 - the other commands need no Kafka client
    from service.adapters.kafka_flush_records import KafkaFlushRecords  # noqa: PLC0415
    from service.adapters.kafka_offsets import commit_offsets  # noqa: PLC0415
    from service.adapters.kafka_options import consumer_options  # noqa: PLC0415
    from service.adapters.logs import configure  # noqa: PLC0415

    configure(level="warning", style=settings.log.format, worker="offsets", boot="", stream=sys.stderr)
    kafka = settings.kafka
    reading = consumer_options(kafka, worker="offsets")
    consumer = KafkaConsumer(reading, [options.topic], incremental=True)
    flush_records = KafkaFlushRecords(reading, kafka.flushes_topic, group=OurGroup(kafka.group_id))
    try:
        offsets = Offsets(consumer, flush_records, options.topic, clock=SystemClock())
        changes = _plan(offsets, options)
    finally:
        consumer.close()
    wanted = {one.tp: one.after for one in changes if not one.left and one.after is not None}
    if wanted:
        commit_offsets(reading, kafka.group_id, wanted, timeout_s=ANSWER_S)
    sys.stdout.write("".join(f"{one}\n" for one in changes))
    is_left = options.action == "begin-anew" and any(one.left for one in changes)
    return 1 if is_left else 0


def _plan(offsets: Offsets, options: argparse.Namespace) -> list[Change]:
    at = getattr(options, "at", None)
    if at is None:
        plan = {"go-on": offsets.go_on, "begin-anew": offsets.begin_anew, "recover": offsets.recover}[options.action]
        return plan(options.partition)
    if len(options.partition) != 1:
        raise SettingsError(["--at takes exactly one --partition"])
    return offsets.begin_at(options.partition[0], at)


def _text_of(committed: CommittedOffset | None) -> str:
    if committed is None:
        return "none"
    topic_id = offset_metadata.decode(committed.metadata).topic_id
    epoch = "" if committed.leader_epoch is None else f", leader epoch {committed.leader_epoch}"
    return f"{committed.offset} (of {topic_id or 'a topic that is not known'}{epoch})"
