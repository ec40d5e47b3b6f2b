"""Replays as audits judge them: each is decided again, and has a delivered twin with the same values (DESIGN 3.8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import FlushedTopicPartition, FlushRecord, FlushTotals, Lineage
from log_partitioner.formats.model import OffsetRanges, SourceRecord, TopicPartition, WayPlace
from log_partitioner.partitioning import chain
from log_partitioner.proof.accounting import judge_ways_join
from log_partitioner.proof.audit.context import Context, Ground
from log_partitioner.proof.audit.put_away import PutAway
from log_partitioner.proof.audit.replays import DISCARDED, Replays
from log_partitioner.proof.audit.report import Findings
from log_partitioner.proof.oracle import chain as second_opinion
from log_partitioner.proof.oracle.chain import WaysPassed
from log_partitioner.proof.oracle.judge import Judge
from tests.fakes.check import audit_of
from tests.fakes.log import FakeLog
from tests.fakes.records import P0, entry, value_of
from tests.fakes.republisher import Republisher, output_of
from tests.fakes.rig import Rig
from tests.fakes.worker import Rules, settings_of

LINK = '["raw",3,{},{},"n/1"]'
Ways = dict[str, tuple[int, ...]]


def record(offset: int, root: int, index: int = 0, **fields: Any) -> SourceRecord:
    """Make a record with one link; its value is a function of that, but for the fields given."""
    value = value_of(entry(output=f"{root}.{index}", **fields))
    headers = (("source-topic-chain", f"[{LINK.format(root, index)}]".encode()),)
    return SourceRecord(P0, offset, None, None, value, headers)


WAY = chain.place_of(record(0, 0))
assert WAY is not None


def line(first: int, end: int, first_ways: Ways | None, next_ways: Ways | None, *, discarded: int = 0) -> Any:
    """Make a line of a flush record."""
    return FlushedTopicPartition(
        topic=P0.topic, partition=P0.partition, first_offset=first, next_offset=end, min_offset=first,
        max_offset=end - 1, timestamp_max_ms=None, idle_since_ms=None, records=0, entries=0, dead_letters=0,
        first_ways=first_ways, next_ways=next_ways, discarded_replays=discarded,
    )  # fmt: skip


def judged(records: list[SourceRecord], one: FlushedTopicPartition, *, begins: int = 0) -> tuple[list[int], Findings]:
    """Judge the records of a flush; gives the offsets that were to be discarded, and what is found."""
    is_reading = False

    def read(ranges: OffsetRanges) -> Iterator[SourceRecord]:
        nonlocal is_reading
        assert not is_reading, "one client reads: another range would take its assignment away"
        is_reading = True
        for first, end in ranges.values():
            assert first >= begins
            yield from (record for record in records if first <= record.offset < end)
        is_reading = False

    findings = Findings(examples_max=9)
    context = Context(
        Ground(settings_of(), Lineage("g", []), {}, PutAway({}, {}), {}, {}, firsts={P0: begins}),
        findings,
        lambda _: [],
        read_source=read,
    )
    zeros = FlushTotals(**dict.fromkeys(FlushTotals.__struct_fields__, 0))
    flush = FlushRecord(
        batch_id="b", group_id="g", topic_ids={}, worker="w", boot="b", seq=1, generation=1, reason="interval",
        started_at_ms=0, ended_at_ms=0, step_seconds={}, topic_partitions=(one,), totals=zeros,
    )  # fmt: skip
    flushed = Replays(context, [flush])
    own = [one for one in records if one.offset >= begins]
    discarded = [one.offset for one in own if flushed.judge(one) is DISCARDED]
    flushed.finish("batch b")
    return discarded, findings


def test_replay_with_a_twin_in_a_flush_before_is_clean() -> None:
    """The twin is looked for further and further back."""
    records = [record(0, 17), *(record(offset, 18, offset) for offset in range(1, 3000)), record(3000, 17)]
    found = judged(records, line(3000, 3001, {WAY.way: (18, 2999)}, {WAY.way: (18, 2999)}, discarded=1))
    assert (found[0], dict(found[1].counts), found[1].doubts) == ([3000], {}, [])


def test_replay_without_a_twin_is_named() -> None:
    """A republisher has published 18 before 17: nothing has 17."""
    found = judged([record(0, 18), record(1, 17)], line(0, 2, {}, {WAY.way: (18, 0)}, discarded=1))
    assert (found[0], dict(found[1].counts)) == ([1], {Kind.REPLAY_MISSING: 1})
    assert found[1].places == [(Kind.REPLAY_MISSING, (P0, 1))]


def test_replay_whose_twin_retention_may_have_removed_is_a_doubt() -> None:
    """The audit does not judge records that are gone."""
    own = line(5, 6, {WAY.way: (18, 0)}, {WAY.way: (18, 0)}, discarded=1)
    found = judged([record(5, 17)], own, begins=5)
    assert (dict(found[1].counts), len(found[1].doubts)) == ({}, 1)


def test_replay_with_other_values_than_its_twin_is_named() -> None:
    """Another form of the same values is none."""
    same = record(1, 17)._replace(value=b" " + (record(1, 17).value or b""))
    found = judged([record(0, 17), same, record(2, 17, n=1)], line(0, 3, {}, {WAY.way: (17, 0)}, discarded=2))
    assert (found[0], dict(found[1].counts)) == ([1, 2], {Kind.REPLAY_DIFFERS: 1})


@pytest.mark.parametrize(
    "wrong", [{"discarded_replays": 0}, {"discarded_replays": 2}, {"next_ways": {}}, {"next_ways": {"x": (1,)}}]
)
def test_flush_record_that_says_something_else_of_ways_is_wrong(wrong: dict[str, Any]) -> None:
    """The audit computes all of its numbers again."""
    right = line(0, 2, {}, {WAY.way: (17, 0)}, discarded=1)
    assert not judged([record(0, 17), record(1, 17)], right)[1].counts
    found = judged([record(0, 17), record(1, 17)], msgspec.structs.replace(right, **wrong))
    assert dict(found[1].counts) == {Kind.FLUSH_WRONG: 1}


def test_flush_of_a_worker_that_discards_nothing_has_no_replays() -> None:
    """It says nothing of ways."""
    assert judged([record(0, 17), record(1, 17)], line(0, 2, None, None))[0] == []


@pytest.mark.parametrize(
    ("before", "after", "findings"),
    [({"w": (1,)}, {"w": (1,)}, 0), ({"w": (1,)}, {}, 0), ({"w": (1,)}, {"w": (2,)}, 1), (None, {"w": (1,)}, 1)],
)
def test_flush_that_begins_with_ways_of_its_own_is_wrong(before: Ways | None, after: Ways, findings: int) -> None:
    """It begins with what the one before it has recorded, or anew."""
    lines = [line(0, 2, {}, before), line(2, 3, after, after)]
    assert len([*judge_ways_join(P0, lines)]) == findings


def test_republisher_out_of_order_loses_and_the_audit_names_each_output() -> None:
    """The worker keeps to its rule: that the republisher does not is found, output by output."""
    rig = Rig(tps=(P0,))
    rig.worker(rules=Rules().with_settings(input={"discard_replays": True}))
    raw, log = FakeLog(TopicPartition("raw", 0)), rig.broker.logs[P0]
    for number in range(60):
        raw.append(value_of(entry(n=number)))
    republisher = Republisher("a/1", raw, [log], Random(1), swaps=True, now_ms=rig.clock.wall_ms)
    while republisher.step():
        if log.end % 9 == 0:
            rig.turn_for(35)
    rig.turn_until(lambda: rig.broker.committed_offset(P0) == log.end)
    report = audit_of(rig.broker, rig.bucket.objects, "beginning")
    named = {place[1] for kind, place in report.findings.places if not isinstance(place, str)}

    highest: tuple[int, ...] = ()
    lost = set()
    for one in log.records:
        (_, _, offset, index, _), *_ = json.loads(dict(one.headers)["source-topic-chain"] or b"")
        if (offset, index) < highest:
            lost.add(one.offset)
        highest = max(highest, (offset, index))
    assert lost
    assert dict(report.findings.counts) == {Kind.REPLAY_MISSING: len(lost)}
    assert named <= lost
    assert len({output_of(one) for one in log.records}) == log.end


# Both opinions of a chain.

parts = st.one_of(
    st.integers(-1, 3), st.sampled_from(["raw", "n/1", "", "\ud800", None, True, 2.0, 2**31, 2**63, "x" * 250, []])
)
links = st.one_of(
    st.tuples(st.sampled_from(["raw", "mid"]), st.integers(0, 2), st.integers(0, 9), st.integers(0, 2), st.just("n/1")),
    st.lists(parts, max_size=6),
)
headers = st.one_of(st.lists(links, max_size=3).map(json.dumps).map(str.encode), st.binary(max_size=9), st.none())


@given(headers)
def test_both_opinions_see_the_same_place(header: bytes | None) -> None:
    """Its way and its place, or none."""
    one = record(0, 0)._replace(headers=(("source-topic-chain", header),))
    mine, theirs = chain.place_of(one), Judge(settings_of()).place_of(one)
    assert mine == theirs


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.tuples(st.integers(0, 10**12), st.integers(0, 3)))))
def test_both_opinions_keep_the_same_ways(places: list[tuple[str, tuple[int, int]]]) -> None:
    """The same ones in the same order, and no more than there is room for."""
    room = 120
    with pytest.MonkeyPatch.context() as patches:
        for module in (chain, second_opinion):
            patches.setattr(module, "WAYS_BYTES_MAX", room)
        mine, theirs = chain.WayPlaces(), WaysPassed({})
        for way, numbers in places:
            place = WayPlace(way * 11, numbers)
            highest = mine.highest(place.way)
            is_replay = highest is not None and numbers <= highest
            mine.move(place if not is_replay or highest is None else place._replace(numbers=highest))
            assert theirs.is_replay(place) == is_replay
            assert [*mine.ways.items()] == [*theirs.ways.items()]
        assert len(json.dumps(mine.ways, separators=(",", ":"))) <= room + 1  # a comma less, two braces
