"""What a full audit says of what nobody has committed: both audits by the same words, exit code or not."""

from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.ranges import Reached, notes_of
from log_partitioner_pipeline.audit.scope import Source, beyond_notes, span_of
from log_partitioner_pipeline.kafka import Ends
from tests.unit.proof.audit.world import APP_1, clean_world, record

TP = TopicPartition("logs", 0)


def test_a_partition_that_nobody_consumes_is_named() -> None:
    """Its entries are in no file, and nothing is wrong with what is audited."""
    assert notes_of([Reached(TP, 10, 1510, None)]) == [
        "logs-0: nothing was ever committed, so none of its 1,500 offsets is audited"
    ]
    assert notes_of([Reached(TP, 7, 7, None)]) == [
        "logs-0: nothing was ever committed, so none of its 0 offsets is audited"
    ], "its records are gone already"
    assert notes_of([Reached(TP, 0, 0, None)]) == []


def test_offsets_behind_the_committed_one_are_counted() -> None:
    """Of what there still is; none where the end is before it, which is a doubt of its own."""
    assert notes_of([Reached(TP, 0, 100, 90)]) == ["logs-0: 10 offsets are not committed yet, so they are not audited"]
    assert notes_of([Reached(TP, 95, 100, 90)]) == ["logs-0: 5 offsets are not committed yet, so they are not audited"]
    assert notes_of([Reached(TP, 0, 100, 100), Reached(TP, 0, 100, 120)]) == []


def test_of_many_those_with_most_are_named() -> None:
    """A result of a thousand TopicPartitions stays one that somebody reads."""
    many = [Reached(TopicPartition("logs", at), 0, at, 0) for at in range(24)]
    notes = notes_of([*many, Reached(TopicPartition("logs", 99), 0, 1, None)])
    assert notes[0].startswith("logs-99: nothing was ever committed")
    assert notes[1] == "logs-23: 23 offsets are not committed yet, so they are not audited"
    assert len(notes) == 22
    assert notes[-1] == "3 more TopicPartitions: 6 offsets are not committed yet, so they are not audited"


def test_the_audit_by_command_says_it() -> None:
    """Beside an exit code that is as it was; with --require-caught-up it is a doubt, and no note."""
    world = clean_world()
    world.source.append(record(APP_1, 2, {"user": "ann"}))
    world.ends[APP_1] = 3
    world.build()
    report = world.audit(caught_up=False)
    assert report.exit_code is ExitCode.CLEAN
    assert report.findings.notes == ["app-1: 1 offsets are not committed yet, so they are not audited"]
    assert world.audit(caught_up=True).findings.notes == []


def test_the_audit_on_spark_says_the_same() -> None:
    """By what brokers said when it began."""
    source = Source(TP, Ends(10, 100), 80, 10, 10, 100, 100)
    nobodys = source._replace(tp=TopicPartition("logs", 1), committed=None)
    spans = [span_of(one, covered_first=None, floor=None) for one in (source, nobodys)]
    assert beyond_notes(spans) == notes_of([Reached(TP, 10, 100, 80), Reached(nobodys.tp, 10, 100, None)])
