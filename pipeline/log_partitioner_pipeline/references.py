"""References from their topic: decoded, each once, with the schemas that they name.

A reference is identified by (topic partition, offset, line): a message has one per line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from log_partitioner.formats.reference import Reference, decode_references
from log_partitioner_pipeline.errors import ObjectError, PipelineError
from log_partitioner_pipeline.rows import fingerprint_of
from log_partitioner_pipeline.topic_log import Items, acknowledging

if TYPE_CHECKING:
    from log_partitioner.formats.model import SourceRecord, TopicPartition
    from log_partitioner_pipeline.objects import Objects

_TEXTS_CHARS_MAX = 64 * 1024 * 1024
_SPANS_MAX = 20


def unknown_message(tp: TopicPartition, offset: int, reason: str) -> PipelineError:
    """Make the error of a message that is not of references, or of an unknown version."""
    return PipelineError(
        f"{tp} offset {offset} is no message of references that this code knows: {reason}; if it never was one: "
        f"{acknowledging(tp.topic, {tp.partition: (offset, offset + 1)})}"
    )


def decode(message: SourceRecord) -> list[Reference]:
    """Decode the references of a message.

    Raises:
        PipelineError: it is not of references, or of an unknown version.
    """
    try:
        return decode_references(message.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unknown_message(message.tp, message.offset, str(error)) from error


def weigh(
    message: SourceRecord, *, is_acknowledged: Callable[[TopicPartition, int], bool] = lambda *_: False
) -> Items[Reference]:
    """Decode the references of a message, with its bytes and those of the blocks that they point to.

    Raises:
        PipelineError: it is not of references or of an unknown version, and is not acknowledged.
    """
    try:
        found = decode(message)
    except PipelineError:
        if not is_acknowledged(message.tp, message.offset):
            raise
        found = []
    return Items(found, message.size + block_bytes(found))


def block_bytes(references: Iterable[Reference]) -> int:
    """Return the bytes of the blocks that references point to."""
    return sum(one.location.ranges[-1][1] for one in references)


def once(references: Iterable[Reference]) -> list[Reference]:
    """Return each id once: a reference that was announced twice stands for the same rows."""
    found: dict[str, Reference] = {}
    for reference in references:
        found.setdefault(reference.reference_id, reference)
    return list(found.values())


class SchemaTexts:
    """Schemas by fingerprint: from the references that carry them, else from their objects, each once.

    Up to `chars_max` characters of text are kept for later calls; beyond that the oldest texts go, and are read again.
    """

    def __init__(self, objects: Objects, *, chars_max: int = _TEXTS_CHARS_MAX) -> None:
        self._objects = objects
        self._chars_max = chars_max
        self._texts: dict[str, str] = {}
        self._chars = 0

    def of(self, references: Iterable[Reference]) -> dict[str, str]:
        """Return the schema text of every fingerprint that the references name.

        Raises:
            ObjectError: a schema's object cannot be read, or a text does not have the fingerprint.
        """
        found: dict[str, str] = {}
        for reference in references:
            schema = reference.schema
            if schema.fingerprint in found:
                continue
            text = self._texts.get(schema.fingerprint)
            if text is None:
                text = self._read(reference)
                self._keep(schema.fingerprint, text)
            found[schema.fingerprint] = text
        return found

    def _read(self, reference: Reference) -> str:
        bucket, schema = reference.location.bucket, reference.schema
        text = self._objects.read_text(bucket, schema.object) if schema.text is None else schema.text
        if (found := fingerprint_of(text)) != schema.fingerprint:
            where = f"s3://{bucket}/{schema.object}" if schema.text is None else f"reference {reference.reference_id}"
            raise ObjectError(f"{where} has a schema of the fingerprint {found}, it is named by {schema.fingerprint}")
        return text

    def _keep(self, fingerprint: str, text: str) -> None:
        self._texts[fingerprint] = text
        self._chars += len(text)
        while self._chars > self._chars_max:
            self._chars -= len(self._texts.pop(next(iter(self._texts))))


def time_spans(references: Iterable[Reference], *, spans_max: int = _SPANS_MAX) -> list[tuple[int, int]]:
    """Return spans of event times, in microseconds, both ends among them, that hold every entry of the references."""
    return join_spans(((one.event_time_min_us, one.event_time_max_us) for one in references), spans_max=spans_max)


def join_spans(some: Iterable[tuple[int, int]], *, spans_max: int = _SPANS_MAX) -> list[tuple[int, int]]:
    """Join spans of times that touch; both ends are among them.

    If there are too many spans, the closest ones are joined. So a late entry of another year costs its hour, not all
    the years between.
    """
    spans: list[tuple[int, int]] = []
    for first, last in sorted(some):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], max(spans[-1][1], last)
        else:
            spans.append((first, last))
    by_gap = sorted(range(1, len(spans)), key=lambda at: spans[at][0] - spans[at - 1][1], reverse=True)
    cuts = sorted(by_gap[: spans_max - 1])
    return [(spans[begin][0], spans[end - 1][1]) for begin, end in pairwise([0, *cuts, len(spans)]) if begin < end]
