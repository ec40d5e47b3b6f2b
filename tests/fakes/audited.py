"""The small audit over what fakes have left: a broker's logs and transactions, a bucket's objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from log_partitioner.config.section import StartAt
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.proof.audit.audit import Audit, Options
from log_partitioner.proof.audit.context import Address, FetchedObject
from log_partitioner.proof.audit.report import Report
from tests.fakes.broker import FakeBroker
from tests.fakes.worker import settings_of


class BrokerTopics:
    """Fulfils `log_partitioner.proof.audit.audit.Topics` over a fake broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def topic_partitions(self, topic: str, *, may_be_absent: bool = False) -> list[TopicPartition]:
        """List the TopicPartitions of a topic; nobody has made backfills."""
        found = sorted(tp for tp in self._broker.logs if tp.topic == topic)
        return found or ([] if may_be_absent else [TopicPartition(topic, 0)])

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the first offset and the end."""
        log = self._broker.logs.get(tp)
        return (0, len(self._broker.messages(tp.topic))) if log is None else (log.first_offset, log.end)

    def settled(self, tps: Iterable[TopicPartition]) -> tuple[Mapping[TopicPartition, tuple[int, int]], list[str]]:
        """Return the same: all workers are gone."""
        return {tp: self.ends(tp) for tp in tps}, []

    def committed(self, tps: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""
        return {tp: self._broker.committed_offset(tp) for tp in tps}

    def can_read(self, tp: TopicPartition, first: int, end: int) -> bool:
        """Return whether any offset is whole."""
        return any(self._broker.logs[tp].broken_at(one, one + 1) is None for one in range(first, end))

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield messages."""
        for tp, (first, end) in ranges.items():
            if tp in self._broker.logs:
                yield from (one for one in self._broker.logs[tp].records if first <= one.offset < end)
                continue
            for offset, one in enumerate(self._broker.messages(tp.topic)[first:end], first):
                yield SourceRecord(tp, offset, 0, one.key, one.value, tuple(one.headers))


class BucketStore:
    """Reads objects, as the audit does, from a fake bucket."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects

    def get(self, address: Address) -> FetchedObject | None:
        """Read an object."""
        data = self._objects.get(address.key)
        return None if data is None else FetchedObject(data, None)


def audit_of(broker: FakeBroker, objects: Mapping[str, bytes], start_at: StartAt, **kafka: Any) -> Report:
    """Audit what is there, by the settings of the fakes and some others."""
    settings = settings_of(start_at)
    settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update=kafka)})
    return Audit(settings, Options(threads=1), BrokerTopics(broker), BucketStore(objects).get).run()
