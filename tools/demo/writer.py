"""Writes records to a topic, at a pace and on request partly in transactions.

Spreads records over partitions by chance, so that partitions are not aligned with users. On request a share
of the records is written in transactions, some of which are aborted: no reader may ever see those.
"""

import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tools.demo.generate import GeneratedRecord
from tools.local.patience import Patience

_CHUNK_RECORDS_MAX = 50  # one transaction; also the grain of the rate limit
_METADATA_TIMEOUT_S = 120
_STILL_S_MAX = 180.0  # without an acknowledgement while some are due
_TRANSACTION_TIMEOUT_S = 300


class ProduceError(Exception):
    """Records could not be written; the message is for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSettings:
    """Target, rate and traits of the records to produce."""

    bootstrap: str
    topic: str
    entries_per_s: float | None = None
    time_limit_s: float | None = None
    transactional_share: float = 0.0  # of the records
    aborted_share: float = 0.3  # of the transactions
    seed: int = 1


@dataclass(slots=True)
class Produced:
    """Counts of what readers of committed records can see so far; other threads may look at them."""

    records: int = 0
    entries: int = 0
    aborted_records: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)  # by partition, behind the last record


class TopicWriter:
    """Writes records from one thread; `produced` grows as it goes, `stop()` may come from another thread."""

    def __init__(self, settings: ProduceSettings) -> None:
        self.produced = Produced()
        self._settings = settings
        self._rng = Random(settings.seed)
        self._stopped = threading.Event()
        self._acknowledged: dict[int, int] = {}
        self._failed: KafkaError | None = None
        common = {
            "bootstrap.servers": settings.bootstrap,
            "linger.ms": 20,
            "compression.type": "lz4",
            "log_level": 2,
        }
        self._plain = Producer(common | {"enable.idempotence": True})
        self._transactional_settings = common | {
            "transactional.id": f"demo-source-{uuid.uuid4()}",
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_S * 1000,
        }
        self._transactional = Producer(self._transactional_settings)
        self._chunk_records = _CHUNK_RECORDS_MAX
        if settings.entries_per_s is not None:
            self._chunk_records = max(1, min(_CHUNK_RECORDS_MAX, int(settings.entries_per_s / 10)))
        self._partitions = _count_partitions(self._plain, settings.topic)

    def stop(self) -> None:
        """Let `write` end soon."""
        self._stopped.set()

    def write(self, records: Iterable[GeneratedRecord]) -> Produced:
        """Write records until they, the time or the patience of `stop()` end; all are then acknowledged.

        Raises:
            ProduceError: the broker did not take them.
        """
        remaining = iter(records)
        try:
            if self._settings.transactional_share > 0:
                self._transactional.init_transactions(_STILL_S_MAX)
            for _ in self._pace():
                chunk = list(islice(remaining, self._chunk_records))
                if not chunk:
                    break
                if self._rng.random() < self._settings.transactional_share:
                    self._write_in_transaction(chunk)
                else:
                    self._write_plainly(chunk)
            self._finish(self._plain)
        except KafkaException as error:
            raise ProduceError(f"Could not write to topic {self._settings.topic}: {error}") from error
        return self.produced

    def _pace(self) -> Iterator[None]:
        """Yield when the next chunk is due, as long as there is time."""
        started = time.monotonic()
        limit_s = self._settings.time_limit_s
        while not self._stopped.is_set():
            passed_s = time.monotonic() - started
            if limit_s is not None and passed_s > limit_s:
                return
            if self._settings.entries_per_s is not None:
                ahead_s = self.produced.entries / self._settings.entries_per_s - passed_s
                self._stopped.wait(max(0.0, ahead_s))
            yield

    def _write_plainly(self, chunk: list[GeneratedRecord]) -> None:
        for record in chunk:
            self._send(self._plain, record)
        self._plain.poll(0)
        self._raise_failure()
        self._count(chunk)

    def _write_in_transaction(self, chunk: list[GeneratedRecord]) -> None:
        # Records that were written without a transaction are acknowledged first, so that offsets can be told apart.
        self._finish(self._plain)
        before = dict(self.produced.next_offsets)
        try:
            self._transactional.begin_transaction()
            for record in chunk:
                self._send(self._transactional, record)
            self._finish(self._transactional)
            if self._rng.random() >= self._settings.aborted_share:
                self._transactional.commit_transaction()
                self._count(chunk)
                return
            self._transactional.abort_transaction()
        except (KafkaException, ProduceError):
            self._begin_anew()
        self._acknowledged = before
        self.produced.aborted_records += len(chunk)

    def _begin_anew(self) -> None:
        """Go on after a transaction that failed, as while brokers are killed: the next producer ends it.

        Whether its records can be seen is known to the broker alone; they count as aborted.
        """
        self._failed = None
        self._transactional = Producer(self._transactional_settings)
        self._transactional.init_transactions(_STILL_S_MAX)

    def _send(self, producer: Producer, record: GeneratedRecord) -> None:
        while True:
            try:
                producer.produce(
                    self._settings.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=self._rng.randrange(self._partitions),
                    timestamp=record.timestamp_ms,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self._acknowledged[partition] = max(offset + 1, self._acknowledged.get(partition, 0))

    def _count(self, chunk: list[GeneratedRecord]) -> None:
        self.produced.records += len(chunk)
        self.produced.entries += sum(record.entries for record in chunk)
        self.produced.next_offsets = dict(self._acknowledged)

    def _finish(self, producer: Producer) -> None:
        patience = Patience(_STILL_S_MAX)
        while unacknowledged := producer.flush(1.0):
            if patience.is_over(unacknowledged, time.monotonic()):
                raise ProduceError(f"None of {unacknowledged} records was acknowledged in {_STILL_S_MAX:.0f} s.")
        self._raise_failure()
        if producer is self._plain:
            self.produced.next_offsets = dict(self._acknowledged)

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise ProduceError(f"A record was not accepted: {self._failed}")


def _count_partitions(producer: Producer, topic: str) -> int:
    try:
        metadata = producer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise ProduceError(f"No answer from Kafka about topic {topic}: {error}") from error
    if metadata.error is not None or not metadata.partitions:
        raise ProduceError(f"Topic {topic} cannot be written to: {metadata.error}. Create it first.")
    return len(metadata.partitions)
