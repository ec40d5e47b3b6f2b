"""Logs as they come: killed processes, answers that were lost, clocks that differ, files in pieces, other programs."""

from __future__ import annotations

from contextlib import ExitStack
from io import BytesIO
from math import inf

import pytest

from log_partitioner.formats import log_events as events
from log_partitioner.proof.verify import history
from log_partitioner.proof.verify.command import LogFiles
from log_partitioner.proof.verify.values import LogRule, TimeWindow
from tests.log_lines import judged
from tests.unit.proof.verify.pods import MINUTE_MS, P0, P1, Pod, lines_of, owner


def unknown_outcome() -> Pod:
    """Commit [0, 10), then lose the answer to the commit of [10, 20)."""
    pod = owner().commits({P0: (0, 10)})
    return pod.gives_up(pod.begins({P0: (10, 20)}), outcome="unknown")


def test_flush_that_nothing_settles_is_noted() -> None:
    """No worker goes on after it: nothing is wrong, and a note says so."""
    found = judged(unknown_outcome().lines)

    assert not found.violations
    assert any("of 1 flushes no line tells" in note for note in found.notes)


@pytest.mark.parametrize("at", [11, 15, 21])
def test_lost_answer_does_not_excuse_another_offset(at: int) -> None:
    """It is all of the batch or nothing."""
    assert judged(unknown_outcome().rewinds(at).lines).counts[LogRule.RESUME] == 1


def test_lost_answer_cannot_be_both() -> None:
    """The worker itself says it is not committed, the next owner that it is."""
    lines = lines_of(unknown_outcome().rewinds(10), Pod("w2").owns(2, p0=20))

    (violation,) = judged(lines).violations

    assert (violation.rule, violation.offsets) == (LogRule.RESUME, (10, 20))
    assert "resumed below what is committed" in violation.text


def test_flush_that_reaches_over_a_hole_does_not_fill_it() -> None:
    """The hole is told from what is committed, not from where the flush would have ended."""
    killed = owner().commits({P0: (0, 10)})
    killed.begins({P0: (10, 30)})

    found = judged(lines_of(killed, Pod("w2").owns(2, source="policy", p0=20).commits({P0: (20, 30)})))

    (violation,) = found.violations
    assert "nobody has committed source-0 [10, 20)" in violation.text


def test_commit_of_a_batch_is_all_of_its_topic_partitions() -> None:
    """The next owners of both agree; if they do not, half of the batch was committed."""
    killed = Pod("w1").owns(1, source="policy", p0=0, p1=0)
    killed.begins({P0: (0, 10), P1: (0, 10)})

    agree = judged(lines_of(killed, Pod("w2").owns(2, p0=10), Pod("w3").owns(2, p1=10)))
    differ = judged(lines_of(killed, Pod("w2").owns(2, p0=10), Pod("w3").owns(2, p1=0)))

    assert not agree.violations
    assert [one.rule for one in differ.violations] == [LogRule.CONTIGUOUS]


