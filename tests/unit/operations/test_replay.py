"""Dead letters go back once: whatever is killed, lost or doubled on the way; and each with its own bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from log_partitioner.batch.messages import Sender, dead_letter_message
from log_partitioner.boundary import Message
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CommitAbortedError, SourceError
from log_partitioner.formats.dead_letter import DeadLetter, Reason, StoredRecord, encode_stored_record
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import CHAIN_HEADER, Headers, SourceRecord, TopicPartition
from log_partitioner.formats.replay import is_replay_mark
from log_partitioner.operations.letters import LetterChoice, LetterLog
from log_partitioner.operations.replay import MARGIN_MS, Maker, ReplayRun
from log_partitioner.partitioning.chain import WayPlaces, place_of
from log_partitioner.proof.audit.window import FlushWindow
from tests.fakes.broker import FakeBroker
from tests.fakes.check import BrokerTopics
from tests.fakes.clock import FakeClock
from tests.fakes.committer import FakeCommitter, Outcome
from tests.fakes.consumer import Point, no_point
from tests.fakes.worker import DEAD_LETTERS, settings_of

APP = TopicPartition("app", 0)
GROUP = settings_of().kafka.group_id
ALL = LetterChoice(Lineage(GROUP, []))
DAY_MS = 86_400_000
POINTS = ["init", "begin", "produced", "ending", "ended"]


class KilledError(BaseException):
    """The process is gone."""


class World:
    """A broker with dead letters, and a replay of them."""

    def __init__(self, *letters: DeadLetter, **further: Any) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker(self.clock, [])
        self.objects: dict[str, bytes] = {}
        self.looked: list[SourceRecord] = []
        self.settings: Settings = settings_of().model_copy(update=further)
        for number, letter in enumerate(letters):
            self.die(letter, batch_id=f"b{number}")

    def die(self, letter: DeadLetter, *, batch_id: str, group_id: str = GROUP, object_key: str | None = None) -> None:
        """Let a worker write a dead letter."""
        kafka = self.settings.kafka.model_copy(update={"group_id": group_id})
        message = dead_letter_message(
            letter, Sender("w0", "", kafka, "bucket"), batch_id=batch_id, object_key=object_key
        )
        self.publish("worker", [message])

    def publish(self, who: str, messages: list[Message]) -> None:
        """Publish messages in one transaction."""
        FakeCommitter(self.broker, who, self.clock).publish(messages, deadline=Deadline.after(60, self.clock.now_s))

    def replay(
        self, *, point: Point = no_point, keeps_ms: int | None = None, is_plan: bool = False
    ) -> tuple[ReplayRun, FakeCommitter]:
        """Begin a replay, in a process of its own."""
        committer = FakeCommitter(self.broker, "replay", self.clock, point=point)
        topics = BrokerTopics(self.broker)
        log = LetterLog(topics, topics, DEAD_LETTERS, FlushWindow())
        log.read_on()
        maker = Maker(self.settings, self.objects.get, keeps_ms={"app": keeps_ms}, now_ms=self.clock.wall_ms())
        sender = Sender("dead-letters", "", self.settings.kafka, "bucket")
        publisher = None if is_plan else committer
        return ReplayRun(log, maker, publisher, sender, self.clock, look=self.looked.append), committer

    def run(self, **further: Any) -> ReplayRun:
        """ReplayRun everything."""
        replay, _ = self.replay(**further)
        replay.run(ALL, within_s=60)
        return replay

    @property
    def source(self) -> list[Message]:
        """The records that are back."""
        return self.broker.messages("app")

    @property
    def marks(self) -> list[Message]:
        """The replay marks."""
        return [one for one in self.broker.messages(DEAD_LETTERS) if is_replay_mark(one.headers)]


def dead(
    offset: int, value: bytes = b"{}", *, indexes: tuple[int, ...] | None = None, of: int | None = 1,
    headers: Headers = (), reason: Reason = Reason.NO_USER,
) -> DeadLetter:  # fmt: skip
    """Make the dead letter of a record."""
    record = SourceRecord(APP, offset, 1_700_000_000_000 + offset, b"key", value, headers)
    return DeadLetter(record, reason, "why", indexes, of_entries=of)


def killed_at(point: str, times: int = 1) -> Point:
    """Kill the process when it comes to a point for the so-many-th time."""
    seen: list[str] = []

    def come(name: str) -> None:
        seen.append(name)
        if name == point and seen.count(point) == times:
            raise KilledError

    return come


def test_replayed_record_is_the_dead_one_again() -> None:
    """Its partition, key, value, headers and timestamp; a second run says that it was replayed."""
    world = World(dead(7, b"\xff{", headers=(("h", None), ("h", b"\0"))))

    first, second = world.run(), world.run()

    assert (first.back, first.again, second.back, second.again) == (1, 0, 0, 1)
    (back,) = world.source
    assert back == Message("app", b"key", b"\xff{", [("h", None), ("h", b"\0")], 0, 1_700_000_000_007)
    assert [json.loads(one.value or b"")["offsets"] for one in world.marks] == [[0]]


def test_plan_of_a_replay_shows_what_would_go_back_and_publishes_nothing() -> None:
    """As the settings would read it: with the time of now if it would get that."""
    world = World(dead(7, b"\xff{"), dead(8, b"{}"))

    plan = world.run(is_plan=True, keeps_ms=DAY_MS)

    assert (plan.back, plan.retimed, world.source, world.marks) == (2, 2, [], [])
    assert [(one.offset, one.value, one.timestamp_ms) for one in world.looked] == [
        (7, b"\xff{", world.clock.wall_ms()),
        (8, b"{}", world.clock.wall_ms()),
    ]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2], ids=["first", "second"])
def test_replay_that_is_killed_goes_on_where_it_was(point: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each transaction, between any two of its steps: each dead letter is back once, and none is lost."""
    monkeypatch.setattr("log_partitioner.operations.replay.LETTERS_AT_ONCE", 2)
    world = World(*[dead(offset, b'{"n": %d}' % offset) for offset in range(5)])

    with pytest.raises(KilledError):
        world.run(point=killed_at(point, times))
    before = len(world.source)
    after = world.run()

    assert sorted(one.value or b"" for one in world.source) == [b'{"n": %d}' % offset for offset in range(5)]
    assert (after.back, after.again) == (5 - before, before)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN, Outcome.TIMED_OUT])
