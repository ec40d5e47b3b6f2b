"""A window's offsets of the source, and its end."""

from collections.abc import Iterable
from typing import cast

import pytest

from log_partitioner.adapters.kafka.topics import Ends, KafkaTopics
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.archive.span import SourceSpan, coverage_of, find_spans, reach_last
from log_partitioner_pipeline.audit.result import Window

TP = TopicPartition("logs", 0)
OTHER = TopicPartition("logs", 1)
# Offsets 10 to 9999, read from 20 to 50, of the window from 30 to 40.
SPAN = SourceSpan(TP, Ends(10, 10_000), 20, 50, 30, 40)


class Topics:
    """Brokers with one record a second: its offset is its timestamp in seconds; one clock may go ahead."""

    def __init__(self, ends: Ends, *, ahead: tuple[int, int] | None = None) -> None:
        self._ends = ends
        self._ahead = ahead

    def ends(self, tp: TopicPartition) -> Ends:  # noqa: ARG002 - of all alike
        """The first offset and the next one."""
        return self._ends

    def offsets_at(self, tps: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """The first record so late."""
        times = [(offset * 1000, offset) for offset in range(*self._ends)]
        if self._ahead is not None:
            times.append(self._ahead)
        return dict.fromkeys(tps, min((offset for at, offset in times if at >= timestamp_ms), default=None))


@pytest.mark.parametrize(
    ("window", "span"),
    [
        ((30_000, 40_000, 5), (25, 45, 30, 40)),
        ((11_500, 40_000, 5), (10, 45, 12, 40)),
        ((30_000, 98_000, 5), (25, 100, 30, 98)),
        ((200_000, 300_000, 5), (100, 100, 100, 100)),
        ((1_000, 2_000, 5), (10, 10, 10, 10)),
        ((None, 40_000, 5), (10, 45, 10, 40)),
        ((30_000, None, 5), (25, 100, 30, 100)),
        ((None, None, 5), (10, 100, 10, 100)),
    ],
)
def test_a_window_is_read_with_its_padding(
    window: tuple[int | None, int | None, int], span: tuple[int, int, int, int]
) -> None:
    """As far as the source has it; an end that is not given is the source's."""
    topics = cast("KafkaTopics", Topics(Ends(10, 100)))
    asked = Window(from_ms=window[0], until_ms=window[1], padding_s=window[2])
    assert find_spans(topics, [TP, OTHER], asked) == [SourceSpan(tp, Ends(10, 100), *span) for tp in (TP, OTHER)]


def test_a_clock_ahead_hides_the_end_of_the_window_but_not_that_of_the_padding() -> None:
    """Record 33 says 42 s: brokers end the window there, and still read to the first record beyond the padding."""
    topics = cast("KafkaTopics", Topics(Ends(10, 100), ahead=(42_000, 33)))
    (span,) = find_spans(topics, [TP], Window(from_ms=30_000, until_ms=40_000, padding_s=5))
    assert (span.window_next, span.next) == (33, 45)
    ((reached,), doubts) = reach_last([span], {TP: 39})
    assert (reached.window_next, reached.next, doubts) == (40, 45, [])


def test_a_window_ends_behind_its_last_record() -> None:
    """Brokers' answer stays if no record of the window is behind it."""
    other = SPAN._replace(tp=OTHER)
    assert reach_last([SPAN, other], {}) == ([SPAN, other], [])
    assert reach_last([SPAN, other], {TP: 38}) == ([SPAN, other], [])
    assert reach_last([SPAN, other], {TP: 44}) == ([SPAN._replace(window_next=45), other], [])


def test_a_record_of_the_window_behind_the_padding_is_a_doubt() -> None:
    """A clock went ahead by more than the padding: the number of unread records of the window is not known."""
    assert SPAN.to_read == (20, 1050)
    assert SPAN._replace(ends=Ends(10, 60)).to_read == (20, 60)
    reached, doubts = reach_last([SPAN], {TP: 70})
    assert reached == [SPAN._replace(window_next=71, next=71)]
    (doubt,) = doubts
    assert doubt == (
        "logs-0: offset 70 is of the window, and stands behind offset 50, which is later than the window's end by more "
        "than the padding: give a longer --padding"
    )


def test_the_result_tells_what_was_compared_and_what_is_of_the_window() -> None:
    """The result has no committed offset, because none counts."""
    told = coverage_of(SPAN, records=3, entries=4)
    assert (told.first_offset, told.next_offset, told.window_first_offset, told.window_next_offset) == (20, 50, 30, 40)
    assert (told.retained_offset, told.end_offset, told.committed_offset) == (10, 10_000, None)
    assert (told.records, told.entries) == (3, 4)
