"""Finds the next offset of each TopicPartition to be sought, anew before each poll (DESIGN 4.6).

A committed offset is a number, not a place: its topic may have been made anew under its name (KAFKA_FACTS O4). It may
be lost (O3), and a coordinator that has just loaded may answer with a stale one (O10): going on there would publish
everything since then twice. Flush records are committed with the offsets in one transaction, and are kept elsewhere:
the offsets that they name are committed. An offset beyond them that no worker has written is foreign: records before it
are in no output. And flush records of a group that is not part of our history say that everything is published twice.

If the group has neither a committed offset nor a flush record, the policy gives the start. It is a function of the log,
so that nothing is committed before the first flush.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import structlog

from log_partitioner.boundary import FIRST_OFFSET
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import Foreign
from log_partitioner.errors import (
    CommittedOffsetError,
    DiscardError,
    HistoryUnknownError,
    LeavingError,
    SourceError,
    StartPositionError,
    TopicMissingError,
)
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.runtime.ports import Ports

TOPIC_IDS_S = 10.0  # for Kafka's ids of topics, which a broker need not have
READ_S = 60.0  # for flush records
WRONG_MAX_S = 30.0  # while answers are wrong, or flush records cannot be read: longer than a broker takes to settle
LOOKS = 5  # for foreign groups, before the first flushes of a process
LISTED_MAX = 50  # TopicPartitions in one message
LOOK_S = 5.0  # behind a transaction that a dead worker has left open it would take longer: the next one tells


class NextPosition(NamedTuple):
    """The next offset of a TopicPartition, and its source: a commit or the policy."""

    committed: CommittedOffset
    source: Literal["committed", "policy"]


@dataclass(eq=False, repr=False)
class Positions:
    """Finds next offsets; used by the loop thread only, outside callbacks. `topics` is kept up to date."""

    ports: Ports
    settings: KafkaSettings
    topics: SourceTopics

    def __post_init__(self) -> None:
        self.flushed_topics: set[str] = set()
        """Topics that the group has flushed something of, as far as this process knows."""
        self._flushed: dict[TopicPartition, int | None] = {}
        self._read_whole: set[TopicPartition] = set()
        self._wrong_until: dict[TopicPartition, Deadline] = {}
        self._is_unanswered = False
        self._looks_left = LOOKS
        self._reported: set[TopicPartition] = set()
        self._log = structlog.get_logger("positions")

    def find(
        self, known: Mapping[TopicPartition, int | None], *, positioned: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, NextPosition]:
        """Return the next offset of each; blocks for the answers. No transaction of ours may be open.

        `known` is the offset up to which this process knows a TopicPartition to be committed; None if it is new here.
        The worker may have read records of the `positioned` ones, so their topics must still be the same. After a
        missing answer the worker polls and asks again; after the second in a row it ends. An answer that is missing
        because the process was stopped meanwhile does not count: then the deadline is long past.

        Raises:
            DiscardError: the answer is not known yet: poll, and ask again.
            StartPositionError: an offset is of another topic, lost, or somebody else's; another group publishes the
                same; or nothing is committed, and the policy is to fail.
            StopError: the broker refuses, or does not answer, for the second time.
        """
        try:
            if any(offset is None for offset in known.values()):
                self._ask_ids(positioned, deadline)
            committed = self.ports.consumer.committed(sorted(known), deadline=deadline)
            present = {tp: one for tp, one in committed.items() if one is not None}
            for tp, one in present.items():
                self.topics.keep(tp, one.metadata)
            self._require_same_topics({tp: one for tp, one in present.items() if known[tp] is None})
            missing = committed.keys() - present.keys()
            self._read_flush_records(missing, present, deadline)
            starts = self._by_policy(sorted(tp for tp in missing if known[tp] is None), deadline)
        except SourceError as error:
            if self._is_unanswered and not deadline.is_long_past():
                raise
            self._is_unanswered = True
            raise DiscardError(f"asked again after the next poll: {error}") from error
        expected = starts | {tp: offset for tp, offset in known.items() if offset is not None}
        self._require_continued(committed, expected, new=starts.keys())
        self._is_unanswered = False
        return {
            tp: NextPosition(CommittedOffset(expected[tp]), "policy") if one is None else NextPosition(one, "committed")
            for tp, one in sorted(committed.items())
        }

    def _ask_ids(self, positioned: Iterable[TopicPartition], deadline: Deadline) -> None:
        found = self.ports.consumer.topic_ids(self.settings.source_topics, deadline=deadline.at_most(TOPIC_IDS_S))
        read = {tp.topic for tp in positioned}
        for topic, topic_id in found.items():
            known = self.topics.ids.get(topic, topic_id)
            may_be_read = topic in read or self.settings.sources.are_naming(topic)
            if known != topic_id and may_be_read:  # after a restart the ids in the committed offsets tell
                raise StartPositionError(
                    f"topic {topic} was made anew while this worker ran: its id was {known}, now it is {topic_id}. "
                    "Nothing is committed any more; after a restart the committed offsets are compared"
                )
            self.topics.ids[topic] = topic_id

    def _require_same_topics(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Compare the topics' ids with those in the committed offsets."""
        differ: dict[str, list[str]] = {}
        unknown = set()
        for tp, one in sorted(committed.items()):
            was, now = offset_metadata.decode(one.metadata).topic_id, self.topics.ids.get(tp.topic)
            if was is None or now is None:
                unknown.add(tp)
            elif was != now:
                differ.setdefault(tp.topic, []).append(f"{tp} ({one.offset}, of id {was})")
        if differ:
            sentences = (describe_made_anew(topic, self.topics.ids[topic], each) for topic, each in differ.items())
            raise StartPositionError(" ".join(sentences))
        if new := sorted(unknown - self._reported):  # unknown is not different; the next commit says it
            self._log.warning("committed_topic_id_unknown", topic_partitions=[str(tp) for tp in new])
            self._reported.update(new)

    def _read_flush_records(
        self, missing: Collection[TopicPartition], present: Iterable[TopicPartition], deadline: Deadline
    ) -> None:
        """Read the flush records of TopicPartitions that have not been looked up yet. Blocks for up to one minute.

        If no offset is committed, all flush records are read; for the others the newest reveal a wrong answer.
        """
        lost = sorted(tp for tp in missing if tp not in self._read_whole)
        new = sorted(tp for tp in present if tp not in self._flushed)
        if not lost and not new:
            return
        try:
            found, foreign, topics, _ = self.ports.flush_records.read(
                lost, self.topics, newest_of=new, deadline=deadline.at_most(READ_S)
            )
        except HistoryUnknownError as error:
            names = listed(map(str, lost + new))
            if not self.settings.accept_unknown_history:
                if isinstance(error, TopicMissingError):
                    raise self._wrong([*lost, *new], str(error)) from error
                text = f"whether the group has flushed {names} beyond its committed offsets is not known: {error}"
                way = "Where it has not, or may do so again, set kafka.accept_unknown_history to true until it is"
                raise self._wrong([*lost, *new], f"{text}. {way}") from error
            self._log.warning("history_unknown", topic_partitions=[str(tp) for tp in lost + new], message=str(error))
            found, foreign, topics = {}, [], frozenset()
        self._require_alone(foreign)
        self.flushed_topics.update(topics)
        self._flushed |= {tp: found.get(tp) for tp in lost + new}
        self._read_whole.update(lost)

    def _require_continued(
        self,
        committed: Mapping[TopicPartition, CommittedOffset | None],
        expected: Mapping[TopicPartition, int],
        *,
        new: Collection[TopicPartition],
    ) -> None:
        """Require that no committed offset is below the one expected, nor a foreign one beyond it.

        Expected is the offset up to which this process knows a TopicPartition to be committed; for a `new` one, which
        has no committed offset, it is the start that the policy gave. Flush records may move it on.
        """
        lost: dict[TopicPartition, int] = {}
        skipped: dict[TopicPartition, tuple[int, int]] = {}
        for tp, one in committed.items():
            flushed = self._flushed.get(tp)
            if one is None:
                if flushed is not None and (flushed != expected[tp] if tp in new else flushed > expected[tp]):
                    lost[tp] = flushed
                continue
            end = max((offset for offset in (flushed, expected.get(tp)) if offset is not None), default=one.offset)
            if one.offset < end:
                lost[tp] = end
            elif one.offset > end and not offset_metadata.decode(one.metadata).is_ours:
                skipped[tp] = end, one.offset
        if skipped:
            raise StartPositionError(describe_skipped(self.settings.group_id, skipped))
        for tp in committed.keys() - lost.keys():
            self._wrong_until.pop(tp, None)
        if lost:
            raise self._wrong(lost, describe_lost(self.settings.group_id, lost, committed))

    def _wrong(self, tps: Iterable[TopicPartition], text: str) -> Exception:
        until = Deadline.after(WRONG_MAX_S, self.ports.clock.now_s)
        is_over = any(self._wrong_until.setdefault(tp, until).has_passed() for tp in tps)
        return StartPositionError(text) if is_over else CommittedOffsetError(text)

    def _by_policy(self, tps: list[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        """Ask for the policy's start of TopicPartitions that were never committed; in a flushed topic they are new."""
        if not tps:
            return {}
        start_at = self.settings.start_at
        unknown = [tp for tp in tps if tp.topic not in self.flushed_topics]
        if unknown and start_at == "fail":
            raise StartPositionError(
                f"group has no committed offset for {listed(map(str, unknown))}, and kafka.start_at is fail: set it to "
                "beginning or a time for the first start, or commit offsets for this group "
                f"(`{command('flushed', unknown[0].topic)}` takes them from flush records)"
            )
        return self.ports.consumer.offsets_at(
            tps, start_at if isinstance(start_at, int) else FIRST_OFFSET, deadline=deadline
        )

    # Memory between two assignments.

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Forget the flushed offsets of these: others may flush them, or a flush of ours was committed after all."""
        for tp in tps:
            self._flushed.pop(tp, None)
            self._read_whole.discard(tp)
            self._wrong_until.pop(tp, None)

    def watch(self, positioned: Iterable[TopicPartition], *, deadline: Deadline) -> None:
        """Check that no source topic was made anew since its records were read; before a flush outside a callback.

        A topic that only a pattern matches may have been, unless it has a `positioned` one: such topics come and go.

        Before the first flushes it looks for foreign groups again: two new groups that start together do not see each
        other at the start. 1. Both look, and find nothing. 2. Both commit a flush. 3. Both look: the one that committed
        second finds the other's flush record, whatever happens; the other finds it once that is committed.

        If a topic is made anew, the library takes over the new id and reads on at its position (KAFKA_FACTS O4). A
        flush inside a callback may still have records of both; its offsets have the old id, which the next owner
        compares.

        Raises:
            StartPositionError: a topic was made anew, or another group publishes the same.
        """
        self._ask_ids(positioned, deadline)
        if self._looks_left:
            self._looks_left -= 1
            with suppress(HistoryUnknownError, LeavingError):
                found = self.ports.flush_records.read((), self.topics, deadline=deadline.at_most(LOOK_S))
                self._require_alone(found.foreign)

    def _require_alone(self, foreign: Iterable[Foreign]) -> None:
        if sentences := [describe_foreign(one, self.settings.group_id) for one in foreign]:
            raise StartPositionError(" ".join(sentences))


# Sentences about refused start positions: the fault, its offsets, and the ways on.


def describe_lost(
    group_id: str, lost: Mapping[TopicPartition, int], answers: Mapping[TopicPartition, CommittedOffset | None]
) -> str:
    """Name the committed offsets that are gone or stale, and the offsets at which to go on."""
    places = listed(
        f"{tp} at {offset} (committed: {'nothing' if (one := answers[tp]) is None else one.offset})"
        for tp, offset in sorted(lost.items())
    )
    return (
        f"group {group_id} has lost committed offsets: what it has flushed says to go on with {places}. Stop "
        f"all workers of the group, then set them: {_commands('flushed', lost)}"
    )


def describe_skipped(group_id: str, skipped: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Name the offsets [first, end) that would be skipped, because somebody else has committed the end."""
    ranges = listed(f"{tp} from {first} to {end - 1}" for tp, (first, end) in sorted(skipped.items()))
    return (
        f"somebody else has committed offsets of group {group_id}, such as a consumer with the same group.id "
        f"or a tool: going on there would skip records that nobody has flushed: {ranges}. Stop who does that, and "
        "all workers of the group, then go on where the flush records end: "
        f"{_commands('flushed', skipped)}; or skip these records: {_commands('committed', skipped)}"
    )


def describe_made_anew(topic: str, topic_id: str, offsets: Iterable[str]) -> str:
    """Say that committed offsets are of another topic of the same name."""
    return (
        f"topic {topic} was made anew under its name: its id is {topic_id}, but the committed "
        f"offsets of {listed(offsets)} are of another topic. Stop all workers of the group, then go on at these "
        f"offsets, where they name the same records (`{command('committed', topic)}`), or begin anew at the "
        f"topic's beginning (`{command('beginning', topic)}`)."
    )


def command(to: str, topic: str) -> str:
    """Write the command line that sets offsets of a topic."""
    return f"log-partitioner offsets set --topic {topic} --to {to}"


def _commands(to: str, tps: Iterable[TopicPartition]) -> str:
    return listed(f"`{command(to, topic)}`" for topic in sorted({tp.topic for tp in tps}))


def describe_foreign(foreign: Foreign, group_id: str) -> str:
    """Name the group that publishes the same, and the ways on."""
    (tp, offset), other = foreign.place, foreign.group_id
    if foreign.kind == "heir":
        return (
            f"group {other} has adopted the work of group {group_id} on topic {tp.topic}, {tp} at {offset}: both would "
            f"publish the same records. Set kafka.group_id to {other}; or stop that group for good, and go on where it "
            f"stopped under a new kafka.group_id: `{adopting(other, tp.topic)}`"
        )
    if foreign.kind == "beyond":
        return (
            f"group {other}, whose work group {group_id} has adopted, was started again: it has flushed {tp} up to "
            f"{offset}, and all it has flushed since the adoption is published twice. Stop it for good, then "
            f"add {other} to kafka.accept_groups; readers leave out what it has flushed since"
        )
    return (
        f"group {other} publishes topic {tp.topic} to the same topics as this worker's group {group_id}, {tp} up to "
        f"{offset}: everything would be published twice. Three ways on: other topics for this group "
        f"(kafka.references_topic, kafka.flushes_topic, kafka.dead_letters_topic, and another s3.prefix if wanted); is "
        f"{group_id} the new name of {other}, stop {other} for good and go on where it stopped: "
        f"`{adopting(other, tp.topic)}`; or, if both are meant, or {other} is stopped and its copies are left out by "
        f"readers, add {other} to kafka.accept_groups"
    )


def adopting(group_id: str, topic: str) -> str:
    """Write the command line that goes on with another group's work."""
    return f"log-partitioner offsets adopt --from {group_id} --topic {topic}"


def listed(names: Iterable[str]) -> str:
    """Join names; if there are very many, the command lists the rest."""
    each = list(names)
    more = f" and {len(each) - LISTED_MAX} more" if len(each) > LISTED_MAX else ""
    return ", ".join(each[:LISTED_MAX]) + more
