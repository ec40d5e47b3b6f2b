"""Run records of backfills: what they say is counted again, and each fault is said once."""

from collections import Counter

from pipeline.audit.result import Kind
from pipeline.audit.run_records import Line, RunRecord, Sums, Wrong, judge
from service.formats.model import TopicPartition

ONE, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 1)
RECORD = RunRecord(
    batch_id="backfill-1",
    worker="backfill",
    published=5,
    messages=5,
    before=3,
    references=30,
    entries_in_files=7,
    dead_letters=4,
    dead_letter_records=2,
    lines={ONE: Line(0, 10, 5, 4), OTHER: Line(3, 8, 2, 0)},
)
COMMITTED = {ONE: 10, OTHER: 8}


def sums(references: int = 30, messages: int = 3, **in_files: int) -> Sums:
    """Add up what the record says, with other numbers of entries where some are given."""
    files = Counter({ONE: in_files.get("one", 5), OTHER: in_files.get("other", 2)})
    return Sums(references, messages, 2, files, Counter({ONE: 4}))


def judged(record: RunRecord = RECORD, counted: Sums | None = None) -> list[Wrong]:
    """Judge a run."""
    return list(judge(record, counted or sums(), COMMITTED))


def test_true_record() -> None:
    """Nothing is wrong, for a run that goes on either; one whose records before are compacted away is no other."""
    assert judged() == []
    assert judged(RECORD._replace(messages=9)) == []
    assert judged(RECORD._replace(before=None)) == []


def test_missing_references_are_said_and_not_what_follows() -> None:
    """Two messages are gone with twenty references and five entries: the number of references, no sums."""
    assert judged(counted=sums(10, 1, one=0)) == [
        Wrong(Kind.REFERENCE_MISSING, "its run record says 30 references, there are 10", number=20)
    ]


def test_surplus_references() -> None:
    """One too many, with two entries: the number, the sums, the line."""
    found = judged(counted=sums(31, 4, other=4))
    assert [one.kind for one in found] == [Kind.REFERENCE_WRONG, Kind.BACKFILL_WRONG, Kind.BACKFILL_WRONG]
    assert found[1].text == "7 entries in files, counted 9; 5 messages, counted 6"
    assert found[2] == Wrong(
        Kind.BACKFILL_WRONG, "its run record says 2 entries in files and 0 dead, counted 4 and 0", OTHER, 3
    )


def test_dead_letters() -> None:
    """Entries and messages are counted apart."""
    (totals,) = judged(RECORD._replace(dead_letter_records=3, published=6))
    assert totals.text == "3 messages with dead letters, counted 2; 6 messages, counted 5"
    totals, line = judged(counted=sums()._replace(dead_letters=Counter({ONE: 3})))
    assert totals.text == "4 dead letters, counted 3"
    assert line.tp == ONE


def test_topic_partition_that_it_does_not_name() -> None:
    """Data of it is wrong, though totals agree."""
    record = RECORD._replace(lines={ONE: RECORD.lines[ONE]})
    assert judged(record) == [Wrong(Kind.BACKFILL_WRONG, "its run record says nothing of this TopicPartition", OTHER)]


def test_run_that_does_not_come_forward() -> None:
    """Each record must be further than the one before it."""
    assert [one.text for one in judged(RECORD._replace(before=5))] == ["has come to 5 after 5"]


def test_range_that_is_not_committed() -> None:
    """A backfill takes only what the group has committed; of TopicPartitions nobody asked for, nothing is said."""
    lines = RECORD.lines | {OTHER: Line(3, 9, 2, 0), TopicPartition("else", 0): Line(0, 99, 0, 0)}
    assert judged(RECORD._replace(lines=lines)) == [
        Wrong(Kind.BACKFILL_WRONG, "[3, 9) is not below the committed offset 8", OTHER, 3)
    ]
