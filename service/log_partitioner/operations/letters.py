"""The topic of dead letters, read by place: dead letters of one history, and which of them were replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import msgspec

from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.dead_letter import DeadLetterHeaders, own_headers, parse_headers, stored_record
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import decode_replay_mark, is_replay_mark
from log_partitioner.proof.audit.audit import Topics
from log_partitioner.proof.audit.window import FlushWindow

Place = tuple[TopicPartition, int]
"""A message of the topic of dead letters: its partition and its offset there."""
Fetch = Callable[[str], bytes | None]
"""Gives an object of the bucket by its key; None if there is none."""


class Letter(NamedTuple):
    """A dead letter: what our headers say, and the message that it is."""

    says: DeadLetterHeaders
    message: SourceRecord

    @property
    def place(self) -> Place:
        """Its place in the topic of dead letters."""
        return self.message.tp, self.message.offset

    @property
    def name(self) -> str:
        """Its place, as commands write it."""
        return f"{self.message.tp.partition}/{self.message.offset}"


class LetterChoice(NamedTuple):
    """Which dead letters are meant: those of the history, of these reasons and topics; empty: of all."""

    lineage: Lineage
    reasons: Collection[str] = ()
    topics: Collection[str] = ()

    def has(self, says: DeadLetterHeaders) -> bool:
        """Return whether a dead letter is meant."""
        return (
            self.lineage.has(says.group_id, *says.tp, says.next_offset)
            and (not self.reasons or says.reason in self.reasons)
            and (not self.topics or says.topic in self.topics)
        )


class LetterLog:
    """Dead letters up to the ends that `read_on` has found, and the marks behind them.

    One reader yields dead letters while the other reads on. Memory holds the places of what was replayed.
    """

    def __init__(self, topics: Topics, ahead: Topics, topic: str, window: FlushWindow) -> None:
        self.replayed: set[Place] = set()
        self._topics = topics
        self._ahead = ahead
        self._topic = topic
        self._window = window
        self._firsts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    def read_on(self) -> None:
        """Read the marks that were committed since the last call; blocks until no transaction is open.

        Raises:
            CouldNotTellError: one stays open, a mark cannot be read, or no broker answers.
        """
        ends, open_ones = self._ahead.settled(self._ahead.topic_partitions(self._topic))
        if open_ones:
            raise CouldNotTellError("; ".join(open_ones))
        ranges = ends if self._firsts else self._window.narrow(self._ahead, ends)
        self._firsts = {tp: first for tp, (first, _) in ranges.items()} | self._firsts
        for message in self._ahead.read({tp: (self._ends.get(tp, self._firsts[tp]), ends[tp][1]) for tp in ends}):
            if is_replay_mark(message.headers):
                try:
                    mark = decode_replay_mark(message.value or b"")
                except msgspec.DecodeError as error:
                    text = f"{message.tp} offset {message.offset} is a replay mark that this version does not read"
                    raise CouldNotTellError(f"{text}: {error}") from error
                self.replayed.update((message.tp, offset) for offset in mark.offsets)
        self._ends = {tp: end for tp, (_, end) in ends.items()}

    def letters(self, chosen: LetterChoice) -> Iterator[Letter]:
        """Yield the dead letters that are meant, up to the ends that are known."""
        for message in self._topics.read({tp: (first, self._ends[tp]) for tp, first in self._firsts.items()}):
            try:
                says = parse_headers(message.headers)
            except ValueError:
                continue  # a replay mark, or an audit says so: `dead_letter_wrong`
            if chosen.has(says):
                yield Letter(says, message)


class StaysError(ValueError):
    """A dead letter cannot go back; the text says why."""


def record_of(letter: Letter, fetch: Fetch) -> SourceRecord:
    """Return the source record of a dead letter, as it was; `fetch` gives an object of the bucket by key.

    Raises:
        StaysError: the object that holds it is gone, or holds no record.
        CouldNotTellError: the store does not answer.
    """
    says, message = letter
    own = own_headers(message.headers)
    record = SourceRecord(says.tp, says.offset, says.timestamp_ms, message.key, message.value, own)
    if says.object_key is None:
        return record
    stored = fetch(says.object_key)
    if stored is None:
        raise StaysError(f"there is no object {says.object_key}, which holds it")
    try:
        whole = stored_record(says.object_key, stored, key=message.key, headers=own)
    except msgspec.DecodeError as error:
        raise StaysError(f"{says.object_key} is no record: {error}") from error
    return record._replace(key=whole.key, value=whole.value, headers=tuple(whole.headers))
