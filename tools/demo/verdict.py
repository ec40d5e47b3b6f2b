"""How a demo ended: the exit code, and the headline with its reasons. Values to text; reads and prints nothing."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from log_partitioner.formats.dead_letter import Reason
from tools.demo.announced import Announced, DeadReason
from tools.demo.fields import name_fields
from tools.demo.journal import Tally

_FIELDS_SHOWN = 200
_BYTES_SHOWN = 200
_WIDTH = 100


class ExitCode(IntEnum):
    """How the demo ends; 128 + number if a signal ended it."""

    CLEAN = 0
    FINDINGS = 1
    COULD_NOT_TELL = 2
    NO_PROGRESS = 3
    DEAD_LETTERS = 4
    NOT_RUN = 5
    PUT_AWAY = 6
    NO_TIMES = 7


MEANINGS = {
    ExitCode.CLEAN: "the audit is clean, the workers' logs pass, and most entries are in files",
    ExitCode.FINDINGS: "the audit has findings, or the workers' logs break a rule",
    ExitCode.COULD_NOT_TELL: "the audit or the workers' logs could not tell, or the command line is wrong",
    ExitCode.NO_PROGRESS: "the workers committed nothing any more before the lag was 0; nothing was audited",
    ExitCode.DEAD_LETTERS: "the audit is clean, but most entries are dead letters",
    ExitCode.NOT_RUN: "the demo could not run: a program, a port or a server is missing, a worker does not start",
    ExitCode.PUT_AWAY: "the audit is clean, but records were put away: they ended a worker, or a person skipped them",
    ExitCode.NO_TIMES: "the audit is clean, but most entries go by Kafka's time: none was read where it was looked for",
}
_VIOLATION = "The workers' logs break a rule of who may own and commit what (verify-logs.txt)."
_PUT_AWAY = (Reason.FATAL, Reason.SKIPPED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last lines that a person reads; the first one is the headline."""

    code: ExitCode
    lines: tuple[str, ...]

    @property
    def is_disposable(self) -> bool:
        """Whether the data of this run are not needed to find out what went wrong."""
        return self.code in (ExitCode.CLEAN, ExitCode.DEAD_LETTERS, ExitCode.NO_TIMES)


def judge_stuck(lags: Mapping[int, int], *, window_s: float, given_up: int) -> Verdict:
    """Return the verdict on workers that committed nothing for the window; `lags` is by partition of the source."""
    late = {partition: lag for partition, lag in lags.items() if lag}
    headline = (
        f"The workers commit nothing any more: {sum(late.values()):,} offsets are not committed, and no committed "
        f"offset has moved for {window_s:.0f} s. Nothing was audited."
    )
    by_partition = ", ".join(f"{partition}: {lag:,}" for partition, lag in sorted(late.items()))
    lines = [headline, f"  lag by partition: {by_partition}"]
    if given_up:
        lines.append(f"  batches given up: {given_up}; the workers' logs say why (event batch_discarded)")
    return Verdict(ExitCode.NO_PROGRESS, tuple(lines))


def judge(
    audit_code: int,
    announced: Announced,
    paths: Mapping[str, Sequence[str]],
    *,
    logs_code: int = 0,
    timeless: Sequence[str] = (),
) -> Verdict:
    """Return the verdict after an audit; `paths` are the configured ones by their kind, user, time and id.

    `logs_code` is that of `verify-logs` over the workers' logs, `timeless` the lines of `explain_times`.
    """
    code = ExitCode(audit_code) if audit_code in (0, 1) else ExitCode.COULD_NOT_TELL
    put_away = {reason: announced.reasons[reason].letters for reason in _PUT_AWAY if reason in announced.reasons}
    lines = [_of_what_was_put_away(put_away)] if put_away else []
    if announced.is_mostly_dead:
        lines += explain_dead_letters(announced, paths)
    if lines and code is ExitCode.CLEAN:
        code = ExitCode.PUT_AWAY if put_away else ExitCode.DEAD_LETTERS
    if timeless and code is ExitCode.CLEAN:
        code = ExitCode.NO_TIMES
    lines += timeless
    lines.append(_of_the_audit(code, audit_code))
    if logs_code:
        is_violation = logs_code == ExitCode.FINDINGS
        lines.insert(0, _VIOLATION if is_violation else f"The workers' logs could not tell (exit code {logs_code}).")
        if code is not ExitCode.FINDINGS:
            code = ExitCode.FINDINGS if is_violation else ExitCode.COULD_NOT_TELL
    return Verdict(code, tuple(lines))


