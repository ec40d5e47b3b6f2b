"""The flusher: nothing is announced that is not stored, nothing is committed that is not announced."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner import native
from log_partitioner.batch import pack_plan, seal
from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.batch.messages import reference_messages
from log_partitioner.batch.pack_plan import Part
from log_partitioner.batch.reference_lines import CompiledLines, LineGroup, LineWriter
from log_partitioner.batch.row_writer import Blocks, Chunk, PartToWrite
from log_partitioner.batch.rows import Rows
from log_partitioner.batch.seal import Sealing
from log_partitioner.boundary import Membership
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.errors import (
    CommitAbortedError,
    CommitUnknownError,
    MembershipError,
    UploadError,
)
from log_partitioner.formats import offset_metadata
from log_partitioner.runtime import flusher as flusher_module
from log_partitioner.runtime import recorder as recorder_module
from log_partitioner.runtime.flusher import KNOWN_SCHEMAS_S
from tests.fakes.check import flush_records, references
from tests.fakes.committer import Outcome
from tests.fakes.group import ConsumerGroup
from tests.fakes.pace import paced_decode
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import COOPERATIVE, KIP848, Rig, holding, owning
from tests.fakes.store import PutFault
from tests.fakes.worker import DEAD_LETTERS, FLUSHES, REFERENCES, FakeWorker, Rules

NOT_REPEATED = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "TRANSACTION_ABORTABLE", "_TIMED_OUT")


def flush(
    worker: FakeWorker, seconds: float = 120.0, *, batch: ClosedBatch | None = None, reason: str = "interval"
) -> Any:
    """Flush the open batch, without the controller; returns what is said of the commit, and what was sent."""
    deadline = Deadline.after(seconds, worker.clock.now_s)
    with capture_logs() as lines:
        sent = worker.flusher.flush(batch or worker.recorder.close(), FlushReason(reason), deadline=deadline)
    (line,) = [line for line in lines if line["event"] == "flush_committed"]
    return SimpleNamespace(**line, sent=sent)


def opened_by(member_id: str, batch: ClosedBatch) -> ClosedBatch:
    """Give the batch as if another member had opened it."""
    membership = batch.opening.membership._replace(member_id=member_id)
    return batch._replace(opening=batch.opening._replace(membership=membership))


def test_flush_of_a_batch_commits_references_flush_record_and_offsets_together() -> None:
    """One transaction holds a reference per PartitionKey, one flush record and the offsets of all that was read."""
    rig, worker = owning()
    rig.fill(P0, 3, "ann")
    rig.fill(P1, 2, "bob")
    rig.turn_until(lambda: worker.recorder.has_progress)
    summary = flush(worker)
    (transaction,) = rig.broker.transactions
    assert transaction.offsets == {P0: 3, P1: 2}
    assert sorted((one.partition_key.user, one.entries) for one in references(rig.broker)) == [("ann", 3), ("bob", 2)]
    (record,) = flush_records(rig.broker)
    assert (record.totals.records, record.totals.entries, record.totals.references) == (5, 5, 2)
    assert (record.seq, record.reason) == (1, "interval")
    assert (summary.references, summary.entries, summary.records) == (2, 5, 5)


def test_flush_gives_what_it_has_announced() -> None:
    """All messages of its transaction and the offsets, as they were committed."""
    rig, worker = holding(rules=Rules().with_layout("pack"))
    rig.broker.logs[P0].append(value_of(entry(None)), timestamp_ms=rig.clock.wall_ms())
    worker.step()
    summary = flush(worker)
    assert summary.dead_letters == 1
    sent = list(summary.sent.messages())
    assert sent == [*rig.broker.messages(REFERENCES), *rig.broker.messages(FLUSHES), *rig.broker.messages(DEAD_LETTERS)]
    assert {tp: rig.broker.committed_offset(tp) for tp in summary.sent.next_offsets} == summary.sent.next_offsets


@pytest.mark.parametrize("told", [True, False])
def test_committed_offsets_carry_their_topics_id_and_leader_epoch(told: bool) -> None:  # noqa: FBT001 - a case
    """As far as it is known; unknown is null, never something else."""
    rig = Rig()
    if not told:
        rig.broker.topic_ids.clear()
    worker = rig.holding()
    flush(worker)
    committed = rig.broker.committed(P0)
    assert committed is not None
    assert committed.leader_epoch == rig.broker.logs[P0].leader_epoch
    assert offset_metadata.decode(committed.metadata).topic_id == rig.broker.topic_ids.get(P0.topic)
    (record,) = flush_records(rig.broker)
    assert record.topic_ids == rig.broker.topic_ids


def _without_one(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Give a function whose result lacks one element."""

    def wrong(*args: Any, **kwargs: Any) -> Any:
        found = list(function(*args, **kwargs))
        del found[at]
        return found

    return wrong


