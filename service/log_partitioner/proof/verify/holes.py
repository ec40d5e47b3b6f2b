"""Offsets without a record, as a boot logs them: a commit covers records and these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from log_partitioner.formats import log_events as events

Miscounted = tuple[str, str | None, tuple[int, int] | None]
"""A contradiction between a commit and its offsets: text, TopicPartition, offsets; None: the whole batch."""


class Holes:
    """Holes that were jumped, by TopicPartition.

    A hole is logged before the flush that covers it. If a line names only the first of many holes, not all are known.
    """

    def __init__(self) -> None:
        self._jumped: dict[str, set[tuple[int, int]]] = {}
        self._untold: set[str] = set()

    def jump(self, tp: str, holes: Iterable[tuple[int, int]], *, are_all: bool) -> None:
        """Take holes, [begin, end)."""
        self._jumped.setdefault(tp, set()).update((begin, end) for begin, end in holes)
        if not are_all:
            self._untold.add(tp)

    def judge(self, event: events.BatchCommitted, *, are_all: bool) -> Iterator[Miscounted]:
        """Compare a commit with its offsets and forget its holes; compare its counts only if `are_all`."""
        if are_all:
            yield from self._judge_numbers(event)
        for tp, covered in event.offsets.items():
            last, end = covered["max_offset"], covered["next_offset"]
            if last is None or last + 1 != end:
                text = f"a commit of {tp} ends at {end}, and the last record that it covers is {last}"
                yield text, tp, (end if last is None else last, end)
            self._jumped[tp] = {one for one in self._jumped.get(tp, ()) if one[1] > end}
            self._untold.discard(tp)

    def _judge_numbers(self, event: events.BatchCommitted) -> Iterator[Miscounted]:
        counted = 0
        for tp, covered in event.offsets.items():
            span, said = (covered["first_offset"], covered["next_offset"]), covered["min_offset"]
            without = self._without(tp, span)
            counted += span[1] - span[0] - sum(end - begin for begin, end in without)
            lowest = without[0][1] if without and without[0][0] == span[0] else span[0]
            if said is not None and said != lowest and tp not in self._untold:
                text = f"the first record of a commit of {tp} is said to be {said}, by its holes it is {lowest}"
                yield text, tp, (min(said, lowest), max(said, lowest))
        if counted != event.records and self._untold.isdisjoint(event.offsets):
            yield (
                f"batch {event.batch_id} is committed with {event.records} records, its offsets are {counted}",
                None,
                None,
            )

    def _without(self, tp: str, span: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the parts of these offsets that are no record's, in order; adjacent ones are joined."""
        found: list[tuple[int, int]] = []
        for begin, end in sorted(self._jumped.get(tp, ())):
            first, last = max(begin, span[0]), min(end, span[1])
            if found and first <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], last))
            elif first < last:
                found.append((first, last))
        return found
