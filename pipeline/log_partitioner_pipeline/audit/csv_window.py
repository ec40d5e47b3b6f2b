"""Finds the time range in which a row of an archive must have an entry in the source, as far as it was read. Pure.

A row has no record timestamp, so its event time stands for it. If that leaves open whether the source ever had the
entry (retention has passed, or the entry came after the source was asked for its end), the row is not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from log_partitioner.formats.model import TopicPartition
    from log_partitioner_pipeline.audit.result import Window
    from log_partitioner_pipeline.audit.scope import Span


class Judged(NamedTuple):
    """Rows with a time in [from_ms, until_ms) are judged (from_ms None: no lower bound); with doubts and notes."""

    from_ms: int | None
    until_ms: int
    doubts: list[str]
    notes: list[str]


def find_judged(
    window: Window, spans: Iterable[Span], oldest_ms: Mapping[TopicPartition, int | None], *, started_at_ms: int
) -> Judged:
    """Return the time range in which a row of the archive must have an entry in the source, with doubts and notes.

    `oldest_ms` are the oldest record timestamps that were read, `started_at_ms` is before any reading.
    """
    padding_ms = round(window.padding_s * 1000)
    begins = [] if window.from_ms is None else [window.from_ms]
    doubts, notes = [], []
    if window.until_ms is not None and window.until_ms > started_at_ms:
        doubts.append("the window ends in the future")
    for span in spans:
        if span.retained == 0 or span.first > span.retained:
            continue
        since_ms = oldest_ms.get(span.tp)
        if since_ms is None:
            since_ms = started_at_ms
        begins.append(since_ms + padding_ms)
        says = f"{span.tp}: the source begins at offset {span.retained}"
        if window.from_ms is None:
            notes.append(f"{says}; what was before it cannot be compared")
        elif since_ms > window.from_ms:
            doubts.append(f"{says}: its retention ends inside the window")
    return Judged(
        from_ms=max(begins, default=None),
        until_ms=started_at_ms - padding_ms if window.until_ms is None else window.until_ms,
        doubts=doubts,
        notes=notes,
    )
