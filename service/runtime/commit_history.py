"""Committed offsets, held against what this group is known to have committed (DESIGN 4.6).

The broker's answer alone is not enough: a committed offset may be lost (KAFKA_FACTS O3), or a coordinator that has just
loaded answers with one of long ago (KAFKA_FACTS O10). Going on there would publish everything since then twice. Flush
records are committed with the offsets, as one, and are kept elsewhere: what they name is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from service.boundary import Clock
from service.control.deadline import Deadline
from service.errors import CommittedOffsetError, HistoryUnknownError, StartPositionError
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import SourceTopics
from service.runtime.ports import FlushRecords

READ_S = 60.0  # for flush records
WRONG_MAX_S = 30.0  # while answers are wrong, or flush records cannot be read: longer than a broker takes to settle
LISTED_MAX = 50  # TopicPartitions in one message


class CommitHistory:
    """What the flush records say of what is assigned; used by the loop thread only, `read` outside callbacks."""

    def __init__(
        self, flush_records: FlushRecords, topics: SourceTopics, clock: Clock, *, accept_unknown: bool
    ) -> None:
        self._flush_records = flush_records
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
            StartPositionError: nor since WRONG_MAX_S.
        """
        lost = [tp for tp in missing if tp not in self._read_whole]
        there = [tp for tp in committed if tp not in self._known]
        if not lost and not there:
            return
        budget = deadline.at_most(READ_S)
        try:
            found = self._flush_records.next_offsets(lost, self._topics, newest_of=there, deadline=budget)
        except HistoryUnknownError as error:
            names = listed(map(str, lost + there))
            if not self._accept_unknown:
                text = f"whether the group has flushed {names} beyond its committed offsets is not known: {error}"
                way = "Where it has not, or may do so again, set kafka.accept_unknown_history to true until it is"
                raise self._wrong([*lost, *there], f"{text}. {way}") from error
            self._log.warning("history_unknown", topic_partitions=[str(tp) for tp in lost + there], message=str(error))
            found = {}
        self._known |= {tp: found.get(tp) for tp in [*lost, *there]}
        self._read_whole.update(lost)
        self._right([*lost, *there])

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return where the flush records end; None where they name none, or are not read."""
        return self._known.get(tp)

    def require(
        self, answers: Mapping[TopicPartition, CommittedOffset | None], known: Mapping[TopicPartition, int]
    ) -> None:
        """Require that no answer is of before what is known to be committed.

        Raises:
            CommittedOffsetError: one is, or there is none: ask again.
            StartPositionError: that is so since WRONG_MAX_S.
        """
        wrong = {tp: offset for tp, offset in known.items() if (one := answers[tp]) is None or one.offset < offset}
        self._right(known.keys() - wrong.keys())
        if not wrong:
            return
        places = listed(
            f"{tp} at {offset} (committed: {'nothing' if (one := answers[tp]) is None else one.offset})"
            for tp, offset in sorted(wrong.items())
        )
        commands = listed(f"`{command('recover', topic)}`" for topic in sorted({tp.topic for tp in wrong}))
        raise self._wrong(
            wrong,
            f"the group has lost committed offsets: what it has flushed says to go on with {places}. Stop all workers "
            f"of the group, then set them: {commands}",
        )

    def _right(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._wrong_until.pop(tp, None)

    def _wrong(self, tps: Iterable[TopicPartition], text: str) -> Exception:
        until = Deadline.after(WRONG_MAX_S, self._clock.now_s)
        is_over = any(self._wrong_until.setdefault(tp, until).has_passed() for tp in tps)
        return StartPositionError(text) if is_over else CommittedOffsetError(text)


def command(name: str, topic: str) -> str:
    """Write the command line that sets offsets of a topic."""
    return f"log-partitioner offsets {name} --topic {topic}"


def listed(names: Iterable[str]) -> str:
    """Join names; a thousand of them is for the command to tell."""
    each = list(names)
    more = f" and {len(each) - LISTED_MAX} more" if len(each) > LISTED_MAX else ""
    return ", ".join(each[:LISTED_MAX]) + more
