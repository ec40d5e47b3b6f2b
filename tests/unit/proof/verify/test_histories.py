"""Whatever a group does, its logs pass; and one thing that is altered in them is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.log_lines import judged
from tests.unit.proof.verify.model import Group
from tests.unit.proof.verify.pods import lines_of, renumbered

STEPS = 25
Fields = dict[str, Any]
Logs = list[list[Fields]]
"""Lines of each boot."""
seeds = st.integers(0, 2**32)


def logs_of(seed: int) -> Logs:
    """Make a legal history."""
    return [[json.loads(line) for line in pod.lines] for pod in Group(Random(seed)).run(STEPS)]


def written(logs: Logs) -> list[bytes]:
    """Write lines."""
    return [json.dumps(fields).encode() + b"\n" for lines in logs for fields in lines]


def commits_in(logs: Logs) -> Iterator[tuple[list[Fields], int]]:
    """Yield each commit but the last worker's: its boot's lines, and where its flush begins in them."""
    for lines in logs[:-1]:
        yield from ((lines, at - 2) for at, fields in enumerate(lines) if fields["event"] == "flush_committed")


def assignments_in(logs: Logs) -> Iterator[tuple[list[Fields], int]]:
    """Yield each assignment, and the position behind it, of something committed that is flushed while it is owned."""
    for lines in logs[:-1]:
        for at, fields in enumerate(lines):
            if fields["event"] == "partitions_assigned":
                ((tp, (_, source, *_)),) = lines[at + 1]["starts"].items()
                later = (one for one in lines[at + 2 :] if tp in json.dumps(one))
                if source == "committed" and next((one["event"] for one in later), None) == "flush_started":
                    yield lines, at


def drop_a_commit(logs: Logs, random: Random) -> None:
    """A flush is in no line; none of the same offsets, whose process was killed in it, can take its place."""
    lines, at = random.choice(list(commits_in(logs)))
    flushed = [fields["offsets"] for each in logs for fields in each if fields["event"] == "flush_started"]
    assume(flushed.count(lines[at]["offsets"]) == 1)
    del lines[at : at + 3]


def shift_a_range(logs: Logs, random: Random) -> None:
    """A batch covers other offsets of one TopicPartition."""
    lines, at = random.choice(list(commits_in(logs)))
    begun, committed = lines[at]["offsets"], lines[at + 2]["offsets"]
    tp, by = random.choice(list(begun)), random.choice((1, 2, 5))
    begun[tp] = [offset + by for offset in begun[tp]]
    committed[tp] = {name: offset + by for name, offset in committed[tp].items()}


def widen_a_commit(logs: Logs, random: Random) -> None:
    """A commit covers more than its flush."""
    lines, at = random.choice(list(commits_in(logs)))
    covered = random.choice(list(lines[at + 2]["offsets"].values()))
    covered["next_offset"] += 1
    covered["max_offset"] += 1


def swap_an_owner(logs: Logs, random: Random) -> None:
    """A flush is another boot's, which has never owned what it covers: of its own it would be an earlier flush."""
    lines, at = random.choice(list(commits_in(logs)))
    covered = lines[at]["offsets"].keys()
    strangers = [
        one for one in logs[:-1] if not any(covered & set(fields.get("topic_partitions", ())) for fields in one)
    ]
    assume(strangers)
    other = random.choice(strangers)
    moved = [fields | {name: other[0][name] for name in ("worker", "boot")} for fields in lines[at : at + 3]]
    del lines[at : at + 3]
    into = random.randint(1, len(other))
    other[into:into] = moved


def drop_an_assignment(logs: Logs, random: Random) -> None:
    """A worker flushes what it was never given."""
    lines, at = random.choice(list(assignments_in(logs)))
    del lines[at : at + 2]


def resume_elsewhere(logs: Logs, random: Random) -> None:
    """A worker resumes at another offset than the committed one."""
    lines, at = random.choice(list(assignments_in(logs)))
    ((_, start),) = lines[at + 1]["starts"].items()
    start[0] += random.choice([by for by in (-3, -1, 1, 4) if start[0] + by >= 0])


def forget_the_member(logs: Logs, random: Random) -> None:
    """A commit that a broker takes from anybody."""
    lines, at = random.choice(list(commits_in(logs)))
    lines[at + 2] |= random.choice(({"member": ""}, {"member_generation": -1}))


def upload_less(logs: Logs, random: Random) -> None:
    """A commit names an object more than was uploaded."""
    lines, at = random.choice(list(commits_in(logs)))
    lines[at + 2]["objects"] += 1


MUTATIONS = [
    drop_a_commit, shift_a_range, widen_a_commit, swap_an_owner, drop_an_assignment, resume_elsewhere,
    forget_the_member, upload_less,
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(seeds)
def test_legal_history_passes(seed: int) -> None:
    """In any order of its lines, and with some that come twice: collectors mix pods, and deliver at least once.

    Answers are lost and processes killed in a flush; clocks differ by minutes.
    """
    lines = lines_of(*Group(Random(seed)).run(STEPS))
    lines += lines[::3]
    Random(seed).shuffle(lines)

    found = judged(lines)

    assert (found.violations, found.doubts) == ([], [])
    assert any("lines came more than once, and were taken once" in note for note in found.notes)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_single_mutation_is_a_violation(mutate: Callable[[Logs, Random], None], seed: int) -> None:
    """It is found although no line seems to be missing."""
    logs = logs_of(seed)
    assume(len(logs) > 2)
    assume(list(commits_in(logs)))
    assume(list(assignments_in(logs)))
    mutate(logs, Random(seed))

    assert judged(renumbered(written(logs))).violations


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_line_that_is_gone_is_no_pass(seed: int) -> None:
    """Any line but the last of its boot, whatever it says."""
    logs = logs_of(seed)
    lines = Random(seed).choice([one for one in logs if len(one) > 1])
    del lines[Random(seed).randrange(len(lines) - 1)]

    found = judged(written(logs))

    assert found.doubts
