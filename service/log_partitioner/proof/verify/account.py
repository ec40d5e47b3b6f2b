"""A judgement as text, and as JSON; and the lines that led to the first violation, of its TopicPartition and worker.

Lines are shown only by known fields of offsets, generations and batches: no user, no message.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from log_partitioner.formats import log_events as events
from log_partitioner.formats.log_events import LogEvent
from log_partitioner.privacy import printable
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.verify.history import Judgement
from log_partitioner.proof.verify.values import MEANINGS, BootName, LinePlace, Tenure, ToldLine, Violation, text_of

OWN_MAX = 20  # lines of the worker that are shown, the last ones before the violation
OTHERS_MAX = 20  # lines of others about the same offsets
TENURES_SHOWN = 200
VIOLATIONS_SHOWN = 20
_WORDS = {ExitCode.CLEAN: "pass", ExitCode.FINDINGS: "violation", ExitCode.COULD_NOT_TELL: "could not tell"}
_FIELDS = ("batch_id", "generation", "member_generation", "reason", "objects", "outcome", "code")  # that are shown


class Evidence(NamedTuple):
    """One line that led to a violation, with its file and its place in it."""

    place: LinePlace
    text: str
    found_at: str
    is_it: bool


# Lines that led to a violation.


def gather(violation: Violation, lines: Iterable[ToldLine]) -> list[Evidence]:
    """Return the lines that led to a violation: other workers' lines about its offsets, then those of its worker."""
    own: deque[Evidence] = deque(maxlen=OWN_MAX)
    others: deque[Evidence] = deque(maxlen=OTHERS_MAX)
    for line in lines:
        if line.event is None:
            continue
        place = LinePlace(BootName(line.head.worker, line.head.boot), line.head.seq, line.at_ms)
        spans, tp = _spans(line.event), violation.tp
        text, found_at = f"{line.head.event}{_details(line.event, spans, tp)}", f"{line.file}:{line.number}"
        if place.boot == violation.place.boot:
            if place.seq <= violation.place.seq and (tp is None or spans is None or tp in spans):
                own.append(Evidence(place, text, found_at, place.seq == violation.place.seq))
        elif spans is not None and tp in spans and _meet(spans[tp], violation.offsets):
            others.append(Evidence(place, text, found_at, is_it=False))
    return [*others, *sorted(own, key=lambda one: one.place.seq)]


def _meet(span: tuple[int, int] | None, offsets: tuple[int, int] | None) -> bool:
    return offsets is None or span is None or (span[0] <= offsets[1] and offsets[0] <= span[1])


def _spans(event: LogEvent) -> dict[str, tuple[int, int] | None] | None:
    """Return the offsets that an event names by TopicPartition; None if it is about the process."""
    match event:
        case events.Positioned(starts=starts):
            return {tp: (start.offset, start.offset) for tp, start in starts.items()}
        case events.PartitionsAssigned() | events.PartitionsRevoked() | events.PartitionsLost():
            return dict.fromkeys(event.topic_partitions)
        case events.FlushStarted(offsets=spans):
            return dict(spans)
        case events.BatchCommitted(offsets=covered):
            return {tp: (one["first_offset"], one["next_offset"]) for tp, one in covered.items()}
        case events.OffsetGaps(topic=topic, partition=partition, first=holes):
            return {f"{topic}-{partition}": holes[0] if holes else None}
        case events.OffsetsSkipped(topic=topic, partition=partition, offset=first, end_offset=end):
            return {f"{topic}-{partition}": (first, end)}
    return None


def _details(event: LogEvent, spans: dict[str, tuple[int, int] | None] | None, tp: str | None) -> str:
    """Return the offsets of the TopicPartition in question, or how many there are, and fields without texts."""
    where = f" {len(spans)} TopicPartitions" if spans else ""
    if spans and tp in spans:
        span = spans[tp]
        where = f" {tp}" + ("" if span is None else f" at {span[0]}" if span[0] == span[1] else f" {text_of(span)}")
    fields = [f"{name} {value}" for name in _FIELDS if (value := getattr(event, name, None)) is not None]
    if isinstance(event, events.Positioned) and tp in event.starts:
        fields.append(event.starts[tp].source)
    return ", ".join([where, *fields])


