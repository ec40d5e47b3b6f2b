"""Lines of workers' logs become events: whose they are, what is told by silence, what is no event."""

import ast
import random
from pathlib import Path

from pipeline.report.events import Event, EventKind, Log, read_log
from service.formats.model import TopicPartition
from tests.unit.report.world import T0_MS, TOPIC, WorkerLog

SERVICE = Path(__file__).parents[3] / "service"
TPS = [TopicPartition(TOPIC, number) for number in range(4)]
# What the report reads of a line, by its event.
READ = {
    EventKind.ASSIGNED: {"generation", "start_offsets"},
    EventKind.REVOKED: {"generation", "topic_partitions"},
    EventKind.LOST: {"generation", "topic_partitions"},
    EventKind.COMMITTED: {"batch_id", "reason", "entries", "offsets"},
    EventKind.DISCARDED: {"batch_id", "reason", "cause", "message", "outcome"},
    EventKind.REWOUND: {"topic", "partition", "offset", "first_offset"},
    EventKind.REPEATED: {"batch_id", "cause"},
    EventKind.GAPS: {"topic", "partition", "gaps", "first"},
    EventKind.FAILED: {"cause", "message"},
    EventKind.STARTED: set(),
    EventKind.STOPPED: set(),
}


def of(log: Log, kind: EventKind) -> list[Event]:
    """Events of one kind."""
    return [event for event in log.events if event.kind is kind]


def test_events_are_those_that_the_worker_writes_with_these_fields() -> None:
    """The names and fields that are read stand in the worker's calls: renaming one there fails here."""
    written: dict[str, set[str]] = {}
    for module in SERVICE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                named = {keyword.arg for keyword in node.keywords if keyword.arg}
                written.setdefault(str(node.args[0].value), set()).update(named)
    assert set(READ) == set(EventKind) - {EventKind.SILENT}
    assert {kind: fields - written.get(kind, {"no such event"}) for kind, fields in READ.items()} == {
        kind: set() for kind in READ
    }
    assert all(kind.value in written for kind in READ)


def test_a_discard_is_of_the_partitions_that_its_worker_owned_then() -> None:
    """The line names none: assigned, one revoked, one lost, so it is of the rest."""
    log = WorkerLog().assigned(T0_MS, 0, 1, 2)
    log.gave_up(T0_MS + 1, "partitions_revoked", 0).gave_up(T0_MS + 2, "partitions_lost", 2)
    log.write(T0_MS + 3, "batch_discarded", batch_id="b", cause="FencedError", message="refused", outcome="aborted")
    log.assigned(T0_MS + 4, 3).write(T0_MS + 5, "worker_failed", cause="StopError", message="why")
    read = read_log(log.lines)
    (discard,) = of(read, EventKind.DISCARDED)
    (failed,) = of(read, EventKind.FAILED)
    assert discard.topic_partitions == {TPS[1]}
    assert discard.text == "outcome aborted, flush for none: FencedError, refused"
    assert failed.topic_partitions == {TPS[1], TPS[3]}
    assert [event.topic_partitions for event in of(read, EventKind.REVOKED)] == [{TPS[0]}]


def test_a_log_that_just_ends_tells_of_a_killed_worker() -> None:
    """The last line of a boot that says nothing of a stop is an event of what it owned; after a stop there is none."""
    killed = WorkerLog("w1", "first").assigned(T0_MS, 0, 1)
    killed.write(T0_MS + 700, "flush_started", batch_id="b", reason="interval", generation=1)
    again = WorkerLog("w1", "second").write(T0_MS + 9000, "worker_started").assigned(T0_MS + 9001, 0)
    again.gave_up(T0_MS + 9500, "partitions_revoked", 0).write(T0_MS + 9501, "worker_stopped", flush_outcome="stopped")
    read = read_log(killed.lines + again.lines)
    (silent,) = of(read, EventKind.SILENT)
    assert (silent.at_ms, silent.boot, silent.topic_partitions) == (T0_MS + 700, "first", {TPS[0], TPS[1]})
    assert "after flush_started" in silent.text


def test_lines_may_come_in_any_order() -> None:
    """Files of rotated logs and of several workers, shuffled: the same events."""
    one, two = WorkerLog("w1").assigned(T0_MS, 0), WorkerLog("w2").assigned(T0_MS + 5, 1)
    one.committed(T0_MS + 10, {0: (5, 9)}, batch="b1").gave_up(T0_MS + 20, "partitions_lost", 0)
    two.write(T0_MS + 7, "rewound", topic=TOPIC, partition=1, offset=4, first_offset=9)
    lines = one.lines + two.lines
    shuffled = random.Random(5).sample(lines, len(lines))
    assert read_log(shuffled) == read_log(lines)
    (commit,) = of(read_log(lines), EventKind.COMMITTED)
    assert commit.ranges == ((TPS[0], 5, 9),)
    assert [event.at_ms for event in read_log(lines).events] == sorted(event.at_ms for event in read_log(lines).events)


def test_what_is_no_event_is_counted_and_harms_nothing() -> None:
    """Text, other JSON, cut lines, fields of another type; a prefix that a log collector has put before the line."""
    good = WorkerLog().assigned(T0_MS, 0).lines[0]
    wrong = good.replace(b'"start_offsets": {', b'"start_offsets": 5, "x": {')
    bad = [b"Traceback (most recent call last):\n", b'{"a": 1}\n', b"[1]\n", good[:40], wrong, b"\xff\xfe{\n", b"5"]
    read = read_log([*bad, b"\n", b"  \n", b"2026-03-04T00:00:00Z stdout F " + good])
    assert (read.lines, read.unread) == (len(bad) + 1, len(bad))
    assert [event.kind for event in read.events] == [EventKind.ASSIGNED, EventKind.SILENT]


def test_topics_with_hyphens_and_numbers_are_told_from_partitions() -> None:
    """The partition is behind the last hyphen; a name without one is left out."""
    log = WorkerLog().write(T0_MS, "partitions_lost", generation=1, topic_partitions=["a-7-12", "b--3", "none", "x-y"])
    (lost,) = of(read_log(log.lines), EventKind.LOST)
    assert lost.topic_partitions == {TopicPartition("a-7", 12), TopicPartition("b-", 3)}
