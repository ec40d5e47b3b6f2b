"""What the demo reads from the workers' logs."""

from pathlib import Path

from service.formats.log_events import PartitionsLost, PartitionsRevoked, WorkerStarted
from tests.log_lines import assigned, committed, line_of, read
from tools.demo.journal import LogTail, Tally, describe


def test_log_tail_yields_complete_lines_once(tmp_path: Path) -> None:
    """A line counts when it is complete; what is no line of a worker is passed over."""
    log = tmp_path / "worker.log"
    tail = LogTail(log)
    assert list(tail.read()) == []

    second = line_of("b")
    log.write_bytes(line_of("a") + b"\nTraceback\n[1]\n" + second[:9])
    assert [line.head.event for line in tail.read()] == ["a"]

    with log.open("ab") as lines:
        lines.write(second[9:] + b"\n")
    assert [line.head.event for line in tail.read()] == ["b"]
    assert list(tail.read()) == []


def test_tally_counts_flushes_and_assignments() -> None:
    """Committed flushes and changes of assignment add up over all workers."""
    tally = Tally()
    tally.add("worker-1", read(WorkerStarted("g", "classic", "eager", ["logs"], "bucket", 1, "1")))
    tally.add("worker-1", read(assigned({"logs-0": 0, "logs-1": 0, "logs-2": 0})))
    tally.add("worker-1", read(PartitionsRevoked(["logs-0", "logs-1"], 1)))
    tally.add("worker-1", read(committed(records=2, entries=6, dead_letters=1)))
    tally.add("worker-2", read(committed(records=1, entries=3)))
    tally.add("worker-2", read(PartitionsLost(["logs-0"], 1)))

    assert (tally.started, tally.flushes, tally.assignment_changes) == (1, 2, 3)
    assert (tally.records, tally.entries, tally.dead_letters) == (3, 9, 1)
    assert (tally.workers["worker-1"].owned, tally.workers["worker-2"].owned) == (1, 0)
    assert len(tally.news) == tally.lines == 6


def test_tally_passes_over_what_it_does_not_know() -> None:
    """Unknown events are counted and stay silent, unless they are warnings; odd values do no harm."""
    tally = Tally()
    tally.add("worker-1", read("something_new", owned=None))
    tally.add("worker-1", read("flush_committed", entries="many", records=None, owned=True))
    tally.add("worker-1", read("something_strange", level="warning", message="x" * 500))

    assert (tally.lines, tally.flushes, tally.entries) == (3, 0, 0)
    assert [line.split(":")[0] for line in tally.news] == ["worker-1"]
    assert all(len(line) < 120 for line in tally.news)


def test_describe_names_what_is_there() -> None:
    """Lists are told by their length, seconds by their sum, empty values not at all."""
    seconds = {"seal": 0.1, "upload": 0.25}
    line = read("an_event", topic_partitions=["a", "b"], step_seconds=seconds, seconds=0.1234, reason=None)

    assert describe(line) == "an_event topic_partitions=2 step_seconds=0.35 seconds=0.12"
