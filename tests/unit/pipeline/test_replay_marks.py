"""Replay marks in the topic of dead letters: no job takes one for a dead letter, and none stops at one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import REPLAY_TYPE, encode_replay_mark
from log_partitioner_pipeline.announced import DEAD_LETTERS
from log_partitioner_pipeline.backfill import publish
from log_partitioner_pipeline.backfill.held import _places_of_letter
from tests.golden.example import REPLAY_MARK
from tests.unit.pipeline.test_backfill_write import RUN

HEADERS = (("ce_type", REPLAY_TYPE.encode()),)
MARK = SourceRecord(TopicPartition("dead-letters", 0), 9, 1, b"group", encode_replay_mark(REPLAY_MARK), HEADERS)


def test_replay_mark_is_no_row_of_the_table_of_dead_letters() -> None:
    """A row of its place alone would be an unknown message."""
    assert list(DEAD_LETTERS.rows_of(MARK)) == []


def test_replay_mark_holds_no_entry() -> None:
    """A backfill reads it on its way to what dead letters hold."""
    row = {"partition": 0, "offset": 9, "headers": [{"key": key, "value": value} for key, value in HEADERS]}
    assert list(_places_of_letter(row, Lineage("group", []))) == []


def test_replay_mark_is_no_rival_of_a_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay may run beside a backfill: it publishes nothing over the range."""

    class OfMarks:
        def __init__(self, _settings: KafkaSettings, topic: str, _starts: Any) -> None:
            self._topic = topic

        def read(self) -> Iterator[SourceRecord]:
            yield from [MARK] if self._topic == RUN.dead_letters_topic else []

    monkeypatch.setattr(publish, "_Reader", OfMarks)
    settings = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("logs",))
    publish.Rivals(settings, RUN).require_none(published=0)
    with pytest.raises(publish.OvertakenError, match="has published 0 messages"):
        publish.Rivals(settings, RUN).require_none(published=1)
