"""Whether the settings fit the source, by its newest records: a worker that they do not fit is not ready."""

import json
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from log_partitioner import outside
from log_partitioner.config.settings import DeadLettersSettings, UserSettings
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.outside import SAMPLE_ENTRIES, misfit_of
from tests.fakes.lanes import settings

APP = TopicPartition("app", 0)
NOW_MS = 1_772_600_767_000
GOOD = {"user": "canary-user-1", "time": "2026-03-04T05:06:07Z"}


class Topics:
    """The newest records of every topic."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self.taken = 0

    def of(self, _: object) -> Self:
        """Fulfil `KafkaTopics.of`."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def newest(self, _topics: object, topic: str, count: int) -> Iterator[SourceRecord]:
        """Fulfil `trial.newest`."""
        if not self._values:
            raise CouldNotTellError(f"no topic {topic}")
        for number, value in enumerate(self._values[:count]):
            self.taken += 1
            yield SourceRecord(APP, number, NOW_MS, None, None if value is None else json.dumps(value).encode(), ())


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give what puts records at the end of every topic."""

    def put(values: list[Any]) -> Topics:
        topics = Topics(values)
        monkeypatch.setattr(outside, "KafkaTopics", topics)
        monkeypatch.setattr(outside, "newest", topics.newest)
        return topics

    return put


def test_newest_records_that_would_be_dead_are_told_with_reasons(sample: Any) -> None:
    """Counts and reasons, no value."""
    sample([GOOD] * 200)
    told = misfit_of(settings(user=UserSettings(paths=("usr",))))
    assert told.startswith(
        "the settings do not fit topic app: 200 of its newest 200 entries would be dead letters (no_user 200). "
    )
    assert misfit_of(settings()) == ""


@pytest.mark.parametrize(
    ("source_topics", "bad", "expected"),
    [
        (("^app-.*",), {"app-a"}, ""),
        (("^app-.*",), {"app-a", "app-b"}, "app-a"),
        (("app-b", "^app-.*"), {"app-a"}, ""),
        (("app-b", "^app-.*"), {"app-b"}, "app-b"),
    ],
)
def test_topic_that_came_to_match_a_pattern_holds_up_no_rollout_if_others_fit(
    source_topics: tuple[str, ...], bad: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No setting names it; a named one always does."""

    def newest(_topics: object, topic: str, count: int) -> Iterator[SourceRecord]:
        value = json.dumps({} if topic in bad else GOOD).encode()
        return (SourceRecord(APP, number, NOW_MS, None, value, ()) for number in range(count))

    monkeypatch.setattr(outside, "KafkaTopics", Topics([]))
    monkeypatch.setattr(outside, "newest", newest)
    monkeypatch.setattr(outside, "source_topics_of", lambda kafka: kafka.sources.among({"app-a", "app-b"}))
    given = settings()
    given = given.model_copy(update={"kafka": given.kafka.model_copy(update={"source_topics": source_topics})})

    told = misfit_of(given)

    assert told.startswith(f"the settings do not fit topic {expected}: ") if expected else told == ""


@pytest.mark.parametrize("values", [[], [None] * 200, [[]] * 200, [{}] * 99, [GOOD] * 3 + [{}] * 197])
def test_nothing_is_told_over_too_little_or_a_source_of_that_kind(sample: Any, values: list[Any]) -> None:
    """A topic that is not there, tombstones, empty lists, few records; and three good ones of 200."""
    sample(values)
    assert misfit_of(settings()) == ""


def test_whoever_asks_by_hand_is_told_of_a_single_record(sample: Any) -> None:
    """A first try has few; a worker waits for more before it calls itself not ready."""
    sample([{}])
    assert "1 of its newest 1 entries would be dead" in misfit_of(settings(), entries_min=1)
    assert misfit_of(settings()) == ""


def test_nothing_is_asked_where_dead_letters_are_accepted(sample: Any) -> None:
    """By dead_letters.share_max = 1."""
    topics = sample([{}] * 200)
    assert misfit_of(settings(dead_letters=DeadLettersSettings(share_max=1))) == ""
    assert topics.taken == 0


def test_records_of_very_many_entries_are_a_sample_by_themselves(sample: Any) -> None:
    """A record may hold a hundred thousand of them."""
    topics = sample([[{}] * SAMPLE_ENTRIES] * 200)
    assert "would be dead" in misfit_of(settings())
    assert topics.taken == 1


def test_record_with_a_new_key_in_each_entry_holds_no_start_up(sample: Any) -> None:
    """One record of 20,000 entries is judged entry by entry; their types are not joined."""
    sample([[GOOD | {f"key-{number}": 1} for number in range(20_000)]])
    begun_s = time.process_time()
    assert misfit_of(settings()) == ""
    assert time.process_time() - begun_s < 5
