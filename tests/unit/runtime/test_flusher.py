"""The flusher: nothing is announced that is not stored, nothing is committed that is not announced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.core.dead_letter import parse_headers
from service.core.deadline import Deadline
from service.core.exchange import Membership
from service.core.flush_policy import FlushReason
from service.core.reference import decode_flush_record, decode_reference
from service.errors import (
    CommitAbortedError,
    CommitUnknownError,
    DiscardError,
    MembershipError,
    SpoolError,
    StoreRefusedError,
    UploadError,
)
from tests.fakes.committer import Outcome
from tests.fakes.group import ConsumerGroup
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import COOPERATIVE, KIP848, Rig
from tests.fakes.store import PutFault
from tests.fakes.worker import DEAD_LETTERS, FLUSH_RULES, FLUSHES, REFERENCES, FakeWorker, Rules


def holding(rig: Rig, *, records: int = 3, rules: Rules | None = None) -> FakeWorker:
    """Give a worker whose open batch holds some records, and no flush is due."""
    worker = rig.owning(rules=rules)
    for tp in rig.broker.logs:
        rig.fill(tp, records)
    rig.turn_until(lambda: not rig.broker.logs[P0].records or worker.recorder.covers)
    assert worker.recorder.batch is not None
    return worker


def flush(worker: FakeWorker, seconds: float = 120.0) -> None:
    """Flush the open batch, without the controller."""
    worker.flusher.flush(FlushReason.INTERVAL, deadline=Deadline.after(seconds, worker.clock.now_s))


def test_flush_of_a_batch_commits_references_flush_record_and_offsets_together() -> None:
    """One transaction holds a reference per PartitionKey, one flush record and the offsets of all that was read."""
    rig = Rig()
    worker = rig.owning()
    rig.fill(P0, 3, "ann")
    rig.fill(P1, 2, "bob")
    rig.turn_until(lambda: worker.recorder.covers)
    flush(worker)
    (transaction,) = rig.broker.transactions
    assert transaction.offsets == {P0: 3, P1: 2}
    references = [decode_reference(one.value or b"") for one in rig.broker.messages(REFERENCES)]
    assert sorted((one.partition.user, one.entries) for one in references) == [("ann", 3), ("bob", 2)]
    (record,) = [decode_flush_record(one.value or b"") for one in rig.broker.messages(FLUSHES)]
    assert (record.totals.records, record.totals.entries, record.totals.references) == (5, 5, 2)
    assert (record.seq, record.reason) == (1, "interval")


def test_finding_10_flush_record_states_every_owned_range_count_and_identity() -> None:
    """A flush record alone tells worker, boot, generation, number, and per owned TopicPartition what it covered."""
    rig = Rig()
    worker = rig.owning()
    rig.broker.logs[P0].append_hole()
    rig.fill(P0, 2)
    rig.broker.logs[P0].append_hole()
    rig.turn_until(lambda: worker.recorder.covers)
    flush(worker)
    record = decode_flush_record(rig.broker.messages(FLUSHES)[0].value or b"")
    covered, idle = record.topic_partitions
    assert (covered.first_offset, covered.min_offset, covered.max_offset, covered.next_offset) == (0, 1, 2, 3)
    assert (covered.records, covered.entries, covered.dead_letters) == (2, 2, 0)
    assert (idle.partition, idle.first_offset, idle.next_offset, idle.min_offset) == (1, 0, 0, None)
    assert (record.worker, record.boot, record.seq) == ("a", "boot", 1)
    assert record.generation == worker.controller.state.generation


@pytest.mark.parametrize("fault", [PutFault.NOT_STORED, PutFault.ANSWER_LOST_LATE, PutFault.SLOW])
def test_flush_whose_upload_is_not_acknowledged_produces_nothing(fault: PutFault) -> None:
    """W4: no transaction is begun before every upload is acknowledged."""
    rig = Rig()
    worker = holding(rig)
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
    rig.turn_until(lambda: worker.recorder.covers)
    happened.clear()
    flush(worker)
    assert "put" in happened
    assert "put" not in happened[happened.index("begin") :]
    assert happened.index("begin") > max(number for number, name in enumerate(happened) if name == "put_acknowledged")


def test_finding_9_key_taken_by_another_object_is_never_referenced() -> None:
    """An object that is not provably ours keeps its key; ours gets another, and the reference names that one."""
    rig = Rig()
    worker = holding(rig)
    worker.store.script.append(PutFault.TAKEN)
    flush(worker)
    assert b"somebody else's" in rig.bucket.objects.values()
    rig.check()
    (reference,) = [decode_reference(one.value or b"") for one in rig.broker.messages(REFERENCES)]
    assert rig.bucket.objects[reference.location.object] != b"somebody else's"


def test_finding_9_attempts_of_one_batch_never_share_a_key() -> None:
    """After a flush that failed, the same records go to new keys; what was stored before is an orphan."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append("TRANSACTION_ABORTABLE")
    rig.pass_time(40)
    rig.drain()
    data = [key for key in rig.bucket.puts if key.endswith(".avro")]
    assert len(data) == len(set(data)) == 2
    referenced = {decode_reference(one.value or b"").location.object for one in rig.broker.messages(REFERENCES)}
    assert len(referenced) == 1


