"""The demo's course: workers, records and faults at the same time; then drain, stop, audit.

One thread does everything here but the writing of records. Nothing is audited unless everything is committed.
"""

import time
from collections.abc import Callable, Iterator

from tools.demo.announced import Announced, read_announced
from tools.demo.audit import SparkJobs, audit_on_spark, audit_small, verify_logs
from tools.demo.environment import Environment
from tools.demo.faults import first_workers, plan_demo
from tools.demo.fleet import Fleet, Worker, WorkerState
from tools.demo.journal import LogTail, Tally, WorkerTally
from tools.demo.lag import GroupLag, behind
from tools.demo.options import GROUP, SESSION_TIMEOUT_S, SOURCE, DemoOptions
from tools.demo.screen import Picture, Screen, WorkerRow
from tools.demo.source import DemoSource
from tools.demo.verdict import Verdict, explain_dead_letters, explain_times, judge, judge_stuck
from tools.local.patience import Patience

_SPAN_S_MIN = 25.0  # records flow at least as long as the faults take, and this long
_TURN_S = 0.1
_LAG_EVERY_S = 1.0
# Without a commit of any worker while records wait. Much longer than what may hold up a healthy group: a transaction
# that a killed worker left open (20 s), a flush that used up its budgets (70 s) and was given up.
_STILL_S_MAX = 180.0
_ROWS_MAX = 8
_ENDED = (WorkerState.KILLED, WorkerState.STOPPED)


