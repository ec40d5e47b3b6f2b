"""librdkafka options: those that the promise needs, and those that settings pass through.

Everything is passed explicitly, never left to a default that might change (KAFKA_FACTS F7, O1).
"""

from __future__ import annotations

from typing import Any

from log_partitioner.config.settings import Settings

_MESSAGE_MAX_BYTES = 1_000_000  # librdkafka's default
_QUEUE_MAX_KBYTES = 65_536  # copies of messages in memory; librdkafka's default is a GiB
PINNED_PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "zstd",
    "linger.ms": 5,
    "allow.auto.create.topics": False,
    # Offsets are sent until a request has failed, whatever time-out the call was given (KAFKA_FACTS T17).
    "socket.timeout.ms": 10_000,
}
PINNED_CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "enable.partition.eof": True,
    # librdkafka sleeps that long when its queue is full; its default of 1000 starves a fast loop (KAFKA_FACTS L6).
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 32_768,
    "topic.metadata.refresh.interval.ms": 60_000,
}


def consumer_options(settings: Settings, *, worker: str) -> dict[str, Any]:
    """Return the consumer's options: defaults, then those of the settings, then those that the promise needs."""
    kafka = settings.kafka
    options: dict[str, Any] = {**PINNED_CONSUMER, **kafka.properties_of("consumer")}
    options |= {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": f"log-partitioner-{worker}",
        "group.id": kafka.group_id,
        "group.protocol": kafka.group_protocol,
        "max.poll.interval.ms": round(settings.flush.max_poll_interval_s * 1000),
    }
    if kafka.group_protocol == "classic":
        options |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": round(kafka.session_timeout_s * 1000),
            "heartbeat.interval.ms": round(kafka.session_timeout_s * 1000 / 10),
        }
    return options


def producer_options(settings: Settings, *, worker: str, transactional_id: str) -> dict[str, Any]:
    """Return the producer's options, in the same order of precedence."""
    kafka = settings.kafka
    sizes = {  # a broker refuses a batch, not a message, that is larger than max.message.bytes
        "batch.size": kafka.message_bytes_max,
        "message.max.bytes": max(_MESSAGE_MAX_BYTES, kafka.message_bytes_max),
        "queue.buffering.max.kbytes": max(_QUEUE_MAX_KBYTES, 2 * kafka.message_bytes_max // 1024),
    }
    options: dict[str, Any] = {**sizes, **PINNED_PRODUCER, **kafka.properties_of("producer")}
    return options | {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": f"log-partitioner-{worker}",
        "transactional.id": transactional_id,
        "transaction.timeout.ms": round(settings.flush.transaction_timeout_s * 1000),
    }