def explain_dead_letters(announced: Announced, paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Return why most entries are dead letters: the main reason, the paths tried, the fields of the first entry."""
    reason, found = announced.main_reason
    others = {name: other.entries for name, other in announced.reasons.items() if name != reason}
    share = f"{announced.dead_letters:,} of {announced.entries:,} entries"
    lines = [f"{share} are dead letters, not in files: {_sentence(reason, found)}"]
    if others:
        lines.append("  other reasons: " + ", ".join(f"{name} {entries:,}" for name, entries in others.items()))
    lines += [
        f"  {kind} path: {' '.join(shlex.quote(path) for path in given)}" for kind, given in paths.items() if given
    ]
    lines += _fields(found)
    if reason == Reason.NO_USER and found.entry is not None:
        lines.append("  Say which of them is the user: make demo INPUT=... USER_PATH='...' (--user-path)")
    return lines


def explain_times(tally: Tally, paths: Mapping[str, Sequence[str]]) -> list[str]:
    """Return why most entries go by Kafka's time, as far as the workers' logs tell; nothing if they do not."""
    in_files = tally.entries - tally.dead_letters
    if 2 * tally.record_timestamps <= in_files:
        return []
    share = f"{tally.record_timestamps:,} of {in_files:,} entries in files"
    lines = [f"{share} go by Kafka's time: none was read where it was looked for."]
    lines.append(f"  time path: {' '.join(shlex.quote(path) for path in paths.get('time', ()))}")
    if tally.fields:
        lines += ["  fields that were seen:", *_wrap([_printable(name) for name in tally.fields])]
    return [*lines, "  Say which of them is the time: make demo INPUT=... TIME_PATH='...' (--time-path)"]


def _of_what_was_put_away(letters: Mapping[Reason, int]) -> str:
    each = ", ".join(f"{number:,} {reason}" for reason, number in letters.items())
    return f"Records were put away undecoded, in dead letters: {each}."


def _of_the_audit(code: ExitCode, audit_code: int) -> str:
    match code:
        case ExitCode.CLEAN:
            return "The audit is clean: 0 missing, 0 duplicated, 0 altered."
        case ExitCode.DEAD_LETTERS | ExitCode.PUT_AWAY:
            return "The audit is clean all the same: each of these entries is accounted for, as a dead letter."
        case ExitCode.NO_TIMES:
            return "The audit is clean all the same: the second opinion finds no time there, either."
        case ExitCode.FINDINGS:
            return "The audit found something."
        case _:
            return f"The audit could not tell (exit code {audit_code})."


def _sentence(reason: str, found: DeadReason) -> str:
    match reason:
        case Reason.NO_USER:
            return f"{found.entries:,} have no user, or an empty one, where it was looked for."
        case Reason.NO_EVENT_TIME:
            return f"{found.entries:,} have no usable time where it was looked for."
        case _:
            return f"{found.entries:,} are {reason} ({found.message})."


def _fields(found: DeadReason) -> Iterator[str]:
    if found.entry is None:
        start = (found.value or b"")[:_BYTES_SHOWN]
        yield f"  the first of these records begins with {start.decode(errors='replace')!r}"
        return
    names = [_printable(name) for name in name_fields(found.entry)]
    yield f"  the first of these entries has {len(names):,} fields, by their paths:"
    yield from _wrap(names[:_FIELDS_SHOWN])
    if len(names) > _FIELDS_SHOWN:
        yield f"    and {len(names) - _FIELDS_SHOWN:,} more"


def _wrap(names: Sequence[str]) -> Iterator[str]:
    line = ""
    for name in names:
        if line and len(line) + len(name) > _WIDTH:
            yield f"    {line}"
            line = ""
        line += f"  {name}" if line else name
    if line:
        yield f"    {line}"


def _printable(name: str) -> str:
    """Return a path as a shell takes it, with a question mark for each character that would move the cursor."""
    return shlex.quote("".join(char if char.isprintable() else "?" for char in name))
