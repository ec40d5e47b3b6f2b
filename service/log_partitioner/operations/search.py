"""Reads topics that workers write in search of something, and counts what it reads; holds one message at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.model import SourceRecord
from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner.operations.output import write_note
from log_partitioner.proof.audit.audit import Topics
from log_partitioner.proof.audit.window import FlushWindow

_BEGUN_CHARS = len("20260304T050607Z")  # of a batch id


class TopicSearch:
    """Searches the topics of these settings."""

    def __init__(self, topics: Topics, kafka: KafkaSettings) -> None:
        self.topics = topics
        self.kafka = kafka
        self.read: Counter[str] = Counter()

    def messages(self, topic: str, window: FlushWindow) -> Iterator[SourceRecord]:
        """Yield the committed messages of a topic with timestamps in a window; says what an open transaction hides."""
        ends, hidden = self.topics.settled(self.topics.topic_partitions(topic))
        for text in hidden:
            write_note(text)
        for message in self.topics.read(window.narrow(self.topics, ends)):
            self.read[f"messages of {topic}"] += 1
            self.read["bytes"] += message.size
            yield message

    def references(self, window: FlushWindow, is_near: Callable[[SourceRecord], bool]) -> Iterator[list[Reference]]:
        """Yield the references of each message that is near what is searched for; each message is of one object."""
        for message in self.messages(self.kafka.references_topic, window):
            try:
                if is_near(message):
                    yield decode_references(message.value or b"")
            except msgspec.DecodeError:
                self.read["messages that this version cannot read"] += 1

    def reference(self, reference_id: str) -> Reference | None:
        """Find a reference by its id; the messages of its batch are looked for from the time in the id on."""
        batch_id = reference_id.rpartition("-")[0]
        key = batch_id.encode()
        for references in self.references(FlushWindow(begun_ms(batch_id)).padded(), lambda one: one.key == key):
            for reference in references:
                if reference.reference_id == reference_id:
                    return reference
        return None

    def told(self) -> str:
        """Say what was read."""
        return "read: " + ", ".join(f"{count:,} {what}" for what, count in sorted(self.read.items()))


def begun_ms(batch_id: str) -> int | None:
    """Return the time at which a batch began; None if its id does not tell, as that of a named backfill."""
    try:
        return round(1000 * datetime.fromisoformat(batch_id[:_BEGUN_CHARS]).timestamp())
    except ValueError:
        return None
