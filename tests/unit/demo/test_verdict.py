"""How a demo ends: codes of its own, and a clean audit that hides nothing."""

import pytest

from tools.demo.__main__ import describe_exit_codes
from tools.demo.announced import Announced, DeadReason
from tools.demo.journal import Tally
from tools.demo.verdict import ExitCode, explain_times, judge, judge_stuck

PATHS = {"user": ("user", "account name"), "time": ("time",), "id": ()}
HALF_DEAD = Announced(entries=10, dead_letters=5)


@pytest.mark.parametrize(
    ("audit_code", "logs_code", "code"),
    [
        (0, 0, ExitCode.CLEAN),
        (1, 0, ExitCode.FINDINGS),
        (2, 0, ExitCode.COULD_NOT_TELL),
        (-9, 0, ExitCode.COULD_NOT_TELL),
        (0, 1, ExitCode.FINDINGS),
        (0, 2, ExitCode.COULD_NOT_TELL),
        (1, 2, ExitCode.FINDINGS),
        (2, 1, ExitCode.FINDINGS),
        (0, -9, ExitCode.COULD_NOT_TELL),
    ],
)
def test_judge_hands_on_what_audit_and_logs_say(audit_code: int, logs_code: int, code: ExitCode) -> None:
    """A demo whose workers break a rule has failed, however clean the audit; a tool that crashed could not tell."""
    verdict = judge(audit_code, HALF_DEAD, PATHS, logs_code=logs_code)

    assert verdict.code is code
    assert ("clean" in verdict.lines[0]) is (code is ExitCode.CLEAN)


def dead(reason: str, entries: int, **more: int) -> Announced:
    """Make what a set of ten entries announces of which so many are dead."""
    return Announced(
        entries=10, dead_letters=entries, reasons={reason: DeadReason(entries=entries, message="m", **more)}
    )


@pytest.mark.parametrize(
    ("announced", "timeless", "code"),
    [
        (dead("no_user", 6), [], ExitCode.DEAD_LETTERS),
        (HALF_DEAD, ["a line"], ExitCode.NO_TIMES),
        (dead("fatal", 1, letters=1), [], ExitCode.PUT_AWAY),
        (dead("fatal", 10, letters=10), [], ExitCode.PUT_AWAY),
        (dead("skipped", 1, letters=1), [], ExitCode.PUT_AWAY),
    ],
)
def test_judge_clean_audit_is_not_the_headline_where_it_says_little(
    announced: Announced, timeless: list[str], code: ExitCode
) -> None:
    """Most entries dead, filed under Kafka's time, or put away: to the audit all is right; findings come first."""
    verdict = judge(0, announced, PATHS, timeless=timeless)

    assert verdict.code is code
    assert "clean" not in verdict.lines[0]
    assert verdict.is_disposable is (code is not ExitCode.PUT_AWAY)
    assert judge(1, announced, PATHS, timeless=timeless).code is ExitCode.FINDINGS


@pytest.mark.parametrize(("record_timestamps", "is_told"), [(45, False), (46, True)])
def test_times_are_told_where_most_entries_in_files_have_none(record_timestamps: int, *, is_told: bool) -> None:
    """With the fields that were seen; TIME_PATH may be misspelt."""
    lines = explain_times(
        Tally(entries=100, dead_letters=10, record_timestamps=record_timestamps, fields=["ts"]), PATHS
    )
    assert ("TIME_PATH" in str(lines), "ts" in str(lines)) == (is_told, is_told)


def test_judge_stuck_names_what_is_not_committed() -> None:
    """Workers that commit nothing have a code of their own; partitions without lag are not named."""
    verdict = judge_stuck({0: 5, 1: 0, 2: 1200}, window_s=180, given_up=3)

    assert verdict.code is ExitCode.NO_PROGRESS
    assert verdict.lines[1] == "  lag by partition: 0: 5, 2: 1,200"
    assert not verdict.is_disposable


def test_exit_codes_are_distinct_and_in_the_help() -> None:
    """Each code has one meaning, and the help names it."""
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert all(f"\n  {code.value} " in describe_exit_codes() for code in ExitCode)
