"""Verification mode: what was consumed is remembered, and after each commit compared with what the store gives back.

    consumed    -> each entry, identified by the second opinion, is remembered until its offset is committed
    committed   -> what lies below the committed offsets is due
    look        -> the objects of the flush are read again, every due entry has to be in one row or dead letter

Records that are read again are forgotten before: after a seek, and when their TopicPartition is assigned anew. Of a
transaction whose outcome is unknown the offset that is sought next tells what became of it. Owns no rule of comparing
(`control.differences`), and decides nothing for the worker but to stop it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import structlog

from service.boundary import Clock, Poll
from service.config.settings import VerifySettings
from service.control.deadline import Deadline
from service.control.differences import Difference, FlushComparison, FlushFindings
from service.control.remembered import Remembered, RememberedEntries, Share
from service.errors import ReadBackError, UnreadableObjectError, VerificationError
from service.formats.dead_letter import DeadLetterHeaders
from service.formats.log_events import FlushDiffers, FlushVerified, tell
from service.formats.model import OffsetRanges, TopicPartition
from service.formats.reference import Location, Reference, decode_references
from service.privacy import veiled
from service.runtime.ports import Metrics, ReadBackStore, SecondOpinion

HURRIED_S = 10.0  # for a comparison once the worker is asked to stop: it has a grace period
_NO_OFFSET = -1


class VerifyPorts(NamedTuple):
    """What verification mode asks."""

    opinion: SecondOpinion
    objects: ReadBackStore


class Sent(NamedTuple):
    """A transaction of one flush: next offsets, messages of the references topic, dead letters."""

    next_offsets: Mapping[TopicPartition, int]
    references: list[bytes]
    letters: list[DeadLetterHeaders]
    given_up: frozenset[TopicPartition] = frozenset()
    """What was given back before it was known whether the transaction was committed."""


class _Due(NamedTuple):
    """A committed flush that is to be compared."""

    sent: Sent
    spans: OffsetRanges
    remembered: dict[TopicPartition, RememberedEntries]
    whole: frozenset[TopicPartition]


class Verification:
    """Remembers and compares; used by the loop thread only."""

    def __init__(
        self,
        rules: VerifySettings,
        ports: VerifyPorts,
        *,
        clock: Clock,
        metrics: Metrics,
        is_hurried: Callable[[], bool],
    ) -> None:
        self.differences: Counter[Difference] = Counter()
        self._rules = rules
        self._share = Share(rules.share)
        self._opinion, self._objects = ports
        self._clock = clock
        self._metrics = metrics
        self._is_hurried = is_hurried
        self._remembered = Remembered(rules.bytes_max)
        self._first: dict[TopicPartition, int] = {}
        self._given_back: set[TopicPartition] = set()
        self._unsettled: Sent | None = None
        self._due: list[_Due] = []
        self._log = structlog.get_logger("verification")

    # What comes in.

    def given_back(self, tps: Iterable[TopicPartition]) -> None:
        """Leave TopicPartitions to others, who begin at the committed offset."""
        for tp in tps:
            self._give_up(tp)
            self._first.pop(tp, None)
            self._given_back.add(tp)

    def sought(self, tp: TopicPartition, offset: int) -> None:
        """Go on at a committed offset: everything behind it comes again."""
        self._settle(tp, offset)
        self._first[tp] = offset
        self._remembered.forget(tp)

    def fetched_again(self, tp: TopicPartition, offset: int) -> None:
        """Forget what comes again, without a change of what is committed; not what may be committed already."""
        sent = {} if self._unsettled is None else self._unsettled.next_offsets
        self._remembered.forget(tp, from_offset=max(offset, sent.get(tp, 0)))

    def consumed(self, poll: Poll) -> None:
        """Remember the records of a poll, of what is owned and not committed."""
        for tp in self._given_back - self._first.keys():
            self._remembered.forget(tp)
        self._given_back.clear()
        tps, left_out, has = poll.tps, 0, self._share.has
        for place, (number, offset) in enumerate(zip(poll.tp_of, poll.offsets, strict=True)):
            tp = tps[number]
            if not 0 <= self._first.get(tp, _NO_OFFSET) <= offset or not has(tp, offset):
                continue
            if self._remembered.has(tp, offset):
                continue
            record = self._opinion.entries_of(poll[place])
            if record.entries and not self._remembered.add(tp, offset, record):
                left_out += len(record.entries)
        if left_out:
            self._count_unverified(left_out, "memory")

    # What goes out.

    def committed(self, sent: Sent) -> None:
        """Note that everything of a transaction is visible: it is due."""
        self._unsettled = None
        spans, remembered, whole = {}, {}, set()
        for tp, next_offset in sent.next_offsets.items():
            first = self._first.get(tp)
            if tp in sent.given_up:
                spans[tp] = 0, next_offset
                continue
            if first is None:
                continue
            spans[tp] = first, next_offset
            if self._remembered.is_whole(tp, first):
                whole.add(tp)
            remembered[tp] = self._remembered.take(tp, next_offset)
            self._first[tp] = next_offset
        self._due.append(_Due(sent, spans, remembered, frozenset(whole)))

    def unknown(self, sent: Sent) -> None:
        """Keep a transaction of which nobody knows whether it was committed."""
        self._unsettled = sent

    def _settle(self, tp: TopicPartition, offset: int) -> None:
        """Learn from the offset at which it goes on what became of the last transaction; it is one for all."""
        sent = self._unsettled
        if sent is None or tp not in sent.next_offsets.keys() - sent.given_up:
            return
        if offset == sent.next_offsets[tp]:
            self.committed(sent)
        elif offset != self._first.get(tp):  # others have been here meanwhile
            for one in sent.next_offsets:
                self._give_up(one)
        self._unsettled = None

    def _give_up(self, tp: TopicPartition) -> None:
        """Count what cannot be verified: it may be committed, and is not ours any more."""
        sent = self._unsettled
        if sent is None or tp not in sent.next_offsets.keys() - sent.given_up:
            return
        entries = self._remembered.by_tp.get(tp, RememberedEntries()).span(sent.next_offsets[tp])[0]
        if entries:
            self._count_unverified(entries, "outcome")
        self._unsettled = sent._replace(given_up=sent.given_up | {tp})

    # The comparison.

    def look(self, deadline: Deadline) -> None:
        """Compare what is due with the store; outside callbacks, before anything more is committed.

        Raises:
            VerificationError: they differ, and the policy is to stop.
            StoreRefusedError: the store does not let us read.
        """
        due, self._due = self._due, []
        for one in due:
            self._compare(one, deadline)
        if self.differences and self._rules.on_difference == "stop":
            raise VerificationError(
                f"verification: {self.story()}; nothing more is committed. See the event flush_differs for the places"
            )

    def story(self) -> str:
        """Say which differences were found since the start."""
        found = ", ".join(f"{count} {kind}" for kind, count in self.differences.items())
        return f"committed flushes differ from what was consumed: {found}"

    def _compare(self, due: _Due, deadline: Deadline) -> None:
        began_s = self._clock.now_s()
        comparison = FlushComparison(due.remembered, due.spans, share=self._share, whole=due.whole)
        for letter in due.sent.letters:
            comparison.add_letter(letter)
        references = [reference for message in due.sent.references for reference in decode_references(message)]
        objects: dict[str, list[Reference]] = {}
        for reference in references:
            if any(
                comparison.is_about(TopicPartition(one.topic, one.partition), one.min_offset, one.max_offset)
                for one in reference.sources
            ):
                objects.setdefault(reference.location.object, []).append(reference)
        wrong: list[str] = []
        read = 0
        for some in objects.values():
            is_late = self._is_hurried() and self._clock.now_s() > began_s + HURRIED_S
            if is_late or deadline.has_passed() or not self._read(some, comparison, deadline, wrong):
                break
            read += 1
        batch_id = references[0].batch_id if references else next((one.batch_id for one in due.sent.letters), "")
        outcome = comparison.outcome(is_all_read=read == len(objects))
        self._remembered.release(sum(map(len, due.remembered.values())))
        self._tell(batch_id, outcome, wrong, objects=read, seconds=self._clock.now_s() - began_s)

    def _read(
        self, references: list[Reference], comparison: FlushComparison, deadline: Deadline, wrong: list[str]
    ) -> bool:
        """Read one object and compare its rows; gives False where it cannot be read now."""
        place = references[0].location
        try:
            data = self._objects.read(place, deadline=deadline)
        except ReadBackError as error:
            self._log.warning("object_not_read_back", key=veiled(place.object), message=str(error))
            return False
        kind = _wrong_bytes(place, data)
        if data is not None:
            try:
                for row in self._opinion.rows_of(data, references):
                    comparison.add_row(row)
            except UnreadableObjectError:
                kind = kind or Difference.OBJECT_UNREADABLE
        if kind is not None:
            comparison.add_object(kind)
            wrong.append(f"{kind} {veiled(place.object)}")
        return True

    def _tell(self, batch_id: str, outcome: FlushFindings, wrong: list[str], *, objects: int, seconds: float) -> None:
        self._metrics.add("verified_entries", outcome.verified)
        self._metrics.add("verification_seconds", seconds)
        if outcome.unverified:
            self._count_unverified(outcome.unverified, "time")
        differences = {kind.value: count for kind, count in outcome.differences.items()}
        tell(
            self._log.info,
            FlushVerified(batch_id, outcome.verified, outcome.unverified, objects, round(seconds, 4), differences),
        )
        for kind, count in outcome.differences.items():
            self._metrics.add("verification_differences", count, kind=kind.value)
        self.differences.update(outcome.differences)
        if differences:
            tell(self._log.error, FlushDiffers(batch_id, differences, [*outcome.places, *wrong[:20]]))

    def _count_unverified(self, entries: int, cause: str) -> None:
        self._metrics.add("unverified_entries", entries, cause=cause)
        self._log.warning("entries_not_verified", entries=entries, cause=cause)


def _wrong_bytes(place: Location, data: bytes | None) -> Difference | None:
    if data is None:
        return Difference.OBJECT_MISSING
    known = place.checksum.algorithm == "sha256"
    is_same = len(data) == place.size and (not known or hashlib.sha256(data).hexdigest() == place.checksum.value)
    return None if is_same else Difference.OBJECT_ALTERED
