"""Which offsets an audit reads, and where a window ends."""

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.scope import Source, behind, doubts_of, is_before_all, reaching_to, span_of
from log_partitioner_pipeline.kafka import Ends

TP = TopicPartition("logs", 0)
OTHER = TopicPartition("logs", 1)
# Offsets 10 to 100, read from 20 on; of the window from 30 to 40, with padding to 50.
SOURCE = Source(TP, Ends(10, 100), 80, 20, 30, 40, 50, committed_again=90)
SPAN = span_of(SOURCE, covered_first=None, floor=None)


def test_a_window_ends_behind_its_last_record() -> None:
    """What brokers have found is where to look from; without a record behind it, it stays."""
    up_to_now = SOURCE._replace(tp=OTHER, window_next=100, read_next=100)
    assert behind([SOURCE, up_to_now]) == {TP: (40, 100)}
    assert reaching_to([SOURCE, up_to_now], {}) == [SOURCE, up_to_now]
    assert reaching_to([SOURCE, up_to_now], {TP: 44}) == [SOURCE._replace(window_next=45), up_to_now]
    assert reaching_to([SOURCE], {TP: 70}) == [SOURCE._replace(window_next=71, read_next=71)]


def test_nothing_is_read_beyond_the_committed_offset() -> None:
    """Also where the window's last record is beyond it: that is waited for, and not judged."""
    (reached,) = reaching_to([SOURCE], {TP: 95})
    span = span_of(reached, covered_first=None, floor=None)
    assert (span.first, span.next, span.window_next, span.beyond) == (20, 80, 96, 96)
    assert (span.answers_from, span.committed_again) == (10, 90)


def test_an_audit_answers_from_where_all_that_it_needs_begins() -> None:
    """The source, what flush records cover, and what is not short of references: whichever begins last."""
    assert span_of(SOURCE, covered_first=25, floor=None).answers_from == 25
    assert span_of(SOURCE, covered_first=25, floor=35).answers_from == 35
    nothing = span_of(SOURCE._replace(committed=None), covered_first=None, floor=None)
    assert (nothing.is_empty, nothing.answers_from) == (True, 10)


def test_a_window_of_which_flush_records_are_gone_is_in_doubt() -> None:
    """Their topic begins at offset 35, or behind the window; at 30 the window has all it needs."""

    def doubts(first: int) -> list[str]:
        span = span_of(SOURCE, covered_first=first, floor=None)
        return doubts_of(span, SOURCE, covered_first=first, floor=None, lacks_flushes_below=first)

    assert doubts(35) == ["logs-0: flush records of offsets below 35 are no longer there"]
    assert doubts(70) == ["logs-0: flush records of offsets below 70 are no longer there"]
    assert doubts(30) == []
    nothing = SOURCE._replace(window_first=100, window_next=100)  # no record is so late
    assert doubts_of(SPAN, nothing, covered_first=35, floor=None, lacks_flushes_below=120) == []


def test_a_window_before_everything_that_is_covered_is_not_clean() -> None:
    """The worker began behind it, or no flush record is there; not if a part is audited, or it has no records."""
    after = span_of(SOURCE, covered_first=60, floor=None)
    assert is_before_all([after], [SOURCE])
    assert not is_before_all([SPAN], [SOURCE])
    other = SOURCE._replace(tp=OTHER)
    assert not is_before_all([after, SPAN._replace(tp=OTHER)], [SOURCE, other])
    idle = SOURCE._replace(window_first=100, window_next=100)
    assert not is_before_all([span_of(idle, covered_first=100, floor=None)], [idle])
    # waits to be committed, which is said elsewhere
    waits = SOURCE._replace(committed=None)
    assert not is_before_all([span_of(waits, covered_first=None, floor=None)], [waits])


def test_a_source_that_ends_before_what_is_committed_is_in_doubt() -> None:
    """Its end was cut off, or it was made anew: nobody can compare what was read of it."""
    cut = SOURCE._replace(ends=Ends(0, 79))
    (doubt,) = doubts_of(span_of(cut, covered_first=None, floor=None), cut, covered_first=None, floor=None)
    assert doubt.startswith("logs-0: the group has committed 80, the source ends at 79: ")
    whole = SOURCE._replace(ends=Ends(0, 80))
    assert doubts_of(span_of(whole, covered_first=None, floor=None), whole, covered_first=None, floor=None) == []
