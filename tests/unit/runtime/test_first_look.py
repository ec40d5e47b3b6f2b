"""Settings that do not fit the source are told once; a first batch that is dead is not committed (DESIGN 3.9)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner import native
from log_partitioner.batch.topic_rules import RulesByTopic
from log_partitioner.config.settings import InputSettings, Settings, TimeSettings, UserSettings
from log_partitioner.control.flush_history import FlushedOffsets
from log_partitioner.errors import PathsError
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.model import FATAL, SourceRecord, TopicPartition
from log_partitioner.runtime.first_look import ENTRIES, FirstLook
from tests.fakes.lanes import opened, record_all, settings
from tests.fakes.records import P0, P1, poll_of
from tests.fakes.rig import Rig, owning
from tests.fakes.worker import FakeWorker, Rules

LANES = [
    pytest.param(False, id="Python's lane"),
    pytest.param(True, id="fast lane", marks=pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")),
]
NOW_MS = 1_767_225_600_000
APP, QUIET = TopicPartition("app", 0), TopicPartition("quiet", 0)
GOOD = {"user": "ann", "time": "2025-12-31T23:00:00Z"}


def records(count: int, value: dict[str, Any], *, tp: TopicPartition = APP, first: int = 0) -> list[SourceRecord]:
    """Make records of one entry each."""
    return [SourceRecord(tp, first + n, NOW_MS, None, json.dumps(value).encode(), ()) for n in range(count)]


def doubts(
    given: list[SourceRecord], rules: Settings, *, is_fast: bool, is_closed: bool = False, at_once: int = 500
) -> list[Any]:
    """Record all and give what is told of the settings."""
    recorder = opened(given, rules, is_fast=is_fast)
    with capture_logs() as lines:
        record_all(recorder, poll_of(given), at_once)
        if is_closed:
            recorder.close()
    assert {line["event"] for line in lines} <= {"paths_doubted"}
    return [SimpleNamespace(**line) for line in lines]


def two_topics(**sections: Any) -> Settings:
    """Give settings of two source topics."""
    one = settings(**sections)
    return one.model_copy(update={"kafka": one.kafka.model_copy(update={"source_topics": ("app", "quiet")})})


@pytest.mark.parametrize("is_fast", LANES)
def test_time_path_that_matches_nothing_is_told_with_the_fields(is_fast: bool) -> None:  # noqa: FBT001 - a case
    """All entries are written, by Kafka's time: one warning with paths, counts and names of fields, no value."""
    rules = settings(time=TimeSettings(paths=("tmie",)))
    (doubt,) = doubts(records(1500, {**GOOD, "a.b\n": 1}), rules, is_fast=is_fast)
    assert (doubt.topic, doubt.dead_letters, doubt.envelopes) == ("app", 0, 0)
    assert ENTRIES <= doubt.entries == doubt.record_timestamps
    assert doubt.settings == {"user.paths": ("user",), "time.paths": ("tmie",)}
    assert doubt.fields == ["user", "time", "and 1 that are no plain names"]
    assert doubt.advice == "`log-partitioner try --topic app` shows what the settings make of its newest records"


@pytest.mark.parametrize("is_fast", LANES)
def test_user_path_that_matches_nothing_is_told_when_a_batch_is_closed(is_fast: bool) -> None:  # noqa: FBT001 - a case
    """A quiet topic does not wait for its thousandth entry, but for ten."""
    rules = settings(user=UserSettings(paths=("usr",)))
    (doubt,) = doubts(records(10, GOOD), rules, is_fast=is_fast, is_closed=True)
    assert (doubt.entries, doubt.dead_letters, doubt.record_timestamps) == (10, 10, 0)
    assert doubts(records(10, GOOD), rules, is_fast=is_fast) == []
    assert doubts(records(9, GOOD), rules, is_fast=is_fast, is_closed=True) == []


@pytest.mark.parametrize("is_fast", LANES)
def test_entries_that_are_mostly_good_raise_no_doubt(is_fast: bool) -> None:  # noqa: FBT001 - a case
    """If half of them are bad, the source is of that kind; the alerts watch entries behind the first thousand."""
    mixed = [one for n in range(0, 1000, 2) for one in (*records(1, GOOD, first=n), *records(1, {}, first=n + 1))]
    assert doubts(mixed, settings(), is_fast=is_fast, is_closed=True) == []
    timeless = records(1000, {"user": "ann"})
    assert doubts(timeless, settings(time=TimeSettings(paths=())), is_fast=is_fast, is_closed=True) == []
    later = records(1000, GOOD) + records(2000, {"user": "ann"}, first=1000)
    assert doubts(later, settings(), is_fast=is_fast, is_closed=True) == []