def _lose_a_line(writer: LineWriter, blocks: Blocks, start: int) -> None:
    if blocks.user != "user-7":
        _add_line(writer, blocks, start)


def _name_an_entry_less(writer: LineWriter, blocks: Blocks, start: int) -> None:
    if blocks.user == "user-7":
        (tp, low, high, rows), *others = blocks.sources
        blocks = blocks._replace(sources=[(tp, low, high, rows - 1), *others])
    _add_line(writer, blocks, start)


def _end_a_row_earlier(sealing: Sealing, part: Part) -> PartToWrite:
    return _unwritten(sealing, part)._replace(end=part.end - (part.key == 7))


def _end_the_last_a_row_earlier(sealing: Sealing, part: Part) -> PartToWrite:
    return _unwritten(sealing, part)._replace(end=part.end - (part.key == 19))


def _begin_a_row_earlier(sealing: Sealing, part: Part) -> PartToWrite:
    """Begin with a row of the part before, with which a chunk ends."""
    return _unwritten(sealing, part)._replace(begin=part.begin - (part.key == 7))


def _lose_blocks(writing: seal._Writing, data: bytes, rows_of: Iterable[tuple[int, int]]) -> None:
    """Write what is not the first of an object."""
    if writing.rows_of:
        _write_blocks(writing, data, rows_of)


def _plan_without_a_row(rows: Rows, first: int = 0) -> array[int]:
    order = _in_order(rows, first)
    del order[3]
    return order


def _plan_another_row(rows: Rows, first: int = 0) -> array[int]:
    """Plan the first row of a PartitionKey in the place of its last, of another TopicPartition."""
    order = _in_order(rows, first)
    places = [place for place, row in enumerate(order) if rows.key_of[row] == 7]
    order[places[-1]] = order[places[0]]
    return order


def _lose_a_compiled_line(lines: CompiledLines, chunk: Chunk, first: int, last: int, start: int) -> None:
    _add_lines(lines, chunk, first + 1, last, start)


def _name_an_entry_less_in_a_group(lines: CompiledLines) -> list[LineGroup]:
    first, *others = _groups(lines)
    named, *more = first.entries
    return [first._replace(entries=(named - 1, *more)), *others]


