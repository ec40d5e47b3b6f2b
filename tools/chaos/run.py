"""One run: workers, records and faults at the same time; then heal, drain, stop, and the judgement.

One thread does everything but the writing of records and the watching of commits.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from tools.chaos.bed import Bed, Ground
from tools.chaos.faults import KINDS, WORKERS, Fault
from tools.chaos.injector import Injector
from tools.chaos.watch import CommitWatch, Recovery
from tools.demo.faults import name_of
from tools.demo.fleet import Fleet, WorkerState
from tools.demo.generate import GeneratedRecord, generate
from tools.demo.journal import LogTail, Tally
from tools.demo.lag import GroupLag
from tools.demo.settings import GeneratorSettings
from tools.demo.source import ABORTED_SHARE, TRANSACTIONAL_SHARE, SourceThread
from tools.demo.writer import Produced, ProduceSettings
from tools.local.errors import StackError
from tools.local.patience import Patience

_TURN_S = 0.1
_STILL_S_MAX = 180.0
_RECOVERY_S_MAX = 60.0
_RESTARTS_MAX = 1000  # unasked ends: a worker may end if a broker or a store is gone
_ENTRIES_PER_SEED = 50_000

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The flow of entries: until the faults are over, for at least `seconds` and `records_min` readable records."""

    entries_per_s: float
    seconds: float
    records_min: int = 0
    waits_for_recovery: bool = False
    """Whether a fault comes only once everything written before the ones before is committed, or a minute is over."""
    seed: int = 1
    users: int = 500


@dataclass(slots=True, kw_only=True)
class Happened:
    """The events of a run before anybody judges it."""

    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    tally: Tally = field(default_factory=Tally)
    produced: Produced = field(default_factory=Produced)
    recoveries: list[Recovery] = field(default_factory=list)
    still_s_max: float = 0.0
    restarts: int = 0
    notes: list[str] = field(default_factory=list)
    is_drained: bool = False