def test_replay_whose_commit_is_not_answered_asks_the_marks(outcome: Outcome) -> None:
    """Committed or not, each is back once, and the run says so."""
    world = World(dead(1), dead(2))
    replay, committer = world.replay()
    committer.script.append(outcome)

    replay.run(ALL, within_s=60)

    assert (replay.back, len(world.source), len(world.marks)) == (2, 2, 1)


def test_replay_that_is_aborted_leaves_nothing() -> None:
    """It ends with the broker's code; the next one begins anew."""
    world = World(dead(1))
    replay, committer = world.replay()
    committer.script.append("MSG_SIZE_TOO_LARGE")
    with pytest.raises(CommitAbortedError):
        replay.run(ALL, within_s=60)
    assert world.source == []
    assert world.run().back == 1


@pytest.mark.parametrize("point", POINTS)
def test_replay_beside_another_one_is_fenced_or_finds_it_done(point: str) -> None:
    """Wherever the second one comes between the steps of the first, each dead letter is back once."""
    world = World(dead(1), dead(2))
    others: list[ReplayRun] = []

    def come(name: str) -> None:
        if name == point and not others:
            other, _ = world.replay()
            others.append(other)
            other.run(ALL, within_s=60)

    replay, _ = world.replay(point=come)
    if point == "begin":
        with pytest.raises(SourceError, match="another replay of this group has begun"):
            replay.run(ALL, within_s=60)
    else:
        replay.run(ALL, within_s=60)

    assert (len(world.source), len(world.marks)) == (2, 1)
    assert others[0].back == (0 if point == "ended" else 2)


def test_replay_takes_only_the_dead_entries_of_a_record_with_others() -> None:
    """Delivered entries do not come twice; the text around the dead ones comes along."""
    world = World(
        dead(1, b'[{"user": "a"}, {"n": 1.0}, 3]', indexes=(1, 2), of=3), dead(2, b"[1,2]", indexes=(0, 1), of=2)
    )
    assert world.run().back == 2
    assert [one.value for one in world.source] == [b'[ {"n": 1.0}, 3]', b"[1,2]"]


