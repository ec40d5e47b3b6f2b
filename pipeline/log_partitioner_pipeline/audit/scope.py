"""Chooses the audited offsets: a window of record timestamps -> OffsetRanges of the source, and doubts.

Owns the rules of coverage: a worker answers for the offsets that its flush records cover, up to the committed offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.proof.audit.ranges import Reached, notes_of
from log_partitioner_pipeline.audit.result import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.model import OffsetRanges, TopicPartition
    from log_partitioner_pipeline.audit.result import Window


class Span(NamedTuple):
    """The offsets of one TopicPartition that an audit reads, and those that it judges.

    [first, next) is read; [window_first, window_next) begins at the first record of the window and ends behind its last
    one, or further on. Uncommitted records of the window may stand up to `beyond`. The audit answers for offsets from
    `answers_from` on; `committed_again` is the committed offset after all announcements had been asked for.
    """

    tp: TopicPartition
    retained: int
    end: int
    committed: int | None
    first: int
    next: int
    window_first: int
    window_next: int
    beyond: int
    answers_from: int = 0
    committed_again: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return self.first >= self.next


class Source(NamedTuple):
    """Answers of the brokers about one TopicPartition of the source; `Span` explains `committed_again`."""

    tp: TopicPartition
    ends: Ends
    committed: int | None
    read_first: int
    window_first: int
    window_next: int
    read_next: int
    committed_again: int | None = None


class Asked(NamedTuple):
    """Answers of the brokers, asked once: the source, and [first, next) of the worker's and the backfills' topics."""

    sources: list[Source]
    references: OffsetRanges
    flushes: OffsetRanges
    dead_letters: OffsetRanges
    backfills: OffsetRanges
    doubts: list[str]

    @property
    def references_offsets(self) -> dict[int, int]:
        """The offset of each partition of the references topic up to which everything is taken into account."""
        return {tp.partition: end for tp, (_, end) in self.references.items()}


def ask_all(topics: KafkaTopics, kafka: KafkaSettings, window: Window) -> Asked:
    """Ask for the committed offsets, then for the ends of announcements, then for the committed offsets again.

    By the first order, everything committed is announced. By the second, everything announced is committed, unless
    something is wrong. Flush records come last among the announcements: they tell of a batch that is committed
    meanwhile, even if only a part of its messages is seen.

    Blocks for seconds; if a transaction stays open, for as long as brokers let it.

    Raises:
        CouldNotTellError: no broker answers, or a topic is not there.
    """
    tps = [tp for topic in kafka.source_topics for tp in topics.topic_partitions(topic)]
    committed = topics.committed(tps)
    doubts: list[str] = []

    def settled(tps: Iterable[TopicPartition]) -> OffsetRanges:
        ends, open_ones = topics.settled(tps)
        doubts.extend(open_ones)
        return {tp: (end.first, end.next) for tp, end in ends.items()}

    of_backfills = topics.topic_partitions(kafka.backfills_topic, may_be_absent=True)
    backfills = settled(of_backfills)
    references, dead_letters, flushes = (
        settled(topics.topic_partitions(topic))
        for topic in (kafka.references_topic, kafka.dead_letters_topic, kafka.flushes_topic)
    )
    # What a backfill announces is not covered by the offsets that the group has committed: it may come in between.
    if settled(of_backfills) != backfills:
        doubts.append("a backfill was publishing while the audit asked what there is: audit again")
    again = topics.committed(tps)
    return Asked(
        sources=[one._replace(committed_again=again[one.tp]) for one in ask(topics, tps, window, committed)],
        references=references,
        flushes=flushes,
        dead_letters=dead_letters,
        backfills=backfills,
        doubts=doubts,
    )


def ask(
    topics: KafkaTopics, tps: Iterable[TopicPartition], window: Window, committed: dict[TopicPartition, int | None]
) -> list[Source]:
    """Ask for ends, and for the offsets of a window; blocks for seconds."""
    tps = list(tps)
    ends = {tp: topics.ends(tp) for tp in tps}
    padding_ms = round(window.padding_s * 1000)

    def offsets_at(moment_ms: int | None, otherwise: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if moment_ms is None:
            return otherwise
        found = topics.offsets_at(tps, max(0, moment_ms))
        # None: no record so late, whatever bound was asked for
        return {tp: ends[tp].next if offset is None else max(offset, ends[tp].first) for tp, offset in found.items()}

    # At `from` nothing is left out: what is before the first record as late as that is older. At `until` a record whose
    # clock goes ahead may come long before the last one of the window: see `reaching_to`.
    firsts = {tp: ends[tp].first for tp in tps}
    nexts = {tp: ends[tp].next for tp in tps}
    padded_from = None if window.from_ms is None else window.from_ms - padding_ms
    padded_until = None if window.until_ms is None else window.until_ms + padding_ms
    read_first, window_first = offsets_at(padded_from, firsts), offsets_at(window.from_ms, firsts)
    window_next, read_next = offsets_at(window.until_ms, nexts), offsets_at(padded_until, nexts)
    return [
        Source(tp, ends[tp], committed[tp], read_first[tp], window_first[tp], window_next[tp], read_next[tp])
        for tp in tps
    ]


def behind(sources: Iterable[Source]) -> OffsetRanges:
    """Return the offsets after the end that brokers found for the window, up to the end of the topic.

    Late records of the window may be there.
    """
    return {one.tp: (one.window_next, one.ends.next) for one in sources if one.window_next < one.ends.next}


def reaching_to(sources: Iterable[Source], last: Mapping[TopicPartition, int]) -> list[Source]:
    """Return the sources with each window extended to just after its `last` record, if it ended earlier."""
    return [
        one._replace(
            window_next=max(one.window_next, last.get(one.tp, -1) + 1),
            read_next=max(one.read_next, last.get(one.tp, -1) + 1),
        )
        for one in sources
    ]


def span_of(source: Source, *, covered_first: int | None, floor: int | None) -> Span:
    """Return the audited offsets of a TopicPartition.

    `covered_first` is the first offset for which the worker answers, None if it is the first there is; `floor` is the
    offset from which announcements are complete, None if all of it is still there.
    """
    begin = max(source.ends.first, covered_first or 0, floor or 0)
    committed = source.committed or 0
    first = max(begin, source.read_first)
    last = min(committed, source.ends.next, source.read_next)
    return Span(
        tp=source.tp,
        retained=source.ends.first,
        end=source.ends.next,
        committed=source.committed,
        first=min(first, last),
        next=last,
        window_first=max(begin, source.window_first),
        window_next=source.window_next,
        beyond=source.read_next,
        answers_from=begin,
        committed_again=source.committed_again,
    )


def whole_span_of(source: Source) -> Span:
    """Return the offsets to audit if nobody's committed offset counts: all of the window that Kafka still has."""
    return Span(
        tp=source.tp,
        retained=source.ends.first,
        end=source.ends.next,
        committed=None,
        first=source.read_first,
        next=max(source.read_first, min(source.read_next, source.ends.next)),
        window_first=source.window_first,
        window_next=source.window_next,
        beyond=source.read_next,
    )


