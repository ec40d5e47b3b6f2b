"""Lines of workers' logs become events: whose they are, what is told by silence, what is no event."""

import random

import pytest

from log_partitioner.formats import log_events
from log_partitioner.formats.log_events import LogEvent
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.report.around import Event, Log, LogEnded, read_log
from tests.log_lines import discarded
from tests.unit.report.world import T0_MS, TOPIC, WorkerLog

TPS = [TopicPartition(TOPIC, number) for number in range(4)]


def of(log: Log, kind: type[LogEvent]) -> list[Event]:
    """Events of one kind."""
    return [event for event in log.events if isinstance(event.told, kind)]


def test_a_discard_is_of_the_partitions_that_its_worker_owned_then() -> None:
    """The line names none: assigned, one revoked, one lost, so it is of the rest."""
    log = WorkerLog().assigned(T0_MS, 0, 1, 2)
    log.revoked(T0_MS + 1, 0).lost(T0_MS + 2, 2)
    log.write(T0_MS + 3, discarded(cause="FencedError", message="refused"))
    log.assigned(T0_MS + 4, 3).write(T0_MS + 5, log_events.WorkerFailed("StopError", "why", story=[]))
    read = read_log(log.lines)
    (discard,) = of(read, log_events.BatchDiscarded)
    (failed,) = of(read, log_events.WorkerFailed)
    assert discard.topic_partitions == {TPS[1]}
    assert "cause FencedError" in discard.text
    assert "message refused" in discard.text
    assert failed.topic_partitions == {TPS[1], TPS[3]}
    assert [event.topic_partitions for event in of(read, log_events.PartitionsRevoked)] == [{TPS[0]}]


ENDS = (log_events.WorkerStopped(), log_events.WorkerLeft("asked to leave"), log_events.WorkerFailed("E", "why", []))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_a_log_that_just_ends_tells_of_a_killed_worker(end: LogEvent) -> None:
    """The last line of a boot that says nothing of a stop is an event of what it owned; after a stop there is none."""
    killed = WorkerLog("w1", "first").assigned(T0_MS, 0, 1)
    killed.write(T0_MS + 700, log_events.FlushStarted("b", "interval", generation=1, offsets={}))
    again = WorkerLog("w1", "second").write(T0_MS + 9000, log_events.Resumed()).assigned(T0_MS + 9001, 0)
    again.revoked(T0_MS + 9500, 0).write(T0_MS + 9501, end)
    read = read_log(killed.lines + again.lines)
    (silent,) = of(read, LogEnded)
    assert (silent.at_ms, silent.boot, silent.topic_partitions) == (T0_MS + 700, "first", {TPS[0], TPS[1]})
    assert "after flush_started" in silent.text


def test_lines_may_come_in_any_order() -> None:
    """Files of rotated logs and of several workers, shuffled: the same events."""
    one, two = WorkerLog("w1").assigned(T0_MS, 0), WorkerLog("w2").assigned(T0_MS + 5, 1)
    one.committed(T0_MS + 10, {0: (5, 9)}, batch="b1").lost(T0_MS + 20, 0)
    two.write(T0_MS + 7, log_events.Positioned(1, {f"{TOPIC}-1": log_events.Start(4, "committed", 9)}))
    lines = one.lines + two.lines
    shuffled = random.Random(5).sample(lines, len(lines))
    assert read_log(shuffled) == read_log(lines)
    (commit,) = of(read_log(lines), log_events.BatchCommitted)
    assert commit.topic_partitions == {TPS[0]}
    assert [event.at_ms for event in read_log(lines).events] == sorted(event.at_ms for event in read_log(lines).events)


def test_what_is_no_event_is_counted_and_harms_nothing() -> None:
    """Text, other JSON, cut lines, fields of another type; a prefix that a log collector has put before the line."""
    good = WorkerLog().assigned(T0_MS, 0).lines[0]
    wrong = good.replace(b'"topic_partitions": [', b'"topic_partitions": 5, "x": [')
    bad = [b"Traceback (most recent call last):\n", b'{"a": 1}\n', b"[1]\n", good[:40], wrong, b"\xff\xfe{\n", b"5"]
    read = read_log([*bad, b"\n", b"  \n", b"2026-03-04T00:00:00Z stdout F " + good])
    assert (read.lines, read.unread) == (len(bad) + 1, len(bad))
    assert [type(event.told) for event in read.events] == [log_events.PartitionsAssigned, LogEnded]


def test_topics_with_hyphens_and_numbers_are_told_from_partitions() -> None:
    """The partition is behind the last hyphen; a name without one is left out."""
    log = WorkerLog().write(T0_MS, log_events.PartitionsLost(["a-7-12", "b--3", "none", "x-y", "-"], 1))
    (lost,) = of(read_log(log.lines), log_events.PartitionsLost)
    assert lost.topic_partitions == {TopicPartition("a-7", 12), TopicPartition("b-", 3)}