class Story:
    """One run of the demo on an environment that is there."""

    def __init__(self, options: DemoOptions, environment: Environment, screen: Screen) -> None:
        self._options = options
        self._environment = environment
        self._screen = screen
        self._plan = plan_demo(session_timeout_s=SESSION_TIMEOUT_S, workers=options.workers)
        self._fleet = Fleet(root=environment.directory / "workers", settings=environment.variables)
        span_s = max(_SPAN_S_MIN, self._plan.length_s)
        self._source = DemoSource(options, bootstrap=environment.bootstrap, span_s=span_s)
        self._lag = GroupLag(bootstrap=environment.bootstrap, group=GROUP, topic=SOURCE)
        self._tails: dict[str, LogTail] = {}
        self._tally = Tally()
        self._jobs: SparkJobs | None = None
        self._committed: dict[int, int] | None = None
        self._lag_records: int | None = None
        self._lag_measured_at = float("-inf")

    def run(self) -> Verdict:
        """Tell the whole story; return how it ended. No worker and no job is left when it ends.

        Raises:
            StackError: a worker does not work at all, or a server died.
            ProduceError: Kafka did not take the records.
        """
        try:
            self._let_records_flow()
            if not self._drain():
                self._screen.leave()
                return self._say_stuck()
            self._stop_workers()
            self._screen.leave()
            announced = self._conclude()
            audit_code = self._audit()
            logs_code = verify_logs(self._environment, self._screen.tell)
            timeless = explain_times(self._tally, self._options.paths)
            return judge(audit_code, announced, self._options.paths, logs_code=logs_code, timeless=timeless)
        finally:
            self._source.stop()
            self._fleet.kill()
            self._lag.close()
            if self._jobs is not None:
                self._jobs.kill()

    def _let_records_flow(self) -> None:
        """Start workers and records, play the plan, and wait for the last record."""
        for name in first_workers(self._options.workers):
            self._fleet.start(name)
        self._screen.tell(
            f"{self._options.workers} workers ({self._options.protocol}), {self._source.entries:,} entries "
            f"at {self._source.entries_per_s:,.0f}/s, seed {self._options.seed}"
        )
        self._source.start()
        self._await_workers()
        self._play()
        self._watch("no more faults", self._source.has_ended)

    def _await_workers(self) -> None:
        """Wait until the first workers work, so that faults meet workers and not programs that are being loaded."""
        patience = Patience(_STILL_S_MAX)
        self._watch(
            "workers start",
            lambda: (
                self._tally.started >= self._options.workers or patience.is_over(self._tally.lines, time.monotonic())
            ),
        )

    def _play(self) -> None:
        self._screen.tell(f"faults: {self._plan}")
        started = time.monotonic()
        for step in self._plan.steps:
            self._watch("faults", lambda: False, limit_s=started + step.at_s - time.monotonic())
            self._fleet.perform(step)
            self._screen.tell(f">>> {step.action.value} {step.worker}")
        self._watch("faults", lambda: False, limit_s=started + self._plan.length_s - time.monotonic())

    def _watch(self, stage: str, is_done: Callable[[], bool], *, limit_s: float = float("inf")) -> bool:
        """Show the events until `is_done` or the time is over; return whether it is done."""
        deadline = time.monotonic() + limit_s
        while not (done := is_done()) and time.monotonic() < deadline:
            self._look(stage)
            time.sleep(max(0.0, min(_TURN_S, deadline - time.monotonic())))
        return done

    def _drain(self) -> bool:
        """Wait until everything that was written is committed, for as long as commits go on; return whether it is."""
        if self._options.audit == "spark":
            self._jobs = SparkJobs(self._environment)  # Java starts while the workers do the rest
        self._lag_records, self._lag_measured_at = None, float("-inf")
        patience = Patience(_STILL_S_MAX)
        self._watch(
            "draining",
            lambda: (
                self._lag_records == 0 or patience.is_over((self._committed, self._tally.flushes), time.monotonic())
            ),
        )
        return self._lag_records == 0

    def _say_stuck(self) -> Verdict:
        self._screen.tell(self._picture("stuck").status())
        lags = behind(self._source.produced.next_offsets, self._committed or {})
        return judge_stuck(lags, window_s=_STILL_S_MAX, given_up=self._tally.given_up)

    def _audit(self) -> int:
        if self._jobs is not None:
            return audit_on_spark(self._environment, self._jobs, self._screen.tell)
        return audit_small(self._environment, self._screen.tell)

    def _stop_workers(self) -> None:
        self._screen.tell(">>> SIGTERM to all workers")
        for sentence in self._fleet.stop():
            self._screen.tell(f"*** {sentence}")
        self._read_logs()
        self._screen.show(self._picture("stopped"))

    def _conclude(self) -> Announced:
        """Report the run in numbers before the audit judges it; return the workers' announcements."""
        produced, tell = self._source.produced, self._screen.tell
        announced = read_announced(self._environment.bootstrap)
        stored = sum(1 for path in self._environment.objects.rglob("*") if path.is_file())
        tell(self._picture("stopped").status())
        for line in describe_work(announced, self._tally, objects_stored=stored):
            tell(line)
        if produced.aborted_records:
            tell(
                f"{produced.aborted_records} more records stand in aborted transactions of the source: "
                "nobody may see those"
            )
        if self._fleet.restarts:
            tell(f"workers that ended by themselves and were started again: {self._fleet.restarts}")
        if announced.is_mostly_dead:
            tell(f"*** {explain_dead_letters(announced, self._options.paths)[0]}")
        return announced

    def _look(self, stage: str) -> None:
        """Take in new events, mend failures, and show the state."""
        self._environment.require_alive()
        for sentence in self._fleet.mend():
            self._screen.tell(f"*** {sentence}")
        self._read_logs()
        if time.monotonic() - self._lag_measured_at > _LAG_EVERY_S:
            self._measure_lag()
            self._lag_measured_at = time.monotonic()
        self._screen.show(self._picture(stage))

    def _measure_lag(self) -> None:
        next_offsets = self._source.produced.next_offsets
        committed = self._lag.committed(next_offsets)
        if committed is None:
            self._lag_records = None  # Kafka did not answer: the lag is not known, and nothing has moved
            return
        self._committed = committed
        self._lag_records = sum(behind(next_offsets, committed).values())

    def _read_logs(self) -> None:
        for name in self._fleet.workers:
            tail = self._tails.setdefault(name, LogTail(self._fleet.log_of(name)))
            for line in tail.read():
                self._tally.add(name, line)
        while self._tally.news:
            self._screen.tell(self._tally.news.popleft())

    def _picture(self, stage: str) -> Picture:
        produced, tally = self._source.produced, self._tally
        return Picture(
            stage=stage,
            records_in=produced.records,
            entries_in=produced.entries,
            entries_out=tally.entries,
            dead_letters=tally.dead_letters,
            lag=self._lag_records,
            flushes=tally.flushes,
            assignment_changes=tally.assignment_changes,
            workers=tuple(self._rows()),
        )

    def _rows(self) -> Iterator[WorkerRow]:
        """Yield the alive workers, then those that ended last, as far as there is room."""
        latest_first = list(reversed(self._fleet.workers.values()))
        alive = sorted(worker.name for worker in latest_first if worker.state not in _ENDED)
        ended = [worker.name for worker in latest_first if worker.state in _ENDED]
        for name in (alive + ended)[:_ROWS_MAX]:
            yield _row(self._fleet.workers[name], self._tally.workers.get(name, WorkerTally()))


def describe_work(announced: Announced, tally: Tally, *, objects_stored: int) -> list[str]:
    """Return the numbers announced and stored, and the cost of giving up, a sentence each."""
    announcing = f"{announced.flushes:,} flushes, {announced.references:,} references (users and hours of each flush)"
    storing = f"{len(announced.objects):,} objects with {len(announced.schemas):,} schemas; {objects_stored:,} PUTs"
    lines = [f"{announcing} to {storing}"]
    if unnamed := objects_stored - announced.objects_named:
        lines.append(f"{unnamed:,} of the objects are named by nothing: uploads of batches that were not committed")
    if tally.given_up:
        lines.append(f"{tally.given_up:,} batches given up, {tally.records_again:,} records read again for it")
    return lines


def _row(worker: Worker, tally: WorkerTally) -> WorkerRow:
    owned = tally.owned if worker.state is WorkerState.RUNNING else None
    return WorkerRow(worker.name, worker.state.value, owned, tally.flushes, tally.entries, tally.last)
