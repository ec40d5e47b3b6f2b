"""Records through a recorder and into objects, by the fast lane or by Python alone: what has to be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from log_partitioner.batch.batch import Opening
from log_partitioner.batch.fast_lane import has_lane, why_no_lane
from log_partitioner.batch.messages import rows_in
from log_partitioner.batch.pack_plan import seal_rules
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.boundary import Membership, Poll
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import InputSettings, KafkaSettings, Settings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import CommittedOffset, Headers, PartitionKey, SourceRecord
from log_partitioner.formats.schema import FindSchema
from log_partitioner.formats.values import encode_json
from log_partitioner.input.decode import RecordContent, RecordDecoder
from log_partitioner.partitioning.partitioner import Placement, Rejection
from log_partitioner.proof.oracle import decode as oracle
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.runtime.recorder import Recorder
from tests.fakes.records import poll_of
from tests.fakes.spool import FakeSpool

_EVERYTHING = 2**62


class Delivered(NamedTuple):
    """The outcome of records: objects with their bytes and descriptions, dead letters, counts. `taken` were plain."""

    objects: list[tuple[bytes, SealedObject]]
    dead_letters: list[Any]
    ledgers: dict[Any, Any]
    outcomes: dict[str, int]
    load: Any
    taken: int


class RecordedEntry(NamedTuple):
    """An entry that was recorded: where it belongs, when it was, which it is."""

    key: PartitionKey
    event_time_us: int
    id: str | None


def settings(**sections: Any) -> Settings:
    """Give the settings of a worker; sections by name."""
    kafka = KafkaSettings(bootstrap_servers="nowhere:1", group_id="g", source_topics=("app",))
    return Settings(worker="w", kafka=kafka, s3=S3Settings(bucket="bucket"), **sections)


def deliver(
    records: Sequence[SourceRecord], given: Settings, *, is_fast: bool, at_once: int = 1000, memory_max: int = 2**40
) -> Delivered:
    """Record all as one poll, at most so many at once, and seal them as one batch."""
    recorder = opened(records, given, is_fast=is_fast, memory_max=memory_max)
    taken = record_all(recorder, poll_of(records), at_once)
    load = recorder.load()
    batch = recorder.close()
    steps = seal(batch.rows, batch.spool, batch.spans, seal_rules(given), batch_id="b1")
    objects = [step.finished for step in steps if step.finished is not None]
    batch.check(rows_in(objects))
    found = [(batch.spool.load(one.file), one) for one in objects]
    return Delivered(found, [*batch.dead_letters], {**batch.ledgers}, dict(recorder.outcomes), load, taken)


def assert_judged_alike(
    placed: Placement | Rejection, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord,
    rules: Settings,
) -> None:  # fmt: skip
    """Hold where an entry goes to the second opinion, which is given it in an envelope.

    A number that was kept as its text is kept so again.
    """
    value = encode_json({**(envelope or {}), "entries": [entry]})
    asked = rules.model_copy(
        update={"input": InputSettings(entries_path="entries[]", envelope="drop", inexact_numbers="text")}
    )
    (judged,) = Judge(asked).judge(record._replace(value=value, unreadable=None)).entries
    if isinstance(placed, Rejection):
        assert judged.deliverable is None
        assert placed.reason in judged.reasons
    else:
        assert judged.deliverable is not None
        key, event_time_us, unique_id, *_ = judged.deliverable
        assert (placed.key, placed.event_time_us, placed.unique_id) == (key, event_time_us, unique_id)


def decode_alike(
    value: bytes, rules: InputSettings, headers: Headers = (), find_schema: FindSchema | None = None
) -> RecordContent:
    """Decode a value as the worker does, and hold it to the second opinion."""
    decoded = RecordDecoder(rules, find_schema).decode(value, headers)
    assert_decoded_alike(decoded, value, rules, headers, find_schema)
    return decoded


def assert_decoded_alike(
    decoded: RecordContent,
    value: bytes | None,
    rules: InputSettings,
    headers: Headers = (),
    find_schema: FindSchema | None = None,
) -> None:
    """Hold the entries of a record to the second opinion (`assert_alike`)."""
    assert_alike(decoded, value, headers, oracle.Decoder(rules, find_schema))


def assert_alike(decoded: RecordContent, value: bytes | None, headers: Headers, decoder: oracle.Decoder) -> None:
    """Hold the entries of a record to the second opinion: which are bad, and for what; and the values of the others.

    One object that is no Unicode is bad as a whole to the worker, and one entry to the second opinion.
    """
    rules = decoder._settings
    other, bad = decoder.decode(value, headers), {one.number: one.reason for one in decoded.bad}
    if None in bad:
        (whole,) = other.entries
        assert bad[None] in whole.reasons
        if not other.is_whole:
            content = oracle._decompress(value or b"", rules.record_bytes_max)
            _, text = oracle.FRAMINGS[rules.framing](content, headers, rules.record_bytes_max)
            assert text.lstrip(b" \t\r\n").startswith(b"{")
        return
    assert not other.is_whole
    values = {index: entry for index, entry, *_ in decoded.entries}
    around = {index: envelope for index, *_, envelope in decoded.entries}
    assert values.keys() | bad.keys() == set(range(len(other.entries)))
    for number, one in enumerate(other.entries):
        if number in values:
            assert one.value is not None
            assert one.reasons <= {Reason.TOO_DEEP}  # the worker counts depth when it infers the type
            for own, others in ((values[number], one.value), (around[number], one.envelope)):
                assert canonical(decoder.parse(encode_json(own).decode())) == canonical(others)
        else:
            assert bad[number] in one.reasons


def recorded(
    records: Sequence[SourceRecord], given: Settings, *, is_fast: bool
) -> tuple[dict[tuple[int, int], RecordedEntry], Counter[int]]:
    """Record all of one TopicPartition; gives the rows by offset and index, and how many entries of each are dead."""
    recorder = opened(records, given, is_fast=is_fast, memory_max=2**40)
    record_all(recorder, poll_of(records), _EVERYTHING)
    batch = recorder.close()
    rows, dead = batch.rows, Counter[int]()
    for letter in batch.dead_letters:
        dead[letter.record.offset] += letter.entries
    found = {
        (rows.offsets[n], rows.indexes[n]): RecordedEntry(
            rows.keys[rows.key_of[n]], rows.event_times_us[n], rows.ids.get(n)
        )
        for n in range(len(rows))
    }
    return found, dead


def opened(records: Sequence[SourceRecord], given: Settings, *, is_fast: bool, memory_max: int = 2**40) -> Recorder:
    """Give a recorder that owns what the records are of, with a batch open."""
    if is_fast:
        assert has_lane(given), why_no_lane(given)
    spool = given.spool.model_copy(update={"memory_bytes_max": memory_max})
    rules = given.model_copy(update={"spool": spool, "fast_lane": "auto" if is_fast else "off"})
    recorder = Recorder(rules, FakeSpool())
    for tp in {one.tp for one in records}:
        recorder.start(tp, CommittedOffset(0))
    recorder.open(Opening("b1", 1, Membership(1, "m", None), 0.0, 0))
    return recorder


def record_all(recorder: Recorder, poll: Poll, at_once: int = _EVERYTHING) -> int:
    """Record a poll, at most so many at once; gives how many were plain."""
    at = plain = 0
    while at < len(poll):
        taken = 0
        if recorder.has_lane(poll.tps[poll.tp_of[at]].topic):
            taken = recorder.take(poll, at, len(poll), weight_max=at_once, bytes_max=_EVERYTHING).records
        if taken:
            at, plain = at + taken, plain + taken
        else:
            recorder.record(poll[at])
            at += 1
        recorder.spill_if_large()
    return plain
