"""Executes a plan of faults on a bed and its workers. Main thread only, as the fleet."""

from collections.abc import Callable

from tools.chaos.bed import Bed
from tools.chaos.faults import BROKERS, WORKERS, Fault
from tools.demo.faults import Action as ToWorker
from tools.demo.faults import Step, name_of
from tools.demo.fleet import Fleet, WorkerState
from tools.local.s3_fault_rules import Action, Rule, internal_error
from tools.local.tcp_proxy import API_END_TXN, CutMoment

_ALWAYS = 10**9
_LATENCY_S = 0.1
_THROTTLED_PUTS_PER_S = 3.0

SOME_FAULTS = (
    Rule(Action.STATUS, method="PUT", times=_ALWAYS, share=0.04),
    Rule(Action.STATUS, method="PUT", times=_ALWAYS, share=0.02, status=500, code="InternalError"),
    Rule(Action.DROP_REQUEST, method="PUT", times=_ALWAYS, share=0.01),
    Rule(Action.DROP_ANSWER, method="PUT", times=_ALWAYS, share=0.01),
    Rule(Action.CORRUPT_REQUEST, method="PUT", times=_ALWAYS, share=0.01),
    Rule(Action.DELAY, method="PUT", times=_ALWAYS, share=0.01, delay_s=1.0),
)
"""One request in ten is refused, lost on the way there or back, damaged, or late."""


class Injector:
    """Begins and ends faults; one that cannot be done now, since another is at the same target, is left out."""

    def __init__(self, bed: Bed, fleet: Fleet) -> None:
        self._bed = bed
        self._fleet = fleet
        self._joined = WORKERS
        self._begin = self._to_begin()
        self._end = self._to_end()

    def may_begin(self, fault: Fault, active: list[Fault]) -> bool:
        """Say whether the fault can be done beside those that are active.

        Brokers and their proxies are one target: with two of three gone nothing is to be measured, only waited for.
        """
        mine = _ground(fault)
        if any(_ground(other) == mine and (mine != "worker" or _overlap(fault, other)) for other in active):
            return False
        return fault.target != "worker" or fault.kind == "worker-joins-and-leaves" or self._runs(fault)

    def _runs(self, fault: Fault) -> bool:
        numbers = range(WORKERS) if fault.kind == "workers-all-killed" else (fault.number,)
        return all(self._fleet.workers[name_of(number)].state is WorkerState.RUNNING for number in numbers)

    def begin(self, fault: Fault) -> None:
        """Do it."""
        self._begin[fault.kind](fault.number)

    def end(self, fault: Fault) -> bool:
        """Undo it; False if that has to wait for a process that is still about to end."""
        if fault.kind == "worker-stop" and self._fleet.workers[name_of(fault.number)].process.is_alive():
            return False
        if fault.kind == "broker-stop" and self._bed.kafka.processes[fault.number].is_alive():
            return False
        self._end[fault.kind](fault.number)
        return True

    def _to_begin(self) -> dict[str, Callable[[int], object]]:
        kafka, store, proxies = self._bed.kafka, self._bed.store, self._bed.kafka.proxies
        return {
            "worker-kill": lambda number: self._step(ToWorker.KILL, number),
            "worker-stop": lambda number: self._step(ToWorker.TERMINATE, number),
            "worker-pause-short": lambda number: self._step(ToWorker.PAUSE, number),
            "worker-pause-past-session": lambda number: self._step(ToWorker.PAUSE, number),
            "worker-joins-and-leaves": lambda _: self._fleet.start(name_of(self._joined)),
            "workers-all-killed": lambda _: self._step(ToWorker.KILL, *range(WORKERS)),
            "broker-kill": kafka.kill,
            "broker-stop": lambda number: kafka.processes[number].terminate(),
            "broker-pause": kafka.pause,
            "two-brokers-killed": lambda number: self._kill_brokers(*_two(number)),
            "brokers-all-killed": lambda _: self._kill_brokers(*range(BROKERS)),
            "connections-cut": lambda number: proxies[number].cut(),
            "network-silent": lambda number: proxies[number].hold(),
            "network-slow": lambda _: self._delay(),
            "commit-not-arrived": lambda _: self._cut_commit(CutMoment.BEFORE_REQUEST),
            "commit-answer-lost": lambda _: self._cut_commit(CutMoment.BEFORE_ANSWER),
            "commit-out-of-reach": lambda _: self._cut_commit(CutMoment.BEFORE_ANSWER, then_refuse=True),
            "store-refuses": lambda _: store.add(internal_error(times=_ALWAYS)),
            "store-some-faults": lambda _: store.add(*SOME_FAULTS),
            "store-throttles": lambda _: store.pace.set(puts_per_s=_THROTTLED_PUTS_PER_S),
            "store-silent": lambda _: store.add(Rule(Action.STALL, method="PUT", times=_ALWAYS)),
        }

    def _to_end(self) -> dict[str, Callable[[int], object]]:
        kafka, store = self._bed.kafka, self._bed.store
        network = ("connections-cut", "network-silent", "network-slow")
        commits = ("commit-not-arrived", "commit-answer-lost", "commit-out-of-reach")
        return {
            **dict.fromkeys(("worker-kill", "worker-stop"), lambda number: self._step(ToWorker.START, number)),
            "workers-all-killed": lambda _: self._step(ToWorker.START, *range(WORKERS)),
            **dict.fromkeys(
                ("worker-pause-short", "worker-pause-past-session"), lambda number: self._step(ToWorker.RESUME, number)
            ),
            "worker-joins-and-leaves": lambda _: self._leave(),
            **dict.fromkeys(("broker-kill", "broker-stop"), self._restart_brokers),
            "broker-pause": kafka.resume,
            "two-brokers-killed": lambda number: self._restart_brokers(*_two(number)),
            "brokers-all-killed": lambda _: self._restart_brokers(*range(BROKERS)),
            **dict.fromkeys((*network, *commits), lambda _: self._heal_network()),
            **dict.fromkeys(("store-refuses", "store-some-faults", "store-silent"), lambda _: store.clear()),
            "store-throttles": lambda _: store.pace.set(),
        }

    def _kill_brokers(self, *numbers: int) -> None:
        for number in numbers:
            self._bed.kafka.kill(number)

    def _restart_brokers(self, *numbers: int) -> None:
        for number in numbers:
            self._bed.kafka.restart(number, wait=False)

    def _heal_network(self) -> None:
        for proxy in self._bed.kafka.proxies:
            proxy.heal()

    def _delay(self) -> None:
        for proxy in self._bed.kafka.proxies:
            proxy.latency_s = _LATENCY_S

    def _cut_commit(self, moment: CutMoment, *, then_refuse: bool = False) -> None:
        """Cut the next commit of a transaction on each broker."""
        for proxy in self._bed.kafka.proxies:
            proxy.cut_at(API_END_TXN, moment, then_refuse=then_refuse)

    def _leave(self) -> None:
        self._step(ToWorker.TERMINATE, self._joined)
        self._joined += 1

    def _step(self, action: ToWorker, *numbers: int) -> None:
        for number in numbers:
            self._fleet.perform(Step(0.0, action, name_of(number)))


def _two(number: int) -> tuple[int, int]:
    return number, (number + 1) % BROKERS


def _ground(fault: Fault) -> str:
    return "kafka" if fault.target in ("broker", "network") else fault.target


def _overlap(one: Fault, other: Fault) -> bool:
    kinds = {one.kind, other.kind}
    return "workers-all-killed" in kinds or one.number == other.number or len(kinds) == 1
