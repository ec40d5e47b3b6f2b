"""All lines of all workers -> each boot's in the order of its `seq`, each group's boots together. Rule 8.

Lines may come in any order; early ones wait for those before them. Once `PENDING_MAX` lines of a boot wait, its
beginning counts as lost: memory is bounded by the workers' actions, not by the number of lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.verify.boots import Boot
from log_partitioner.proof.verify.chains import chains_of, torn
from log_partitioner.proof.verify.values import BootName, LogRule, Tenure, TimeWindow, ToldLine, Violation

PENDING_MAX = 50_000
DOUBTS_MAX = 50
NO_GROUP = "unknown"


class Judgement(NamedTuple):
    """The outcome; `violations` in the order of their times, `tenures` by group."""

    violations: list[Violation]
    counts: Counter[LogRule]
    doubts: list[str]
    notes: list[str]
    tenures: dict[str, list[Tenure]]
    numbers: dict[str, int]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: violations come before doubts."""
        return ExitCode.of(self.violations, self.doubts)


class _Lines:
    """The lines of one boot, handed on in order; numbers in `holes` never came, those in `cut` were not asked for."""

    def __init__(self, boot: Boot, *, may_be_cut: bool) -> None:
        self.boot = boot
        self.holes: list[range] = []
        self.cut = range(0)
        self.repeated = self.late = 0
        self._may_be_cut = may_be_cut
        self._next = 1
        self._waiting: dict[int, ToldLine] = {}

    def add(self, line: ToldLine) -> None:
        """Take a line."""
        seq = line.head.seq
        if seq < self._next or seq in self._waiting:
            is_late = any(seq in hole for hole in (self.cut, *self.holes))
            self.late += is_late
            self.repeated += not is_late
        else:
            self._waiting[seq] = line
            self._release()
            if len(self._waiting) > PENDING_MAX:
                self._skip()

    def end(self) -> None:
        """No more lines come."""
        while self._waiting:
            self._skip()
        self.boot.end()

    def _release(self) -> None:
        while (line := self._waiting.pop(self._next, None)) is not None:
            self.boot.hear(line)
            self._next += 1

    def _skip(self) -> None:
        """Count the missing numbers as lost."""
        missing = range(self._next, min(self._waiting))
        if self._next == 1 and self._may_be_cut:
            self.cut = missing
        else:
            self.holes.append(missing)
        self.boot.miss()
        self._next = missing.stop
        self._release()


class History:
    """Takes lines in any order, then judges."""

    def __init__(self, window: TimeWindow) -> None:
        self._window = window
        self._boots: dict[BootName, _Lines] = {}

    def add(self, line: ToldLine) -> None:
        """Take a line."""
        name = BootName(line.head.worker, line.head.boot)
        if name not in self._boots:
            self._boots[name] = _Lines(Boot(name), may_be_cut=self._is_cut)
        self._boots[name].add(line)

    @property
    def _is_cut(self) -> bool:
        """Whether earlier lines are outside the window that was asked for."""
        return self._window.since_ms > -inf

    def judge(self, *, unreadable: int = 0) -> Judgement:
        """Check everything against the rules; nothing is added afterwards."""
        for one in self._boots.values():
            one.end()
        boots = [one.boot for one in self._boots.values()]
        told = [boot for boot in boots if boot.is_told]
        doubts, found, tenures = list(self._doubts(unreadable)), list[Violation](), dict[str, list[Tenure]]()
        for group, members in _by_group(told).items():
            for chain in chains_of(members):
                found += chain.judge()
                if chain.unknown_before and not self._is_cut:
                    who = f"{chain.tp}: who has committed up to {chain.unknown_before} is not told"
                    doubts.append(f"{who}: give the logs of before, or --since")
            found += filter(None, (torn(flush) for boot in members for flush in boot.unsettled))
            tenures[group] = sorted((one for boot in members for one in boot.tenures), key=_by_offsets)
        found = [one for one in found if self._window.has(one.place.at_ms, self._window.slack_ms)]
        missing = sum(len(one.holes) for one in self._boots.values())
        if missing or unreadable:  # these lines may explain it
            doubts += [f"{one.text}: or lines that are missing say who" for one in found if one.could_be_told]
            found = [one for one in found if not one.could_be_told]
        found += [one for boot in told for one in boot.violations]
        found.sort(key=lambda one: (one.place.at_ms, one.place, one.rule))
        counts = Counter(dict.fromkeys(LogRule, 0) | {LogRule.COMPLETE: missing})
        counts.update(one.rule for one in found)
        return Judgement(found, counts, _few(doubts), list(self._notes()), tenures, _numbers(boots))

    def _doubts(self, unreadable: int) -> Iterator[str]:
        """Yield the reasons why the verdict is open. Rule 8."""
        if not self._boots:
            yield "there is no line of a worker"
        if unreadable:
            yield f"{unreadable} lines cannot be read: fields of their events are missing, or other ones"
        for name, one in self._boots.items():
            for hole in one.holes:
                last = "" if len(hole) == 1 else f" to {hole[-1]}"
                yield f"{name}: line {hole[0]}{last} of its own counting is missing"
            if one.late:
                yield f"{name}: {one.late} lines come too late to be put in order; give its files in order"
            if not one.boot.is_told:
                yield f"{name} tells warnings only: its commits are not told (log.level)"

    def _notes(self) -> Iterator[str]:
        lines = self._boots.values()
        if cut := sum(bool(one.cut) for one in lines):
            yield f"of {cut} boots the beginning is not there; what they had owned and committed is not known"
        if repeated := sum(one.repeated for one in lines):
            yield f"{repeated} lines came more than once, and were taken once"
        if open_ends := sum(not flush.needed and not flush.refuted for one in lines for flush in one.boot.unsettled):
            yield f"of {open_ends} flushes no line tells whether they are committed; nothing contradicts either"


def _by_group(boots: list[Boot]) -> dict[str, list[Boot]]:
    """Group the boots; one without its beginning is of its worker's group by other boots, or of the only group."""
    of_worker = {boot.name.worker: boot.group for boot in boots if boot.group is not None}
    groups = set(of_worker.values())
    only = groups.pop() if len(groups) == 1 else NO_GROUP
    found: dict[str, list[Boot]] = {}
    for boot in boots:
        found.setdefault(boot.group or of_worker.get(boot.name.worker, only), []).append(boot)
    return found


def _by_offsets(tenure: Tenure) -> tuple[str, int, int, int]:
    """Order tenures by the group's generations, if they are known, then by offsets."""
    return tenure.tp, tenure.generation, tenure.start or 0, tenure.place.at_ms


def _numbers(boots: list[Boot]) -> dict[str, int]:
    tenures = [tenure for boot in boots for tenure in boot.tenures]
    return {
        "workers": len({boot.name.worker for boot in boots}),
        "boots": len(boots),
        "tenures": len(tenures),
        "topic_partitions": len({tenure.tp for tenure in tenures}),
        "commits_of_topic_partitions": sum(tenure.commits for tenure in tenures),
        "flushes_without_outcome": sum(len(boot.unsettled) for boot in boots),
    }


def _few(doubts: list[str]) -> list[str]:
    more = [f"and {len(doubts) - DOUBTS_MAX} more"] if len(doubts) > DOUBTS_MAX else []
    return doubts[:DOUBTS_MAX] + more
