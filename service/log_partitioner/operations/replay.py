"""Puts dead letters back into their source topics, some in each transaction, with the mark that they are there.

The order in `ReplayRun._commit` makes it once, whatever is killed and whoever else replays:

    1. a new producer ends and fences the transaction of any other replay of the group: what that has committed is
       visible, and nothing more of it will be
    2. the marks are read up to the end, so that what others have replayed is left out
    3. records and marks are committed by this producer, unless another replay has come to 1 since
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from log_partitioner.batch.messages import Sender, replay_mark_message
from log_partitioner.boundary import Clock, Message
from log_partitioner.chain import extended
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CodedError, CommitUnknownError, SourceError
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import CHAIN_HEADER, SourceRecord, TopicPartition
from log_partitioner.formats.replay import ReplayMark
from log_partitioner.input.narrow import NarrowError, narrow
from log_partitioner.operations.letters import (
    Fetch,
    Letter,
    LetterChoice,
    LetterLog,
    Place,
    StaysError,
    record_of,
)
from log_partitioner.partitioning.chain import place_of

NAME = "dead-letters"  # of this program, where a worker's would stand
LETTERS_AT_ONCE = 2_000  # in a transaction: so many offsets fit into any mark
BYTES_AT_ONCE = 32 * 1024 * 1024
MARGIN_MS = 3_600_000  # a record that is within an hour of its deletion might be gone before a worker has read it
_UNKNOWN_MAX = 3


class ReplayPublisher(Protocol):
    """Transactions of messages alone; see `KafkaCommitter`."""

    def prepare(self) -> None:
        """Make the next transaction's producer ready; ends and fences every earlier one."""

    def publish(self, messages: Iterable[Message], *, deadline: Deadline) -> None:
        """Run one transaction; raises as `Committer.commit`."""


def keeps_ms(config: Mapping[str, str]) -> int | None:
    """Return how old, by its timestamp, a record may be that a topic takes and keeps; None if nothing says so."""
    bounds = [int(config[name]) for name in ("retention.ms", "message.timestamp.before.max.ms") if name in config]
    return min((one for one in bounds if one >= 0), default=None)


class Ready(NamedTuple):
    """A dead letter, and the record that goes back for it; without a timestamp it gets the present time."""

    letter: Letter
    record: SourceRecord

    @property
    def order(self) -> tuple[TopicPartition, int, Place]:
        """The order of the source, so that places along a way of source topic chains ascend."""
        return self.record.tp, self.record.offset, self.letter.place