@pytest.mark.parametrize("is_fast", LANES)
@pytest.mark.parametrize("form", ["%s", "[%s]"])
def test_field_of_entries_that_no_record_has_is_told(form: str, is_fast: bool) -> None:  # noqa: FBT001 - a case
    """Whole envelopes become entries, and nothing else would say so; records that have the field are no doubt."""
    rules = settings(
        input=InputSettings(entries_path="events[]", envelope="drop"), user=UserSettings(missing_name="unknown")
    )
    value = {**GOOD, "evnets": [{"user": "bob"}]}
    plain = [one._replace(value=(form % json.dumps(value)).encode()) for one in records(1200, value)]
    (doubt,) = doubts(plain, rules, is_fast=is_fast)
    assert (doubt.dead_letters, doubt.record_timestamps, doubt.envelopes) == (0, 0, 0)
    assert doubt.settings["input.entries_path"] == ("events[]",)
    assert doubt.fields == ["user", "time", "evnets"]
    assert doubts(records(1200, {"events": [GOOD]}), rules, is_fast=is_fast) == []


@pytest.mark.parametrize("is_fast", LANES)
def test_topics_are_judged_each_by_itself(is_fast: bool) -> None:  # noqa: FBT001 - a case
    """Polls may mix them: one topic's entries all go by Kafka's time, the other's never."""
    rules = two_topics()
    mixed = [
        one
        for n in range(1100)
        for one in (*records(1, GOOD, first=n), *records(1, {"user": "ann"}, tp=QUIET, first=n))
    ]
    (doubt,) = doubts(mixed, rules, is_fast=is_fast)
    assert (doubt.topic, doubt.entries, doubt.record_timestamps) == ("quiet", 1000, 1000)


@pytest.mark.parametrize("is_fast", LANES)
def test_batch_counts_what_goes_by_kafkas_time(is_fast: bool) -> None:  # noqa: FBT001 - a case
    """`flush_committed` says the number beside the dead letters."""
    given = records(30, GOOD) + records(20, {"user": "ann"}, first=30) + records(10, {}, first=50)
    recorder = opened(given, settings(), is_fast=is_fast)
    record_all(recorder, poll_of(given), 7)
    outcomes = {"written": 30, "record_timestamp": 20, "no_user": 10}
    assert (recorder.close().record_timestamps, dict(recorder.outcomes)) == (20, outcomes)


def test_topic_with_many_long_fields_is_told_within_bounds() -> None:
    """Forty names of sixty characters, and how many more."""
    value = {**{f"x{n:03}" + "x" * 100: n for n in range(60)}}
    (doubt,) = doubts(records(20, value), settings(), is_fast=False, is_closed=True)
    assert len(doubt.fields) == 40
    assert max(map(len, doubt.fields)) == 63
    varied = [one for n in range(20) for one in records(1, {f"f{n}-{m}": m for m in range(40)}, first=n)]
    (doubt,) = doubts(varied, settings(), is_fast=False, is_closed=True)
    assert doubt.fields[-1] == "and 760 more"


def test_fields_that_are_no_plain_names_are_counted_and_not_shown() -> None:
    """A map may be keyed by user; such names as loggers give their fields are shown (I11)."""
    names = ["@timestamp", "log.level", "user-agent", "ann@example.org", "4711", "@ann@example.org", "ann smith", ""]
    (doubt,) = doubts(records(20, dict.fromkeys(names, 1)), settings(), is_fast=False, is_closed=True)
    assert doubt.fields == ["@timestamp", "log.level", "user-agent", "and 5 that are no plain names"]


def rules_of(share_max: float = 0.99) -> Rules:
    """Give a worker's rules with a look at the topic of the rig."""
    return Rules().with_settings(dead_letters={"share_max": share_max})


def fill(rig: Rig, dead: int, good: int = 0, tp: TopicPartition = P0) -> None:
    """Append records of which so many have no user."""
    for n in range(dead):
        rig.broker.logs[tp].append(json.dumps({"usr": "ann", "n": n}).encode(), timestamp_ms=rig.clock.wall_ms())
    rig.fill(tp, good)


