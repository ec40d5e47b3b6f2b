"""Where to start a TopicPartition: its committed offset, or by an explicit policy; never a silent jump (DESIGN 4.6).

In two steps, since the client library can be asked less inside a callback than outside:

1. `find`, inside the assignment's callback: the committed offset; where there is none, where the policy says. Nothing
   is written.
2. `prove`, when `consume` has returned and before any record of these TopicPartitions is recorded. Is the topic the
   one that the committed offset was of? Has this group flushed nothing behind it, or nothing at all where none is
   committed, as the flush records say? What the policy says is committed then, in a transaction of its own.

Only our own start positions are committed, and only where none is: the broker takes a commit for a TopicPartition of
another member, too. A TopicPartition that has no committed offset while others of its topic have was added later, and
is read from its beginning; under the policy `end` a start position says in its metadata when and with how many
partitions the group began, so that one that was there then is read from that time on, whoever owns it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import structlog

from service.boundary import Clock
from service.control.deadline import Deadline
from service.errors import (
    CommittedOffsetError,
    DiscardError,
    MembershipError,
    SourceError,
    StartPositionError,
)
from service.formats import offset_metadata
from service.formats.log_events import StartsCommitted, StartsDoubted, StartsProven, tell
from service.formats.model import CommittedOffset, TopicPartition
from service.formats.offset_metadata import Began, SourceTopics
from service.runtime.commit_history import CommitHistory, command, listed
from service.runtime.ports import Committer, Consumer, FlushRecords

TOPIC_IDS_S = 10.0  # for Kafka's ids of topics, which a broker need not have
LOOKS = 5  # for foreign groups, before the first flushes of a process
LOOK_S = 5.0  # behind a transaction that a dead worker has left open it would take longer: the next one tells
COMMIT_S = 30.0  # for one try to commit start positions
UNCOMMITTED_MAX_S = 120.0  # for all of them

StartAt = Literal["beginning", "end", "fail"]


class StartPosition(NamedTuple):
    """Where a TopicPartition starts, and whether a commit, the policy, or its being new says so."""

    committed: CommittedOffset
    source: Literal["committed", "policy", "added"]


class StartRules(NamedTuple):
    """The policy where nothing is committed; whether it holds where flush records cannot be read; all source topics."""

    group_id: str
    start_at: StartAt
    accept_unknown_history: bool
    topics: tuple[str, ...]


class StartPositions:
    """Finds and proves start positions; used by the loop thread only. `topics` is kept up to date for others."""

    def __init__(
        self,
        *,
        rules: StartRules,
        consumer: Consumer,
        committer: Committer,
        flush_records: FlushRecords,
        topics: SourceTopics,
        clock: Clock,
    ) -> None:
        self._rules = rules
        self._consumer = consumer
        self._committer = committer
        self._history = CommitHistory(
            flush_records, topics, clock, group_id=rules.group_id, accept_unknown=rules.accept_unknown_history
        )
        self._looks_left = LOOKS
        self._topics = topics
        self._clock = clock
        self._found: dict[TopicPartition, StartPosition] = {}
        self._uncommitted: dict[TopicPartition, StartPosition] = {}
        self._untouched: dict[TopicPartition, int] = {}
        self._flushed_topics: set[str] = set()
        self._uncommitted_until = Deadline.after(0.0, clock.now_s)
        self._is_unanswered = False
        self._told: set[TopicPartition] = set()
        self._doubted: set[TopicPartition] = set()
        self._member_id = ""
        self._log = structlog.get_logger("start_positions")

    # Step 1, inside the callback.

    def find(self, tps: Iterable[TopicPartition], *, deadline: Deadline) -> dict[TopicPartition, StartPosition]:
        """Return the start position of each, to be proven; blocks for the broker's answers, within one deadline.

        Raises:
            StartPositionError: no committed offset, and the policy is to fail.
            StopError: the broker does not answer in time.
        """
        wanted = sorted(tps)
        committed = self._consumer.committed(wanted, deadline=deadline)
        found = {tp: StartPosition(offset, "committed") for tp, offset in committed.items() if offset is not None}
        for tp, start in found.items():
            self._topics.keep(tp, start.committed.metadata)
        missing = [tp for tp in wanted if tp not in found]
        for topic in sorted({tp.topic for tp in missing}):
            found |= self._by_policy(topic, [tp for tp in missing if tp.topic == topic], deadline)
        self._member_id = self._consumer.membership().member_id
        self._found |= found
        return {tp: found[tp] for tp in wanted}

    def _by_policy(
        self, topic: str, ours: list[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, StartPosition]:
        start_at = self._rules.start_at
        everything = self._consumer.partitions_of(topic, deadline=deadline)
        answers = self._consumer.committed(everything, deadline=deadline)
        committed = {tp: offset for tp, offset in answers.items() if offset is not None}
        if not committed and start_at == "fail":
            raise StartPositionError(
                f"group has no committed offset for topic {topic}, and kafka.start_at is fail: set it to "
                "beginning or end for the first start, or commit offsets for this group "
                f"(`{command('flushed', topic)}` takes them from flush records)"
            )
        began = None
        if start_at == "end" and not committed:
            began = Began(self._clock.wall_ms(), len(everything))
        elif start_at == "end":
            told = (offset_metadata.decode(one.metadata).began for one in committed.values())
            began = min((one for one in told if one is not None), default=None)
        self._topics.keep_began(topic, began)
        is_added = bool(committed) and began is None
        # Asked again: while this process was stopped another member may have owned these, committed and left.
        return {
            tp: StartPosition(committed[tp], "committed")
            if tp in committed
            else self._start_of(tp, began, deadline, is_first=not committed, is_added=is_added)
            for tp in ours
        }

    def _start_of(
        self, tp: TopicPartition, began: Began | None, deadline: Deadline, *, is_first: bool, is_added: bool
    ) -> StartPosition:
        first, end = self._consumer.watermarks(tp, deadline=deadline)
        if began is None:
            return StartPosition(CommittedOffset(first), "added" if is_added else "policy")
        if tp.partition >= began.partitions:
            return StartPosition(CommittedOffset(first), "added")
        if not is_first:
            since = self._consumer.offset_at(tp, began.at_ms, deadline=deadline)
            end = end if since is None else since
        return StartPosition(CommittedOffset(end), "policy")

    # Step 2, outside callbacks.

    @property
    def unproven(self) -> frozenset[TopicPartition]:
        """What is assigned and may not be recorded yet."""
        return frozenset(self._found) | frozenset(self._uncommitted)

    def is_untouched(self, tp: TopicPartition, first_offset: int) -> bool:
        """Return whether the group has flushed nothing of a topic, as far as we know, before what begins here."""
        return tp.topic not in self._flushed_topics and self._untouched.get(tp) == first_offset

    def flushed(self, tps: Iterable[TopicPartition]) -> None:
        """Note that the group has flushed something of these."""
        self._flushed_topics.update(tp.topic for tp in tps)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Drop what was given back."""
        for tp in tps:
            self._found.pop(tp, None)
            self._uncommitted.pop(tp, None)
            self._untouched.pop(tp, None)
        self._history.forget(tps)
        self._doubted.difference_update(tps)

    def prove(self, *, deadline: Deadline) -> frozenset[TopicPartition]:
        """Prove and commit what `find` has found since; asks nobody where nothing was assigned.

        Returns what others have committed meanwhile: it goes on there.

        Raises:
            DiscardError: not yet, no member any more, others have committed meanwhile, or no answer: rewind what is
                unproven, poll, and ask again. Nothing unproven may be recorded.
            StartPositionError: a committed offset is of another topic, or has been lost.
            StopError: the broker refuses or does not answer, for the second time.
        """
        if self._found:
            self._ask_ids(self._rules.topics, deadline)
            self._compare_ids()
            self._compare_history(deadline)
            starts = {tp: start.committed.offset for tp, start in self._found.items()}
            self._untouched |= starts
            self.flushed(tp for tp in starts if self._history.next_offset(tp) is not None)
            missing = {tp: start for tp, start in self._found.items() if start.source != "committed"}
            if missing:
                self._uncommitted_until = Deadline.after(UNCOMMITTED_MAX_S, self._clock.now_s)
            if proven := sorted(self._found.keys() - missing.keys()):
                tell(self._log.info, StartsProven([str(tp) for tp in proven]))
            self._uncommitted |= missing
            self._found = {}
        return self._commit(deadline) if self._uncommitted else frozenset()

    def _compare_ids(self) -> None:
        """Compare the topics' ids with those that the committed offsets were of."""
        differ: dict[str, list[str]] = {}
        unknown = []
        for tp, start in self._found.items():
            if start.source != "committed":
                continue
            was, now = offset_metadata.decode(start.committed.metadata).topic_id, self._topics.ids.get(tp.topic)
            if was is None or now is None:
                unknown.append(tp)
            elif was != now:
                differ.setdefault(tp.topic, []).append(f"{tp} ({start.committed.offset}, of id {was})")
        if differ:
            raise StartPositionError(" ".join(self._describe(topic, each) for topic, each in sorted(differ.items())))
        if new := sorted(set(unknown) - self._told):  # unknown is not different; the next commit says it
            self._log.warning("committed_topic_id_unknown", topic_partitions=[str(tp) for tp in new])
            self._told.update(new)

    def _describe(self, topic: str, offsets: list[str]) -> str:
        return (
            f"topic {topic} was made anew under its name: its id is {self._topics.ids[topic]}, but the committed "
            f"offsets of {listed(offsets)} are of another topic. Stop all workers of the group, then go on at these "
            f"offsets, where they name the same records (`{command('committed', topic)}`), or begin anew at the "
            f"topic's beginning (`{command('beginning', topic)}`)."
        )

    def _compare_history(self, deadline: Deadline) -> None:
        """Compare start positions with where the flush records end: earlier is published twice, later is skipped."""
        starts, known = self._found, self._history.next_offset
        missing = {tp for tp, start in starts.items() if start.source != "committed"}
        self._history.read(missing, starts.keys() - missing, deadline=deadline)
        ends = {tp: end for tp in starts if (end := known(tp)) is not None}
        self._history.require_ours({tp: starts[tp].committed for tp in ends.keys() - missing}, ends)
        differ = {tp: end for tp, end in ends.items() if end != starts[tp].committed.offset}
        wrong = {tp: end for tp, end in differ.items() if tp in missing or end > starts[tp].committed.offset}
        if not wrong:
            return
        if doubted := sorted(wrong.keys() - self._doubted):
            tell(self._log.warning, StartsDoubted({str(tp): wrong[tp] for tp in doubted}))
            self._doubted |= wrong.keys()
        answers = self.committed(wrong, deadline)
        there = {tp: one for tp, one in answers.items() if one is not None}
        for tp, one in there.items():
            self._topics.keep(tp, one.metadata)
        self._found |= {tp: StartPosition(one, "committed") for tp, one in there.items()}
        self._history.require(answers, wrong)
        raise CommittedOffsetError(f"{listed(map(str, wrong))}: what is committed is further now")

    def committed(
        self, tps: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Ask for committed offsets; no answer is a reason to poll and ask again, the second in a row to end.

        A process that is stopped in the question may have less time left than another's transaction takes. Where the
        deadline is long past it certainly was stopped: that does not count.

        Raises:
            DiscardError: no answer, for the first time.
            StopError: for the second time.
        """
        try:
            answers = self._consumer.committed(tps, deadline=deadline)
        except SourceError as error:
            if self._is_unanswered and not deadline.is_long_past():
                raise
            self._is_unanswered = True
            raise DiscardError(f"asked again after the next poll: {error}") from error
        self._is_unanswered = False
        return answers

    # Rewinds.

    def doubt(self, tps: Iterable[TopicPartition]) -> None:
        """Note that a flush of these may be committed after all: its flush record will tell."""
        self._history.forget(tps)

    def again(
        self, known: Mapping[TopicPartition, int], *, deadline: Deadline
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return where to read again: the committed offset, ahead of what is `known` where a commit had no answer.

        Where nothing is committed, and nothing was flushed, only the start was, and is lost. Blocks for the broker's
        answers, and for flush records where they have to be read: no transaction of ours is open any more.

        Raises:
            CommittedOffsetError: one is of before what we, or flush records, know to be committed: ask again.
            DiscardError: no answer: ask again.
            StartPositionError: one has been for too long.
            StopError: the broker does not answer in time, for the second time.
        """
        answers = self.committed(known, deadline)
        missing = {tp for tp, one in answers.items() if one is None}
        self._history.read(missing, known.keys() - missing, deadline=deadline)
        ends = {tp: max(offset, self._history.next_offset(tp) or 0) for tp, offset in known.items()}
        required = {tp: end for tp, end in ends.items() if tp not in missing or end > known[tp]}
        self._history.require(answers, required)
        return {tp: answers[tp] or CommittedOffset(offset) for tp, offset in known.items()}

    def _commit(self, deadline: Deadline) -> frozenset[TopicPartition]:
        """Commit start positions where none is committed, in a transaction: aborted or committed, it is never late.

        A plain commit has no such end: asked again, it may arrive after our first flush, and set that back.
        """
        waiting = self._uncommitted
        try:
            self._committer.prepare(deadline=deadline)  # ends what an earlier try has left open
            committed = self.committed(waiting, deadline)
            starts = {
                tp: start.committed._replace(metadata=self._topics.metadata_of(tp))
                for tp, start in waiting.items()
                if committed[tp] is None
            }
            if starts:
                membership = self._consumer.membership()
                if membership.member_id != self._member_id:
                    raise MembershipError(f"assigned as member {self._member_id!r}, now {membership.member_id!r}")
                self._committer.commit([], starts, membership, deadline=deadline.at_most(COMMIT_S))
        except DiscardError as error:
            if self._uncommitted_until.has_passed():
                raise SourceError(f"start positions are not committed: {error}") from error
            raise
        self._uncommitted = {}
        if starts:
            tell(self._log.info, StartsCommitted({str(tp): start.offset for tp, start in sorted(starts.items())}))
        return frozenset(waiting.keys() - starts.keys())

    # Topics that are made anew, and groups that begin, while a worker runs.

    def watch(self, *, deadline: Deadline) -> None:
        """Check that no source topic was made anew since its records were read; before a flush outside a callback.

        Before the first ones it looks for foreign groups again: two new groups that start together do not see each
        other at the start. 1. Both look, and find nothing. 2. Both commit a flush. 3. Both look: the one that committed
        second finds the other's flush record, whatever happens; the other finds it once that is committed.

        Where a topic is made anew the library takes over the new id and reads on at its position (KAFKA_FACTS O4).
        A flush inside a callback may still have records of both; its offsets have the old id, which the next owner
        compares.

        Raises:
            StartPositionError: a topic was made anew, or another group publishes the same.
        """
        self._ask_ids(self._rules.topics, deadline)
        if self._looks_left:
            self._looks_left -= 1
            self._history.look(deadline=deadline.at_most(LOOK_S))

    def _ask_ids(self, topics: Iterable[str], deadline: Deadline) -> None:
        found = self._consumer.topic_ids(topics, deadline=deadline.at_most(TOPIC_IDS_S))
        for topic, topic_id in found.items():
            known = self._topics.ids.setdefault(topic, topic_id)
            if known != topic_id:  # started again we see what the group has committed of which
                raise StartPositionError(
                    f"topic {topic} was made anew while this worker ran: its id was {known}, now it is {topic_id}. "
                    "Nothing is committed any more; after a restart the committed offsets are compared"
                )
