"""Committed offsets, held against what this group is known to have committed (DESIGN 4.6).

The broker's answer alone is not enough: a committed offset may be lost (KAFKA_FACTS O3), or a coordinator that has just
loaded answers with one of long ago (KAFKA_FACTS O10). Going on there would publish everything since then twice. Flush
records are committed with the offsets, as one, and are kept elsewhere: what they name is committed. A committed offset
beyond them that was not written by us is somebody else's: records before it are in no output. And flush records of a
group that is not part of our history say that everything is published twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import structlog

from service.boundary import Clock
from service.control.deadline import Deadline
from service.control.flush_history import Foreign
from service.errors import (
    CommittedOffsetError,
    HistoryUnknownError,
    LeavingError,
    StartPositionError,
    TopicMissingError,
)
from service.formats import offset_metadata
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import SourceTopics
from service.runtime.ports import FlushRecords

READ_S = 60.0  # for flush records
WRONG_MAX_S = 30.0  # while answers are wrong, or flush records cannot be read: longer than a broker takes to settle
LISTED_MAX = 50  # TopicPartitions in one message


class CommitHistory:
    """What the flush records say of what is assigned; used by the loop thread only, `read` outside callbacks."""

    def __init__(
        self, flush_records: FlushRecords, topics: SourceTopics, clock: Clock, *, group_id: str, accept_unknown: bool
    ) -> None:
        self._flush_records = flush_records
        self._group_id = group_id
        self._topics = topics
        self._clock = clock
        self._accept_unknown = accept_unknown
        self._known: dict[TopicPartition, int | None] = {}
        self._read_whole: set[TopicPartition] = set()
        self._wrong_until: dict[TopicPartition, Deadline] = {}
        self._log = structlog.get_logger("commit_history")

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Drop what is known of these: others may flush them, or a flush of ours may have been committed after all."""
        for tp in tps:
            self._known.pop(tp, None)
            self._read_whole.discard(tp)
            self._wrong_until.pop(tp, None)

    def read(
        self, missing: Iterable[TopicPartition], committed: Iterable[TopicPartition], *, deadline: Deadline
    ) -> None:
        """Read the flush records of those of which they are not read yet; blocks, a minute at most.

        All of them where an offset is `missing`; of what is `committed` the newest tell of a wrong answer.

        Raises:
            CommittedOffsetError: they cannot be read: ask again.
            StartPositionError: nor since WRONG_MAX_S; or another group publishes the same.
        """
        lost = [tp for tp in missing if tp not in self._read_whole]
        there = [tp for tp in committed if tp not in self._known]
        if not lost and not there:
            return
        budget = deadline.at_most(READ_S)
        try:
            found, foreign = self._flush_records.read(lost, self._topics, newest_of=there, deadline=budget)
        except HistoryUnknownError as error:
            names = listed(map(str, lost + there))
            if not self._accept_unknown:
                if isinstance(error, TopicMissingError):
                    raise self._wrong([*lost, *there], str(error)) from error
                text = f"whether the group has flushed {names} beyond its committed offsets is not known: {error}"
                way = "Where it has not, or may do so again, set kafka.accept_unknown_history to true until it is"
                raise self._wrong([*lost, *there], f"{text}. {way}") from error
            self._log.warning("history_unknown", topic_partitions=[str(tp) for tp in lost + there], message=str(error))
            found, foreign = {}, []
        self._require_alone(foreign)
        self._known |= {tp: found.get(tp) for tp in [*lost, *there]}
        self._read_whole.update(lost)
        self._right([*lost, *there])

    def look(self, *, deadline: Deadline) -> None:
        """Look through the newest flush records for foreign groups, if they can be read: it holds up a flush.

        Raises:
            StartPositionError: another group publishes the same.
        """
        with suppress(HistoryUnknownError, LeavingError):
            self._require_alone(self._flush_records.read((), self._topics, deadline=deadline).foreign)

    def _require_alone(self, foreign: Iterable[Foreign]) -> None:
        if told := [describe_foreign(one, self._group_id) for one in foreign]:
            raise StartPositionError(" ".join(told))

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return where the flush records end; None where they name none, or are not read."""
        return self._known.get(tp)

    def require(
        self, answers: Mapping[TopicPartition, CommittedOffset | None], known: Mapping[TopicPartition, int]
    ) -> None:
        """Require that no answer is of before what is known to be committed, nor somebody else's beyond it.

        Raises:
            CommittedOffsetError: one is of before, or there is none: ask again.
            StartPositionError: that is so since WRONG_MAX_S, or one is somebody else's.
        """
        self.require_ours({tp: one for tp in known if (one := answers[tp]) is not None}, known)
        lost = {tp: offset for tp, offset in known.items() if (one := answers[tp]) is None or one.offset < offset}
        self._right(known.keys() - lost.keys())
        if lost:
            raise self._wrong(lost, self._describe_lost(lost, answers))

    def require_ours(
        self, committed: Mapping[TopicPartition, CommittedOffset], known: Mapping[TopicPartition, int]
    ) -> None:
        """Require that what is committed beyond what is known was committed by a worker or by `offsets`.

        Raises:
            StartPositionError: somebody else has committed it.
        """
        theirs = {tp: one for tp, one in committed.items() if tp in known and _is_theirs(one, known[tp])}
        if theirs:
            raise StartPositionError(self._describe_theirs(theirs, known))

    def _describe_lost(
        self, lost: Mapping[TopicPartition, int], answers: Mapping[TopicPartition, CommittedOffset | None]
    ) -> str:
        places = listed(
            f"{tp} at {offset} (committed: {'nothing' if (one := answers[tp]) is None else one.offset})"
            for tp, offset in sorted(lost.items())
        )
        return (
            f"group {self._group_id} has lost committed offsets: what it has flushed says to go on with {places}. Stop "
            f"all workers of the group, then set them: {_commands('flushed', lost)}"
        )

    def _describe_theirs(
        self, theirs: Mapping[TopicPartition, CommittedOffset], known: Mapping[TopicPartition, int]
    ) -> str:
        ranges = listed(f"{tp} from {known[tp]} to {one.offset - 1}" for tp, one in sorted(theirs.items()))
        return (
            f"somebody else has committed offsets of group {self._group_id}, such as a consumer with the same group.id "
            f"or a tool: going on there would skip records that nobody has flushed: {ranges}. Stop who does that, and "
            "all workers of the group, then go on where the flush records end: "
            f"{_commands('flushed', theirs)}; or skip these records: {_commands('committed', theirs)}"
        )

    def _right(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._wrong_until.pop(tp, None)

    def _wrong(self, tps: Iterable[TopicPartition], text: str) -> Exception:
        until = Deadline.after(WRONG_MAX_S, self._clock.now_s)
        is_over = any(self._wrong_until.setdefault(tp, until).has_passed() for tp in tps)
        return StartPositionError(text) if is_over else CommittedOffsetError(text)


def _is_theirs(committed: CommittedOffset, known: int) -> bool:
    return committed.offset > known and not offset_metadata.decode(committed.metadata).is_ours


def command(to: str, topic: str) -> str:
    """Write the command line that sets offsets of a topic."""
    return f"log-partitioner offsets set --topic {topic} --to {to}"


def _commands(to: str, tps: Iterable[TopicPartition]) -> str:
    return listed(f"`{command(to, topic)}`" for topic in sorted({tp.topic for tp in tps}))


def describe_foreign(foreign: Foreign, group_id: str) -> str:
    """Say which group publishes the same, and the ways on."""
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
    """Join names; a thousand of them is for the command to tell."""
    each = list(names)
    more = f" and {len(each) - LISTED_MAX} more" if len(each) > LISTED_MAX else ""
    return ", ".join(each[:LISTED_MAX]) + more
