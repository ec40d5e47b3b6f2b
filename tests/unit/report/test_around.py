"""Around each finding are the commits next to its offsets and the events next to its time, and no others."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats import log_events
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.log_events import LogEvent
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import Example, Result
from log_partitioner_pipeline.report.around import EVENTS_BETWEEN, Event, Moment, Range, ranges_of, read_log
from tests.log_lines import assigned, discarded
from tests.unit.report.world import FLUSH_MS, T0_MS, TOPIC, WorkerLog, flush, missing, result

TP = TopicPartition(TOPIC, 0)
STARTED = log_events.WorkerStarted("g", "classic", [TOPIC], "bucket", 1, "1")
LOST, REVOKED = log_events.PartitionsLost([], 1), log_events.PartitionsRevoked([], 1)
TOLD = (
    STARTED,
    LOST,
    assigned(),
    discarded(),
    log_events.OffsetGaps(TOPIC, 0, gaps=1, first=[(1, 2)]),
    log_events.Positioned(1, {f"{TOPIC}-0": log_events.Start(17, "committed", 10)}),
)
REBALANCES = (log_events.PartitionsAssigned, log_events.PartitionsRevoked, log_events.PartitionsLost)
small = st.integers(0, 30)


def event(at_ms: int, told: LogEvent = REVOKED, *, worker: str = "w1", partitions: tuple[int, ...] = (0,)) -> Event:
    """Make an event."""
    return Event(at_ms, worker, "boot", at_ms, told, frozenset(TopicPartition(TOPIC, one) for one in partitions))


def around(made: Result, events: Iterable[Event]) -> list[Range]:
    """The ranges of all examples."""
    return ranges_of(made, events, examples_max=1000)


def only(ranges: list[Range]) -> Range:
    """The one range."""
    (one,) = ranges
    return one


def looks(one: Range) -> list[tuple[str, int | None]]:
    """Give the events around a range, in order."""
    return [(moment.look, None if moment.at_ms is None else moment.at_ms - T0_MS) for moment in one.moments]


@given(st.lists(st.tuples(small, st.integers(0, 1), st.sampled_from(TOLD)), max_size=20), small, small)
def test_events_beside_a_finding_are_those_that_a_search_of_all_finds(
    events: list[tuple[int, int, LogEvent]], begin: int, length: int
) -> None:
    """They belong to its TopicPartition, or to its worker alone.

    On both sides they are the nearest event and the nearest rebalance, between them the last.
    """
    made = [
        event(T0_MS + at, told, worker=f"w{nth % 2 + 1}", partitions=() if told is STARTED else (partition,))
        for nth, (at, partition, told) in enumerate(events)
    ]
    made = [one._replace(seq=nth) for nth, one in enumerate(sorted(made, key=lambda one: (one.at_ms, one.worker)))]
    end = begin + length
    flushes = [flush(T0_MS + begin, {0: (0, 5)}), flush(T0_MS + end, {0: (5, 9)}, batch="covers")]
    found = only(around(result([(Kind.MISSING, [missing(6)])], flushes=flushes), made)).moments
    mine = [one for one in made if TP in one.topic_partitions or (not one.topic_partitions and one.worker == "w1")]
    telling = [one for one in mine if not isinstance(one.told, log_events.OffsetGaps)]
    rebalances = [one for one in telling if isinstance(one.told, REBALANCES)]
    expected = []
    for some in (telling, rebalances):
        expected.append(max((one for one in some if one.at_ms < T0_MS + begin), default=None, key=order))
        expected.append(min((one for one in some if one.at_ms > T0_MS + end), default=None, key=order))
    between = [one for one in mine if T0_MS + begin <= one.at_ms <= T0_MS + end]
    last = [one for one in between if one in telling][-EVENTS_BETWEEN:]
    holes = [one for one in between if one not in telling]
    expected += last + holes[max(0, len(holes) - EVENTS_BETWEEN + len(last)) :]
    shown = [moment for moment in found if moment.look == "event"]
    assert shown == [
        Moment(one.at_ms, "event", one.name, f"{one.worker}: {one.text}") for one in mine if one in expected
    ]
    notes = [moment.text for moment in found if moment.look == "note"]
    assert notes == [f"6 of {len(between)} events between these commits are shown"] * (len(between) > EVENTS_BETWEEN)


def order(one: Event) -> tuple[int, str, int]:
    """The order of events."""
    return one.at_ms, one.worker, one.seq


def test_a_loss_stands_beside_the_discard_that_caused_it() -> None:
    """Two commits, between them a discard and a rewind past the lost records; no event of other partitions."""
    log = WorkerLog().assigned(T0_MS - 1000, 0)
    log.write(T0_MS + 12_000, discarded(cause="FencedError"))
    log.write(T0_MS + 12_100, log_events.Positioned(1, {f"{TOPIC}-0": log_events.Start(17, "committed", 10)}))
    other = WorkerLog("w2").assigned(T0_MS - 1000, 1).lost(T0_MS + 12_050, 1)
    flushes = [
        flush(T0_MS, {0: (0, 10), 1: (0, 4)}),
        flush(T0_MS + FLUSH_MS, {0: (17, 30)}),
        flush(T0_MS + 9 * FLUSH_MS, {1: (4, 30)}),
    ]
    findings = [(Kind.MISSING, [missing(offset) for offset in range(10, 17)])]
    one = only(around(result(findings, flushes=flushes), read_log(log.lines + other.lines).events))
    assert (one.tp, [example.offset for example in one.examples]) == (TP, list(range(10, 17)))
    assert looks(one) == [
        ("event", -1000),
        ("commit", 0),
        ("event", 12_000),
        ("event", 12_100),
        ("event", 12_100),  # the log ends without a stop, and so with this line
        ("none", FLUSH_MS),
        ("commit", FLUSH_MS),
    ]
    titles = [moment.title for moment in one.moments]
    assert titles[2:4] == ["batch discarded", "positioned"]
    assert titles[5] == "no commit covers these offsets"


def test_findings_between_the_same_commits_are_one_range() -> None:
    """Findings of other commits, kinds and partitions are ranges of their own."""
    flushes = [flush(T0_MS + nth * FLUSH_MS, {0: (nth * 10, nth * 10 + 10), 1: (0, 0)}) for nth in range(4)]
    lost = [missing(11, at_ms=5), missing(18, at_ms=9), missing(25), missing(12, partition=1)]
    findings = [(Kind.MISSING, lost), (Kind.ALTERED, [missing(13)])]
    ranges = around(result(findings, flushes=flushes), [])
    assert sorted((one.kind.value, [example.offset for example in one.examples]) for one in ranges) == [
        ("altered", [13]),
        ("missing", [11, 18]),
        ("missing", [12]),
        ("missing", [25]),
    ]


def test_an_overlap_stands_beside_both_commits_and_what_was_between_them() -> None:
    """A zombie's commit of the same offsets: both cover, and the rebalance between them is there."""
    flushes = [
        flush(T0_MS, {0: (0, 10)}, worker="w1"),
        flush(T0_MS + 1000, {0: (10, 20)}, worker="w2"),
        flush(T0_MS + 90_000, {0: (10, 15)}, worker="w1", batch="late"),
    ]
    rebalance = event(T0_MS + 40_000, LOST)
    one = only(around(result([(Kind.DUPLICATED, [missing(12)])], flushes=flushes), [rebalance]))
    assert looks(one) == [("commit", 0), ("covering", 1000), ("event", 40_000), ("covering", 90_000)]