def test_flush_with_a_lost_answer_finds_its_own_object() -> None:
    """A PUT whose answer was lost is found by length and checksum, not repeated under another key."""
    rig = Rig()
    worker = holding(rig)
    worker.store.script.append(PutFault.ANSWER_LOST)
    flush(worker)
    assert len([key for key in rig.bucket.objects if key.endswith(".avro")]) == 1
    rig.check()


def test_flush_with_a_lost_answer_and_no_permission_to_read_uses_another_key() -> None:
    """Where we may not look, a taken key is somebody else's."""
    rig = Rig()
    worker = holding(rig)
    worker.store.may_read = False
    worker.store.script.append(PutFault.ANSWER_LOST)
    flush(worker)
    assert len([key for key in rig.bucket.objects if key.endswith(".avro")]) == 2
    rig.check()


def test_flush_refused_by_the_store_stops_the_worker() -> None:
    """A missing permission is no reason to try again for ever."""
    rig = Rig()
    worker = holding(rig)
    worker.store.script.append(PutFault.REFUSED)
    with pytest.raises(StoreRefusedError):
        flush(worker)
    assert worker.committer.calls == 0


@pytest.mark.parametrize("operation", ["seal", "load", "read"])
def test_flush_whose_disk_fails_commits_nothing(operation: str) -> None:
    """A disk that refuses at any step is a reason to discard, and nothing was sent."""
    rig = Rig()
    rules = Rules()
    rules = replace(rules, recorder=rules.recorder._replace(memory_bytes_max=1))
    worker = holding(rig, rules=rules)
    worker.spool.refuses = lambda asked: asked == operation
    with pytest.raises(DiscardError) as caught:
        flush(worker)
    assert isinstance(caught.value, SpoolError)
    assert rig.broker.transactions == []


def test_flush_whose_deadline_passes_while_sealing_is_discarded() -> None:
    """A deadline between two files is a discard, also when everything handed over so far is stored."""
    rig = Rig()
    worker = rig.owning()
    for user in ("ann", "bob"):  # their schema is known from here on, so that nothing else is uploaded
        rig.fill(P0, 1, user)
    rig.turn_until(lambda: worker.recorder.covers)
    worker.controller.flush_due(FlushReason.INTERVAL)
    for user in ("ann", "bob"):
        rig.fill(P0, 1, user)
    rig.turn_until(lambda: worker.recorder.covers)
    worker.store._point = lambda name: rig.clock.advance(100.0 if name == "put_acknowledged" else 0.0)
    with pytest.raises(UploadError):
        flush(worker)
    assert rig.committed()[P0] == 2


def test_schema_is_uploaded_once_and_its_text_matches_its_name() -> None:
    """A schema that is known costs nothing the second time."""
    rig = Rig()
    worker = rig.owning()
    for _ in range(3):
        rig.fill(P0, 2)
        rig.turn_until(lambda: worker.recorder.covers)
        worker.controller.flush_due(FlushReason.INTERVAL)
    assert len([key for key in rig.bucket.puts if key.endswith(".avsc")]) == 1
    rig.check()


def test_schema_that_could_not_be_uploaded_is_tried_again() -> None:
    """Only what is acknowledged is known."""
    rig = Rig()
    worker = holding(rig)
    worker.store.script.extend([PutFault.NONE, PutFault.NOT_STORED])
    with pytest.raises(UploadError):
        flush(worker)
    flush_again = worker.controller.flush_due
    worker.spool.clear()
    flush_again(FlushReason.INTERVAL)
    assert any(key.endswith(".avsc") for key in rig.bucket.objects)
    rig.check()


