"""`log-partitioner try`: a sample through the settings, by the worker's own parts; none has to be set (DESIGN 3.9)."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from log_partitioner import cli, trial
from log_partitioner.adapters.kafka.topics import Ends
from log_partitioner.config.settings import IdSettings, InputSettings, TimeSettings
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.trial import Trial, newest
from tests.fakes.lanes import settings

NOW_MS = 1_772_600_767_000  # 2026-03-04T05:06:07Z
TP = TopicPartition("app", 3)

OF_LINES = "input.format = access-log, syslog, cri or text reads lines of text"


def reported(*values: Any, **sections: Any) -> list[str]:
    """Take records of these values, and give the report."""
    tried = Trial(settings(**sections))
    for n, value in enumerate(values):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        tried.take(SourceRecord(TP, 100 + n, NOW_MS, None, data, ()))
    return list(tried.report())


def test_sample_shows_user_time_id_and_partition_key_of_entries_and_reasons_of_the_dead() -> None:
    """With the path that the time is from; counts over all; the schema that all have together."""
    report = reported(
        {"user": 42.0, "time": "04/Mar/2026:05:06:07 +0000", "id": "x1", "a": {"b": [1, 2.5]}},
        [{"user": "ann", "ts": 1772600767}, {"user": True}],
        {"user": "bob", "time": 0, "a": {}},
        {"user": "eve", "time": "soon"},
        b"no json",
        id=IdSettings(paths=("id",)),
        time=TimeSettings(paths=("time", "ts")),
    )
    at = "2026-03-04T05:06:07+00:00"
    assert report == [
        f"app-3 100: user 42, time {at} (time), PartitionKey (42, 2026-03-04, 5), id x1",
        f"app-3 101: user ann, time {at} (ts), PartitionKey (ann, 2026-03-04, 5)",
        "app-3 101 entry 1: dead letter no_user: no path of user.paths yields a user: user is true or false",
        f"app-3 102: user bob, time {at} (Kafka's, since time is absurd), PartitionKey (bob, 2026-03-04, 5)",
        f"app-3 103: user eve, time {at} (Kafka's, since time is no time), PartitionKey (eve, 2026-03-04, 5)",
        f"app-3 104: dead letter malformed: Expecting value: line 1 column 1 (char 0); {OF_LINES}",
        "5 records, 6 entries: 4 in files",
        "  dead letters: 2 (no_user 1, malformed 1)",
        "  times: time 1, ts 1, Kafka's, since time is absurd 1, Kafka's, since time is no time 1",
        "  users: 4, PartitionKeys: 4",
        "  user.paths: user; time.paths: time, ts",
        "  fields of entries: user 5, time 3, a 2, id 1, ts 1",
        "schema of these entries, together:",
        "  a: {b: array of double}",
        "  id: string",
        "  time: string (json)",
        "  ts: long (long53)",
        "  user: string (json)",
    ]


def test_sample_of_which_nothing_matches_shows_fields_and_one_entry_of_each_reason() -> None:
    """A reason behind the first ten is shown, too; a field of entries that no record has is counted."""
    dead = [{"usr": "ann"} for _ in range(30)]
    report = reported(*dead, [1], {"usr": 1}, input=InputSettings(entries_path="events[]", envelope="drop"))
    assert [line.split(": ")[1] for line in report[:11]] == ["dead letter no_user"] * 10 + ["dead letter not_an_object"]
    assert report[11:] == [
        "32 records, 32 entries: 0 in files",
        "  dead letters: 32 (no_user 31, not_an_object 1)",
        "  times: none",
        "  users: 0, PartitionKeys: 0",
        "  user.paths: user; time.paths: time, timestamp, @timestamp",
        "  records with entries at events[], input.entries_path: 0",
        "  fields of entries: usr 31",
    ]


def test_sample_shows_one_entry_of_each_origin_of_the_time() -> None:
    """An unreadable time among many good ones is not only a count."""
    report = reported(*[{"user": "ann", "time": "2026-03-04T05:00:00Z"}] * 30, {"user": "ann", "time": "tuesday"})
    assert report[10].startswith("app-3 130: user ann")
    assert "Kafka's, since time is no time" in report[10]
    assert report[11].startswith("31 records")


@pytest.mark.parametrize(("text", "code"), [('{"user":"ann"}\n{"user":"b\\u001b"}\n{}\n', 0), ("{}\n", 1), ("", 2)])
def test_file_is_tried_with_nothing_set(
    text: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No brokers, topics or bucket are set; a value does not steer the terminal."""
    for name in ("KAFKA__BOOTSTRAP_SERVERS", "KAFKA__SOURCE_TOPICS", "S3__BUCKET"):
        monkeypatch.delenv(f"LOGP_{name}", raising=False)
    file = tmp_path / "sample"
    file.write_text(text)
    assert cli.main(["try", str(file)]) == code
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "entries: " in shown


