"""The metadata of a committed offset (DESIGN 4.6): `encode` and `decode` are a pair.

Versioned JSON: `{"v":1,"topic_id":"LbB5g8fUQ9-bXqQm1cN2yA","roots":{"raw-3":[17],"raw-4":[9,2]}}`. `topic_id` is
Kafka's id of the topic as its tools print it, or null if it is unknown. `roots` has the highest root offset of each
root TopicPartition (DESIGN 3.8), with its index if it has one, the most recently used root last. `set_ms` is the time
at which a person has set the offset; all later commits of this TopicPartition repeat it, because flush records from
before that time no longer count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from log_partitioner.formats.model import RootLink, TopicPartition

VERSION = 1
BYTES_MAX = 4095
"""UTF-8 bytes: confluent-kafka adds a NUL to the text, and the broker takes 4,096 bytes (offset.metadata.max.bytes)."""

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Form(msgspec.Struct):
    v: int
    topic_id: str | None = None
    set_ms: _Number | None = None
    roots: dict[str, Annotated[list[_Number], msgspec.Meta(min_length=1, max_length=2)]] = {}


_decoder = msgspec.json.Decoder(_Form)


class Encoded(NamedTuple):
    """The text to commit, and how many roots did not fit into it."""

    text: str
    dropped: int


class OffsetMetadata(NamedTuple):
    """The metadata of a committed offset, parsed; None or empty means unknown, which is never taken for a difference.

    `is_ours`: a worker or `log-partitioner offsets` has written it; consumers and tools of others leave it empty.
    """

    topic_id: str | None = None
    roots: tuple[RootLink, ...] = ()
    set_ms: int | None = None
    is_ours: bool = False


def encode(
    topic_id: str | None,
    roots: Sequence[RootLink] = (),
    *,
    set_ms: int | None = None,
) -> Encoded:
    """Write metadata; `roots` begin with the least recently used one, which is the first to be dropped."""
    head = b'{"v":%d,"topic_id":%s,' % (VERSION, msgspec.json.encode(topic_id))
    if set_ms is not None:
        head += b'"set_ms":%d,' % set_ms
    head += b'"roots":{'
    room = BYTES_MAX - len(head) - len(b"}}") + len(b",")  # the last root needs no comma
    kept: list[bytes] = []
    for root in reversed(roots):
        place = [root.offset] if root.index is None else [root.offset, root.index]
        member = msgspec.json.encode({f"{root.topic}-{root.partition}": place})[1:-1]
        room -= len(member) + 1
        if room < 0:
            break
        kept.append(member)
    text = head + b",".join(reversed(kept)) + b"}}"
    return Encoded(text.decode(), len(roots) - len(kept))


def decode(text: str) -> OffsetMetadata:
    """Parse metadata; text that is empty, no JSON, of another version or another writer is unknown. Never raises."""
    try:
        form = _decoder.decode(text.rstrip("\0"))
        roots = tuple(_root(name, place) for name, place in form.roots.items())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return OffsetMetadata()
    if form.v != VERSION:
        return OffsetMetadata()
    return OffsetMetadata(form.topic_id, roots, form.set_ms, is_ours=True)


def _root(name: str, place: list[int]) -> RootLink:
    topic, _, partition = name.rpartition("-")
    return RootLink(topic, int(partition), *place)


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

    def metadata_of(self, tp: TopicPartition) -> str:
        """Return the metadata of an offset that is committed now."""
        return encode(self.ids.get(tp.topic), set_ms=self.set_ms.get(tp)).text
