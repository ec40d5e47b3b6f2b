"""`dead-letters`: what is counted, which are meant, and where a topic of them is read on."""

from __future__ import annotations

import pytest

from log_partitioner.batch.messages import Sender, dead_letter_message
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.dead_letter import DeadLetter, Reason, parse_headers
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.replay import REPLAY_TYPE
from log_partitioner.operations.dead_letters import summaries
from log_partitioner.operations.letters import Letter, LetterChoice, LetterLog
from log_partitioner.operations.replay import keeps_ms
from log_partitioner.proof.audit.window import FlushWindow
from tests.fakes.broker import FakeBroker
from tests.fakes.check import BrokerTopics
from tests.fakes.clock import FakeClock
from tests.fakes.worker import DEAD_LETTERS, settings_of

KAFKA = settings_of().kafka
AT_MS = 1_772_600_767_000  # 2026-03-04
DAY_MS = 86_400_000


def letter(offset: int, *, topic: str = "app", reason: Reason = Reason.NO_USER, at_ms: int = AT_MS) -> Letter:
    """Make a dead letter of two entries, at an offset of partition 0."""
    record = SourceRecord(TopicPartition(topic, 0), offset, None, None, b"[1,2]", ())
    dead = DeadLetter(record, reason, "why", (0, 1), of_entries=2)
    message = dead_letter_message(dead, Sender("w", "", KAFKA, "b"), batch_id="b1", object_key=None)
    place = TopicPartition(DEAD_LETTERS, 0)
    kept = SourceRecord(place, offset, at_ms, message.key, message.value, tuple(message.headers))
    return Letter(parse_headers(message.headers), kept)


def test_dead_letters_are_counted_by_day_topic_and_reason() -> None:
    """With those that were replayed, and the newest one, by which one of each can be shown."""
    some = [letter(1), letter(4), letter(2, reason=Reason.MALFORMED), letter(3, at_ms=AT_MS + DAY_MS)]
    rows = summaries(some, {some[0].place})
    assert [tuple(row.values()) for row in rows] == [
        ("2026-03-04", "app", "malformed", 1, 2, 0, "0/2"),
        ("2026-03-04", "app", "no_user", 2, 4, 1, "0/4"),
        ("2026-03-05", "app", "no_user", 1, 2, 0, "0/3"),
    ]


@pytest.mark.parametrize(
    ("choice", "offsets"),
    [
        ({}, [1, 2, 3]),
        ({"reasons": ["malformed"]}, [2]),
        ({"topics": ["web"]}, [3]),
        ({"reasons": ["malformed"], "topics": ["web"]}, []),
        ({"lineage": Lineage("another", [])}, []),
    ],
)
def test_choice_has_what_all_of_it_names(choice: dict[str, object], offsets: list[int]) -> None:
    """Dead letters of another history are left out."""
    some = [letter(1), letter(2, reason=Reason.MALFORMED), letter(3, topic="web")]
    chosen = LetterChoice(**{"lineage": Lineage(KAFKA.group_id, []), **choice})  # type: ignore[arg-type]
    assert [one.message.offset for one in some if chosen.has(one.says)] == offsets


def test_log_that_holds_a_mark_of_another_version_is_not_read() -> None:
    """Who does not know what was replayed would replay it twice."""
    broker = FakeBroker(FakeClock(), [])
    epoch = broker.init("later")
    broker.begin("later", epoch)
    message = dead_letter_message(
        DeadLetter(letter(1).message, Reason.FATAL, "", None),
        Sender("w", "", KAFKA, "b"),
        batch_id="b",
        object_key=None,
    )
    headers = [("ce_type", REPLAY_TYPE.encode())]
    broker.produce("later", epoch, message._replace(value=b'{"format_version": 2}', headers=headers))
    broker.end("later", epoch, commit=True)
    topics = BrokerTopics(broker)
    log = LetterLog(topics, topics, DEAD_LETTERS, FlushWindow())
    with pytest.raises(CouldNotTellError, match="offset 0 is a replay mark that this version does not read"):
        log.read_on()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "-1", "message.timestamp.before.max.ms": "5"}, 5),
        ({"retention.ms": "3", "message.timestamp.before.max.ms": "5"}, 3),
    ],
)
def test_age_that_a_topic_keeps_is_the_least_of_what_bounds_it(config: dict[str, str], expected: int | None) -> None:
    """By deletion, or by what it takes at all."""
    assert keeps_ms(config) == expected