def test_lines_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that does not come is taken for lost, before all that follow it are in memory."""
    monkeypatch.setattr(history, "PENDING_MAX", 3)
    pod = owner()
    for at in range(20):
        pod.commits({P0: (at, at + 1)})

    found = judged([*pod.lines[:1], *pod.lines[2:], pod.lines[1]])

    assert not found.violations
    assert "line 2 of its own counting is missing" in found.doubts[0]
    assert "come too late" in found.doubts[1]


def test_last_line_of_a_killed_process_may_be_torn() -> None:
    """The next process may go on in the same line."""
    killed, again = Pod("w1", "b1").owns(1, source="policy", p0=0), Pod("w1", "b2").owns(2, p0=0)
    lines = [*killed.lines, b'{"generation": 2, "member": "w', *again.lines]

    assert judged(lines) == judged(lines_of(killed, again))
    assert judged([*killed.lines, b'{"generation": 2, "mem']).doubts == []


def test_lines_of_other_programs_are_passed_over() -> None:
    """Text before the JSON of a line is passed over, too."""
    lines = owner().commits({P0: (0, 10)}).lines
    around = [
        b"%4|1700|FAIL|rdkafka#consumer-1| broken pipe\n",
        b"{}\n",
        b"\xff\n",
        *(b"pod-7 " + one for one in lines),
    ]

    found = judged(around)

    assert (found.violations, found.doubts) == ([], [])


def test_missing_lines_make_doubts_of_what_they_may_explain() -> None:
    """A hole in the chain may be a commit whose line is missing; two owners of the same offsets are never."""
    first = owner().commits({P0: (0, 10)}).commits({P0: (10, 20)})
    second = Pod("w2").owns(2, p0=20).commits({P0: (20, 30)})
    without = [line for number, line in enumerate(first.lines) if number not in (6, 7, 8)]

    found = judged([*without, *first.say("resumed").lines[-1:], *second.lines])

    assert not found.violations
    assert any("w1 (boot b1): line 7 to 9" in doubt for doubt in found.doubts)
    assert any("resumed at 20" in doubt for doubt in found.doubts)


def test_overlap_is_a_violation_whatever_is_missing() -> None:
    """Lines that are missing cannot undo two commits."""
    first = owner().commits({P0: (0, 10)}).stops()
    second = Pod("w2").owns(2, source="policy", p0=0).commits({P0: (0, 20)}).stops()

    found = judged([*first.lines, *second.lines[:-2], second.lines[-1]])

    assert found.counts[LogRule.COMPLETE] == 1
    assert not found.counts[LogRule.ONE_OWNER], "its commit is the line that is missing"
    found = judged([*first.lines[:-1], *first.say("x").lines[-1:], *second.lines])
    assert [one.rule for one in found.violations] == [LogRule.ONE_OWNER]


def test_nothing_is_no_pass() -> None:
    """An empty file, or one of another program."""
    assert judged([]).doubts == judged([b"hello\n"]).doubts == ["there is no line of a worker"]


def test_worker_that_tells_warnings_only_is_not_judged() -> None:
    """Its commits are not told: the hole that others see is no violation, and no pass either."""
    quiet = Pod("w1", group=None).gives_up("b1")

    found = judged(quiet.lines)

    assert not found.violations
    assert "tells warnings only" in found.doubts[0]


@pytest.mark.parametrize("fields", [{}, {"offsets": 3}])
def test_event_without_a_field_or_with_another_one_is_a_doubt(fields: dict[str, object]) -> None:
    """It is not passed over, and nothing is guessed: the line cannot be read."""
    pod = Pod("w1").say("flush_started", batch_id="b", reason="interval", generation=1, **fields)

    found = judged(pod.lines)

    assert found.doubts == ["1 lines cannot be read: fields of their events are missing, or other ones"]
    assert not found.violations


def test_line_that_cannot_be_read_is_as_good_as_missing() -> None:
    """Nothing is held against its boot or the next owner that the line may explain."""
    pod = owner()
    pod.begins({P0: (0, 10)})
    pod.say("flush_committed", batch_id="w1-b1-1").commits({P0: (10, 20)}).stops()

    found = judged(lines_of(pod, Pod("w2").owns(2, p0=20)))

    assert not found.violations
    assert any("line 6 of its own counting is missing" in doubt for doubt in found.doubts)


def test_line_that_no_rule_concerns_need_not_be_read() -> None:
    """As one of a newer worker: nothing is in doubt for it."""
    pod = owner().say("flush_verified", batch_id="w1-b1-1").commits({P0: (0, 10)})

    found = judged(pod.stops().lines)

    assert (found.violations, found.doubts) == ([], [])


def test_groups_do_not_meet() -> None:
    """Two deployments of one source: each commits everything."""
    one = Pod("w1", group="one").owns(1, source="policy", p0=0).commits({P0: (0, 10)})
    two = Pod("w2", group="two").owns(1, source="policy", p0=0).commits({P0: (0, 10)})

    found = judged(lines_of(one, two))

    assert not found.violations
    assert set(found.tenures) == {"one", "two"}


def test_window_begins_in_the_middle_of_everything() -> None:
    """The assignment and commits before it are not known; later lines are judged."""
    pod = owner().commits({P0: (0, 10)})
    since_ms = pod.at_ms + 1
    pod.commits({P0: (10, 20)}).gives_back(P0)
    window = TimeWindow(since_ms=since_ms, slack_ms=0)

    fine = judged(lines_of(pod, Pod("w2", clock_ms=since_ms).owns(2, p0=20)), window=window)
    gap = judged(lines_of(pod, Pod("w2", clock_ms=since_ms).owns(2, p0=25)), window=window)
    near = judged(
        lines_of(pod, Pod("w2", clock_ms=since_ms).owns(2, p0=25)), window=window._replace(slack_ms=MINUTE_MS)
    )

    assert (fine.violations, fine.doubts) == ([], [])
    assert "the beginning is not there" in fine.notes[0]
    assert [one.rule for one in gap.violations] == [LogRule.RESUME]
    assert not near.violations, "another worker's line may be just before the window"


def test_window_takes_lines_at_both_its_ends() -> None:
    """Clocks of logs have milliseconds: who asks from a line's time on wants this line."""
    lines = Pod("w1").owns(1, p0=None).stops().lines  # at 1, 2 and 3 s

    for since_ms, until_ms, expected in ((2000, inf, [2, 3]), (2001, 3000, [3]), (-inf, 2000, [1, 2])):
        with ExitStack() as cleanup:
            read = LogFiles([], BytesIO(b"".join(lines)), cleanup).read(TimeWindow(since_ms, until_ms))
            assert [line.head.seq for line in read] == expected


