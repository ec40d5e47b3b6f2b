"""The outbox of a run: every message it will publish, in order, written before the first is published.

    {prefix}/_backfill/{run id}/manifest.json        what the run is, and its parts; written once, under a condition
    {prefix}/_backfill/{run id}/{attempt}-{n}.json   a part: messages, as tasks made them

A message's sequence number is its place in the list. Parts of attempts that no manifest names do not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from log_partitioner.boundary import Message
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.audit.store import Address
from log_partitioner_pipeline.errors import ObjectError, ObjectTakenError, PipelineError

if TYPE_CHECKING:
    from log_partitioner_pipeline.backfill.ranges import Ranges
    from log_partitioner_pipeline.objects import Objects

FORMAT_VERSION = 1
BATCH_PREFIX = "backfill-"


class Run(NamedTuple):
    """The identity of a run: one range, one batch id, and the offsets up to which it has looked for held entries.

    `reference_ends` and `dead_letter_ends` are these offsets, by partition.
    """

    run_id: str
    started_at_ms: int
    group_id: str
    references_topic: str
    dead_letters_topic: str
    ranges: Ranges
    reference_ends: dict[int, int]
    dead_letter_ends: dict[int, int]

    @property
    def batch_id(self) -> str:
        """The batch id of everything it publishes."""
        return f"{BATCH_PREFIX}{self.run_id}"


class OutboxMessage(msgspec.Struct, frozen=True):
    """A message in the outbox."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @classmethod
    def of(cls, message: Message) -> OutboxMessage:
        """Take a message."""
        return cls(message.topic, message.key, message.value, list(message.headers))

    @property
    def message(self) -> Message:
        """Return the message."""
        return Message(self.topic, self.key, self.value, self.headers)

    @property
    def size(self) -> int:
        """Bytes of its key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class OutboxPart(msgspec.Struct, frozen=True):
    """An object of the outbox: `messages` of them, the first of number `first`."""

    key: str
    first: int
    messages: int
    sha256: str


class _Range(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    first_offset: int
    next_offset: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    run_id: str
    started_at_ms: int
    group_id: str
    references_topic: str
    dead_letters_topic: str
    ranges: list[_Range]
    reference_ends: dict[int, int]
    dead_letter_ends: dict[int, int]
    parts: list[OutboxPart]


encode_part = msgspec.json.Encoder().encode
_part_decoder = msgspec.json.Decoder(list[OutboxMessage])
_manifest_encoder = msgspec.json.Encoder()
_manifest_decoder = msgspec.json.Decoder(_Manifest)


class Outbox(NamedTuple):
    """A run's messages; `digest` is the SHA-256 of its manifest."""

    run: Run
    parts: tuple[OutboxPart, ...]
    digest: str

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return sum(part.messages for part in self.parts)


def outboxes_prefix(prefix: str) -> str:
    """Return what the keys of all outboxes begin with."""
    return f"{prefix}/_backfill/"


def manifest_key(prefix: str, run_id: str) -> str:
    """Name the manifest of a run."""
    return f"{outboxes_prefix(prefix)}{run_id}/manifest.json"


def part_key(prefix: str, run_id: str, name: str) -> str:
    """Name a part."""
    return f"{outboxes_prefix(prefix)}{run_id}/{name}.json"


def find_outbox(objects: Objects, bucket: str, prefix: str, run_id: str) -> Outbox | None:
    """Read the outbox of a run; None if it has none yet.

    Raises:
        ObjectError: S3 refuses or does not answer.
        PipelineError: it is of a version that this code does not know.
    """
    stored = objects.fetch(Address(bucket, manifest_key(prefix, run_id)))
    return None if stored is None else _decode(stored.data, run_id)


def write_outbox(objects: Objects, bucket: str, prefix: str, run: Run, parts: list[tuple[str, int, str]]) -> Outbox:
    """Write the outbox of a run, whose parts are there; the run's own, if another driver was first.

    Raises:
        ObjectError: S3 refuses or does not answer.
    """
    numbered, first = [], 0
    for key, messages, sha256 in parts:
        numbered.append(OutboxPart(key, first, messages, sha256))
        first += messages
    manifest = _manifest_encoder.encode(
        _Manifest(
            run_id=run.run_id,
            started_at_ms=run.started_at_ms,
            group_id=run.group_id,
            references_topic=run.references_topic,
            dead_letters_topic=run.dead_letters_topic,
            ranges=[_Range(*tp, span.start, span.stop) for tp, span in sorted(run.ranges.items())],
            reference_ends=run.reference_ends,
            dead_letter_ends=run.dead_letter_ends,
            parts=numbered,
        )
    )
    try:
        objects.create(bucket, manifest_key(prefix, run.run_id), manifest, {"lp-batch-id": run.batch_id})
    except ObjectTakenError:
        first_one = find_outbox(objects, bucket, prefix, run.run_id)
        assert first_one is not None, "nobody deletes a manifest"
        return first_one
    return _decode(manifest, run.run_id)


def read_outbox(objects: Objects, bucket: str, outbox: Outbox, *, begin: int) -> Iterator[OutboxMessage]:
    """Yield the messages from this number on.

    Raises:
        ObjectError: a part is not there, or is not the one that the manifest names.
    """
    for part in outbox.parts:
        if part.first + part.messages <= begin:
            continue
        stored = objects.fetch(Address(bucket, part.key))
        if stored is None or hashlib.sha256(stored.data).hexdigest() != part.sha256:
            raise ObjectError(f"s3://{bucket}/{part.key} is not the part that the manifest of its run names")
        yield from _part_decoder.decode(stored.data)[max(0, begin - part.first) :]


def _decode(content: bytes, run_id: str) -> Outbox:
    try:
        manifest = _manifest_decoder.decode(content)
    except msgspec.DecodeError as error:
        raise PipelineError(f"the manifest of backfill {run_id} cannot be read: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise PipelineError(f"the manifest of backfill {run_id} has format {manifest.format_version}, not 1")
    run = Run(
        run_id=manifest.run_id,
        started_at_ms=manifest.started_at_ms,
        group_id=manifest.group_id,
        references_topic=manifest.references_topic,
        dead_letters_topic=manifest.dead_letters_topic,
        ranges={
            TopicPartition(one.topic, one.partition): range(one.first_offset, one.next_offset)
            for one in manifest.ranges
        },
        reference_ends=manifest.reference_ends,
        dead_letter_ends=manifest.dead_letter_ends,
    )
    return Outbox(run, tuple(manifest.parts), hashlib.sha256(content).hexdigest())