# The whole.


def as_text(judgement: Judgement, evidence: Sequence[Evidence], counts: dict[str, int]) -> str:
    """Write everything for a terminal."""
    numbers = counts | judgement.numbers
    lines = ["verify-logs", *(f"  {name.replace('_', ' '):<34}  {number:>12,}" for name, number in numbers.items())]
    lines += ["", "violations by rule"]
    lines += [f"  {int(rule)}  {number:>9,}  {MEANINGS[rule]}" for rule, number in sorted(judgement.counts.items())]
    if judgement.violations:
        first, *rest = map(_violation, judgement.violations[: 1 + VIOLATIONS_SHOWN])
        lines += ["", "the first violation", first, "  what led to it:"]
        lines += [f"  {number:>3}  {_shown(one)}" for number, one in enumerate(evidence, 1)]
        lines += ["", "more violations", *rest] if rest else []
    for title, texts in (("could not tell", judgement.doubts), ("notes", judgement.notes)):
        lines += ["", title, *(f"  {text}" for text in texts)] if texts else []
    code = judgement.exit_code
    lines += [*_timeline(judgement), "", f"{_WORDS[code]} ({int(code)})"]
    return "\n".join(map(printable, lines)) + "\n"


def _violation(one: Violation) -> str:
    return f"  rule {int(one.rule)}: {one.text}. {one.place.boot}, line {one.place.seq}, {_time(one.place.at_ms)}"


def _shown(one: Evidence) -> str:
    mark, place = ">>" if one.is_it else "  ", one.place
    return f"{mark} {_time(place.at_ms)}  {place.boot} line {place.seq}  {one.text}  ({one.found_at})"


def _timeline(judgement: Judgement) -> Iterator[str]:
    for group, tenures in judgement.tenures.items():
        yield ""
        yield f"who owned what, in group {group}: by the group's generations, times by each pod's own clock"
        yield from map(_tenure, tenures[:TENURES_SHOWN])
        if len(tenures) > TENURES_SHOWN:
            yield f"  and {len(tenures) - TENURES_SHOWN} more (--json has all)"


def _tenure(one: Tenure) -> str:
    generation = one.generation if one.generation >= 0 else "?"
    start, end = ("?" if at is None else at for at in (one.start, one.next_offset))
    times = f"{_time(one.place.at_ms)} to {_time(one.ended_ms)}"
    what = f"{start} to {end} in {one.commits} commits  {one.place.boot}, {one.ended or 'open'}"
    return f"  {one.tp:<24}  {generation:>5}  {times}  {what}"


def _time(at_ms: float) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def as_json(judgement: Judgement, evidence: Sequence[Evidence], counts: dict[str, int]) -> str:
    """Write everything as JSON."""
    code = judgement.exit_code
    document: dict[str, Any] = {
        "verdict": _WORDS[code].replace(" ", "_"),
        "exit_code": int(code),
        "lines": counts,
        "counts": judgement.numbers,
        "violations_by_rule": {str(int(rule)): number for rule, number in sorted(judgement.counts.items())},
        "violations": [
            {"rule": int(one.rule), "text": one.text, **_of(one.place), "topic_partition": one.tp,
             "offsets": one.offsets} for one in judgement.violations
        ],
        "led_to_the_first": [
            {"place": one.found_at, **_of(one.place), "text": one.text, "is_it": one.is_it} for one in evidence
        ],
        "doubts": judgement.doubts,
        "notes": judgement.notes,
        "tenures": {group: [_tenure_fields(one) for one in each] for group, each in judgement.tenures.items()},
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def _of(place: LinePlace) -> dict[str, Any]:
    return {**place.boot._asdict(), "seq": place.seq, "at": _time(place.at_ms)}


def _tenure_fields(one: Tenure) -> dict[str, Any]:
    return {
        "topic_partition": one.tp, **one.place.boot._asdict(), "generation": one.generation,
        "from": _time(one.place.at_ms), "to": _time(one.ended_ms), "ended": one.ended, "start_offset": one.start,
        "source": one.source, "next_offset": one.next_offset, "commits": one.commits,
    }  # fmt: skip
