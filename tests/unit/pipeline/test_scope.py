"""Which offsets an audit reads, and where a window ends."""

from pipeline.audit.scope import Source, behind, reaching_to, span_of
from pipeline.kafka import Ends
from service.core.model import TopicPartition

TP = TopicPartition("logs", 0)
OTHER = TopicPartition("logs", 1)
# Offsets 10 to 100, read from 20 on; of the window from 30 to 40, with padding to 50.
SOURCE = Source(TP, Ends(10, 100), 80, 20, 30, 40, 50, committed_again=90)


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