def test_a_commit_without_flush_record_is_known_from_the_log() -> None:
    """The page says so; a commit that has a flush record is not told twice."""
    log = WorkerLog().assigned(T0_MS - 5, 0).committed(T0_MS, {0: (0, 10)}, batch="recorded")
    log.committed(T0_MS + FLUSH_MS, {0: (10, 20)}, batch="unrecorded").write(T0_MS + FLUSH_MS + 5, "worker_stopped")
    flushes = [flush(T0_MS, {0: (0, 10)}, batch="recorded")]
    one = only(around(result([(Kind.FLUSH_GAP, [missing(10)])], flushes=flushes), read_log(log.lines).events))
    commits = [(moment.look, moment.text) for moment in one.moments if moment.look != "event"]
    assert commits == [
        ("commit", "[0, 10) by w1, batch recorded"),
        ("covering", "[10, 20) by w1, batch unrecorded; only a log tells of it"),
    ]


def test_findings_without_offsets_stand_beside_their_batch_or_nothing() -> None:
    """An altered object has a batch; an object that nothing names has none, and comes last."""
    flushes = [flush(T0_MS, {0: (0, 10)}, batch="b")]
    findings = [
        (Kind.OBJECT_UNREFERENCED, [Example(text="stray", object="logs/stray.avro")]),
        (Kind.OBJECT_ALTERED, [Example(text="altered", object="logs/x.avro", batch_id="b", worker="w1")]),
    ]
    altered, stray = around(result(findings, flushes=flushes), [event(T0_MS - 5)])
    assert (altered.kind, altered.tp) == (Kind.OBJECT_ALTERED, None)
    assert looks(altered) == [("event", -5), ("covering", 0)]
    assert (stray.kind, looks(stray)) == (Kind.OBJECT_UNREFERENCED, [])
