"""Beside each finding stand the commits next to its offsets and the events next to its time, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats import log_events
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.log_events import LogEvent
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.audit.result import Example
from log_partitioner_pipeline.report.around import moments_of
from log_partitioner_pipeline.report.beside import Range, ranges_of
from log_partitioner_pipeline.report.events import REBALANCES, Event, read_log
from log_partitioner_pipeline.report.handled import Commit, Commits
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
small = st.integers(0, 30)


def event(at_ms: int, told: LogEvent = REVOKED, *, worker: str = "w1", partitions: tuple[int, ...] = (0,)) -> Event:
    """Make an event."""
    return Event(at_ms, told, worker, "boot", at_ms, frozenset(TopicPartition(TOPIC, one) for one in partitions))


def only(ranges: list[Range]) -> Range:
    """The one range."""
    (one,) = ranges
    return one


def looks(one: Range) -> list[tuple[str, int | None]]:
    """What stands around a range, in order."""
    return [(moment.look, None if moment.at_ms is None else moment.at_ms - T0_MS) for moment in moments_of(one)]


@given(st.lists(st.tuples(small, st.integers(0, 8), small), max_size=12), small)
def test_commits_beside_an_offset_are_those_that_a_search_of_all_finds(
    spans: list[tuple[int, int, int]], offset: int
) -> None:
    """Gaps, overlaps and empty ranges in any order: covering, the last before, the first after."""
    flushes = [flush(T0_MS + at * 1000, {0: (first, first + length)}) for first, length, at in spans]
    commits = [
        Commit(
            one.ranges[0].first_offset,
            one.ranges[0].next_offset,
            one.started_at_ms,
            one.ended_at_ms,
            one.batch_id,
            "w1",
            "interval",
        )
        for one in flushes
    ]
    found = Commits(flushes, []).beside(TP, offset)
    covering = [one for one in commits if one.first_offset <= offset < one.next_offset]
    before = [(one.next_offset, one.ended_at_ms) for one in commits if one.next_offset <= offset]
    after = [(one.first_offset, one.ended_at_ms) for one in commits if one.first_offset > offset]
    assert sorted(found.covering) == sorted(covering)
    assert (found.before and (found.before.next_offset, found.before.ended_at_ms)) == max(before, default=None)
    assert (found.after and (found.after.first_offset, found.after.ended_at_ms)) == min(after, default=None)


@given(st.lists(st.tuples(small, st.integers(0, 1), st.sampled_from(TOLD)), max_size=20), small, small)
def test_events_beside_a_finding_are_those_that_a_search_of_all_finds(
    events: list[tuple[int, int, LogEvent]], begin: int, length: int
) -> None:
    """Of its TopicPartition, or of its worker alone: nearest and nearest rebalance on both sides, the last between."""
    made = [
        event(T0_MS + at, told, worker=f"w{nth % 2 + 1}", partitions=() if told is STARTED else (partition,))
        for nth, (at, partition, told) in enumerate(events)
    ]
    made = [one._replace(seq=nth) for nth, one in enumerate(sorted(made, key=lambda one: (one.at_ms, one.worker)))]
    end = begin + length
    flushes = [flush(T0_MS + begin, {0: (0, 5)}), flush(T0_MS + end, {0: (5, 9)}, batch="covers")]
    found = only(ranges_of(result([(Kind.MISSING, [missing(6)])], flushes=flushes), made)).events
    mine = [one for one in made if TP in one.topic_partitions or (not one.topic_partitions and one.worker == "w1")]
    telling = [one for one in mine if not isinstance(one.told, log_events.OffsetGaps)]
    rebalances = [one for one in mine if isinstance(one.told, REBALANCES)]
    before = [
        max((e for e in some if e.at_ms < T0_MS + begin), default=None, key=order) for some in (telling, rebalances)
    ]
    after = [min((e for e in some if e.at_ms > T0_MS + end), default=None, key=order) for some in (telling, rebalances)]
    assert list(found.before) == [one for one in mine if one in before]
    assert list(found.after) == [one for one in mine if one in after]
    between = [one for one in mine if T0_MS + begin <= one.at_ms <= T0_MS + end]
    assert found.between == len(between)
    last = [one for one in between if one in telling][-6:]
    assert [one for one in found.during if one in telling] == last
    assert len(found.during) == min(6, len(between))
    assert list(found.during) == sorted(found.during, key=order)


def order(one: Event) -> tuple[int, str, int]:
    """The order of events."""
    return one.at_ms, one.worker, one.seq


def test_a_loss_stands_beside_the_discard_that_caused_it() -> None:
    """Two commits, a discard and a rewind between them past what was lost; what other partitions saw is not there."""
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
    one = only(ranges_of(result(findings, flushes=flushes), read_log(log.lines + other.lines).events))
    assert (one.findings, one.tp, one.first_offset, one.last_offset) == (7, TP, 10, 16)
    assert looks(one) == [
        ("event", -1000),
        ("commit", 0),
        ("event", 12_000),
        ("event", 12_100),
        ("event", 12_100),  # the log ends without a stop, and so with this line
        ("none", FLUSH_MS),
        ("commit", FLUSH_MS),
    ]
    titles = [moment.title for moment in moments_of(one)]
    assert titles[2:4] == ["batch discarded", "positioned"]
    assert titles[5] == "no commit covers these offsets"


def test_findings_between_the_same_commits_are_one_range() -> None:
    """Those of other commits, kinds and partitions are ranges of their own."""
    flushes = [flush(T0_MS + nth * FLUSH_MS, {0: (nth * 10, nth * 10 + 10), 1: (0, 0)}) for nth in range(4)]
    lost = [missing(11, at_ms=5), missing(18, at_ms=9), missing(25), missing(12, partition=1)]
    findings = [(Kind.MISSING, lost), (Kind.ALTERED, [missing(13)])]
    ranges = ranges_of(result(findings, flushes=flushes), [])
    assert sorted((one.kind.value, one.first_offset, one.last_offset, one.findings) for one in ranges) == [
        ("altered", 13, 13, 1),
        ("missing", 11, 18, 2),
        ("missing", 12, 12, 1),
        ("missing", 25, 25, 1),
    ]
    assert next(one for one in ranges if one.findings == 2).timestamps_ms == (5, 9)


def test_an_overlap_stands_beside_both_commits_and_what_was_between_them() -> None:
    """A zombie's commit of the same offsets: both cover, and the rebalance between them is there."""
    flushes = [
        flush(T0_MS, {0: (0, 10)}, worker="w1"),
        flush(T0_MS + 1000, {0: (10, 20)}, worker="w2"),
        flush(T0_MS + 90_000, {0: (10, 15)}, worker="w1", batch="late"),
    ]
    rebalance = event(T0_MS + 40_000, LOST)
    one = only(ranges_of(result([(Kind.DUPLICATED, [missing(12)])], flushes=flushes), [rebalance]))
    assert [commit.batch_id for commit in one.handled.covering] == ["late", f"w2-{T0_MS + 1000}"]
    assert looks(one) == [("commit", 0), ("covering", 1000), ("event", 40_000), ("covering", 90_000)]