def coverage_of(span: Span, *, records: int, entries: int) -> Coverage:
    """Return a span in the form of the result; records and entries are those in the window."""
    return Coverage(
        topic=span.tp.topic,
        partition=span.tp.partition,
        retained_offset=span.retained,
        end_offset=span.end,
        committed_offset=span.committed,
        first_offset=span.first,
        next_offset=span.next,
        window_first_offset=span.window_first,
        window_next_offset=span.window_next,
        records=records,
        entries=entries,
    )


def doubts_of(
    span: Span, source: Source, *, covered_first: int | None, floor: int | None, lacks_flushes_below: int | None = None
) -> list[str]:
    """Return doubts about the window, because Kafka no longer has all of it.

    `lacks_flushes_below` is the begin of the flush records that are still there, None if all are.
    """
    reaches_back = source.window_first == source.ends.first
    doubts = []
    if lacks_flushes_below is not None and source.window_first < min(lacks_flushes_below, source.window_next):
        doubts.append(f"{span.tp}: flush records of offsets below {lacks_flushes_below} are no longer there")
    if reaches_back and covered_first is not None and covered_first < source.ends.first:
        doubts.append(
            f"{span.tp}: flush records begin at offset {covered_first}, the source only at {source.ends.first}: "
            "its retention ends inside the window"
        )
    if (source.committed or 0) > source.ends.next:
        doubts.append(
            f"{span.tp}: the group has committed {source.committed}, the source ends at {source.ends.next}: "
            "records of it are gone, or it is another topic of this name"
        )
    if floor is not None and floor > source.window_first and (source.committed or 0) > source.window_first:
        doubts.append(f"{span.tp}: references or dead letters of offsets below {floor} are no longer there")
    return doubts


def beyond_notes(spans: Iterable[Span]) -> list[str]:
    """Note the offsets of the source that nobody has committed."""
    return notes_of(Reached(span.tp, span.retained, span.end, span.committed) for span in spans)


def is_before_all(spans: Iterable[Span], sources: Iterable[Source]) -> bool:
    """Return whether no offset of the window is audited because the worker only answers for later ones."""
    pairs = [
        (span, source, min(source.window_next, source.ends.next)) for span, source in zip(spans, sources, strict=True)
    ]
    is_audited = any(max(span.first, span.window_first) < min(span.next, end) for span, _, end in pairs)
    return not is_audited and any(source.window_first < min(span.answers_from, end) for span, source, end in pairs)
