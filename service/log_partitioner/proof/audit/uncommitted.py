"""Offsets of the source that nobody has committed, by the brokers' end offsets; a full audit judges none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log_partitioner.formats.model import TopicPartition

SHOWN = 20


class Reached(NamedTuple):
    """The range [first, end) of a TopicPartition, and the group's committed offset; None if it has none."""

    tp: TopicPartition
    first: int
    end: int
    committed: int | None


def waits_for_records(reached: Iterable[Reached]) -> bool:
    """Return whether the group has offsets of a source that holds nothing."""
    some = list(reached)
    return any(one.committed is not None for one in some) and all(one.first >= one.end for one in some)


def notes_of(reached: Iterable[Reached]) -> list[str]:
    """Return notes: TopicPartitions without a committed offset, then those with most offsets beyond theirs.

    Offsets are counted without reading, so control records and gaps are among them.
    """
    some = list(reached)
    nobodys = sorted((one for one in some if one.committed is None and one.end > 0), key=_beyond, reverse=True)
    behind = sorted((one for one in some if one.committed is not None and _beyond(one)), key=_beyond, reverse=True)
    never = "nothing was ever committed, so none of its {:,} offsets is audited"
    later = "{:,} offsets are not committed yet, so they are not audited"
    return [*_notes(nobodys, never), *_notes(behind, later)]


def _beyond(one: Reached) -> int:
    return max(0, one.end - max(one.first, one.committed or 0))


def _notes(some: list[Reached], text: str) -> list[str]:
    notes = [f"{one.tp}: {text.format(_beyond(one))}" for one in some[:SHOWN]]
    if left := some[SHOWN:]:
        notes.append(f"{len(left)} more TopicPartitions: {text.format(sum(map(_beyond, left)))}")
    return notes