def test_a_commit_without_flush_record_is_known_from_the_log() -> None:
    """And said to be; one that has a flush record is not told twice."""
    log = WorkerLog().assigned(T0_MS - 5, 0).committed(T0_MS, {0: (0, 10)}, batch="recorded")
    log.committed(T0_MS + FLUSH_MS, {0: (10, 20)}, batch="unrecorded").write(T0_MS + FLUSH_MS + 5, "worker_stopped")
    flushes = [flush(T0_MS, {0: (0, 10)}, batch="recorded")]
    one = only(ranges_of(result([(Kind.FLUSH_GAP, [missing(10)])], flushes=flushes), read_log(log.lines).events))
    assert [(commit.batch_id, commit.logged_only) for commit in one.handled.covering] == [("unrecorded", True)]
    assert one.handled.before is not None
    assert not one.handled.before.logged_only
    assert "only a log tells of it" in " ".join(moment.text for moment in moments_of(one))


def test_findings_without_offsets_stand_beside_their_batch_or_nothing() -> None:
    """An altered object has a batch; an object that nothing names has none, and comes last."""
    flushes = [flush(T0_MS, {0: (0, 10)}, batch="b")]
    findings = [
        (Kind.OBJECT_UNREFERENCED, [Example(text="stray", object="logs/stray.avro")]),
        (Kind.OBJECT_ALTERED, [Example(text="altered", object="logs/x.avro", batch_id="b", worker="w1")]),
    ]
    altered, stray = ranges_of(result(findings, flushes=flushes), [event(T0_MS - 5)])
    assert (altered.kind, altered.tp) == (Kind.OBJECT_ALTERED, None)
    assert looks(altered) == [("event", -5), ("covering", 0)]
    assert (stray.kind, looks(stray)) == (Kind.OBJECT_UNREFERENCED, [])
