"""Two results of audits of the same source, side by side: entries that both name, or only one.

The outputs are audited by flushes, an archive by record timestamps: both can be compared in the archive's window, if
the audit of the outputs covers it. Two results of one witness must be of the same window.

Owns the conclusions that neither witness allows alone: an entry that only one lacks is that one's own loss; an entry
that both lack was lost before them, or in a part that they share. Entries are identified by unique id if one of the
witnesses is an archive, which has no positions; otherwise by position. Pure: it needs neither Spark nor settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from log_partitioner.formats.findings import Kind
from log_partitioner.privacy import printable
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.result import Example, Result, Verdict, Window, Witness
from log_partitioner_pipeline.audit.text import window_text
from log_partitioner_pipeline.errors import IncomparableError

COMPARED = (Kind.MISSING, Kind.DUPLICATED, Kind.UNEXPECTED, Kind.MISPLACED, Kind.ALTERED)
COMPARISON_VERSION = 1
_NAMES = {Witness.OUTPUTS: "the outputs", Witness.CSV: "the archive"}


class Named(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry that a finding names, by its unique id, its position or both; `text` is what the witness said."""

    id: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    index: int | None = None
    count: int
    text: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of finding: the entries that both witnesses name, and those of only the one or only the other."""

    kind: Kind
    both: list[Named]
    only_first: list[Named]
    only_second: list[Named]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two results.

    `not_comparable` are findings about which the other witness cannot say anything: entries without an id, and those of
    offsets or times that it was not asked about. `beside` counts findings of kinds that are not about entries.
    """

    run_id: str
    against: Witness
    started_at_ms: int
    verdict: Verdict
    not_comparable: list[Named]
    beside: dict[str, int]
    could_not_tell: list[str]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of comparing two results; `compared` has only kinds that at least one of them has."""

    version: int = COMPARISON_VERSION
    window: Window
    first: Side
    second: Side
    compared: list[Compared]
    could_not_tell: list[str]
    judgement: list[str]

    @property
    def agrees(self) -> bool:
        """Whether both name the same entries, whatever they name."""
        return not self.could_not_tell and not any(one.only_first or one.only_second for one in self.compared)

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 if both agree and are clean, 1 if one names something, 2 for a doubt or for cut lists."""
        sides = (self.first, self.second)
        finds = self.compared or any(side.not_comparable or side.beside for side in sides)
        doubts = any(side.could_not_tell for side in sides)
        if self.could_not_tell or (doubts and not finds):
            return ExitCode.COULD_NOT_TELL
        return ExitCode.FINDINGS if finds else ExitCode.CLEAN


def compare(first: Result, second: Result) -> Comparison:
    """Compare two results of the same source, within the window of an archive if one of them is of one.

    Raises:
        IncomparableError: they are not; the message says what differs.
    """
    _require_same_ground(first, second)
    by_id = Witness.CSV in (first.against, second.against)
    window = second.window if second.against is Witness.CSV else first.window
    compared: list[Compared] = []
    apart: tuple[list[Named], list[Named]] = ([], [])
    cut: list[str] = []
    for kind in COMPARED:
        if short := [*_cut("first", first, kind), *_cut("second", second, kind)]:
            cut += short
            continue
        one = _names(first, kind, other=second, by_id=by_id, apart=apart[0])
        two = _names(second, kind, other=first, by_id=by_id, apart=apart[1])
        if one or two:
            both = [_counted(one[key], min(one[key].count, two[key].count)) for key in one if key in two]
            compared.append(Compared(kind=kind, both=both, only_first=_beyond(one, two), only_second=_beyond(two, one)))
    sides = _side(first, apart[0]), _side(second, apart[1])
    return Comparison(
        window=window,
        first=sides[0],
        second=sides[1],
        compared=compared,
        could_not_tell=cut,
        judgement=["cannot tell: not all is listed"] if cut else _judge(sides, compared),
    )


def encode(comparison: Comparison) -> bytes:
    """Write a comparison as indented JSON; whether they agree and the exit code stand in front."""
    told = {"agrees": comparison.agrees, "exit_code": int(comparison.exit_code)}
    return msgspec.json.format(msgspec.json.encode(told | msgspec.to_builtins(comparison))) + b"\n"


