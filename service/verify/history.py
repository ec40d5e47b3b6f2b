"""All lines of all workers -> each boot's in the order of its `seq`, each group's boots together. Rule 8.

Lines may come in any order; those that come early wait for those before them. Once `PENDING_MAX` lines of a boot wait,
its beginning is taken for lost: memory is bounded by what workers did, not by how much they have told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from service.formats.log_events import LogEvent
from service.verify.boots import Boot
from service.verify.chains import Chain, torn
from service.verify.rules import EVERY_RULE, BootName, LogRule, ToldLine, Violation
from service.verify.tenures import Tenure

PENDING_MAX = 50_000
DOUBTS_MAX = 50
NO_GROUP = "unknown"
_TOLD_AT_ALL = frozenset({"debug", "info"})


class Judgement(NamedTuple):
    """What the logs come to; `violations` in the order of their times, `tenures` by group."""

    violations: list[Violation]
    counts: Counter[LogRule]
    doubts: list[str]
    notes: list[str]
    tenures: dict[str, list[Tenure]]
    numbers: dict[str, int]


class TimeWindow(NamedTuple):
    """Which lines were asked for; clocks differ by `slack_ms`: so near its ends lines of others may be missing."""

    since_ms: float | None = None
    until_ms: float | None = None
    slack_ms: float = 0.0

    def is_inside(self, at_ms: float) -> bool:
        """Whether what workers have told each other can be judged here."""
        is_late = self.since_ms is None or at_ms >= self.since_ms + self.slack_ms
        return is_late and (self.until_ms is None or at_ms <= self.until_ms - self.slack_ms)


class _Sorted:
    """The lines of one boot, handed on in order; `holes` are the numbers that never came, [begin, end)."""

    def __init__(self, name: BootName, *, may_be_cut: bool) -> None:
        self.boot = Boot(name, is_cut=False)
        self.name = name
        self.holes: list[tuple[int, int]] = []
        self.repeated = self.late = 0
        self.first_seq: int | None = None
        self.is_told = False
        self.last_ms = 0
        self._may_be_cut = may_be_cut
        self._next = 1
        self._waiting: dict[int, tuple[int, LogEvent | None]] = {}

    def add(self, seq: int, at_ms: int, event: LogEvent | None) -> None:
        """Take a line."""
        self.last_ms = max(self.last_ms, at_ms)
        if seq == self._next and not self._waiting:
            self._hand_on(seq, at_ms, event)
        elif seq < self._next:
            is_late = self.first_seq is not None and seq < self.first_seq
            self.late += is_late or any(begin <= seq < end for begin, end in self.holes)
            self.repeated += 1
        else:
            self.repeated += seq in self._waiting
            self._waiting[seq] = at_ms, event
            self._release()
            if len(self._waiting) > PENDING_MAX:
                self._skip()

    def end(self) -> None:
        """No more lines come."""
        while self._waiting:
            self._skip()
        self.boot.end(self.last_ms)

    def _hand_on(self, seq: int, at_ms: int, event: LogEvent | None) -> None:
        if self.first_seq is None:
            self.first_seq = seq
        self._next = seq + 1
        if event is not None:
            self.boot.hear(seq, at_ms, event)

    def _release(self) -> None:
        while (waiting := self._waiting.pop(self._next, None)) is not None:
            self._hand_on(self._next, *waiting)

    def _skip(self) -> None:
        """Take what has not come for lost."""
        seq = min(self._waiting)
        at_ms = self._waiting[seq][0]
        if self.first_seq is None and self._may_be_cut:
            self.boot = Boot(self.name, is_cut=True)
        else:
            self.holes.append((self._next, seq))
            self.boot.miss(at_ms)
        self._next = seq
        self._release()


class History:
    """Takes lines in any order, then judges."""

    def __init__(self, window: TimeWindow | None = None) -> None:
        self._window = window or TimeWindow()
        self._boots: dict[BootName, _Sorted] = {}

    def add(self, line: ToldLine) -> None:
        """Take a line."""
        head = line.head
        name = BootName(head.worker, head.boot)
        boot = self._boots.get(name)
        if boot is None:
            boot = self._boots[name] = _Sorted(name, may_be_cut=self._window.since_ms is not None)
        boot.is_told = boot.is_told or head.level in _TOLD_AT_ALL
        boot.add(head.seq, line.at_ms, line.event)

    def judge(self, *, rules: Collection[LogRule] = EVERY_RULE, unreadable: int = 0) -> Judgement:
        """Hold everything against the rules; nothing is added afterwards."""
        for one in self._boots.values():
            one.end()
        doubts = list(self._doubts(unreadable)) if LogRule.COMPLETE in rules else []
        missing = sum(len(one.holes) for one in self._boots.values())
        judged = [one.boot for one in self._boots.values() if one.is_told]
        counts = Counter({rule: 0 for rule in LogRule if rule in rules})
        found: list[Violation] = []
        tenures = {}
        for group, boots in self._by_group(judged).items():
            for chain in _chains(boots):
                found += chain.judge()
                if chain.unknown_before and LogRule.COMPLETE in rules:
                    doubts += self._unknown(chain.tp, chain.unknown_before)
            found += filter(None, (torn(flush) for boot in boots for flush in boot.unsettled))
            tenures[group] = sorted((one for boot in boots for one in boot.tenures), key=_by_offsets)
        found = [one for one in found if one.rule in rules and self._window.is_inside(one.at_ms)]
        if missing and LogRule.COMPLETE in rules:  # it may be these lines that are missing
            doubts += [f"{one.text}: or lines that are missing say who" for one in found if one.could_be_told]
            found = [one for one in found if not one.could_be_told]
        for flaws in (Counter(one.rule for one in found), *(boot.flaws for boot in judged)):
            counts.update({rule: number for rule, number in flaws.items() if rule in rules})
        violations = found + [one for boot in judged for one in boot.violations if one.rule in rules]
        violations.sort(key=lambda one: (one.at_ms, one.boot, one.seq, one.rule))
        counts[LogRule.COMPLETE] += missing if LogRule.COMPLETE in rules else 0
        return Judgement(violations, counts, _few(doubts), list(self._notes()), tenures, self._numbers())

    def _by_group(self, boots: list[Boot]) -> dict[str, list[Boot]]:
        """Put boots together; one without its beginning is of the group of its worker's others, or of the only one."""
        of_worker = {boot.name.worker: boot.group for boot in boots if boot.group is not None}
        groups = set(of_worker.values())
        only = groups.pop() if len(groups) == 1 else None
        found: dict[str, list[Boot]] = {}
        for boot in boots:
            group = boot.group or of_worker.get(boot.name.worker) or only or NO_GROUP
            found.setdefault(group, []).append(boot)
        return found

    def _doubts(self, unreadable: int) -> Iterator[str]:
        """Yield why it cannot be told. Rule 8."""
        if not self._boots:
            yield "there is no line of a worker"
        if unreadable:
            yield f"{unreadable} lines cannot be read: fields of their events are missing, or other ones"
        for one in self._boots.values():
            for begin, end in one.holes:
                last = "" if end == begin + 1 else f" to {end - 1}"
                yield f"{one.name}: line {begin}{last} of its own counting is missing"
            if one.late:
                yield f"{one.name}: {one.late} lines come too late to be put in order; give its files in order"
            if not one.is_told:
                yield f"{one.name} tells warnings only: its commits are not told (log.level)"

    def _unknown(self, tp: str, offset: int) -> list[str]:
        """Say that somebody is not told of, unless it was said that lines of before are missing."""
        text = f"{tp}: who has committed up to {offset} is not told: give the logs of before, or --since"
        return [text] if self._window.since_ms is None else []

    def _notes(self) -> Iterator[str]:
        cut = [one.name for one in self._boots.values() if one.first_seq not in (None, 1)]
        if cut and self._window.since_ms is not None:
            yield f"of {len(cut)} boots the beginning is not there; what they had owned and committed is not known"
        if repeated := sum(one.repeated - one.late for one in self._boots.values()):
            yield f"{repeated} lines came more than once, and were taken once"
        if open_ends := sum(
            not one.needed and not one.refuted for each in self._boots.values() for one in each.boot.unsettled
        ):
            yield f"of {open_ends} flushes no line tells whether they are committed; nothing contradicts either"

    def _numbers(self) -> dict[str, int]:
        boots = [one.boot for one in self._boots.values()]
        return {
            "workers": len({boot.name.worker for boot in boots}),
            "boots": len(boots),
            "tenures": sum(len(boot.tenures) for boot in boots),
            "topic_partitions": len({tenure.tp for boot in boots for tenure in boot.tenures}),
            "commits_of_topic_partitions": sum(tenure.commits for boot in boots for tenure in boot.tenures),
            "flushes_without_outcome": sum(len(boot.unsettled) for boot in boots),
        }


def _chains(boots: list[Boot]) -> list[Chain]:
    chains: dict[str, Chain] = {}

    def chain_of(tp: str) -> Chain:
        return chains.setdefault(tp, Chain(tp))

    for boot in boots:
        for tenure in boot.tenures:
            chain_of(tenure.tp).tenures.append(tenure)
        for landing in boot.landings:
            chain_of(landing.tp).landings.append(landing)
        for tp, offsets in boot.bases.items():
            chain_of(tp).bases |= offsets
        for flush in boot.unsettled:
            for tp in flush.spans:
                chain_of(tp).unsettled.append(flush)
    return [chains[tp] for tp in sorted(chains)]


def _by_offsets(tenure: Tenure) -> tuple[str, int, int, int]:
    """Order tenures by the group's generations, where they are told, then by offsets."""
    return tenure.tp, tenure.generation, tenure.start or 0, tenure.began_ms


def _few(doubts: list[str]) -> list[str]:
    more = [f"and {len(doubts) - DOUBTS_MAX} more"] if len(doubts) > DOUBTS_MAX else []
    return doubts[:DOUBTS_MAX] + more