def test_schema_uploaded_by_another_worker_is_as_good_as_ours() -> None:
    """The content of a schema object follows from its name."""
    rig = Rig()
    first = holding(rig)
    flush(first)
    first.controller.fail()
    first.close()
    second = rig.worker("b")
    rig.fill(P0, 1)
    rig.turn_until(lambda: second.recorder.covers)
    second.controller.flush_due(FlushReason.INTERVAL)
    assert len({key for key in rig.bucket.puts if key.endswith(".avsc")}) == 1
    assert second.committer.calls == 1


@pytest.mark.parametrize(("bytes_max", "has_counts"), [(3000, True), (1500, False)])
def test_reference_too_large_loses_its_text_and_then_its_counts(bytes_max: int, has_counts: bool) -> None:  # noqa: FBT001
    """A reference that its topic would refuse goes without schema text, then without counts; the object has both."""
    rig = Rig()
    small = Rules(flush=FLUSH_RULES._replace(message_bytes_max=bytes_max))
    worker = rig.owning(rules=small)
    wide: dict[str, Any] = {f"field_{number:03}": number for number in range(40)}
    rig.broker.logs[P0].append(value_of(entry(**wide)), timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: worker.recorder.covers)
    flush(worker)
    (message,) = rig.broker.messages(REFERENCES)
    reference = decode_reference(message.value or b"")
    assert reference.schema.text is None
    assert bool(reference.field_counts) == has_counts
    assert len(message.value or b"") <= bytes_max
    rig.check()


@pytest.mark.parametrize(("inline", "has_text"), [("inline", True), ("fingerprint", False), ("auto", True)])
def test_schema_text_stands_inline_by_setting(inline: str, has_text: bool) -> None:  # noqa: FBT001
    """The text is in the reference where the setting says so; fingerprint and place always are."""
    rig = Rig()
    worker = holding(rig, rules=Rules(flush=FLUSH_RULES._replace(inline=inline)))
    flush(worker)
    reference = decode_reference(rig.broker.messages(REFERENCES)[0].value or b"")
    assert (reference.schema.text is not None) == has_text
    assert reference.schema.fingerprint in reference.schema.object


def test_dead_letter_too_large_for_its_topic_lies_in_an_object() -> None:
    """The value of an oversized dead record is stored, the dead letter names the object and has no value."""
    rig = Rig()
    worker = rig.owning(rules=Rules(flush=FLUSH_RULES._replace(message_bytes_max=10_000)))
    value = b"[" + b"x" * 20_000
    rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: worker.recorder.covers)
    flush(worker)
    (letter,) = rig.broker.messages(DEAD_LETTERS)
    assert letter.value is None
    assert rig.bucket.objects[parse_headers(letter.headers).object_key or ""] == value
    rig.check()


@pytest.mark.parametrize("what", ["key", "headers"])
def test_dead_letter_of_a_large_key_or_headers_fits_into_its_topic(what: str) -> None:
    """T12: a record that the dead-letter topic cannot take must not stop the worker again and again."""
    rig = Rig()
    worker = rig.owning()
    large = b"x" * 1_000_000
    rig.broker.logs[P0].append(
        b"{",
        timestamp_ms=rig.clock.wall_ms(),
        key=large if what == "key" else None,
        headers=(("h", large),) if what == "headers" else (),
    )
    rig.turn_until(lambda: worker.recorder.covers)
    flush(worker)
    (letter,) = rig.broker.messages(DEAD_LETTERS)
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    assert len(letter.key or b"") + len(letter.value or b"") + headers <= FLUSH_RULES.message_bytes_max


def test_illegal_generation_of_the_same_member_is_repeated_once_over_the_same_objects() -> None:
    """The epoch that moved under us is no reason to upload again: fresh metadata, same objects, once."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append("ILLEGAL_GENERATION")
    before = len(rig.bucket.puts)
    flush(worker)
    assert worker.committer.calls == 2
    assert len(rig.bucket.puts) - before == 2  # one object, one schema
    rig.check()


def test_illegal_generation_twice_is_a_discard() -> None:
    """At most once more."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.extend(["ILLEGAL_GENERATION", "ILLEGAL_GENERATION", Outcome.COMMITTED])
    with pytest.raises(CommitAbortedError):
        flush(worker)
    assert worker.committer.calls == 2


