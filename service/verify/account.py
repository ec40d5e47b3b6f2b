"""A judgement as text, and as JSON; and what led to the first violation: lines of that TopicPartition and that worker.

Of lines only known fields are shown, as far as they are of offsets, generations and batches: no user, no message.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from service.accounting import ExitCode
from service.formats import log_events as events
from service.formats.log_events import LogEvent
from service.privacy import printable
from service.verify.history import Judgement
from service.verify.rules import MEANINGS, BootName, ToldLine, Violation
from service.verify.tenures import Tenure

OWN_MAX = 20  # lines of the worker that are shown, the last ones before the violation
OTHERS_MAX = 20  # lines of others about the same offsets
TENURES_SHOWN = 200
VIOLATIONS_SHOWN = 20


class Evidence(NamedTuple):
    """One line that led to a violation."""

    place: str
    at_ms: int
    boot: BootName
    seq: int
    text: str
    is_it: bool


def exit_code(judgement: Judgement) -> ExitCode:
    """Return what it comes to: a violation outweighs doubts."""
    if judgement.violations:
        return ExitCode.FINDINGS
    return ExitCode.COULD_NOT_TELL if judgement.doubts else ExitCode.CLEAN


# What led to a violation.


def gather(violation: Violation, lines: Iterable[ToldLine], names: Sequence[str]) -> list[Evidence]:
    """Return the lines that led to a violation: those of others about its offsets, then those of its worker."""
    own: deque[Evidence] = deque(maxlen=OWN_MAX)
    others: deque[Evidence] = deque(maxlen=OTHERS_MAX)
    for line in lines:
        if line.event is None:
            continue
        boot = BootName(line.head.worker, line.head.boot)
        if boot == violation.boot:
            if line.head.seq <= violation.seq and _is_about(line.event, violation.tp):
                own.append(_evidence(line, boot, violation, names))
        elif violation.tp is not None and _touches(line.event, violation.tp, violation.offsets):
            others.append(_evidence(line, boot, violation, names))
    return [*others, *sorted(own, key=lambda one: one.seq)]


def _evidence(line: ToldLine, boot: BootName, violation: Violation, names: Sequence[str]) -> Evidence:
    event = line.event
    assert event is not None, "only events that the rules are about are gathered"
    is_it = boot == violation.boot and line.head.seq == violation.seq
    return Evidence(
        f"{names[line.file]}:{line.number}", line.at_ms, boot, line.head.seq, describe(event, violation.tp), is_it
    )


def _is_about(event: LogEvent, tp: str | None) -> bool:
    spans = _spans(event)
    return tp is None or spans is None or tp in spans


def _touches(event: LogEvent, tp: str, offsets: tuple[int, int] | None) -> bool:
    spans = _spans(event)
    if spans is None or tp not in spans:
        return False
    span = spans[tp]
    return offsets is None or span is None or (span[0] <= offsets[1] and offsets[0] <= span[1])


def _spans(event: LogEvent) -> dict[str, tuple[int, int] | None] | None:
    """Return the offsets that an event speaks of by TopicPartition; None where it speaks of the process."""
    match event:
        case events.Positioned(starts=starts):
            return {tp: (start.offset, start.offset) for tp, start in starts.items()}
        case (
            events.PartitionsAssigned(topic_partitions=tps)
            | events.PartitionsRevoked(topic_partitions=tps)
            | events.PartitionsLost(topic_partitions=tps)
        ):
            return dict.fromkeys(tps)
        case events.FlushStarted(offsets=spans):
            return dict(spans)
        case events.BatchCommitted(offsets=covered):
            return {tp: (one["first_offset"], one["next_offset"]) for tp, one in covered.items()}
        case events.OffsetGaps(topic=topic, partition=partition, first=holes):
            return {f"{topic}-{partition}": holes[0] if holes else None}
        case events.OffsetsSkipped(topic=topic, partition=partition, offset=first, end_offset=end):
            return {f"{topic}-{partition}": (first, end)}
    return None


def describe(event: LogEvent, tp: str | None) -> str:
    """Return an event in one line, and of its TopicPartitions the one in question, or how many there are."""
    name = str(event.__struct_config__.tag)
    spans = _spans(event)
    if spans and tp in spans:
        span = spans[tp]
        where = f" {tp}" + ("" if span is None else f" at {span[0]}" if span[0] == span[1] else f" {_half_open(span)}")
    else:
        where = f" {len(spans)} TopicPartitions" if spans else ""
    return f"{name}{where}{_details(event, tp)}"


def _details(event: LogEvent, tp: str | None) -> str:
    match event:
        case events.PartitionsAssigned(generation=own, member_generation=group):
            return f", generation {own}, the group's {group}"
        case events.Positioned(starts=starts):
            return f", {starts[tp].source}" if tp in starts else ""
        case events.PartitionsRevoked(generation=own) | events.PartitionsLost(generation=own):
            return f", generation {own}"
        case events.FlushStarted(batch_id=batch, generation=own):
            return f", batch {batch}, generation {own}"
        case events.BatchCommitted(batch_id=batch, generation=own, member_generation=group, objects=objects):
            return f", batch {batch}, generation {own}, the group's {group}, {objects} objects"
        case events.ObjectsUploaded(batch_id=batch, objects=objects):
            return f" {objects} of batch {batch}"
        case events.BatchDiscarded(batch_id=batch, outcome=outcome, cause=cause):
            return f" batch {batch}, {outcome}, {cause}"
        case events.CommitRepeated(batch_id=batch):
            return f" of batch {batch}"
    return ""


def _half_open(span: tuple[int, int]) -> str:
    return f"[{span[0]}, {span[1]})"


# The whole.


def as_text(judgement: Judgement, evidence: Sequence[Evidence], counts: dict[str, int]) -> str:
    """Write everything for a terminal."""
    lines = ["verify-logs", *_table(counts | judgement.numbers)]
    lines += ["", "violations by rule"]
    lines += [f"  {int(rule)}  {number:>9,}  {MEANINGS[rule]}" for rule, number in sorted(judgement.counts.items())]
    if judgement.violations:
        lines += ["", "the first violation", f"  {_violation(judgement.violations[0])}", "  what led to it:"]
        lines += [f"  {number:>3}  {_shown(one)}" for number, one in enumerate(evidence, 1)]
        rest = judgement.violations[1 : 1 + VIOLATIONS_SHOWN]
        lines += ["", "more violations", *(f"  {_violation(one)}" for one in rest)] if rest else []
    for title, texts in (("could not tell", judgement.doubts), ("notes", judgement.notes)):
        lines += ["", title, *(f"  {text}" for text in texts)] if texts else []
    lines += list(_timeline(judgement))
    code = exit_code(judgement)
    lines += ["", f"{_WORDS[code]} ({int(code)})"]
    return "\n".join(map(printable, lines)) + "\n"


_WORDS = {ExitCode.CLEAN: "pass", ExitCode.FINDINGS: "violation", ExitCode.COULD_NOT_TELL: "could not tell"}


def _timeline(judgement: Judgement) -> Iterator[str]:
    for group, tenures in judgement.tenures.items():
        yield ""
        yield f"who owned what, in group {group}: by the group's generations, times by each pod's own clock"
        for one in tenures[:TENURES_SHOWN]:
            yield f"  {one.tp:<24}  {tell_tenure(one)}"
        if len(tenures) > TENURES_SHOWN:
            yield f"  and {len(tenures) - TENURES_SHOWN} more (--json has all)"


def tell_tenure(one: Tenure) -> str:
    """Return a tenure as one line."""
    generation = f"{one.generation:>5}" if one.generation >= 0 else "    ?"
    start = "?" if one.start is None else str(one.start)
    end = "?" if one.next_offset is None else str(one.next_offset)
    times = f"{time_of(one.began_ms)} to {time_of(one.ended_ms)}"
    return f"{generation}  {times}  {start} to {end} in {one.commits} commits  {one.boot}, {one.ended or 'open'}"


def as_json(judgement: Judgement, evidence: Sequence[Evidence], counts: dict[str, int]) -> str:
    """Write everything as JSON."""
    code = exit_code(judgement)
    document: dict[str, Any] = {
        "verdict": _WORDS[code].replace(" ", "_"),
        "exit_code": int(code),
        "lines": counts,
        "counts": judgement.numbers,
        "violations_by_rule": {str(int(rule)): number for rule, number in sorted(judgement.counts.items())},
        "violations": [_as_fields(one) for one in judgement.violations],
        "led_to_the_first": [
            {"place": one.place, "at": time_of(one.at_ms), "worker": one.boot.worker, "boot": one.boot.boot,
             "seq": one.seq, "text": one.text, "is_it": one.is_it} for one in evidence
        ],
        "doubts": judgement.doubts,
        "notes": judgement.notes,
        "tenures": {group: [_tenure_fields(one) for one in each] for group, each in judgement.tenures.items()},
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def _as_fields(one: Violation) -> dict[str, Any]:
    return {
        "rule": int(one.rule), "text": one.text, "worker": one.boot.worker, "boot": one.boot.boot, "seq": one.seq,
        "at": time_of(one.at_ms), "topic_partition": one.tp, "offsets": one.offsets,
    }  # fmt: skip


def _tenure_fields(one: Tenure) -> dict[str, Any]:
    return {
        "topic_partition": one.tp, "worker": one.boot.worker, "boot": one.boot.boot, "generation": one.generation,
        "from": time_of(one.began_ms), "to": time_of(one.ended_ms), "ended": one.ended, "start_offset": one.start,
        "source": one.source, "next_offset": one.next_offset, "commits": one.commits,
    }  # fmt: skip


def _violation(one: Violation) -> str:
    return f"rule {int(one.rule)}: {one.text}. {one.boot}, line {one.seq}, {time_of(one.at_ms)}"


def _shown(one: Evidence) -> str:
    mark = ">>" if one.is_it else "  "
    return f"{mark} {time_of(one.at_ms)}  {one.boot} line {one.seq}  {one.text}  ({one.place})"


def time_of(at_ms: float) -> str:
    """Return a time, UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _table(numbers: dict[str, int]) -> list[str]:
    return [f"  {name.replace('_', ' '):<34}  {number:>12,}" for name, number in numbers.items()]
