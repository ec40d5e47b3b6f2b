"""Golden traces: each breaks one rule and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log_partitioner.formats import log_events as events
from log_partitioner.proof.verify.values import LogRule
from tests.log_lines import judged
from tests.unit.proof.verify.pods import P0, P1, Pod, lines_of, owner


def first_owner() -> Pod:
    """Own P0 from its beginning, commit [0, 10), give it back, stop."""
    pod = owner().commits({P0: (0, 10)})
    return pod.gives_back(P0).stops()


def gap_at_a_reset() -> list[bytes]:
    """The first owner has committed up to 10; the next resumes at 15, and is killed before it commits."""
    return lines_of(first_owner(), Pod("w2").owns(2, p0=15))


def resumed_at_an_older_commit() -> list[bytes]:
    """The next owner resumes at an older commit, not at the last."""
    first = owner().commits({P0: (0, 10)}).commits({P0: (10, 20)}).stops()
    return lines_of(first, Pod("w2").owns(2, p0=10))


def own_commit_forgotten() -> list[bytes]:
    """A worker resumes below its own commit; the group's generation is not known."""
    pod = Pod("w1").owns(-1, source="policy", p0=0).commits({P0: (0, 10)}).gives_back(P0)
    return pod.owns(-1, p0=0).lines


def rewound_above() -> list[bytes]:
    """A batch is discarded, and the worker reads on behind it."""
    pod = owner()
    return pod.gives_up(pod.begins({P0: (0, 10)})).rewinds(10).lines


def known_record_jumped() -> list[bytes]:
    """A batch is discarded, and the worker jumps its records when it reads again."""
    pod = owner()
    pod.gives_up(pod.begins({P0: (0, 10)})).rewinds(0)
    return pod.say(events.OffsetGaps("source", 0, 1, [(0, 12)])).lines


def rotation_without_an_assignment() -> list[bytes]:
    """A batch covers a TopicPartition that was never assigned to the worker."""
    return owner().commits({P0: (0, 10), P1: (0, 4)}).lines


def one_record_less() -> list[bytes]:
    """A commit says one record less than its offsets are, less the hole that was told."""
    pod = owner().say(events.OffsetGaps("source", 0, 1, [(3, 9)]))
    return pod.commits({P0: (0, 10)}, records=3).lines


def first_record_one_later() -> list[bytes]:
    """A commit says that its first record is one later than it is; the hole before it is told."""
    pod = owner().say(events.OffsetGaps("source", 0, 1, [(0, 3)]))
    covered: events.Covered = {"first_offset": 0, "min_offset": 4, "max_offset": 9, "next_offset": 10}
    return pod.commits({P0: (0, 10)}, records=7, offsets={P0: covered}).lines


def batch_across_generations() -> list[bytes]:
    """A batch of one generation is flushed and committed in the next."""
    pod = owner().owns(2, source="policy", p1=0)
    batch_id = pod.begins({P0: (0, 10)}, generation=1)
    return pod.ends(batch_id, {P0: (0, 10)}, generation=1).lines


def other_offsets_than_flushed() -> list[bytes]:
    """A commit covers more than its flush."""
    pod = owner()
    return pod.ends(pod.begins({P0: (0, 10)}), {P0: (0, 12)}).lines


def commit_behind_its_last_record() -> list[bytes]:
    """The client's position is committed, and not the offset behind the last record."""
    pod = owner()
    covered: dict[str, events.Covered] = {P0: {"first_offset": 0, "min_offset": 0, "max_offset": 7, "next_offset": 10}}
    return pod.commits({P0: (0, 10)}, offsets=covered).lines


def half_a_batch() -> list[bytes]:
    """The outcome of a batch is unknown: the worker resumes one TopicPartition behind it and the other before it."""
    pod = Pod("w1").owns(1, source="policy", p0=0, p1=0)
    pod.gives_up(pod.begins({P0: (0, 10), P1: (0, 10)}), outcome="unknown").rewinds(10).rewinds(0, partition=1)
    return pod.lines


def flush_in_a_flush() -> list[bytes]:
    """A flush begins before the one before has an outcome."""
    pod = owner()
    pod.begins({P0: (0, 10)})
    return pod.commits({P0: (0, 10)}).lines


def discarded_twice() -> list[bytes]:
    """A batch that was flushed and discarded is discarded once more, as if it had been open."""
    pod = owner()
    batch_id = pod.begins({P0: (0, 10)})
    return pod.gives_up(batch_id).gives_up(batch_id, reason=None).lines