def to_text(comparison: Comparison) -> str:
    """Write who names which entries, and the conclusion."""
    sides = comparison.first, comparison.second
    names = _names_of(sides)
    lines = [f"two audits of {window_text(comparison.window)}"]
    lines += [f"  {name}: {side.verdict.value.replace('_', ' ')}" for name, side in zip(names, sides, strict=True)]
    parts: list[tuple[str, list[Named]]] = []
    for one in comparison.compared:
        found = (("both", one.both), (f"{names[0]} alone", one.only_first), (f"{names[1]} alone", one.only_second))
        parts += [(f"{one.kind.value.replace('_', ' ')} in {who}", some) for who, some in found]
    parts += [(f"{name}, not comparable", side.not_comparable) for name, side in zip(names, sides, strict=True)]
    for title, some in parts:
        lines += ["", f"{title}: {_sum(some)}", *(f"  {printable(_line(one))}" for one in some)] if some else []
    for title, texts in (("could not tell", comparison.could_not_tell), ("judgement", comparison.judgement)):
        lines += ["", title, *(f"  {printable(text)}" for text in texts)] if texts else []
    word = "agree" if comparison.agrees else "cannot be compared" if comparison.could_not_tell else "do not agree"
    lines += ["", f"the witnesses {word} ({int(comparison.exit_code)})"]
    return "\n".join(lines) + "\n"


def _line(one: Named) -> str:
    parts = [] if one.id is None else [f"id {one.id}"]
    if one.topic is not None:
        index = "" if one.index is None else f" index {one.index}"
        parts.append(f"{one.topic}-{one.partition} offset {one.offset}{index}")
    return f"{', '.join(parts) or '-'}: {one.text}"


# The ground of a comparison.


def _require_same_ground(first: Result, second: Result) -> None:
    for name, result in (("first", first), ("second", second)):
        if "source" not in result.places:
            reasons = "; ".join(result.could_not_tell) or "it names no source"
            raise IncomparableError(f"the {name} result is of an audit that could not be done: {reasons}")
    if first.against is second.against:
        _require_same_window(first.window, second.window)
    else:
        _require_covered(*((first, second) if second.against is Witness.CSV else (second, first)))
    places = first.places, second.places
    topics = [set(one["source"].split(", ")) for one in places]
    if topics[0] != topics[1]:
        raise IncomparableError(f"the sources differ: {places[0]['source']} and {places[1]['source']}")
    clusters = [one.get("cluster") for one in places]
    if None not in clusters:
        if clusters[0] != clusters[1]:
            raise IncomparableError(f"the Kafka clusters differ: {clusters[0]} and {clusters[1]}")
        return
    brokers = [one.get("brokers", "") for one in places]
    if set(brokers[0].split(",")).isdisjoint(brokers[1].split(",")):
        raise IncomparableError(f"no broker is in both results: {brokers[0]} and {brokers[1]}")


def _require_same_window(one: Window, other: Window) -> None:
    if (one.from_ms, one.until_ms) != (other.from_ms, other.until_ms):
        raise IncomparableError(
            f"the windows differ: {window_text(one)}, {window_text(other)}; give both the same --from and --until"
        )


def _require_covered(outputs: Result, archive: Result) -> None:
    """Check that the audit of the outputs covers all offsets of the archive's window."""
    covered = {(one.topic, one.partition): (one.first_offset, one.next_offset) for one in outputs.coverage}
    for one in archive.coverage:
        begin, end = one.window_first_offset, one.window_next_offset
        first, after = covered.get((one.topic, one.partition), (0, 0))
        if begin < end and not (first <= begin and end <= after):
            raise IncomparableError(
                f"{one.topic}-{one.partition}: the archive's window is offsets [{begin}, {end}), the audit of the "
                f"outputs covers [{first}, {after}): audit the outputs in a wider window, or when more is committed"
            )


def _cut(name: str, result: Result, kind: Kind) -> Iterator[str]:
    for finding in result.findings:
        listed = sum(example.count for example in finding.examples)
        if finding.kind is kind and listed < finding.count:
            yield (
                f"the {name} result lists {listed} of {finding.count} {kind.value}: "
                f"run that audit again with --examples {finding.count}"
            )


# The entries that a result names.

_Key = str | tuple[str, int, int, int]


