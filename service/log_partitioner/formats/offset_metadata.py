"""The metadata of a committed offset (DESIGN 4.6): `encode` and `decode` are a pair.

Versioned JSON: `{"v":1,"topic_id":"LbB5g8fUQ9-bXqQm1cN2yA"}`. `topic_id` is Kafka's id of the topic as its tools print
it, or null if it is unknown. `set_ms` is the time at which a person has set the offset; all later commits of this
TopicPartition repeat it, because flush records from before that time no longer count. `ways` are the highest places
recorded along the ways of source topic chains (DESIGN 3.8), the least recently used way first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from log_partitioner.formats.model import TopicPartition

VERSION = 1
WAYS_BYTES_MAX = 4000  # of `ways`; all metadata have 4,095 at most, by a broker's default

Ways = dict[str, tuple[int, ...]]
"""Places by the hash of a way; the order counts."""

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Form(msgspec.Struct, omit_defaults=True):
    v: int
    topic_id: str | None
    set_ms: _Number | None = None
    ways: dict[str, tuple[_Number, ...]] | None = None


_decoder = msgspec.json.Decoder(_Form)


class OffsetMetadata(NamedTuple):
    """The metadata of a committed offset, parsed; None means unknown, which is never taken for a difference.

    `is_ours`: a worker or `log-partitioner offsets` has written it; consumers and tools of others leave it empty.
    """

    topic_id: str | None = None
    set_ms: int | None = None
    ways: Ways | None = None
    is_ours: bool = False


def encode(topic_id: str | None, *, set_ms: int | None = None, ways: Ways | None = None) -> str:
    """Write metadata."""
    return msgspec.json.encode(_Form(VERSION, topic_id, set_ms, ways or None)).decode()


def decode(text: str) -> OffsetMetadata:
    """Parse metadata; text that is empty, no JSON, of another version or another writer is unknown. Never raises."""
    try:
        form = _decoder.decode(text.rstrip("\0"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return OffsetMetadata()
    if form.v != VERSION:
        return OffsetMetadata()
    return OffsetMetadata(form.topic_id, form.set_ms, form.ways, is_ours=True)


@dataclass(slots=True)
class SourceTopics:
    """Facts about the source topics that every commit writes again, because the last commit would lose them otherwise.

    `ids`: Kafka's topic ids by name; `set_ms`: by TopicPartition, when a person has set its offset, in epoch
    milliseconds.
    """

    ids: dict[str, str] = field(default_factory=dict)
    set_ms: dict[TopicPartition, int] = field(default_factory=dict)

    def keep(self, tp: TopicPartition, metadata: str) -> None:
        """Note when a person has set this committed offset; the latest such time of a TopicPartition counts."""
        set_ms = decode(metadata).set_ms
        if set_ms is not None:
            self.set_ms[tp] = max(set_ms, self.set_ms.get(tp, 0))

    def metadata_of(self, tp: TopicPartition, ways: Ways | None = None) -> str:
        """Return the metadata of an offset that is committed now."""
        return encode(self.ids.get(tp.topic), set_ms=self.set_ms.get(tp), ways=ways)