def test_worker_that_is_rewound_after_it_gave_back_is_found_in_a_window_too() -> None:
    """The log before the window does not say what it owned, but a TopicPartition that it gave back since is known."""
    pod = owner().commits({P0: (0, 10)})
    window = TimeWindow(since_ms=pod.at_ms + 1)

    fine = judged(pod.rewinds(10).lines, window=window)
    wrong = judged(pod.gives_back(P0).rewinds(10).lines, window=window)

    assert not fine.violations
    assert [one.rule for one in wrong.violations] == [LogRule.TRANSITION]


def test_what_the_client_library_never_handed_over_is_in_no_line() -> None:
    """The fault that logs do not see: a jump is told, but no line says that it had records. The audit sees it."""
    pod = owner().say(events.OffsetGaps("source", 0, 1, [(3, 9)]))

    assert judged(pod.commits({P0: (0, 10)}, records=4).lines).violations == []


@pytest.mark.parametrize(("gaps", "records"), [(1, 4), (2, 1)])
def test_records_are_counted_where_all_holes_are_told(gaps: int, records: int) -> None:
    """A line names the first ones of many: how many records there are is not known then."""
    pod = owner().say(events.OffsetGaps("source", 0, gaps, [(3, 9)]))

    assert judged(pod.commits({P0: (0, 10)}, records=records).lines).violations == []


def test_records_are_counted_again_behind_a_commit_with_holes_that_are_not_told() -> None:
    """They excuse the commit that covers them, and no later one."""
    pod = owner().say(events.OffsetGaps("source", 0, 2, [(3, 9)]))
    pod.commits({P0: (0, 10)}, records=1).commits({P0: (10, 20)}, records=9)

    assert [one.rule for one in judged(pod.lines).violations] == [LogRule.CONTIGUOUS]


def test_hole_that_is_jumped_again_after_a_discard_counts_once() -> None:
    """It is read again, and told again."""
    pod = owner().say(events.OffsetGaps("source", 0, 1, [(3, 9)]))
    pod.gives_up(pod.begins({P0: (0, 10)})).rewinds(0).say(events.OffsetGaps("source", 0, 1, [(3, 9)]))

    assert judged(pod.commits({P0: (0, 10)}, records=4).lines).violations == []


@pytest.mark.parametrize("is_told", [True, False])
def test_offsets_that_a_person_has_skipped_are_covered_by_the_line_of_the_command(*, is_told: bool) -> None:
    """Without it they are a gap, and the worker that goes on behind them starts at an offset that is not committed."""
    before = owner().commits({P0: (0, 10)}).gives_back(P0)
    command = Pod("offsets", "b9", group=None).say(events.OffsetsSkipped("g", "source", 0, 10, 15))
    after = Pod("w1", "b2").owns(2, p0=15).commits({P0: (15, 20)})

    found = {one.rule for one in judged(lines_of(before, *[command] * is_told, after)).violations}
    assert found == (set() if is_told else {LogRule.RESUME, LogRule.CONTIGUOUS})


def test_offsets_that_were_skipped_and_committed_as_well_are_told() -> None:
    """One of the two is too much."""
    worker = owner().commits({P0: (0, 12)})
    command = Pod("offsets", "b9", group=None).say(events.OffsetsSkipped("g", "source", 0, 10, 15))

    assert [one.rule for one in judged(lines_of(worker, command)).violations] == [LogRule.ONE_OWNER]


def test_first_owner_without_a_line_is_a_doubt() -> None:
    """The logs lack the commit that others go on from; with --since this is expected."""
    lines = Pod("w2").owns(2, p0=5).commits({P0: (5, 10)}).lines

    assert judged(lines).doubts == [
        "source-0: who has committed up to 5 is not told: give the logs of before, or --since"
    ]
    assert judged(lines, window=TimeWindow(since_ms=0)).doubts == []


def test_boot_behind_which_nobody_goes_on_is_in_no_line() -> None:
    """A fault that logs do not see, as one that has committed nothing: the audit does, by its flush records."""
    first = owner().commits({P0: (0, 10)}).gives_back(P0)
    last = Pod("w2").owns(2, p0=10).commits({P0: (10, 20)})

    assert judged(lines_of(first, last)) != judged(first.lines)
    assert (judged(first.lines).violations, judged(first.lines).doubts) == ([], [])