class Run:
    """One run on a bed; `on_turn` is called some times a second with the workers and the events so far."""

    def __init__(self, bed: Bed, ground: Ground, flow: Flow, *, tell: Tell) -> None:
        self.fleet = Fleet(
            root=ground.environment.directory / "workers",
            settings=ground.worker_variables,
            restarts_max=_RESTARTS_MAX,
            too_early_s=0.0,
        )
        self.happened = Happened()
        self._bed = bed
        self._ground = ground
        self._flow = flow
        self._tell = tell
        self._injector = Injector(bed, self.fleet)
        self._active: list[tuple[Fault, float, Recovery]] = []
        self._ended_at_s = float("-inf")
        # The lines that workers of these names wrote in an earlier run are skipped.
        logs = (ground.environment.directory / "workers").glob("*/worker.log")
        self._tails = {log.parent.name: LogTail(log, offset=log.stat().st_size) for log in logs}
        self._source = SourceThread(
            ProduceSettings(
                bootstrap=bed.kafka.direct_bootstrap_servers,
                topic=ground.source,
                entries_per_s=flow.entries_per_s,
                transactional_share=TRANSACTIONAL_SHARE,
                aborted_share=ABORTED_SHARE,
                seed=flow.seed,
            ),
            lambda: _endless(flow),
        )
        lag = GroupLag(bootstrap=ground.environment.bootstrap, group=ground.name, topic=ground.source)
        self._watch = CommitWatch(lag, lambda: self._source.produced.next_offsets)

    def play(self, faults: Iterable[Fault], *, on_turn: Callable[[], None] = lambda: None) -> Happened:
        """Play it to its end: on return all records are committed, or it says that they are not, and no worker works.

        Raises:
            StackError: the store died, or the workers do not work at all.
            ProduceError: Kafka did not take the records, with brokers killed and back.
        """
        try:
            with self._watch:
                self._begin()
                begun = time.monotonic()
                self._let_flow(iter(faults), begun, on_turn)
                self.happened.seconds = time.monotonic() - begun
                self._drain(on_turn)
                self.happened.notes += self.fleet.stop()
        finally:
            self._source.stop()
            self.fleet.kill()
            self._bed.heal()
        self._read_logs()
        self.happened.produced = self._source.produced
        self.happened.recoveries = self._watch.recoveries
        self.happened.still_s_max = self._watch.still_s_max
        self.happened.restarts = self.fleet.restarts
        return self.happened

    def _begin(self) -> None:
        for number in range(WORKERS):
            self.fleet.start(name_of(number))
        self._source.start()
        patience = Patience(_STILL_S_MAX)
        while self.happened.tally.flushes < WORKERS:
            self._look()
            if patience.is_over(self.happened.tally.lines, time.monotonic()):
                raise StackError("The workers do not commit anything from the begin on.")
            time.sleep(_TURN_S)

    def _let_flow(self, faults: Iterator[Fault], begun: float, on_turn: Callable[[], None]) -> None:
        upcoming = next(faults, None)
        while not self._source.has_ended() or self._active:
            self._look()
            on_turn()
            passed_s = time.monotonic() - begun
            self._end_those_over(passed_s)
            while upcoming is not None and upcoming.at_s <= passed_s and self._is_next(passed_s):
                self._begin_fault(upcoming, passed_s)
                upcoming = next(faults, None)
            is_enough = self._source.produced.records >= self._flow.records_min
            if upcoming is None and not self._active and passed_s >= self._flow.seconds and is_enough:
                self._source.stop()
            time.sleep(_TURN_S)

    def _is_next(self, passed_s: float) -> bool:
        """Say whether the next fault may come: at any time, or once everything of before the last ones is committed."""
        if not self._flow.waits_for_recovery:
            return True
        is_late = passed_s - self._ended_at_s >= _RECOVERY_S_MAX
        return not self._active and (is_late or self._watch.has_recovered)

    def _begin_fault(self, fault: Fault, passed_s: float) -> None:
        if not self._injector.may_begin(fault, [one for one, _, _ in self._active]):
            self.happened.left_out += 1
            return
        recovery = self._watch.begin(fault.kind, is_over=KINDS[fault.kind].is_over_at_begin)
        self._tell(f"{passed_s:6.0f} s: {fault}; {self._watch.lag_records} records behind")
        self._injector.begin(fault)
        self.happened.faults[fault.kind] += 1
        self._active.append((fault, passed_s + fault.length_s, recovery))

    def _end_those_over(self, passed_s: float) -> None:
        for one in list(self._active):
            fault, ends_s, recovery = one
            if ends_s <= passed_s and self._injector.end(fault):
                self._watch.end(recovery)
                self._ended_at_s = passed_s
                self._active.remove(one)

    def _drain(self, on_turn: Callable[[], None]) -> None:
        """Wait until everything that was written is committed, for as long as commits go on."""
        patience = Patience(_STILL_S_MAX)
        happened = self.happened
        while (lag := self._watch.lag_records) != 0:
            self._look()
            on_turn()
            if patience.is_over((self._watch.committed, happened.tally.flushes), time.monotonic()):
                happened.notes.append(f"{lag} records are not committed, and nothing moves for {_STILL_S_MAX:.0f} s")
                return
            time.sleep(_TURN_S)
        happened.is_drained = True

    def _look(self) -> None:
        self._ground.environment.require_alive()
        for sentence in self.fleet.mend():
            self._tell(f"        {sentence}")
        self._read_logs()

    def _read_logs(self) -> None:
        for name in self.fleet.workers:
            tail = self._tails.setdefault(name, LogTail(self.fleet.log_of(name)))
            for line in tail.read():
                self.happened.tally.add(name, line)

    @property
    def running(self) -> Iterator[tuple[str, int]]:
        """Name and process id of the workers that live."""
        for name, worker in self.fleet.workers.items():
            if worker.state in (WorkerState.RUNNING, WorkerState.PAUSED) and worker.process.is_alive():
                yield name, worker.process.pid


def _endless(flow: Flow) -> Iterator[GeneratedRecord]:
    """Yield generated records for ever, mostly of one entry."""
    for number in count(flow.seed * 1_000_003):
        settings = GeneratorSettings(
            seed=number,
            users=flow.users,
            entries=_ENTRIES_PER_SEED,
            record_sizes=(1, 3),
            record_size_weights=(0.95, 0.05),
        )
        yield from generate(settings.ending_at(time.time_ns() // 1_000_000))