def test_replay_of_a_record_that_other_settings_had_read_as_one_entry_is_whole() -> None:
    """A path that was not set: what is three entries by the settings of now was one, and all of it is dead."""
    envelope = b'{"events": [{}, {}, {}]}'
    rules = settings_of().input.model_copy(update={"entries_path": "events[]"})
    world = World(dead(1, envelope, indexes=(0,), of=1), input=rules)
    world.run()
    assert [one.value for one in world.source] == [envelope]


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (dead(1, b"[1,2]", indexes=(0,), of=None), "does not say how many entries"),
        (dead(1, b"[1,2,3]", indexes=(0,), of=2), "it had 2 entries, and has 3"),
        (dead(1, reason=Reason.SKIPPED)._replace(end_offset=9), "could not be read"),
        (dead(1)._replace(record=dead(1).record._replace(tp=TopicPartition("web", 0))), "reads topic web"),
    ],
    ids=["unknown-number", "other-number", "skipped", "other-topic"],
)
def test_dead_letter_that_cannot_go_back_stays_with_a_sentence(letter: DeadLetter, why: str) -> None:
    """The others go."""
    world = World(letter, dead(5, b"good"))
    replay = world.run()
    assert [one.value for one in world.source] == [b"good"]
    assert [why in text for text in replay.refused] == [True]
    assert world.run().again == 1


def test_dead_letters_of_another_group_stay() -> None:
    """That group has its own, of the same records."""
    world = World(dead(1))
    world.die(dead(1), batch_id="c1", group_id="staging")
    assert world.run().back == 1


def test_record_that_is_stored_as_an_object_goes_back_whole() -> None:
    """Its key and headers, too; without its object it stays."""
    world, record = World(), dead(1).record
    world.die(dead(1), batch_id="b1", object_key="p/_dead-letters/b1-0.record.json")
    assert [*world.run().refused] == ["there is no object p/_dead-letters/b1-0.record.json, which holds it"]
    stored = StoredRecord(b"long key", b"value", [("h", b"1")])
    world.objects["p/_dead-letters/b1-0.record.json"] = encode_stored_record(stored)
    world.run()
    assert world.source == [Message("app", b"long key", b"value", [("h", b"1")], 0, record.timestamp_ms)]


@pytest.mark.parametrize(("age_ms", "is_kept"), [(DAY_MS - MARGIN_MS - 1_000, True), (DAY_MS - MARGIN_MS, False)])
def test_record_as_old_as_what_its_topic_deletes_gets_the_time_of_now(age_ms: int, is_kept: bool) -> None:  # noqa: FBT001
    """With its own it might be gone before a worker has read it."""
    world = World()
    at_ms = world.clock.wall_ms() - age_ms
    letter = dead(1)
    world.die(letter._replace(record=letter.record._replace(timestamp_ms=at_ms)), batch_id="b1")
    replay = world.run(keeps_ms=DAY_MS)
    assert [one.timestamp_ms for one in world.source] == [at_ms if is_kept else None]
    assert replay.retimed == (not is_kept)


def chain(*places: tuple[int, int]) -> Headers:
    """Make the header of a record that came along one way."""
    links = [["raw", 3, offset, index, "n/1"] for offset, index in places]
    return ((CHAIN_HEADER, json.dumps(links).encode()),)


def test_replayed_records_of_a_chain_have_a_way_on_which_none_is_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that discards replays records each: also of one record twice, of several runs, and out of order."""
    monkeypatch.setattr("log_partitioner.operations.replay.LETTERS_AT_ONCE", 3)
    world = World(
        dead(50, headers=chain((19, 0))),
        dead(41, headers=chain((18, 0))),
        dead(41, headers=chain((18, 0)), reason=Reason.NOT_AN_OBJECT),
        dead(40, headers=chain((17, 1))),
        dead(60, headers=((CHAIN_HEADER, b'[["raw", 3, 20]]'),)),
    )
    world.run()

    recorded = WayPlaces()
    for message in world.source:
        place = place_of(SourceRecord(APP, 0, None, None, message.value, tuple(message.headers)))
        if place is not None:
            highest = recorded.highest(place.way)
            assert highest is None or place.numbers > highest
            recorded.move(place)
    assert len(recorded.ways) == 2  # of two transactions: never one for each record, of which there is no room for many
    roots = [json.loads(dict(one.headers)[CHAIN_HEADER] or b"")[0] for one in world.source]
    assert sorted(root[2] for root in roots) == [17, 18, 18, 19, 20]


def test_replayed_part_of_a_record_goes_without_its_chain() -> None:
    """Else its first entry would have another's root and index, and a reader that counts by roots would miss one."""
    delivered = b'{"user": "ann"}'
    headers = (("trace", b"1"), *chain((18, 0)))
    world = World(dead(41, b'[%b, {"user": "ann", "n": 1}]' % delivered, indexes=(1,), of=2, headers=headers))
    world.run()
    assert [one.headers for one in world.source] == [[("trace", b"1")]]