def _names(result: Result, kind: Kind, *, other: Result, by_id: bool, apart: list[Named]) -> dict[_Key, Named]:
    """Return the entries that a result names; those of which the other witness cannot speak are added to `apart`."""
    is_asked = _asked_of(other, in_window=result.against is Witness.OUTPUTS and other.against is Witness.CSV)
    named: dict[_Key, Named] = {}
    for example in (one for finding in result.findings if finding.kind is kind for one in finding.examples):
        key = example.id if by_id else _position(example)
        if key is None or not is_asked(example):
            apart.append(_named(example))
        else:
            known = named.get(key)
            named[key] = _named(example) if known is None else _counted(known, known.count + example.count)
    return named


def _asked_of(other: Result, *, in_window: bool) -> Callable[[Example], bool]:
    """Return whether an audit was asked about an entry: it covers the offset; `in_window`: its window has the entry."""
    ranges = {
        (one.topic, one.partition): range(one.window_first_offset, one.window_next_offset)
        if in_window
        else range(one.first_offset, one.next_offset)
        for one in other.coverage
    }
    from_ms, until_ms = (other.window.from_ms, other.window.until_ms) if in_window else (None, None)

    def is_asked(example: Example) -> bool:
        at, time_ms = _position(example), example.timestamp_ms
        is_before = time_ms is not None and from_ms is not None and time_ms < from_ms
        is_after = time_ms is not None and until_ms is not None and time_ms >= until_ms
        return not (is_before or is_after) and (at is None or at[2] in ranges.get(at[:2], ()))

    return is_asked


def _position(example: Example) -> tuple[str, int, int, int] | None:
    if example.topic is None or example.partition is None or example.offset is None:
        return None
    return example.topic, example.partition, example.offset, -1 if example.index is None else example.index


def _named(example: Example) -> Named:
    return Named(**{name: getattr(example, name) for name in Named.__struct_fields__})


def _counted(named: Named, count: int) -> Named:
    return msgspec.structs.replace(named, count=count)


def _beyond(one: dict[_Key, Named], other: dict[_Key, Named]) -> list[Named]:
    """Return the names that one side has more often than the other."""
    surplus = {key: named.count - (other[key].count if key in other else 0) for key, named in one.items()}
    return [_counted(one[key], count) for key, count in surplus.items() if count > 0]


def _sum(some: list[Named]) -> int:
    return sum(one.count for one in some)


def _side(result: Result, apart: list[Named]) -> Side:
    return Side(
        run_id=result.run_id,
        against=result.against,
        started_at_ms=result.started_at_ms,
        verdict=result.verdict,
        not_comparable=apart,
        beside={finding.kind.value: finding.count for finding in result.findings if finding.kind not in COMPARED},
        could_not_tell=result.could_not_tell,
    )


# The judgement.


def _names_of(sides: tuple[Side, Side]) -> tuple[str, str]:
    first, second = (side.against for side in sides)
    return ("the first", "the second") if first is second else (_NAMES[first], _NAMES[second])


def _judge(sides: tuple[Side, Side], compared: list[Compared]) -> list[str]:
    names = _names_of(sides)
    said = [text for one in compared for text in _judge_kind(one, names)]
    if compared and not any(one.only_first or one.only_second for one in compared):
        said.insert(0, "both name the same entries")
    for side, name, other in zip(sides, names, reversed(names), strict=True):
        if side.not_comparable:
            said.append(f"{_sum(side.not_comparable)} findings of {name} are of entries that {other} cannot speak of")
        if side.beside:
            said.append(f"{name} besides: {', '.join(f'{count} {kind}' for kind, count in side.beside.items())}")
        said += [f"{name} could not tell: {reason}" for reason in side.could_not_tell]
    return said or ["both are clean: they say the same as the source"]


def _judge_kind(one: Compared, names: tuple[str, str]) -> Iterator[str]:
    kind, is_missing = one.kind.value, one.kind is Kind.MISSING
    if both := _sum(one.both):
        lost = ": lost before them or in what they share, not by one of them" if is_missing else ""
        yield f"{both} {kind} in both{lost}"
    for some, name, other in zip((one.only_first, one.only_second), names, reversed(names), strict=True):
        if some:
            lost = f", not in {other}: lost on the way to {name}" if is_missing else ""
            yield f"{_sum(some)} {kind} in {name} alone{lost}"
