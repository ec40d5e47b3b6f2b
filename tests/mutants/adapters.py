"""The same mistakes in the adapters: for their own tests, and for real workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from log_partitioner.adapters.kafka import committer as kafka_committer
from log_partitioner.adapters.kafka import consumer as kafka_consumer
from log_partitioner.adapters.kafka import options as kafka_options
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.boundary import Message
from log_partitioner.runtime import app
from tests.mutants.mutant import Patch
from tests.mutants.patches import drops_in_the_library, nothing, takes_error_events_for_nothing
from tests.mutants.read_ahead import ReadAhead

_commit = KafkaCommitter.commit
_committed_offset = kafka_consumer.committed_offset


def _keep_the_producer(own: KafkaCommitter, messages: Any, deadline: Any, offsets: Any) -> None:
    own._prepare(deadline, own.patience_of_flush)
    producer = own._ready
    assert producer is not None
    own._fill(producer, messages, deadline, offsets)
    own._end(producer, deadline)


def _announce_outside(own: KafkaCommitter, messages: Iterable[Message], *arguments: Any, **how: Any) -> None:
    messages = list(messages)
    announced = [one for one in messages if one.key is not None and "references" in one.topic]
    if announced:
        own.publish(announced, deadline=how["deadline"])
    _commit(own, [one for one in messages if one not in announced], *arguments, **how)


def _zero_is_none(answer: Any) -> Any:
    return _committed_offset(answer) if answer.offset else None


KEEPS_ITS_PRODUCER = (Patch(KafkaCommitter, "_run", _keep_the_producer),)
ANNOUNCES_OUTSIDE = (Patch(KafkaCommitter, "commit", _announce_outside),)
IGNORES_DELIVERY_REPORTS = (Patch(kafka_committer._Deliveries, "require", nothing),)
READS_UNCOMMITTED = (
    Patch(
        kafka_options,
        "PINNED_CONSUMER",
        kafka_options.PINNED_CONSUMER | {"isolation.level": "read_uncommitted"},
    ),
)
TAKES_ZERO_FOR_NONE = (Patch(kafka_consumer, "committed_offset", _zero_is_none),)
GOES_PAST_DAMAGE = (Patch(KafkaConsumer, "_judge", takes_error_events_for_nothing),)
DROPS_BEFORE_THE_TAP = (Patch(KafkaConsumer, "consume", drops_in_the_library(KafkaConsumer.consume)),)


def layer(layer_class: type[ReadAhead]) -> tuple[Patch, ...]:
    """Return what puts a layer over the real adapter."""
    return (Patch(app, "KafkaConsumer", type(f"Kafka{layer_class.__name__}", (layer_class, KafkaConsumer), {})),)
