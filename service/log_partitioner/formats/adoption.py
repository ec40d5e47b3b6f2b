"""Adoptions in the flushes topic, and the histories that they join (docs/FORMATS.md#adoptions).

Owns the message by which one group goes on with the work of another, and the lineage of a group: whose flushes are its
own history. Decides by group, TopicPartition and offset alone, so that references and dead letters can be judged as
flush records are.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from log_partitioner.formats.flush_record import FlushRecord, decode_flush_record
from log_partitioner.formats.reference import FORMAT_VERSION, decode_known

ADOPTED_AT_ONCE = 5_000  # TopicPartitions in one message: 500 KB with names of 50 characters


class AdoptedTopicPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One TopicPartition of an adoption: the next offset of the group that stopped, at which the other goes on."""

    topic: str
    partition: int
    next_offset: int


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """Announces that `group_id` goes on where `from_group` stopped.

    It is committed with these offsets of `group_id`, in one transaction, and stands in each partition of the topic:
    who reads one backwards meets it before any flush record of `from_group`. `topic_ids` are Kafka's ids of the source
    topics, as far as they are known.
    """

    format_version: int = FORMAT_VERSION
    group_id: str
    from_group: str
    topic_ids: dict[str, str]
    adopted_at_ms: int
    topic_partitions: tuple[AdoptedTopicPartition, ...]


class _Kind(msgspec.Struct):
    """Tells the two apart without headers."""

    from_group: str | None = None


_kind_decoder = msgspec.json.Decoder(_Kind)
_adoption_decoder = msgspec.json.Decoder(Adoption)
encode_adoption = msgspec.json.Encoder().encode


def decode_adoption(value: bytes) -> Adoption:
    """Read an adoption.

    Raises:
        msgspec.DecodeError: not one, or of a format version that this code does not know.
    """
    adoption: Adoption = decode_known(_adoption_decoder, value)
    return adoption


def decode_flushes(value: bytes) -> FlushRecord | Adoption:
    """Decode a message of the flushes topic: a flush record, one part of it, or an adoption.

    Raises:
        msgspec.DecodeError: neither, or of a format version that this code does not know.
    """
    try:
        is_adoption = _kind_decoder.decode(value).from_group is not None
    except (msgspec.ValidationError, UnicodeError, RecursionError):
        is_adoption = False
    return decode_adoption(value) if is_adoption else decode_flush_record(value)


class Lineage:
    """Decides which flushes are the history of one group: its own, and those of adopted groups up to the adoption.

    Adoption is transitive: groups that an adopted group had adopted belong to the history, too. Everything else is
    foreign: other groups, and flushes of an adopted group beyond the adopted offset. Two topics of one name are the
    same if their ids are equal, or if one id is unknown.
    """

    def __init__(self, group_id: str, adoptions: Iterable[Adoption]) -> None:
        by_group: dict[str, list[Adoption]] = {}
        for adoption in adoptions:
            by_group.setdefault(adoption.group_id, []).append(adoption)
        self._adopted: dict[tuple[str, str, int], list[tuple[str | None, int]]] = {}
        groups = [group_id]
        for group in groups:  # grows meanwhile: no group twice, whatever the adoptions say
            for adoption in by_group.get(group, ()):
                if adoption.from_group not in groups:
                    groups.append(adoption.from_group)
                for line in adoption.topic_partitions:
                    place = adoption.from_group, line.topic, line.partition
                    end = adoption.topic_ids.get(line.topic), line.next_offset
                    self._adopted.setdefault(place, []).append(end)
        self.group_id = group_id
        self.groups = tuple(groups)
        """The group itself, then the groups that it has adopted, directly or not."""

    def has(self, group_id: str, topic: str, partition: int, next_offset: int, topic_id: str | None = None) -> bool:
        """Return whether this group's flushes of a TopicPartition, up to `next_offset`, are part of the history."""
        return group_id == self.group_id or any(
            next_offset <= end and (adopted_id is None or topic_id is None or adopted_id == topic_id)
            for adopted_id, end in self._adopted.get((group_id, topic, partition), ())
        )

    def ends(self) -> dict[tuple[str, str, int], int]:
        """Return the offsets up to which adopted groups belong to the history, by group, topic and partition."""
        return {place: max(end for _, end in ends) for place, ends in self._adopted.items()}

    def has_flush(self, record: FlushRecord) -> bool:
        """Return whether a flush record is part of the history: all of its TopicPartitions are."""
        return all(
            self.has(record.group_id, line.topic, line.partition, line.next_offset, record.topic_ids.get(line.topic))
            for line in record.topic_partitions
        )


def heads(groups: Iterable[str], adoptions: Iterable[Adoption]) -> list[str]:
    """Return the groups that no other group has adopted; each is the head of a history."""
    adopted = {adoption.from_group for adoption in adoptions}
    return sorted(set(groups) - adopted)


def adoptions_of(adoption: Adoption) -> list[Adoption]:
    """Split an adoption into as many as are needed for each to fit into a message, each for its TopicPartitions."""
    lines = adoption.topic_partitions
    some = (lines[start : start + ADOPTED_AT_ONCE] for start in range(0, len(lines), ADOPTED_AT_ONCE))
    return [msgspec.structs.replace(adoption, topic_partitions=few) for few in some]
