"""The rules by which records of a source topic are read: its decoder and its partitioner (DESIGN 3.1)."""

from __future__ import annotations

from typing import NamedTuple

from log_partitioner.config.settings import Settings
from log_partitioner.formats.schema import FindSchema
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.json_text import JsonDecoder
from log_partitioner.partitioning.partitioner import Partitioner


class TopicRules(NamedTuple):
    """The rules of one source topic."""

    settings: Settings
    decoder: RecordDecoder
    partitioner: Partitioner


class RulesByTopic(dict[str, TopicRules]):
    """Rules by source topic, made when one is first asked for; topics without settings of their own share them."""

    def __init__(self, settings: Settings, find_schema: FindSchema | None = None) -> None:
        super().__init__()
        self.json = JsonDecoder(keep_inexact_text=settings.input.inexact_numbers == "text")
        """Decodes the JSON text of all topics."""
        self._find_schema = find_schema
        self._common = self._make(settings)

    def __missing__(self, topic: str) -> TopicRules:
        settings = self._common.settings.of_topic(topic)
        self[topic] = rules = self._common if settings is self._common.settings else self._make(settings)
        return rules

    def _make(self, settings: Settings) -> TopicRules:
        return TopicRules(settings, RecordDecoder(settings.input, self._find_schema, self.json), Partitioner(settings))