def work_after_a_failure() -> list[bytes]:
    """A process that has failed only gives back what it has, and is assigned more."""
    failed = owner().say(events.WorkerFailed("SpoolError", "", []))
    return failed.gives_back(P0).owns(2, source="policy", p1=0).lines


def not_rewound() -> list[bytes]:
    """An answer is lost, and the worker goes on where its batch began without asking."""
    pod = owner()
    return pod.gives_up(pod.begins({P0: (0, 10)}), outcome="unknown").commits({P0: (0, 10)}).lines


def generations_going_back() -> list[bytes]:
    """The worker's own counter of assignments goes back."""
    pod = owner().gives_back(P0)
    pod.generation = 0
    return pod.owns(2, p0=0).lines


def commit_after_loss() -> list[bytes]:
    """A lost TopicPartition is flushed and committed all the same."""
    pod = owner().loses(P0)
    return pod.commits({P0: (0, 10)}).lines


def commit_after_revoke() -> list[bytes]:
    """A released TopicPartition is flushed and committed afterwards."""
    pod = Pod("w1").owns(1, source="policy", p0=0, p1=0).gives_back(P1)
    return pod.commits({P0: (0, 10), P1: (0, 10)}).lines


def commit_after_discard() -> list[bytes]:
    """A batch that was discarded is committed."""
    pod = owner()
    batch_id = pod.begins({P0: (0, 10)})
    return pod.gives_up(batch_id).ends(batch_id, {P0: (0, 10)}).lines


def line_lost() -> list[bytes]:
    """A line in the middle is gone."""
    lines = owner().commits({P0: (0, 10)}).stops().lines
    return lines[:4] + lines[5:]


def line_torn() -> list[bytes]:
    """Half of a line in the middle is gone."""
    lines = owner().commits({P0: (0, 10)}).stops().lines
    return [*lines[:3], lines[3][:40] + b"\n", *lines[4:]]


TRACES: dict[str, tuple[LogRule, Callable[[], list[bytes]]]] = {
    "gap_at_a_reset": (LogRule.RESUME, gap_at_a_reset),
    # The next owner resumes below what is committed.
    "overlap_at_a_reset": (LogRule.RESUME, lambda: lines_of(first_owner(), Pod("w2").owns(2, p0=5))),
    "resumed_at_an_older_commit": (LogRule.RESUME, resumed_at_an_older_commit),
    "own_commit_forgotten": (LogRule.RESUME, own_commit_forgotten),
    "rewound_above": (LogRule.RESUME, rewound_above),
    "known_record_jumped": (LogRule.RESUME, known_record_jumped),
    "rotation_without_an_assignment": (LogRule.OWNED, rotation_without_an_assignment),
    "one_record_less": (LogRule.CONTIGUOUS, one_record_less),
    "first_record_one_later": (LogRule.CONTIGUOUS, first_record_one_later),
    "batch_across_generations": (LogRule.OWNED, batch_across_generations),
    # A batch is committed in a later generation than it was flushed in.
    "committed_in_another_generation": (LogRule.OWNED, lambda: owner().commits({P0: (0, 10)}, generation=2).lines),
    # One worker commits [0, 10), then [12, 20).
    "hole_between_commits": (LogRule.CONTIGUOUS, lambda: owner().commits({P0: (0, 10)}).commits({P0: (12, 20)}).lines),
    # Committed offsets were lost, and the policy starts at the end: nobody commits what is between.
    "hole_behind_a_policy": (
        LogRule.CONTIGUOUS,
        lambda: lines_of(first_owner(), Pod("w2").owns(2, source="policy", p0=15).commits({P0: (15, 20)})),
    ),
    "other_offsets_than_flushed": (LogRule.CONTIGUOUS, other_offsets_than_flushed),
    "commit_behind_its_last_record": (LogRule.CONTIGUOUS, commit_behind_its_last_record),
    "half_a_batch": (LogRule.CONTIGUOUS, half_a_batch),
    "flush_in_a_flush": (LogRule.TRANSITION, flush_in_a_flush),
    # A commit of a batch that is not being flushed.
    "commit_without_flush": (LogRule.TRANSITION, lambda: owner().ends("b", {P0: (0, 10)}).lines),
    # An owned TopicPartition is assigned again, without having been given back.
    "assigned_twice": (LogRule.TRANSITION, lambda: owner().owns(2, p0=0).lines),
    # A TopicPartition that was never assigned is given back.
    "given_back_without_being_owned": (LogRule.TRANSITION, lambda: owner().gives_back(P1).lines),
    # A TopicPartition that was given back is rewound.
    "rewound_without_being_owned": (LogRule.TRANSITION, lambda: owner().gives_back(P0).rewinds(0).lines),
    "discarded_twice": (LogRule.TRANSITION, discarded_twice),
    # A process starts once.
    "started_twice": (
        LogRule.TRANSITION,
        lambda: Pod("w1").say(events.WorkerStarted("g", "classic", ["source"], "bucket", 1, "1")).lines,
    ),
    # A process that has stopped is assigned something.
    "work_after_the_end": (LogRule.TRANSITION, lambda: Pod("w1").stops().owns(1, source="policy", p0=0).lines),
    "work_after_a_failure": (LogRule.TRANSITION, work_after_a_failure),
    # A process that has stopped has given back everything before.
    "given_back_after_the_end": (LogRule.TRANSITION, lambda: owner().stops().gives_back(P0).lines),
    "not_rewound": (LogRule.TRANSITION, not_rewound),
    # A worker never says from where it reads, and flushes all the same.
    "read_without_a_place": (LogRule.TRANSITION, lambda: Pod("w1").owns(1, p0=None).commits({P0: (0, 10)}).lines),
    "generations_going_back": (LogRule.TRANSITION, generations_going_back),
    "commit_after_loss": (LogRule.AFTER_END, commit_after_loss),
    "commit_after_revoke": (LogRule.AFTER_END, commit_after_revoke),
    "commit_after_discard": (LogRule.AFTER_END, commit_after_discard),
    # A commit names two objects, and one was uploaded.
    "object_not_uploaded": (LogRule.UPLOADED, lambda: owner().commits({P0: (0, 10)}, objects=2).lines),
    # Two workers start by the policy, and both commit [0, 10).
    "two_owners": (
        LogRule.ONE_OWNER,
        lambda: lines_of(first_owner(), Pod("w2").owns(2, source="policy", p0=0).commits({P0: (0, 20)})),
    ),
    "line_lost": (LogRule.COMPLETE, line_lost),
    "line_torn": (LogRule.COMPLETE, line_torn),
    # A commit carries no member id and no generation: a broker takes it from anybody.
    "commit_of_nobody": (LogRule.MEMBER, lambda: owner().commits({P0: (0, 10)}, member="", member_generation=-1).lines),
}  # fmt: skip


