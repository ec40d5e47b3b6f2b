"""A world of workers on one fake broker and one bucket: everything random comes from one seed, time is virtual.

Other things happen at points: wherever a worker talks to the outside, another may have its turn, time may pass, the
process may be stopped until it is a zombie, or die. Calls nest, nothing runs at once, so that a seed repeats exactly.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from log_partitioner.batch.pack_plan import Layout
from log_partitioner.config.settings import VerifySettings
from log_partitioner.control.state import Phase
from log_partitioner.errors import StopError
from log_partitioner.formats.model import TopicPartition
from log_partitioner.proof.accounting import tp_of
from tests import canaries
from tests.fakes.broker import Committed, FakeBroker
from tests.fakes.check import InvariantError, check_all, check_commit, flush_records
from tests.fakes.clock import FakeClock
from tests.fakes.committer import Outcome
from tests.fakes.group import ClassicGroup, ConsumerGroup
from tests.fakes.journal import FakeJournal
from tests.fakes.log import FakeLog
from tests.fakes.records import entry, value_of
from tests.fakes.republisher import Republisher, has_chain, output_of
from tests.fakes.rig import group_of, member_of
from tests.fakes.store import Bucket, PutFault
from tests.fakes.worker import DEAD_LETTERS, SEAL_RULES, FakeWorker, Parts, Rules, verifying
from tests.simulation.swarm import Style, Swarm, choose

SESSION_S = 30.0
WORKERS_MAX = 4
NESTED_MAX = 3
RECORDS_MAX = 1500
TRACE_MAX = 120
_HIDDEN_USER = re.compile("~[0-9a-f]{8}")  # of a user who has another name in each process
FIELDS: dict[str, tuple[Any, ...]] = {
    "mix": (1, "one"), "wide": (5, 2**60), "nil": (None, True), "name.1": ("x", "y" * 3_000),
    "nested": ({}, {"a": 1}, {"a": "b", "c": [1.5]}), "list": ([], [1, None], ["z"]),
}  # fmt: skip
PUT_FAULTS = (
    PutFault.NOT_STORED, PutFault.ANSWER_LOST, PutFault.ANSWER_LOST_LATE, PutFault.TAKEN, PutFault.SLOW,
)  # fmt: skip
OUTCOMES = (
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "TRANSACTION_ABORTABLE", "_TIMED_OUT", Outcome.UNKNOWN_COMMITTED,
    Outcome.UNKNOWN_OPEN, Outcome.TIMED_OUT, Outcome.NOT_ABORTED,
)  # fmt: skip
LAYOUTS: tuple[Layout, ...] = ("auto", "pack", "file")
START_AFTER_S = (0, 0, 30)  # the beginning, or what comes later than that
# By seed: every flush, or a share. What differs ends the worker, which no worker may.
VERIFIED = {
    0: verifying(),
    3: verifying(),
    5: verifying(share=0.3),
}
DISK = {"append", "read", "create", "write", "finish", "load"}
DISK_SHARE = 0.1  # of these places are used, or they would be most of all
PUT_S = (0.0, 0.0, 0.02, 0.3, 3.0)
THROTTLED_PUT_S = (1.0, 2.0)  # of a store that stays slow, if each PartitionKey is an object
BACKLOG = 60  # times that records are produced before such a world is drained
ROW_S = (0.0, 0.0, 0.01, 0.3)
# A worker may end itself for these reasons; a restart is the remedy, and it is given one.
MAY_END = (
    "TooManyFailuresError", "StoreRefusedError", "has lost committed offsets",
)  # fmt: skip


class KilledError(BaseException):
    """SIGKILL: nothing of the process runs any more, no handler either."""


@dataclass(slots=True)
class Process:
    """One process of a worker; a restart of the same name is another one."""

    worker: FakeWorker
    dead: bool = False
    busy: bool = False
    stopped: bool = False
    """SIGSTOP: neither the application nor the library's thread runs."""
    put_s: float = 0.0
    """How long each PUT takes."""
    row_s: float = 0.0
    """How long each row takes while it is sealed."""
    full_until_s: float = 0.0
    """Until when its disk takes nothing."""

    def heal(self, *, put_s: float) -> None:
        """End what makes it slow, but for a store that stays so."""
        self.stopped = False
        self.put_s, self.row_s, self.full_until_s = put_s, 0.0, 0.0


