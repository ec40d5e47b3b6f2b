"""What the demo reads from the workers' logs."""

import json
from pathlib import Path

from deploy.demo.journal import LogTail, Tally, describe


def test_log_tail_yields_complete_json_lines_once(tmp_path: Path) -> None:
    """A line counts when it is complete; what is no JSON object is passed over."""
    log = tmp_path / "worker.log"
    tail = LogTail(log)
    assert list(tail.read()) == []

    log.write_text('{"event":"a"}\nTraceback\n[1]\n{"event":', encoding="utf-8")
    assert list(tail.read()) == [{"event": "a"}]

    with log.open("a", encoding="utf-8") as lines:
        lines.write('"b"}\n')
    assert list(tail.read()) == [{"event": "b"}]
    assert list(tail.read()) == []


def test_tally_counts_flushes_and_assignments() -> None:
    """Committed flushes and changes of assignment add up over all workers."""
    tally = Tally()
    tally.add("worker-1", {"event": "partitions_assigned", "owned": 3})
    tally.add("worker-1", {"event": "partitions_revoked", "topic_partitions": ["logs-0", "logs-1"]})
    tally.add("worker-1", {"event": "flush_committed", "records": 2, "entries": 6, "dead_letters": 1})
    tally.add("worker-2", {"event": "flush_committed", "records": 1, "entries": 3})
    tally.add("worker-2", {"event": "partitions_lost", "topic_partitions": ["logs-0"]})

    assert (tally.flushes, tally.assignment_changes) == (2, 3)
    assert (tally.records, tally.entries, tally.dead_letters) == (3, 9, 1)
    assert (tally.workers["worker-1"].owned, tally.workers["worker-2"].owned) == (1, 0)
    assert len(tally.news) == 5


def test_tally_passes_over_what_it_does_not_know() -> None:
    """Unknown events are counted and stay silent, unless they are warnings; odd values do no harm."""
    tally = Tally()
    tally.add("worker-1", {"event": "something_new", "owned": None})
    tally.add("worker-1", {"event": "flush_committed", "entries": "many", "records": None, "owned": True})
    tally.add("worker-1", {"level": "warning", "event": "something_strange", "error": "x" * 500})
    tally.add("worker-1", {})

    assert tally.events["something_new"] == 1
    assert tally.entries == 0
    assert [line.split(":")[0] for line in tally.news] == ["worker-1", "worker-1"]
    assert all(len(line) < 120 for line in tally.news)


def test_describe_names_what_is_there() -> None:
    """Lists are told by their length, seconds by their sum, empty values not at all."""
    event = json.loads(
        '{"event":"flush_committed","topic_partitions":["a","b"],"step_seconds":{"seal":0.1,"upload":0.25},"seconds":0.1234,"reason":null}'
    )

    assert describe(event) == "flush_committed topic_partitions=2 step_seconds=0.35 seconds=0.12"