@pytest.mark.parametrize("trace", TRACES)
def test_trace_breaks_its_rule_and_no_other(trace: str) -> None:
    """No other rule would notice it."""
    rule, lines = TRACES[trace]

    found = judged(lines())

    assert {one for one, count in found.counts.items() if count} == {rule}
    assert {one.rule for one in found.violations} == {rule} - {LogRule.COMPLETE}
    assert bool(found.doubts) is (rule is LogRule.COMPLETE)


def test_what_was_assigned_and_never_read_is_no_violation() -> None:
    """A coordinator that has just loaded gave an answer of long ago (KAFKA_FACTS O10), and the worker waited."""
    first = owner().commits({P0: (0, 5)}).commits({P0: (5, 10)}).stops()
    again = Pod("w2").owns(2, p0=None).rewinds(10).commits({P0: (10, 12)}).gives_back(P0)
    own = again.owns(3, p0=None).gives_back(P0)
    killed = Pod("w3").owns(4, p0=None)

    found = judged(lines_of(first, own, killed))

    assert (found.violations, found.doubts) == ([], [])


def test_every_rule_has_a_trace() -> None:
    """A rule without a trace could be taken out unnoticed."""
    assert {rule for rule, _ in TRACES.values()} == set(LogRule)


def test_gap_at_a_reset_is_told_with_its_offsets() -> None:
    """Who resumed, where, and up to where is committed."""
    (violation,) = judged(gap_at_a_reset()).violations

    assert (violation.tp, violation.offsets, violation.place.boot.worker) == (P0, (10, 15), "w2")
    assert "resumed at 15" in violation.text


def test_rotation_without_an_assignment_is_told_once_for_flush_and_commit() -> None:
    """The worker, the line of the flush, and the TopicPartition that it never had."""
    (violation,) = judged(rotation_without_an_assignment()).violations

    assert (violation.tp, violation.place.boot.worker, violation.place.seq) == (P1, "w1", 4)
    assert "never assigned" in violation.text