def test_illegal_generation_of_another_member_is_a_discard() -> None:
    """Who was put out and is in again under another id may not commit what it read before."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append("ILLEGAL_GENERATION")
    assert worker.recorder.batch is not None
    worker.recorder.batch.member_id = "member-of-before"
    with pytest.raises(DiscardError):
        flush(worker)
    assert rig.broker.transactions == []
    assert worker.committer.calls <= 1


@pytest.mark.parametrize("code", ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "TRANSACTION_ABORTABLE", "_TIMED_OUT"])
def test_other_aborts_are_not_repeated(code: str) -> None:
    """Only a generation that moved is worth a second transaction."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.extend([code, Outcome.COMMITTED])
    with pytest.raises(CommitAbortedError):
        flush(worker)
    assert worker.committer.calls == 1


def test_illegal_generation_after_the_deadline_is_not_repeated() -> None:
    """A spent budget is not spent twice."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append("ILLEGAL_GENERATION")

    def slow(name: str) -> None:
        if name == "produced":
            rig.clock.advance(40.0)

    worker.committer._point = slow
    with pytest.raises(CommitAbortedError):
        flush(worker, seconds=31.0)
    assert worker.committer.calls == 1


@pytest.mark.parametrize(
    "membership",
    [Membership(-1, "", b""), Membership(-1, "member", b""), Membership(5, "", b""), Membership(0, "m", b"")],
)
def test_finding_3_metadata_that_no_broker_would_check_is_refused_before_anything_is_sent(
    membership: Membership,
) -> None:
    """Generation and member id must both be there, or nothing reaches the broker."""
    rig = Rig()
    worker = holding(rig)
    worker.flusher._membership = lambda: membership
    with pytest.raises(MembershipError):
        flush(worker)
    assert rig.broker.transactions == []


def test_finding_3_without_the_guard_the_broker_takes_a_commit_from_nobody() -> None:
    """What the guard is for: the fake broker, like the real one, does not fence empty metadata."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.trusts_any_membership = True
    worker.flusher._membership = lambda: Membership(-1, "", b"")
    worker.recorder.batch.member_id = ""  # type: ignore[union-attr]
    flush(worker)
    assert rig.committed()[P0] == 3


def test_membership_of_another_member_than_the_batch_was_opened_by_is_refused() -> None:
    """Valid metadata of a new member id proves that we were out of the group in between: the batch is not ours."""
    rig = Rig()
    worker = holding(rig)
    assert worker.recorder.batch is not None
    worker.recorder.batch.member_id = "member-of-before"
    with pytest.raises(MembershipError):
        flush(worker)
    assert worker.committer.calls == 0


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.TIMED_OUT])
def test_unknown_outcome_is_told_apart_from_an_abort(outcome: Outcome) -> None:
    """Nobody may take an unknown outcome for an abort: the committed offsets tell."""
    rig = Rig()
    worker = holding(rig)
    worker.committer.script.append(outcome)
    with pytest.raises(CommitUnknownError):
        flush(worker)


def test_metadata_is_that_of_the_moment_the_batch_is_closed() -> None:
    """Metadata taken after the uploads would be that of a generation in which others may own our TopicPartitions."""
    rig = Rig(COOPERATIVE)
    worker = holding(rig)
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


def test_epoch_that_moves_during_the_upload_costs_one_repetition() -> None:
    """KIP-848: a third member joins while we upload; our epoch moves without a callback, our TopicPartition stays."""
    rig = Rig(KIP848)
    assert isinstance(rig.group, ConsumerGroup)
    rig.group.is_lenient = False
    first, second = rig.worker("a"), rig.worker("b")
    rig.turn_until(lambda: bool(first.controller.state.owned) and bool(second.controller.state.owned))
    rig.fill(P0, 2)
    rig.fill(P1, 2)
    rig.turn_until(lambda: first.recorder.covers)

    def join(name: str) -> None:
        if name == "put" and len(rig.workers) == 2:
            rig.worker("c")
            rig.tick()

    first.store._point = join
    before = first.consumer.membership().generation
    first.controller.flush_due(FlushReason.INTERVAL)
    assert first.consumer.membership().generation > before
    assert first.committer.calls == 2
    assert first.metrics.total("flushes", outcome="committed") == 1
    rig.drain()
