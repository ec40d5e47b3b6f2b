"""How a demo ends: codes of its own, and a headline that says what matters."""

import pytest

from tools.demo.__main__ import describe_exit_codes
from tools.demo.announced import Announced, DeadReason
from tools.demo.journal import Tally
from tools.demo.verdict import ExitCode, Verdict, explain_times, judge, judge_stuck

PATHS = {"user": ("user", "account name"), "time": ("time",), "id": ()}


def mostly_dead(**found: object) -> Announced:
    """Make what a set announces whose user path is wrong."""
    reasons = {"no_user": DeadReason(entries=158_430, message="m", **found), "malformed": DeadReason(entries=9)}  # type: ignore[arg-type]
    return Announced(entries=158_439, dead_letters=158_439, reasons=reasons)


@pytest.mark.parametrize(
    ("audit_code", "code"),
    [(0, ExitCode.CLEAN), (1, ExitCode.FINDINGS), (2, ExitCode.COULD_NOT_TELL), (-9, ExitCode.COULD_NOT_TELL)],
)
def test_judge_hands_on_what_the_audit_says(audit_code: int, code: ExitCode) -> None:
    """Where entries are in files the audit's verdict is the demo's; an audit that crashed could not tell."""
    verdict = judge(audit_code, Announced(entries=10, dead_letters=5), PATHS)

    assert (verdict.code, len(verdict.lines)) == (code, 1)
    assert ("clean" in verdict.lines[0]) is (code is ExitCode.CLEAN)


@pytest.mark.parametrize(
    ("audit_code", "logs_code", "code"),
    [
        (0, 1, ExitCode.FINDINGS),
        (0, 2, ExitCode.COULD_NOT_TELL),
        (1, 2, ExitCode.FINDINGS),
        (2, 1, ExitCode.FINDINGS),
        (0, -9, ExitCode.COULD_NOT_TELL),
    ],
)
def test_judge_logs_that_do_not_pass_are_the_headline(audit_code: int, logs_code: int, code: ExitCode) -> None:
    """A demo whose workers break a rule has failed, however clean the audit; what the audit says is said as well."""
    verdict = judge(audit_code, Announced(entries=10, dead_letters=5), PATHS, logs_code=logs_code)

    assert verdict.code is code
    assert verdict.lines[0].startswith("The workers' logs")
    assert "audit" in verdict.lines[1]


def test_judge_clean_audit_of_dead_letters_is_not_the_headline() -> None:
    """158,439 of 158,439 dead letters is what is said first, with where was looked and what the first entry has."""
    verdict = judge(0, mostly_dead(entry={"ts": 1, "id.orig_h": "10.0.0.1", "http": {"user agent": "x"}}), PATHS)
    text = "\n".join(verdict.lines)

    assert verdict.code is ExitCode.DEAD_LETTERS
    assert verdict.lines[0].startswith("158,439 of 158,439 entries are dead letters")
    assert "clean" not in verdict.lines[0]
    beyond_half = {"no_user": DeadReason(entries=6, message="m")}
    assert judge(0, Announced(entries=10, dead_letters=6, reasons=beyond_half), PATHS).code is ExitCode.DEAD_LETTERS
    for expected in (
        "user path: user 'account name'",
        "malformed 9",
        r"'id\.orig_h'",
        "'http.user agent'",
        "USER_PATH",
    ):
        assert expected in text


def test_judge_clean_audit_of_times_that_nobody_has_read_is_not_the_headline() -> None:
    """TIME_PATH misspelt: everything is filed under Kafka's time, and the audit agrees."""
    tally = Tally(entries=100, dead_letters=10, record_timestamps=46, fields=["ts", "user\x1b"])
    timeless = explain_times(tally, PATHS)
    verdict = judge(0, Announced(entries=100, dead_letters=10), PATHS, timeless=timeless)

    assert verdict.code is ExitCode.NO_TIMES
    assert verdict.is_disposable
    assert verdict.lines == (
        "46 of 90 entries in files go by Kafka's time: none was read where it was looked for.",
        "  time path: time",
        "  fields that were seen:",
        "    ts  'user?'",
        "  Say which of them is the time: make demo INPUT=... TIME_PATH='...' (--time-path)",
        "The audit is clean all the same: the second opinion finds no time there, either.",
    )
    assert judge(1, Announced(entries=100), PATHS, timeless=timeless).code is ExitCode.FINDINGS
    assert explain_times(Tally(entries=100, dead_letters=10, record_timestamps=45), PATHS) == []


@pytest.mark.parametrize(("reason", "entries"), [("fatal", 1), ("skipped", 1), ("fatal", 10)])
def test_judge_clean_audit_is_not_the_headline_where_records_were_put_away(reason: str, entries: int) -> None:
    """To the audit they are rightly dead; that a worker ended at one, or a person skipped it, is to be seen."""
    reasons = {reason: DeadReason(entries=entries, letters=entries)}
    verdict = judge(0, Announced(entries=10, dead_letters=entries, reasons=reasons), PATHS)

    assert verdict.code is ExitCode.PUT_AWAY
    assert f"put away undecoded, in dead letters: {entries} {reason}" in verdict.lines[0]
    assert not verdict.is_disposable
    assert judge(1, Announced(entries=10, reasons=reasons), PATHS).code is ExitCode.FINDINGS


def test_judge_stuck_names_what_is_not_committed() -> None:
    """Workers that commit nothing have a code of their own; partitions without lag are not named."""
    verdict = judge_stuck({0: 5, 1: 0, 2: 1200}, window_s=180, given_up=3)

    assert verdict.code is ExitCode.NO_PROGRESS
    assert "1,205 offsets" in verdict.lines[0]
    assert "Nothing was audited" in verdict.lines[0]
    assert verdict.lines[1] == "  lag by partition: 0: 5, 2: 1,200"
    assert not verdict.is_disposable


def test_exit_codes_are_distinct_and_in_the_help() -> None:
    """Each code has one meaning, and the help names it."""
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert all(f"\n  {code.value} " in describe_exit_codes() for code in ExitCode)
    assert Verdict(ExitCode.CLEAN, ()).is_disposable