def test_file_or_topic_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic needs brokers; wrong settings are refused as ever."""
    monkeypatch.delenv("LOGP_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    assert cli.main(["try", "--topic", "app"]) == 2
    assert "LOGP_KAFKA__BOOTSTRAP_SERVERS" in capsys.readouterr().err
    assert cli.main(["try", str(tmp_path / "absent")]) == 2
    assert "absent" in capsys.readouterr().err
    monkeypatch.setenv("LOGP_USER__PATHS", '["a..b"]')
    assert cli.main(["try", str(tmp_path / "absent")]) == 2
    assert "user.paths: 'a..b' has an empty key" in capsys.readouterr().err


class _Topics:
    """Three partitions: one is empty, one has lost its beginning."""

    ends_of: Mapping[TopicPartition, Ends] = {
        TopicPartition("app", 0): Ends(0, 0),
        TopicPartition("app", 1): Ends(5, 7),
        TopicPartition("app", 2): Ends(0, 1000),
    }

    def topic_partitions(self, topic: str) -> list[TopicPartition]:
        """List them."""
        return [tp for tp in self.ends_of if tp.topic == topic]

    def ends(self, tp: TopicPartition) -> Ends:
        """Give where one ends."""
        return self.ends_of[tp]

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[SourceRecord]:
        """Yield all of these."""
        for tp, (first, end) in ranges.items():
            yield from (SourceRecord(tp, offset, None, None, None, ()) for offset in range(first, end))


def test_file_is_tried_by_the_settings_of_a_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a broker; and without a file or a topic there is nothing to try."""
    monkeypatch.setenv("LOGP_TOPICS", '{"old": {"user": {"paths": "who"}}}')
    monkeypatch.setenv("LOGP_KAFKA__SOURCE_TOPICS", "old,new")
    sample = tmp_path / "sample"
    sample.write_text('{"who": "ann", "time": "2026-03-04T05:06:07Z"}\n')
    assert cli.main(["try", str(sample), "--topic", "old"]) == 0
    assert "line 1: user ann" in capsys.readouterr().out
    assert cli.main(["try", str(sample), "--topic", "new"]) == 1
    assert cli.main(["try"]) == 2
    assert "a file or --topic is needed" in capsys.readouterr().err


def test_topic_gives_its_newest_records_of_each_partition() -> None:
    """As many of each as make the sample."""
    topics: Any = _Topics()
    found = [(one.tp.partition, one.offset) for one in newest(topics, "app", 9)]
    assert found == [(1, 5), (1, 6), (2, 997), (2, 998), (2, 999)]


def test_sample_is_of_no_more_records_than_asked_for(tmp_path: Path) -> None:
    """Lines without their ends."""
    file = tmp_path / "sample"
    file.write_bytes(b"{}\r\n" * 7)
    with file.open("rb") as opened:
        assert [one.value for one in trial.lines(opened, 5)] == [b"{}"] * 5


def test_entries_with_keys_of_their_own_are_counted_in_time() -> None:
    """The schema that is shown stops to grow; the counts do not."""
    trial = Trial(settings())
    entries = [{"user": "canary-user-1", "time": "2026-03-04T05:06:07Z", f"key-{number}": 1} for number in range(5_000)]
    begun_s = time.process_time()
    trial.take(SourceRecord(TopicPartition("app", 0), 0, 1_772_600_767_000, None, json.dumps(entries).encode(), ()))
    assert time.process_time() - begun_s < 10
    assert (trial.entries, trial.dead.total()) == (5_000, 0)
    assert len([line for line in trial.report() if line.startswith("  key-")]) < 5_000
