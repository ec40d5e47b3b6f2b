"""The workers' announcements at the end: read from their three topics, committed messages only.

The workers' logs tell the same as it happens; a killed worker's last line may be lost, its messages are not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.dead_letter import DeadLetterHeaders, parse_headers
from log_partitioner.formats.flush_record import FlushRecord, decode_flush_record, merge_parts
from log_partitioner.formats.model import SourceRecord
from log_partitioner.formats.reference import ReferenceMessage, decode_message
from log_partitioner.formats.replay import is_replay_mark
from tools.demo.fields import find_entry
from tools.demo.options import GROUP, SOURCE
from tools.local.errors import StackError

_TRIES_MAX = 100  # dead letters of one reason that are looked at for an entry that can be shown


@dataclass(slots=True)
class DeadReason:
    """The dead letters of one reason: how many entries, what the worker says, and the first entry that can be read."""

    entries: int = 0
    message: str = ""
    entry: Mapping[str, object] | None = None
    value: bytes | None = None  # of the first record
    letters: int = 0

    def add(self, letter: SourceRecord, says: DeadLetterHeaders) -> None:
        """Count one dead letter of this reason."""
        self.entries += says.entries
        self.letters += 1
        if self.letters == 1:
            self.message, self.value = says.message, letter.value
        if self.entry is None and self.letters <= _TRIES_MAX:
            self.entry = find_entry(letter.value, says.indexes[0] if says.indexes else 0)


@dataclass(slots=True)
class Announced:
    """The sums over references, flush records and dead letters."""

    flushes: int = 0
    entries: int = 0
    dead_letters: int = 0  # entries
    references: int = 0
    objects: set[str] = field(default_factory=set)
    schemas: set[str] = field(default_factory=set)
    letters_stored: set[str] = field(default_factory=set)
    reasons: dict[str, DeadReason] = field(default_factory=dict)

    @property
    def is_mostly_dead(self) -> bool:
        """Whether more entries are in dead letters than in files."""
        return 2 * self.dead_letters > self.entries

    @property
    def objects_named(self) -> int:
        """How many objects of any kind the messages name."""
        return len(self.objects | self.schemas | self.letters_stored)

    @property
    def main_reason(self) -> tuple[str, DeadReason]:
        """The reason with the most entries; only if there are dead letters."""
        return max(self.reasons.items(), key=lambda item: item[1].entries)

    def add_flushes(self, records: Iterable[FlushRecord]) -> None:
        """Take in flush records, each in as many parts as it has."""
        whole, problems = merge_parts(records)
        if problems:
            raise StackError(f"The flush records are not whole: {problems[0]}.")
        self.flushes += len(whole)
        self.entries += sum(record.totals.entries for record in whole)
        self.dead_letters += sum(record.totals.dead_letters for record in whole)

    def add_references(self, message: ReferenceMessage) -> None:
        """Take in a message of the references topic: one object, its lines are the references."""
        self.references += len(message.references)
        self.objects.add(message.object.key)
        self.schemas.add(message.schema.object)

    def add_letter(self, letter: SourceRecord) -> None:
        """Take in a dead letter."""
        if is_replay_mark(letter.headers):
            return
        says = parse_headers(letter.headers)
        self.reasons.setdefault(says.reason, DeadReason()).add(letter, says)
        if says.object_key is not None:
            self.letters_stored.add(says.object_key)


def read_announced(bootstrap: str) -> Announced:
    """Read all that is committed; blocks for as long as that takes, a second for 100,000 messages.

    Raises:
        StackError: Kafka did not answer, or a message cannot be read.
    """
    settings = KafkaSettings(bootstrap_servers=bootstrap, source_topics=(SOURCE,), group_id=GROUP)
    announced = Announced()
    try:
        with KafkaTopics.of(settings) as topics:
            flushes = _read(topics, settings.flushes_topic)
            announced.add_flushes([decode_flush_record(message.value or b"") for message in flushes])
            for message in _read(topics, settings.references_topic):
                announced.add_references(decode_message(message.value or b""))
            for letter in _read(topics, settings.dead_letters_topic):
                announced.add_letter(letter)
    except (CouldNotTellError, msgspec.DecodeError, KeyError) as error:
        raise StackError(f"What the workers have announced cannot be read: {error}") from error
    return announced


def _read(topics: KafkaTopics, topic: str) -> Iterator[SourceRecord]:
    return topics.read(topics.settled(topics.topic_partitions(topic))[0])
