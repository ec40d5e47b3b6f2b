"""The time whose rows must have an entry in the source."""

import pytest

from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.archive.run import Judged, find_judged
from log_partitioner_pipeline.archive.span import SourceSpan
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.kafka import Ends

NOW_MS = 10_000_000
PADDING_MS = 60_000
TP = TopicPartition("logs", 0)


def span(*, retained: int = 0, first: int | None = None) -> SourceSpan:
    """A TopicPartition that begins at `retained`, read from `first` on."""
    first = retained if first is None else first
    return SourceSpan(TP, Ends(retained, 100), first, 100, first, 100)


def judged(window: tuple[int | None, int | None], *spans: SourceSpan, oldest_ms: int | None = None) -> Judged:
    """Ask at NOW_MS, with a minute of padding."""
    asked = Window(from_ms=window[0], until_ms=window[1], padding_s=PADDING_MS / 1000)
    return find_judged(asked, spans, {} if oldest_ms is None else {TP: oldest_ms}, started_at_ms=NOW_MS)


def test_with_its_beginning_the_source_judges_all_but_the_newest() -> None:
    """Rows of records that were written while the audit ran are not judged."""
    assert judged((None, None), span(), oldest_ms=5) == Judged(None, NOW_MS - PADDING_MS, [], [])


def test_a_window_is_judged_as_it_is() -> None:
    """Retention that ends before it changes nothing."""
    assert judged((1000, 2000), span(retained=7, first=9), oldest_ms=900) == Judged(1000, 2000, [], [])
    assert judged((1000, 2000), span(retained=7), oldest_ms=900 - PADDING_MS) == Judged(1000, 2000, [], [])


def test_what_retention_has_taken_is_not_judged() -> None:
    """Everything: a note, and rows from the padding after the oldest record on. Inside the window: a doubt."""
    found = judged((None, None), span(retained=7), oldest_ms=500)
    assert (found.from_ms, found.doubts) == (500 + PADDING_MS, [])
    assert found.notes == ["logs-0: the source begins at offset 7; what was before it cannot be compared"]
    found = judged((1000, 900_000), span(retained=7), oldest_ms=1001)
    assert (found.from_ms, found.notes) == (1001 + PADDING_MS, [])
    assert found.doubts == ["logs-0: the source begins at offset 7: its retention ends inside the window"]


def test_nothing_is_judged_where_nothing_is_left() -> None:
    """All records of a TopicPartition are gone."""
    found = judged((None, None), span(retained=100))
    assert found.from_ms is not None
    assert found.from_ms >= found.until_ms


@pytest.mark.parametrize(("until_ms", "doubts"), [(NOW_MS, []), (NOW_MS + 1, ["the window ends in the future"])])
def test_a_window_that_has_not_ended_is_doubtful(until_ms: int, doubts: list[str]) -> None:
    """A missing row may still come."""
    assert judged((0, until_ms), span()).doubts == doubts
