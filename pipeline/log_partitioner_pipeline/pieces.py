"""References grouped by object and shared out to tasks: the bytes that each task fetches, and the rows in them.

An object is fetched once, and all its references are read from the one copy. A large one is cut between references into
pieces, for several tasks: each fetches the header and one span of the blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import Checksum
from log_partitioner_pipeline.errors import ObjectError

if TYPE_CHECKING:
    from log_partitioner.formats.reference import Reference

# An object costs about as much to open as this many bytes of it cost to read, a reference as this many.
_OPEN_BYTES = 64 * 1024
_REFERENCE_BYTES = 1024
_PIECES_PER_TASK = 4  # of large objects: fewer cannot be shared out evenly
_PIECE_BYTES_MIN = 1024 * 1024
_PIECE_BYTES_MAX = 8 * 1024 * 1024
_TASK_BYTES_MAX = 256 * 1024 * 1024
# Unwanted bytes between two spans are fetched if they are no more than this.
_GAP_BYTES_MAX = 256 * 1024

Span = tuple[int, int]
"""[start, length] in bytes."""


class ReferencePart(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a reference that are needed to read its rows; `projection` is its number in the piece's list."""

    reference_id: str
    partition_key: PartitionKey
    entries: int
    ranges: tuple[Span, ...]
    projection: int

    def require(self, found: int, where: str) -> None:
        """Compare the number of rows that were found with the reference's.

        Raises:
            ObjectError: they differ.
        """
        if found != self.entries:
            raise ObjectError(f"{where} holds {found} entries, reference {self.reference_id} says {self.entries}")


class ReadGroup(msgspec.Struct, frozen=True, array_like=True):
    """A piece: references into one object that are read together; `projections` are JSON texts.

    `version_id` is the version of the object that they name; None if they name none: then it is the newest.
    """

    bucket: str
    object: str
    version_id: str | None
    etag: str | None
    size: int
    checksum: Checksum
    fingerprint: str
    projections: tuple[str, ...]
    parts: tuple[ReferencePart, ...]

    @property
    def where(self) -> str:
        """The object, for a person."""
        return f"s3://{self.bucket}/{self.object}"

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans to fetch: the header and one span of blocks, or one span that has both."""
        ranges = [span for part in self.parts for span in part.ranges]
        head = max((length for start, length in ranges if start == 0), default=0)
        blocks = [(start, start + length) for start, length in ranges if start > 0]
        if not blocks:
            return ((0, head),)
        begin, end = min(start for start, _ in blocks), max(end for _, end in blocks)
        if begin - head <= _GAP_BYTES_MAX:
            return ((0, max(head, end)),)
        return ((0, head), (begin, end - begin))


def share_out(references: Iterable[Reference], *, tasks: int) -> list[list[ReadGroup]]:
    """Share references out to `tasks` of about the same work, to more if theirs would be too much; none is empty."""
    references = list(references)
    work = sum(map(_work, references))
    fair = work // (tasks * _PIECES_PER_TASK)
    pieces = pieces_of(references, bytes_max=min(_PIECE_BYTES_MAX, max(_PIECE_BYTES_MIN, fair)))
    shares: list[tuple[int, int, list[ReadGroup]]] = [
        (0, number, []) for number in range(max(tasks, -(-work // _TASK_BYTES_MAX)))
    ]
    weighed = [(_OPEN_BYTES + sum(map(_work, piece.parts)), piece) for piece in pieces]
    for weight, piece in sorted(weighed, key=lambda one: one[0], reverse=True):
        load, number, share = shares[0]
        share.append(piece)
        heapq.heapreplace(shares, (load + weight, number, share))
    return [share for _, _, share in sorted(shares, key=lambda one: one[1]) if share]


def pieces_of(references: Iterable[Reference], *, bytes_max: int = _PIECE_BYTES_MAX) -> list[ReadGroup]:
    """Group references by object, each group in the order of its bytes, and cut those of more than `bytes_max`.

    A piece exceeds `bytes_max` only if a single reference does. A group is also cut at a gap that no reference needs.
    """
    by_object: dict[tuple[object, ...], list[Reference]] = {}
    for one in references:
        place = one.location
        key = (place.bucket, place.object, place.version_id, place.etag, place.size, place.checksum)
        by_object.setdefault((*key, one.schema.fingerprint), []).append(one)
    return [_piece(some) for group in by_object.values() for some in _cut(sorted(group, key=_begin), bytes_max)]


def encode_share(share: list[ReadGroup]) -> bytes:
    """Encode a share for its task; `decode_share` is its pair."""
    return msgspec.msgpack.encode(share)


def decode_share(encoded: bytes) -> list[ReadGroup]:
    """Decode a share."""
    return msgspec.msgpack.decode(encoded, type=list[ReadGroup])


def projection_text(reference: Reference) -> str:
    """Return the projection of a reference as JSON text, which compares."""
    return msgspec.json.encode(reference.projection).decode()


def _cut(group: list[Reference], bytes_max: int) -> Iterator[list[Reference]]:
    some: list[Reference] = []
    work = end = 0
    for reference in group:
        more = _work(reference)
        if some and (work + more > bytes_max or _begin(reference) - end > _GAP_BYTES_MAX):
            yield some
            some, work = [], 0
        some.append(reference)
        work += more
        end = max(end, sum(reference.location.ranges[-1]))
    yield some


def _piece(references: list[Reference]) -> ReadGroup:
    location = references[0].location
    projections: dict[str, int] = {}
    parts = tuple(
        ReferencePart(
            one.reference_id,
            one.partition_key,
            one.entries,
            one.location.ranges,
            projections.setdefault(projection_text(one), len(projections)),
        )
        for one in references
    )
    return ReadGroup(
        bucket=location.bucket,
        object=location.object,
        version_id=location.version_id,
        etag=location.etag,
        size=location.size,
        checksum=location.checksum,
        fingerprint=references[0].schema.fingerprint,
        projections=tuple(projections),
        parts=parts,
    )


def _begin(reference: Reference) -> int:
    return reference.location.ranges[-1][0]


def _work(one: Reference | ReferencePart) -> int:
    ranges = one.ranges if isinstance(one, ReferencePart) else one.location.ranges
    return _REFERENCE_BYTES + ranges[-1][1]
