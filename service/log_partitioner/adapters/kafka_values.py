"""Our values and those of the client library: TopicPartitions, committed offsets, group metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import confluent_kafka

from log_partitioner.boundary import Membership
from log_partitioner.formats.model import CommittedOffset, TopicPartition

_METADATA_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("<i")
_NO_EPOCH = -1


def position(tp: TopicPartition, start: CommittedOffset) -> confluent_kafka.TopicPartition:
    """Return the library's form of an offset to commit, to assign or to seek; metadata gets a NUL (KAFKA_FACTS O9)."""
    epoch = _NO_EPOCH if start.leader_epoch is None else start.leader_epoch
    return confluent_kafka.TopicPartition(*tp, start.offset, start.metadata, epoch)


def committed_offset(answer: confluent_kafka.TopicPartition) -> CommittedOffset | None:
    """Return the broker's committed offset of a TopicPartition; None if nothing is committed."""
    if answer.offset < 0:
        return None
    return CommittedOffset(answer.offset, answer.leader_epoch, answer.metadata or "")


def topic_partition(answer: confluent_kafka.TopicPartition) -> TopicPartition:
    """Return our form of a TopicPartition."""
    return TopicPartition(answer.topic, answer.partition)


def topic_partitions(answers: Iterable[confluent_kafka.TopicPartition]) -> frozenset[TopicPartition]:
    """Return our form of TopicPartitions."""
    return frozenset(map(topic_partition, answers))


def parse_group_metadata(raw: bytes | None) -> Membership:
    """Read generation and member id: `CGMDv2:`, int32 little-endian, then group id and member id, each ended by NUL.

    Layout as written by librdkafka 2.x (rd_kafka_consumer_group_metadata_write); anything else proves nothing.
    """
    nothing = Membership(-1, "", raw)
    start = len(_METADATA_MAGIC)
    if raw is None or not raw.startswith(_METADATA_MAGIC) or len(raw) < start + _GENERATION.size:
        return nothing
    (generation,) = _GENERATION.unpack_from(raw, start)
    _, group_ends, rest = raw[start + _GENERATION.size :].partition(b"\0")
    member_id, member_ends, _ = rest.partition(b"\0")
    if not group_ends or not member_ends:
        return nothing
    try:
        return Membership(generation, member_id.decode(), raw)
    except UnicodeDecodeError:
        return nothing
