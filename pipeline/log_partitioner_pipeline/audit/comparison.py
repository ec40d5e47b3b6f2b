"""Two results of audits of the same source and window, side by side: entries that both name, or only one. Pure.

Owns the conclusions that neither witness allows alone: an entry that only one lacks is that one's own loss; an entry
that both lack was lost before them, or in a part that they share. Entries are identified by unique id if one of the
witnesses is an archive, which has no positions; otherwise by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.audit.result import Example, Result, Verdict, Window, Witness
from log_partitioner_pipeline.errors import IncomparableError

COMPARED = (Kind.MISSING, Kind.DUPLICATED, Kind.UNEXPECTED, Kind.MISPLACED, Kind.ALTERED)
COMPARISON_VERSION = 1


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

    `not_comparable` are findings about which the other witness cannot say anything: entries without an id, and offsets
    that it was not asked about. `beside` counts findings of kinds that are not about entries.
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
        if self.could_not_tell:
            return ExitCode.COULD_NOT_TELL
        sides = (self.first, self.second)
        if self.compared or any(side.not_comparable or side.beside for side in sides):
            return ExitCode.FINDINGS
        return ExitCode.COULD_NOT_TELL if any(side.could_not_tell for side in sides) else ExitCode.CLEAN


_Key = str | tuple[str, int, int, int]
_Grouped = dict[_Key, list[Example]]
_NAMES = {Witness.OUTPUTS: "the outputs", Witness.CSV: "the archive"}


def compare(first: Result, second: Result) -> Comparison:
    """Compare two results of the same source and window.

    Raises:
        IncomparableError: they are not; the message says what differs.
    """
    _require_same_ground(first, second)
    by_id = Witness.CSV in (first.against, second.against)
    compared: list[Compared] = []
    apart: tuple[list[Named], list[Named]] = ([], [])
    truncated: list[str] = []
    for kind in COMPARED:
        short = [*_truncated("first", first, kind), *_truncated("second", second, kind)]
        truncated += short
        if short:
            continue
        one, one_apart = _group(first, kind, other=second, by_id=by_id)
        two, two_apart = _group(second, kind, other=first, by_id=by_id)
        apart[0].extend(one_apart)
        apart[1].extend(two_apart)
        if one or two:
            both = [_named(one[key], min(_count(one[key]), _count(two[key]))) for key in one if key in two]
            compared.append(Compared(kind=kind, both=both, only_first=_beyond(one, two), only_second=_beyond(two, one)))
    sides = _side(first, apart[0]), _side(second, apart[1])
    return Comparison(
        window=first.window,
        first=sides[0],
        second=sides[1],
        compared=compared,
        could_not_tell=truncated,
        judgement=_judge(sides[0], sides[1], compared) if not truncated else ["cannot tell: not all is listed"],
    )


def encode(comparison: Comparison) -> bytes:
    """Write a comparison as indented JSON; whether they agree and the exit code stand in front."""
    document = {
        "agrees": comparison.agrees,
        "exit_code": int(comparison.exit_code),
        **msgspec.to_builtins(comparison),
    }
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


# What can be compared.


def _require_same_ground(first: Result, second: Result) -> None:
    for name, result in (("first", first), ("second", second)):
        if "source" not in result.places:
            reasons = "; ".join(result.could_not_tell) or "it names no source"
            raise IncomparableError(f"the {name} result is of an audit that could not be done: {reasons}")
    one, other = first.window, second.window
    if (one.from_ms, one.until_ms) != (other.from_ms, other.until_ms):
        raise IncomparableError(
            f"the windows differ: {_window(one)} and {_window(other)}; give both audits the same --from and --until"
        )
    topics = [set(result.places["source"].split(", ")) for result in (first, second)]
    if topics[0] != topics[1]:
        raise IncomparableError(f"the sources differ: {first.places['source']} and {second.places['source']}")
    clusters = [result.places.get("cluster") for result in (first, second)]
    if None not in clusters:
        if clusters[0] != clusters[1]:
            raise IncomparableError(f"the Kafka clusters differ: {clusters[0]} and {clusters[1]}")
        return
    brokers = [result.places.get("brokers", "") for result in (first, second)]
    if set(brokers[0].split(",")).isdisjoint(brokers[1].split(",")):
        raise IncomparableError(f"no broker is in both results: {brokers[0]} and {brokers[1]}")


def _window(window: Window) -> str:
    ends = ["-" if moment is None else str(moment) for moment in (window.from_ms, window.until_ms)]
    return "everything" if ends == ["-", "-"] else f"[{ends[0]}, {ends[1]}) ms"


def _truncated(name: str, result: Result, kind: Kind) -> Iterator[str]:
    for finding in result.findings:
        listed = sum(example.count for example in finding.examples)
        if finding.kind is kind and listed < finding.count:
            yield (
                f"the {name} result lists {listed} of {finding.count} {kind.value}: "
                f"run that audit again with --examples {finding.count}"
            )


def _group(result: Result, kind: Kind, *, other: Result, by_id: bool) -> tuple[_Grouped, list[Named]]:
    """Group the entries that a result names; also returns the findings that the other witness cannot judge."""
    covered = {(one.topic, one.partition): range(one.first_offset, one.next_offset) for one in other.coverage}
    grouped: _Grouped = {}
    apart = []
    for example in (one for finding in result.findings if finding.kind is kind for one in finding.examples):
        key = example.id if by_id else _position(example)
        if key is None or not _is_covered(example, covered):
            apart.append(_named([example], example.count))
        else:
            grouped.setdefault(key, []).append(example)
    return grouped, apart


def _is_covered(example: Example, covered: dict[tuple[str, int], range]) -> bool:
    """Return whether the other audit has looked at the place of an example; without a position, it has."""
    if example.topic is None or example.partition is None or example.offset is None:
        return True
    return example.offset in covered.get((example.topic, example.partition), range(0))


def _position(example: Example) -> tuple[str, int, int, int] | None:
    if example.topic is None or example.partition is None or example.offset is None:
        return None
    return example.topic, example.partition, example.offset, -1 if example.index is None else example.index


def _beyond(one: _Grouped, other: _Grouped) -> list[Named]:
    """Return the names that one side has more often than the other."""
    surplus = {key: _count(examples) - _count(other.get(key, [])) for key, examples in one.items()}
    return [_named(one[key], count) for key, count in surplus.items() if count > 0]


def _count(examples: Iterable[Example]) -> int:
    return sum(example.count for example in examples)


def _named(examples: list[Example], count: int) -> Named:
    one = examples[0]
    return Named(
        id=one.id,
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        index=one.index,
        count=count,
        text=one.text,
    )


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


# What it means.


def names_of(first: Side, second: Side) -> tuple[str, str]:
    """Name both witnesses so that they can be told apart."""
    if first.against is second.against:
        return "the first", "the second"
    return _NAMES[first.against], _NAMES[second.against]


def _judge(first: Side, second: Side, compared: list[Compared]) -> list[str]:
    names = names_of(first, second)
    said = [text for one in compared for text in _judge_kind(one, names)]
    if compared and not any(one.only_first or one.only_second for one in compared):
        said.insert(0, "both name the same entries")
    for side, name, other in ((first, names[0], names[1]), (second, names[1], names[0])):
        said += _judge_rest(side, name, other)
    return said or ["both are clean: they say the same as the source"]


def _judge_rest(side: Side, name: str, other: str) -> Iterator[str]:
    """Yield the findings that only this witness can judge."""
    if side.not_comparable:
        count = sum(one.count for one in side.not_comparable)
        yield f"{count} findings of {name} are of entries that {other} cannot speak of"
    if side.beside:
        yield f"{name} besides: {', '.join(f'{count} {kind}' for kind, count in side.beside.items())}"
    yield from (f"{name} could not tell: {reason}" for reason in side.could_not_tell)


def _judge_kind(one: Compared, names: tuple[str, str]) -> Iterator[str]:
    both, *alone = (sum(named.count for named in some) for some in (one.both, one.only_first, one.only_second))
    is_missing = one.kind is Kind.MISSING
    if both and is_missing:
        yield f"{both} missing in both: lost before them or in what they share, not by one of them"
    elif both:
        yield f"{both} {one.kind.value} in both"
    for count, name, other in zip(alone, names, reversed(names), strict=True):
        if count and is_missing:
            yield f"{count} missing in {name} alone, not in {other}: lost on the way to {name}"
        elif count:
            yield f"{count} {one.kind.value} in {name} alone"