class World:
    """Runs one seed; `run` raises InvariantError if an invariant is broken."""

    def __init__(
        self,
        seed: int,
        *,
        style: Style | None = None,
        swarm: Swarm | None = None,
        parts: Parts | None = None,
        verify: VerifySettings | None = None,
        chained: bool = False,
    ) -> None:
        """Make it; without wrong `parts`, some seeds have verification mode on. `chained`: with republishers."""
        self.random = Random(seed)
        self.style = style or self.random.choice(list(Style))
        chosen = choose(self.random)  # drawn in any case, so that a seed with fewer faults begins alike
        self.swarm = swarm or chosen
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.story = hashlib.sha256()
        self.happened: Counter[str] = Counter()
        self.clock = FakeClock()
        tps = [TopicPartition("source", number) for number in range(self.random.randint(1, 6))]
        self.broker = FakeBroker(self.clock, tps)
        self.broker.on_committed = self._on_committed
        self.bucket = Bucket()
        self.broker.group = self.group = group_of(self.style.value, self.clock, tps, session_s=SESSION_S)
        if isinstance(self.group, ConsumerGroup):
            self.group.is_lenient = self.random.random() < 0.5
        self.processes: dict[str, Process] = {}
        self._parts = parts
        random = self.random
        self._rules = Rules().with_bounds(
            entries_max=random.choice((30, 120, 10**6)), fixed_bytes_max=random.choice((30_000, 10**9, 10**9))
        )
        self._rules = self._rules.with_layout(random.choice(LAYOUTS))
        self._rules = self._rules.with_settings(spool={"memory_bytes_max": random.choice((1, 10_000, 10**9))})
        start_after_s = random.choice(START_AFTER_S)
        if start_after_s and not chained:  # a replay of what came before the start is none of the group's
            self.broker.start_at_ms = self.clock.wall_ms() + 1000 * start_after_s
            self._rules = self._rules.with_settings(kafka={"start_at": self.broker.start_at_ms})
        if verify is None and parts is None:
            verify = VERIFIED.get(seed % 8)
        if verify is not None:
            self._rules = self._rules.with_settings(verify=verify)
        own = Random(f"throttle {seed}")
        self._coordinator = Random(f"coordinator {seed}")
        self._throttled_s = own.choice(THROTTLED_PUT_S) if own.random() < self.swarm.throttle else 0.0
        if self._throttled_s:
            self._rules = self._rules.with_layout("file")
        if parts is None and seed % 2:  # wrong parts are of Python
            self._rules = self._rules.with_lane()
        self._roots, self._republishers = FakeLog(TopicPartition("raw", 0)), []
        self._chain_random = Random(f"chain {seed}")
        if chained:
            self._rules = self._rules.with_settings(input={"discard_replays": True})
            logs, now_ms = list(self.broker.logs.values()), self.clock.wall_ms
            self._republishers = [
                Republisher(by, self._roots, logs, self._chain_random, now_ms=now_ms) for by in ("a/1", "bb/1")
            ]
        self._journals: defaultdict[str, FakeJournal] = defaultdict(FakeJournal)
        self._damaged: list[tuple[float, FakeLog]] = []
        self._boots = itertools.count(1)
        self._numbers = itertools.count(1)
        self._depth = 0
        self._broken: InvariantError | None = None

    @property
    def rebalances(self) -> int:
        """How many generations, or epochs, the group has had."""
        return self.group.generation if isinstance(self.group, ClassicGroup) else self.group.epoch

    # The run.

    def run(self, steps: int) -> None:
        """Work under faults, heal, drain, stop all workers, check everything."""
        for _ in range(self.random.randint(1, 3)):
            self._add()
        for _ in range(steps):
            self._act()
        self.note("healed")
        self.swarm = self.swarm.healed()
        self._repair(until_s=math.inf)
        if self._throttled_s:
            self.note(f"the store stays at {self._throttled_s} s for each PUT")
            self.happened["throttled store"] += 1
            for _ in range(BACKLOG):
                self.produce()
        self._drain()
        for process in list(self.processes.values()):
            process.worker.stop.request()
        for _ in range(50):
            for process in list(self.processes.values()):
                self.turn(process)
        if self.processes:
            raise InvariantError(f"I9: {sorted(self.processes)} do not stop")
        self._raise_broken()
        check_all(self.broker, self.bucket)
        self._check_replays()
        if b"fatal" in {dict(one.headers)["lp-reason"] for one in self.broker.messages(DEAD_LETTERS)}:
            raise InvariantError("a record was put away that ended nothing")

    def _check_replays(self) -> None:
        """Check I1 and I2 of outputs: of each all records but one are discarded; the audit has a twin of each."""
        flushes = [line for flush in flush_records(self.broker) for line in flush.topic_partitions]
        begins: dict[TopicPartition, int] = {}
        for line in flushes:
            begins[tp_of(line)] = min(line.first_offset, begins.get(tp_of(line), line.first_offset))
        taken = [
            output_of(one)
            for tp, log in self.broker.logs.items()
            for one in log.records
            if has_chain(one) and one.offset >= begins.get(tp, log.end)
        ]
        discarded = sum(line.discarded_replays for line in flushes)
        if self._republishers and discarded != len(taken) - len(set(taken)):
            raise InvariantError(f"I2: {discarded} discarded of {len(taken)} records with {len(set(taken))} outputs")
        self.happened["replay"] += discarded

    def _act(self) -> None:
        dice = self.random.random()
        live = self._free()
        if dice < 0.18:
            self.produce()
        elif dice < 0.28:
            self.elapse(self.random.choice((0.5, 3.0, 12.0)))
        elif dice < 0.28 + self.swarm.members:
            self._change_members()
        elif live:
            process = self.random.choice(live)
            if self.random.random() < self.swarm.stop:
                self.note(f"{process.worker.name} asked to stop")
                process.worker.stop.request()
            self.turn(process)
        self._raise_broken()

    def _drain(self) -> None:
        for process in list(self.processes.values()):
            process.heal(put_s=self._throttled_s)
            process.worker.consumer.pop_first = lambda _most: 0
            process.worker.committer.script.clear()
            process.worker.store.script.clear()
        for _ in range(400):
            if len(self._free()) < 2 and len(self.processes) < 2:
                self._add()
            for process in self._free():
                self.turn(process)
            self.elapse(1.0)
            self._raise_broken()
            if self._is_drained():
                return
        lag = {str(tp): (self.broker.committed_offset(tp), log.end) for tp, log in self.broker.logs.items()}
        raise InvariantError(f"I9: 400 s after healing the lag is still there: {lag}")

    def _is_drained(self) -> bool:
        for tp, log in self.broker.logs.items():
            due = log.records and (log.records[-1].timestamp_ms or 0) >= self.broker.start_at_ms
            if due and (self.broker.committed_offset(tp) or 0) <= log.records[-1].offset:
                return False
        return True

    # Steps.

    def turn(self, process: Process) -> None:
        """Let one process turn its loop once."""
        if process.dead or process.stopped or process.busy:
            return
        process.busy = True
        worker = process.worker
        try:
            self._script_faults(process)
            self._repair(until_s=self.clock.now_s())
            worker.step()
            if worker.controller.state.phase is Phase.STOPPED:
                self.note(f"{worker.name} stopped")
                worker.close()
                self._forget(process)
        except KilledError:
            self._forget(process)
        except StopError as error:
            self._end(process, error)
        finally:
            process.busy = False

    def _end(self, process: Process, error: StopError) -> None:
        cause = f"{type(error).__name__}: {error}"
        if not process.dead:  # a kill inside a callback comes back as a StopError of a process that is no more
            self.note(f"{process.worker.name} ended itself: {cause}")
            self.happened["ended itself"] += 1
            if not any(reason in cause for reason in MAY_END):
                raise InvariantError(f"I9: {process.worker.name} ended itself: {cause}") from error
            with suppress(KilledError):
                process.worker.close()
        self._forget(process)

    def _forget(self, process: Process) -> None:
        if self.processes.get(process.worker.name) is process:
            del self.processes[process.worker.name]

    def _script_faults(self, process: Process) -> None:
        random, swarm, worker = self.random, self.swarm, process.worker
        if random.random() < swarm.put:
            worker.store.script.append(random.choice(PUT_FAULTS))
        if random.random() < swarm.store_refused:
            worker.store.script.append(PutFault.REFUSED)
        if random.random() < swarm.outcome and not worker.committer.script:
            worker.committer.script.append(random.choice(OUTCOMES))
        if random.random() < swarm.slow:
            process.put_s, process.row_s = random.choice(PUT_S), random.choice(ROW_S)
        if random.random() < swarm.full:
            process.full_until_s = self.clock.now_s() + random.uniform(2.0, 90.0)
            self.happened["full disk"] += 1

        if random.random() < swarm.damage:
            self._damage()
        if self._coordinator.random() < swarm.coordinator:
            self.broker.load_part(self._coordinator.random(), seconds=self._coordinator.choice((1.0, 10.0, 60.0)))
            self.happened["coordinator"] += 1

    def _damage(self) -> None:
        """Make a record batch unreadable for a while: the disk of a leader, or what lies between."""
        log = self.random.choice(list(self.broker.logs.values()))
        if log.end:
            first = self.random.randrange(log.end)
            log.broken.append(range(first, min(log.end, first + self.random.randint(1, 4))))
            self._damaged.append((self.clock.now_s() + self.random.choice((2.0, 10.0, 100.0)), log))
            self.happened["damage"] += 1

    def _repair(self, *, until_s: float) -> None:
        for _, log in [one for one in self._damaged if one[0] <= until_s]:
            log.broken.clear()
        self._damaged = [one for one in self._damaged if one[0] > until_s]

    def _refuses(self, process: Process) -> bool:
        return self.clock.now_s() < process.full_until_s or self.random.random() < self.swarm.spool

    def _decode(self, process: Process, text: bytes) -> Any:
        """Decode a row while it is sealed."""
        if process.row_s:
            self.happened["slow sealing"] += 1
            self.elapse(process.row_s)
        return SEAL_RULES.decode(text)

    def point(self, process: Process, name: str) -> None:
        """Let other things happen at this place of this process."""
        if process.dead:
            raise KilledError
        self.happened[name] += 1
        if name == "put" and process.put_s:
            self.happened["slow store"] += 1
            self.elapse(process.put_s)
        if name in DISK and self.random.random() > DISK_SHARE:
            return
        self._tick()
        dice = self.random.random()
        swarm = self.swarm
        if dice < swarm.at_kill:
            self._kill(process, name)
        elif (dice := dice - swarm.at_kill) < swarm.at_zombie:
            self.note(f"{process.worker.name} stopped at {name}")
            self.happened["zombie"] += 1
            process.stopped = True
            self._let_others(process, self.random.uniform(0.5, 3.0) * SESSION_S)
            process.stopped = False
            self.note(f"{process.worker.name} continued at {name}")
        elif (dice := dice - swarm.at_zombie) < swarm.at_stall:
            self.note(f"{process.worker.name} stalls at {name}")
            self.happened["stall"] += 1
            self._let_others(process, self.random.uniform(5.0, 60.0))
        elif dice - swarm.at_stall < swarm.at_interleave:
            self._let_others(process, 0.0)
        if process.dead:
            raise KilledError

    def _let_others(self, process: Process, seconds: float) -> None:
        """Let the other processes have some turns while time passes."""
        if self._depth >= NESTED_MAX:
            self.elapse(seconds)
            return
        self._depth += 1
        try:
            turns = self.random.randint(1, 4) if not seconds else self.random.randint(4, 30)
            for _ in range(turns):
                others = [one for one in self._free() if one is not process]
                if others and self.random.random() < 0.9:
                    self.turn(self.random.choice(others))
                else:
                    self.produce()
                self.elapse(seconds / turns)
        finally:
            self._depth -= 1

    def _change_members(self) -> None:
        live = self._free()
        if len(self.processes) < WORKERS_MAX and (self.random.random() < 0.6 or not live):
            self._add()
        elif live:
            self._kill(self.random.choice(live), "between turns", quietly=True)

    def _add(self) -> None:
        name = next(name for name in "abcdefgh" if name not in self.processes)
        boot = f"{next(self._boots)}"
        process: Process
        worker = FakeWorker(
            name,
            self.broker,
            member_of(self.group, f"{name}-{boot}", self._parts or Parts()),
            self.clock,
            self.bucket,
            rules=self._rules.with_seal(decode=lambda text: self._decode(process, text)),
            parts=self._parts,
            point=lambda where: self.point(process, where),
            boot=boot,
            journal=self._journals[name],
        )
        process = Process(worker, put_s=self._throttled_s)
        random = self.random
        worker.consumer.pop_first = lambda most: random.randint(0, min(most, 8))
        worker.consumer.callbacks_max = lambda: random.randint(1, 3)
        worker.consumer.purge = random.random() >= self.swarm.old_library
        worker.spool.refuses = lambda _operation: self._refuses(process)
        self.processes[name] = process
        self.note(f"{name} started as boot {boot}")
        process.busy = True
        try:
            worker.start()
        except KilledError:
            self._forget(process)
        finally:
            process.busy = False

    def _kill(self, process: Process, where: str, *, quietly: bool = False) -> None:
        self.note(f"{process.worker.name} killed at {where}")
        self.happened["kill"] += 1
        process.dead = True
        self._forget(process)
        if not quietly:
            raise KilledError

    def produce(self) -> None:
        """Append some records, good and bad, and holes; not without end: others let more happen than they read."""
        random = self.random
        if sum(log.end for log in self.broker.logs.values()) >= RECORDS_MAX:
            return
        for _ in range(random.randint(1, 5)):
            log = self.broker.logs[random.choice(list(self.broker.logs))]
            dice = random.random()
            if dice < 0.05:
                log.append_hole()
            elif dice < 0.08:
                log.append(random.choice((None, b"[]", b"{", b"[1]")), timestamp_ms=self.clock.wall_ms())
            else:
                entries = random.randint(1, 3) if dice < 0.95 else random.randint(10, 40)
                value = value_of(*(self._entry() for _ in range(entries)))
                log.append(value, timestamp_ms=self.clock.wall_ms())

        self._republish()

    def _republish(self) -> None:
        """Let each republisher publish some outputs; it may die amid these."""
        random = self._chain_random
        for one in self._republishers:
            self._roots.append(value_of(entry(n=self._roots.end)))
            for _ in range(random.randint(0, 4)):
                if random.random() < 0.1:
                    one.die()
                one.step()

    def _entry(self) -> dict[str, Any]:
        """Make an entry of few users or one of many; fields come and go, and one is of two types."""
        random = self.random
        user = (
            random.choice((*canaries.USERS, None))
            if random.random() < 0.7
            else f"{canaries.USER}-{random.randint(1, 300)}"
        )
        fields: dict[str, Any] = {"n": next(self._numbers)}
        for name, values in FIELDS.items():
            if random.random() < 0.2:
                fields[name] = random.choice(values)
        return entry(user, hours_ago=random.randint(0, 2), **fields)

    def elapse(self, seconds: float) -> None:
        """Let time pass; the libraries of those that run send heartbeats meanwhile."""
        while seconds > 0:
            self.clock.advance(min(seconds, 4.0))
            seconds -= 4.0
            self._tick()

    def _tick(self) -> None:
        self.broker.expire()
        self.group.tick()
        for process in list(self.processes.values()):
            if not process.stopped and not process.dead and process.worker.consumer.is_member_running:
                process.worker.consumer.member.background()

    def _free(self) -> list[Process]:
        return [one for one in self.processes.values() if not (one.busy or one.stopped or one.dead)]

    def _on_committed(self, committed: Committed) -> None:
        self.happened["commit"] += 1
        try:
            check_commit(committed)
        except InvariantError as error:
            self._broken = self._broken or error
            self.note(f"BROKEN {error}")

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def note(self, text: str) -> None:
        """Remember what happened, for the report of a failure."""
        line = f"{self.clock.now_s():10.3f} {text}"
        self.trace.append(line)
        self.story.update(_HIDDEN_USER.sub("~", line).encode())