class Maker:
    """Makes of dead letters the records that go back; `keeps_ms` says by topic how old a record may be there."""

    def __init__(
        self,
        settings: Settings,
        fetch: Fetch,
        *,
        keeps_ms: Mapping[str, int | None],
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._keeps_ms = keeps_ms
        self._now_ms = now_ms

    def make(self, letter: Letter) -> Ready:
        """Return the record of a dead letter, with its dead entries only, and then without its chain.

        A chain has the root of all entries, and with it their indexes say which is which: a part has others.

        Raises:
            StaysError: there is none.
            CouldNotTellError: the store does not answer.
        """
        says = letter.says
        if says.reason == Reason.SKIPPED:
            raise StaysError("it stands for offsets that could not be read")
        if says.topic not in self._keeps_ms:
            raise StaysError(f"no worker of these settings reads topic {says.topic}")
        record = record_of(letter, self._fetch)
        if says.indexes is not None and len(says.indexes) != says.of_entries:
            if says.of_entries is None:
                raise StaysError("it does not say how many entries its record has, of which some may be delivered")
            rules = self._settings.of_topic(says.topic).input
            try:
                value = narrow(
                    record.value or b"", record.headers, says.indexes, of_entries=says.of_entries, rules=rules
                )
            except NarrowError as error:
                raise StaysError(str(error)) from error
            headers = tuple((name, text) for name, text in record.headers if name != CHAIN_HEADER)
            record = record._replace(value=value, headers=headers)
        return Ready(letter, record._replace(timestamp_ms=self._timestamp_ms(record)))

    def _timestamp_ms(self, record: SourceRecord) -> int | None:
        """Return the record's timestamp; None if the topic would refuse it, or delete the record right away."""
        keeps_ms, timestamp_ms = self._keeps_ms[record.tp.topic], record.timestamp_ms
        if timestamp_ms is None or keeps_ms is None or timestamp_ms + keeps_ms > self._now_ms + MARGIN_MS:
            return timestamp_ms
        return None


class ReplayRun:
    """One run: how many dead letters are `back` now, and `again` were before, and how many are `refused`, by reason.

    The `retimed` ones among them have lost their timestamps. Without a publisher it says what another run would do, and
    shows each record to `look`.
    """

    def __init__(
        self,
        log: LetterLog,
        maker: Maker,
        publisher: ReplayPublisher | None,
        sender: Sender,
        clock: Clock,
        *,
        look: Callable[[SourceRecord], None] = lambda _: None,
    ) -> None:
        self.back = self.again = self.retimed = 0
        self.refused: Counter[str] = Counter()
        self._log = log
        self._maker = maker
        self._publisher = publisher
        self._sender = sender
        self._clock = clock
        self._look = look

    def run(self, chosen: LetterChoice, *, within_s: float) -> None:
        """Put all chosen ones back that are not yet; each transaction takes at most so long.

        Raises:
            SourceError: another replay of this group has begun, or a permission is missing.
            CommitAbortedError, CommitUnknownError: not now; another run goes on from there.
            CouldNotTellError: Kafka or the store do not answer.
        """
        some: list[Ready] = []
        size = 0
        for letter in self._log.letters(chosen):
            if letter.place in self._log.replayed:
                self.again += 1
                continue
            try:
                some.append(self._maker.make(letter))
            except StaysError as error:
                self.refused[str(error)] += 1
                continue
            size += some[-1].record.size
            if len(some) >= LETTERS_AT_ONCE or size >= BYTES_AT_ONCE:
                self._commit(some, within_s)
                some, size = [], 0
        self._commit(some, within_s)

    def _commit(self, some: list[Ready], within_s: float) -> None:
        if self._publisher is None:
            self._count(some)
            for _, record in some:
                self._look(record if record.timestamp_ms else record._replace(timestamp_ms=self._clock.wall_ms()))
            return
        for attempt in range(_UNKNOWN_MAX):
            if not some:
                return
            self._publisher.prepare()
            self._log.read_on()
            left = [one for one in some if one.letter.place not in self._log.replayed]
            if attempt:  # they have come with the transaction whose outcome was not known
                self._count([one for one in some if one.letter.place in self._log.replayed])
            if not left:
                return
            deadline = Deadline.after(within_s, self._clock.now_s)
            try:
                self._publisher.publish(messages_of(left, self._sender, at_ms=self._clock.wall_ms()), deadline=deadline)
            except CommitUnknownError:
                if attempt == _UNKNOWN_MAX - 1:
                    raise
                some = left
                continue
            except CodedError as error:
                if error.is_fenced:
                    text = "another replay of this group has begun: nothing of this transaction is in the source"
                    raise SourceError(f"{text} ({error.code})") from error
                raise
            self._count(left)
            return

    def _count(self, some: list[Ready]) -> None:
        self.back += len(some)
        self.retimed += sum(
            one.record.timestamp_ms is None and one.letter.says.timestamp_ms is not None for one in some
        )


def messages_of(some: Iterable[Ready], sender: Sender, *, at_ms: int) -> Iterator[Message]:
    """Yield records in the order of the source, then the marks behind their dead letters."""
    by, marks, indexes = f"{NAME}/{secrets.token_hex(8)}", dict[int, list[int]](), Counter[tuple[TopicPartition, int]]()
    for letter, record in sorted(some, key=lambda one: one.order):
        place = record.tp, record.offset
        yield Message(
            record.tp.topic, record.key, record.value, _headers(record, by, indexes[place]), record.tp.partition,
            record.timestamp_ms,
        )  # fmt: skip
        indexes[place] += 1
        marks.setdefault(letter.message.tp.partition, []).append(letter.message.offset)
    for partition, offsets in sorted(marks.items()):
        mark = ReplayMark(group_id=sender.kafka.group_id, replayed_at_ms=at_ms, offsets=tuple(sorted(offsets)))
        yield replay_mark_message(mark, sender, partition=partition)


def _headers(record: SourceRecord, by: str, index: int) -> list[tuple[str, bytes | None]]:
    """Return the record's own headers; if it has a way along a chain, with a link that makes another way of it.

    Its old way has passed it: a worker that discards replays would discard it.
    """
    if place_of(record) is None:
        return list(record.headers)
    others = [(name, value) for name, value in record.headers if name != CHAIN_HEADER]
    return [*others, extended(record.headers, (*record.tp, record.offset, index, by))]