_add_line, _in_order = LineWriter.add_line, Rows.in_order
_write_blocks, _unwritten = seal._Writing.write, Sealing._unwritten
_add_lines, _groups = CompiledLines.add, CompiledLines.groups
_WRONG = {
    "row-lost-in-the-plan": (Rows, "in_order", _plan_without_a_row),
    "part-lost": (pack_plan, "_cut", _without_one(pack_plan._cut, 3)),
    "block-lost": (seal._Writing, "write", _lose_blocks),
    "row-not-written": (Sealing, "_unwritten", _end_a_row_earlier),
    "last-row-not-written": (Sealing, "_unwritten", _end_the_last_a_row_earlier),
    "row-written-twice": (Sealing, "_unwritten", _begin_a_row_earlier),
    "row-of-another-topic-partition": (Rows, "in_order", _plan_another_row),
    "message-lost": (flusher_module, "reference_messages", _without_one(reference_messages, 0)),
    "dead-letter-lost": (recorder_module, "dead_letters_of", lambda _record, _bad, **_entries: []),
}
_WRONG_IN_PYTHON = _WRONG | {
    "line-lost": (LineWriter, "add_line", _lose_a_line),
    "entry-not-named": (LineWriter, "add_line", _name_an_entry_less),
    "group-lost": (LineWriter, "groups", _without_one(LineWriter.groups, 0)),
}
_WRONG_AROUND_COMPILED_CODE = _WRONG | {
    "line-lost": (CompiledLines, "add", _lose_a_compiled_line),
    "entry-not-named": (CompiledLines, "groups", _name_an_entry_less_in_a_group),
    "group-lost": (CompiledLines, "groups", _without_one(CompiledLines.groups, 0)),
}


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "is_fast"),
    [pytest.param(*wrong, False, id=f"python-{name}") for name, wrong in _WRONG_IN_PYTHON.items()]
    + [pytest.param(*wrong, True, id=f"fast-{name}") for name, wrong in _WRONG_AROUND_COMPILED_CODE.items()],
)
def test_whatever_loses_an_entry_commits_nothing(
    owner: Any, name: str, wrong: Callable[..., Any], *, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W3 proves something: counts come from what was written and announced, not from what they are compared with."""
    rig = Rig()
    rules = Rules().with_layout("pack").with_seal(group_bytes_max=500)
    if is_fast and not native.IS_INSTALLED:
        pytest.skip("make native")
    worker = rig.owning(rules=rules.with_lane() if is_fast else rules)
    monkeypatch.setattr(owner, name, wrong)
    monkeypatch.setattr(seal, "PARTS_AT_ONCE", 7)
    for number in range(20):
        rig.fill(P0, 1, f"user-{number}")
        rig.fill(P1, 1, f"user-{number}")
    rig.broker.logs[P0].append(value_of(entry(None)), timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: worker.recorder.load().entries == 41)
    with pytest.raises(AssertionError, match="W3"):
        flush(worker)
    assert worker.committer.calls == 0
    monkeypatch.undo()


def test_finding_10_flush_record_states_every_owned_range_count_and_identity() -> None:
    """A flush record alone tells worker, boot, generation, number, and per owned TopicPartition what it covered."""
    rig, worker = owning()
    rig.broker.logs[P0].append_hole()
    rig.fill(P0, 2)
    rig.broker.logs[P0].append_hole()
    rig.turn_until(lambda: worker.recorder.has_progress)
    flush(worker)
    (record,) = flush_records(rig.broker)
    covered, idle = record.topic_partitions
    assert (covered.first_offset, covered.min_offset, covered.max_offset, covered.next_offset) == (0, 1, 2, 3)
    assert (covered.records, covered.entries, covered.dead_letters) == (2, 2, 0)
    assert (idle.partition, idle.first_offset, idle.next_offset, idle.min_offset) == (1, 0, 0, None)
    assert (record.worker, record.boot, record.group_id, record.seq) == ("a", "boot", "group", 1)
    assert record.generation == worker.controller.state.generation


@pytest.mark.parametrize("fault", [PutFault.NOT_STORED, PutFault.ANSWER_LOST_LATE, PutFault.SLOW])
def test_flush_whose_upload_is_not_acknowledged_produces_nothing(fault: PutFault) -> None:
    """W4: no transaction is begun before every upload is acknowledged."""
    rig, worker = holding()
    worker.store.script.extend([PutFault.NONE, fault])
    with pytest.raises(UploadError):
        flush(worker)
    assert worker.committer.calls == 0
    assert rig.broker.transactions == []


def test_flush_uploads_everything_before_the_transaction_begins() -> None:
    """No upload is under way while the transaction is open, and none comes after it."""
    rig = Rig()
    happened: list[str] = []
    worker = rig.worker(point=happened.append)
    rig.fill(P0, 3)
    rig.turn_until(lambda: worker.recorder.has_progress)
    happened.clear()
    flush(worker)
    assert "put" in happened
    assert "put" not in happened[happened.index("begin") :]
    assert happened.index("begin") > max(number for number, name in enumerate(happened) if name == "put_acknowledged")


def test_finding_9_key_taken_by_another_object_is_never_referenced() -> None:
    """An object that is not provably ours keeps its key; ours gets another, and the reference names that one."""
    rig, worker = holding()
    worker.store.script.append(PutFault.TAKEN)
    flush(worker)
    assert b"somebody else's" in rig.bucket.objects.values()
    rig.check()
    (reference,) = references(rig.broker)
    assert rig.bucket.objects[reference.location.object] != b"somebody else's"


def test_finding_9_attempts_of_one_batch_never_share_a_key() -> None:
    """After a flush that failed, the same records go to new keys; the objects of the failed flush are orphans."""
    rig, worker = holding()
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    rig.pass_time(40)
    rig.drain()
    data = [key for key in rig.bucket.puts if key.endswith(".avro")]
    assert len(data) == len(set(data))
    named = {one.location.object for one in references(rig.broker)}
    assert set(data) - named == {key for key in data if "a-boot-1-" in key}


def test_flush_whose_deadline_passes_while_sealing_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline between two steps is a discard; nothing is uploaded, nothing sent."""
    monkeypatch.setattr(seal, "PARTS_AT_ONCE", 1)
    rig = Rig()
    worker = rig.owning(rules=Rules().with_layout("file").with_seal(decode=paced_decode(rig, 50.0)))
    for user in ("ann", "bob", "cem"):
        rig.fill(P0, 1, user)
    rig.turn_until(lambda: worker.recorder.has_progress)
    with pytest.raises(UploadError, match="2 of 3 rows are sealed in time"):
        flush(worker)
    assert rig.bucket.puts == []
    assert worker.committer.calls == 0


def test_flush_whose_uploads_end_after_their_deadline_is_discarded() -> None:
    """It is discarded even if every object that was handed over is stored."""
    rig, worker = holding()
    worker.store._point = lambda name: rig.pass_time(100.0 if name == "put_acknowledged" else 0.0)
    with pytest.raises(UploadError):
        flush(worker)
    assert worker.committer.calls == 0


def test_schema_is_uploaded_once_and_its_text_matches_its_name() -> None:
    """A known schema costs nothing the second time; another worker's upload has the same name and is as good."""
    rig, worker = owning()
    for _ in range(3):
        rig.fill(P0, 2)
        rig.turn_until(lambda: worker.recorder.has_progress)
        worker.controller.flush_due(FlushReason.INTERVAL)
    assert len([key for key in rig.bucket.puts if key.endswith(".avsc")]) == 1
    worker.controller.fail()
    worker.close()
    second = rig.owning("b")
    rig.fill(P0, 1)
    rig.drain()
    assert (second.committer.calls, len({key for key in rig.bucket.puts if key.endswith(".avsc")})) == (1, 1)


def test_schema_that_somebody_has_deleted_is_written_again_within_the_hour() -> None:
    """A lifecycle rule may delete it; else references would name a missing object for as long as the process lives."""
    rig, _ = holding()
    rig.drain()
    (key,) = (key for key in rig.bucket.objects if key.endswith(".avsc"))
    del rig.bucket.objects[key]
    rig.pass_time(KNOWN_SCHEMAS_S)
    rig.fill(P0, 2)
    rig.drain()
    assert key in rig.bucket.objects


def test_membership_of_another_member_than_the_batch_was_opened_by_is_refused() -> None:
    """Valid metadata of a new member id prove that we were out of the group in between: the batch is not ours."""
    _, worker = holding()
    with pytest.raises(MembershipError):
        flush(worker, batch=opened_by("member-of-before", worker.recorder.close()))
    assert worker.committer.calls == 0


@pytest.mark.parametrize(
    ("bytes_max", "text_max", "has_text"), [(10**9, 10**5, True), (0, 10**5, False), (10**9, 10, False)]
)
def test_schema_text_stands_in_messages_while_it_is_small(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, text_max: int, *, has_text: bool
) -> None:
    """Together those of a flush, and each by itself; fingerprint and place always are there."""
    rig = Rig()
    monkeypatch.setattr(KafkaSettings, "inline_bytes_max", bytes_max)
    monkeypatch.setattr(KafkaSettings, "inline_text_max", text_max)
    worker = rig.holding()
    flush(worker)
    (reference,) = references(rig.broker)
    assert (reference.schema.text is not None) == has_text
    assert reference.schema.fingerprint in reference.schema.object
    rig.check()


@pytest.mark.parametrize(
    ("script", "slow_s", "calls", "is_committed"),
    [
        (["ILLEGAL_GENERATION"], 0.0, 2, True),
        (["ILLEGAL_GENERATION"] * 2, 0.0, 2, False),
        (["ILLEGAL_GENERATION"], 40.0, 1, False),
        *[([code], 0.0, 1, False) for code in NOT_REPEATED],
    ],
)
def test_illegal_generation_of_the_same_member_is_repeated_once_over_the_same_objects(
    script: list[str], slow_s: float, calls: int, *, is_committed: bool
) -> None:
    """With fresh metadata and while there is time: an epoch that moved is no reason to upload again."""
    rig, worker = holding()
    worker.committer.script.extend(script)
    worker.committer._point = lambda name: rig.clock.advance(slow_s if name == "produced" else 0.0)
    with nullcontext() if is_committed else pytest.raises(CommitAbortedError):
        flush(worker)
    assert (worker.committer.calls, len(rig.broker.transactions)) == (calls, is_committed)
    assert len(rig.bucket.puts) == 2  # one object, one schema
    rig.check()


def test_commit_is_repeated_outside_of_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library never lets go of what is handled while it raises (KAFKA_FACTS L10): a producer each time."""
    _, worker = holding()
    worker.committer.script.append("ILLEGAL_GENERATION")
    handled: list[object] = []
    commit = worker.committer.commit

    def noted(*args: Any, **kwargs: Any) -> None:
        handled.append(sys.exc_info()[1])
        commit(*args, **kwargs)

    monkeypatch.setattr(worker.committer, "commit", noted)
    flush(worker)
    assert handled == [None, None]


def test_illegal_generation_of_another_member_is_a_discard() -> None:
    """Who was put out and is in again under another id may not commit what it read before."""
    rig, worker = holding()
    worker.committer.script.append("ILLEGAL_GENERATION")
    batch = worker.recorder.close()
    told = iter([worker.consumer.membership(), Membership(7, "another member", b"")])
    worker.flusher._membership = lambda: next(told)
    with pytest.raises(CommitAbortedError):
        flush(worker, batch=batch)
    assert rig.broker.transactions == []
    assert worker.committer.calls == 1


@pytest.mark.parametrize(
    "membership",
    [Membership(-1, "", b""), Membership(-1, "member", b""), Membership(5, "", b""), Membership(0, "m", b"")],
)
def test_finding_3_metadata_that_no_broker_would_check_is_refused_before_anything_is_sent(
    membership: Membership,
) -> None:
    """Generation and member id must both be there, or nothing reaches the broker."""
    rig, worker = holding()
    worker.flusher._membership = lambda: membership
    with pytest.raises(MembershipError):
        flush(worker)
    assert rig.broker.transactions == []


def test_finding_3_without_the_guard_the_broker_takes_a_commit_from_nobody() -> None:
    """The fake broker, like the real one, does not fence empty metadata; the guard refuses it."""
    rig, worker = holding()
    worker.committer.trusts_any_membership = True
    worker.flusher._membership = lambda: Membership(-1, "", b"")
    flush(worker, batch=opened_by("", worker.recorder.close()))
    assert rig.committed()[P0] == 3


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.TIMED_OUT])
def test_unknown_outcome_is_told_apart_from_an_abort(outcome: Outcome) -> None:
    """An unknown outcome is no abort: the committed offsets tell."""
    _, worker = holding()
    worker.committer.script.append(outcome)
    with pytest.raises(CommitUnknownError):
        flush(worker)


def test_metadata_is_that_of_the_moment_the_batch_is_closed() -> None:
    """Metadata taken after the uploads would be that of a generation in which others may own our TopicPartitions."""
    _, worker = holding(COOPERATIVE)
    asked: list[str] = []
    membership = worker.consumer.membership

    def ask() -> Membership:
        asked.append("membership")
        return membership()

    worker.flusher._membership = ask
    worker.store._point = asked.append
    flush(worker)
    assert asked[0] == "membership"
    assert asked.count("membership") == 1


@pytest.mark.parametrize("is_lenient", [True, False])
def test_epoch_that_moves_during_the_upload_proves_nothing_to_us(is_lenient: bool) -> None:  # noqa: FBT001 - a case
    """KIP-848: a third member joins while we upload; our epoch moves without a callback, our TopicPartition stays.

    The broker knows that (KIP-1251, Kafka 4.3); an older one refuses the epoch of the opening, and the batch is read
    again: that we were never put out is not ours to say.
    """
    rig = Rig(KIP848)
    assert isinstance(rig.group, ConsumerGroup)
    rig.group.is_lenient = is_lenient
    first, second = rig.worker("a"), rig.worker("b")
    rig.turn_until(lambda: bool(first.controller.state.owned) and bool(second.controller.state.owned))
    rig.fill(P0, 2)
    rig.fill(P1, 2)
    rig.turn_until(lambda: first.recorder.has_progress)

    def join(name: str) -> None:
        if name == "put" and len(rig.workers) == 2:
            rig.worker("c")
            rig.tick()

    first.store._point = join
    before = first.consumer.membership().generation
    first.controller.flush_due(FlushReason.INTERVAL)
    assert first.consumer.membership().generation > before
    assert first.committer.calls == 1
    assert first.metrics.total("flushes", outcome="committed" if is_lenient else "discarded") == 1
    rig.drain()


# Layouts.


@pytest.mark.parametrize(
    ("reason", "records", "objects"),
    [("interval", 1, 20), ("stopping", 1, 20), ("shrunk", 1, 1), ("bytes", 1, 1), ("bytes", 2, 40)],
)
def test_record_that_alone_passes_a_limit_is_packed_under_every_layout(reason: str, records: int, objects: int) -> None:
    """Otherwise it could never be flushed. A record that is alone by chance keeps to the layout, and so do two."""
    rig, worker = owning(rules=Rules().with_layout("file"))
    for number in range(records):
        value = value_of(*(entry(f"user-{number}-{n}") for n in range(20)))
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.broker.logs[P0].append(None, timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: worker.recorder.load().entries == 20 * records)
    summary = flush(worker, reason=reason)
    assert (summary.objects, summary.records) == (objects, records + 1)
    rig.check()