def flushed(rig: Rig, worker: FakeWorker) -> None:
    """Take everything and let the batch become old."""
    rig.turn_until(lambda: worker.recorder.load().entries > 0)
    for _ in range(20):
        worker.step()
    rig.pass_time(31.0)
    worker.step()


def test_first_batch_that_is_dead_is_not_committed_also_after_a_restart() -> None:
    """No offset is committed at all, not even the one at which the batch began."""
    rig, worker = owning(rules=rules_of())
    fill(rig, dead=200, good=2)
    with pytest.raises(PathsError) as told:
        flushed(rig, worker)
    assert str(told.value) == (
        "200 of the first 202 entries of source are dead letters (no_user 200); nothing was committed, since the group "
        "has committed nothing there before; user.paths: user; time.paths: time; try settings on a sample: "
        "`log-partitioner try --topic source`; to accept these dead letters: dead_letters.share_max = 1 "
        "(LOGP_DEAD_LETTERS__SHARE_MAX); fields that were seen: usr, n"
    )
    worker.close()
    assert rig.committed() == {P0: None, P1: None}
    again = rig.owning("b", rules=rules_of())
    with pytest.raises(PathsError):
        flushed(rig, again)
    again.close()
    assert rig.committed() == {P0: None, P1: None}
    accepting = rig.owning("c", rules=rules_of(1.0))
    flushed(rig, accepting)
    assert rig.committed()[P0] == 202


def test_topic_that_came_to_match_a_pattern_does_not_end_a_group_that_has_flushed_others() -> None:
    """No setting names it, and its producer could stop the workers of all other topics. A named topic stops them."""
    for source_topics in (("^sou.*",), ("^sou.*", "source")):
        rig, worker = owning(rules=rules_of().with_settings(kafka={"source_topics": source_topics}))
        worker.positions.flushed_topics.add("other")
        fill(rig, dead=200)
        if "source" in source_topics:
            with pytest.raises(PathsError):
                flushed(rig, worker)
        else:
            flushed(rig, worker)
            assert rig.committed()[P0] == 200


@pytest.mark.parametrize(("dead", "good"), [(99, 0), (196, 4), (0, 200)])
def test_first_batch_that_is_small_or_not_all_dead_is_committed(dead: int, good: int) -> None:
    """One bad record does not stop a worker; a hundred entries that are not all dead say that the settings fit."""
    rig, worker = owning(rules=rules_of())
    fill(rig, dead, good)
    flushed(rig, worker)
    assert rig.committed()[P0] == dead + good
    assert worker.recorder.first_look.has_fit == (good > 1)


def test_dead_batch_later_in_life_is_committed() -> None:
    """By this process, by the next one, and with a TopicPartition that was flushed before."""
    rig, worker = owning(rules=rules_of())
    fill(rig, dead=0, good=5)
    flushed(rig, worker)
    fill(rig, dead=150)
    fill(rig, dead=150, tp=P1)
    flushed(rig, worker)
    assert rig.committed() == {P0: 155, P1: 150}
    worker.stop.request()
    worker.step()
    worker.close()
    again = rig.owning("b", rules=rules_of())
    fill(rig, dead=150)
    flushed(rig, again)
    assert rig.committed()[P0] == 305


def test_dead_batch_of_a_topic_that_was_flushed_before_is_committed() -> None:
    """As the flush records say of one of its TopicPartitions: what begins in another is no first batch of the topic."""
    rig = Rig()
    worker = rig.worker(rules=rules_of(), start=False)
    worker.flush_records.read = lambda *_, **__: FlushedOffsets({P0: 0}, [], frozenset({"source"}))  # type: ignore[method-assign]
    worker.start()
    rig.turn_until(lambda: worker.controller.state.owned == {P0, P1})
    fill(rig, dead=150, tp=P1)
    flushed(rig, worker)
    assert rig.committed() == {P0: 0, P1: 150}


def test_first_batch_of_records_that_may_not_be_decoded_is_told_without_fields() -> None:
    """One that ended the process, again and again, is not taken in hand for a message."""
    letters = tuple(
        DeadLetter(SourceRecord(P0, n, NOW_MS, None, b'{"usr": 1}', (), unreadable=FATAL), Reason.FATAL, "", None)
        for n in range(200)
    )
    batch: Any = SimpleNamespace(entries=200, dead=200, topics={P0.topic}, dead_letters=letters)
    rules = rules_of().settings
    with pytest.raises(PathsError, match="fields that were seen: none"):
        FirstLook(rules, RulesByTopic(rules)).require_fit(batch, set())
