"""Plans of faults: determined by the seed, all kinds in them, and each can be begun and ended."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tools.chaos.faults import BROKERS, KINDS, WORKERS, Fault, plan_bounces, plan_chaos
from tools.chaos.injector import Injector
from tools.chaos.matrix import Cell, chosen
from tools.demo.fleet import WorkerState


def plan(seed: int, *, spared: int | None = None) -> list[Fault]:
    return list(plan_chaos(seed=seed, begin_s=5.0, until_s=6_000.0, every_s=15.0, spared=spared))


def test_plan_chaos_equal_seed_equal_plan() -> None:
    """A run is repeated by its seed."""
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_plan_chaos_has_every_kind_within_its_bounds() -> None:
    """In four hundred turns; two at once never meet the same target."""
    faults = plan(1)
    assert {fault.kind for fault in faults} == KINDS.keys()
    for fault in faults:
        least, most = KINDS[fault.kind].seconds
        assert least <= fault.length_s <= most
        assert 0 <= fault.number < max(WORKERS, BROKERS)
    turns = Counter((int((fault.at_s - 5.0) // 15.0), fault.target) for fault in faults)
    assert set(turns.values()) == {1}


def test_plan_chaos_spares_a_worker_from_ends_only() -> None:
    """It is paused and cut off as others are; it never ends."""
    met = {fault.kind for fault in plan(3, spared=0) if fault.target == "worker" and fault.number == 0}
    assert met == {"worker-pause-short", "worker-pause-past-session"}
    assert "workers-all-killed" not in {fault.kind for fault in plan(3, spared=0)}


@pytest.mark.parametrize(("target", "count"), [("worker", 9), ("broker", 3)])
def test_plan_bounces_meets_each_in_turn_and_one_at_a_time(target: Any, count: int) -> None:
    """Nine bounces of three workers, three of three brokers; each is back before the next one goes."""
    faults = plan_bounces(target=target, how="kill", seed=1)
    assert Counter(fault.number for fault in faults) == dict.fromkeys(range(3), count // 3)
    for one, other in itertools.pairwise(faults):
        assert one.at_s + one.length_s < other.at_s


class _Calls:
    """Stands for bed and fleet: remembers what was called on any of its parts."""

    def __init__(self, calls: list[str], path: str = "") -> None:
        self._calls = calls
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name == "proxies":
            return [_Calls(self._calls, f"{self._path}.proxy") for _ in range(BROKERS)]
        if name == "processes":
            return [SimpleNamespace(terminate=self._called, is_alive=lambda: False) for _ in range(BROKERS)]
        if name == "workers":
            process = SimpleNamespace(is_alive=lambda: False)
            worker = SimpleNamespace(process=process, state=WorkerState.RUNNING)
            return {f"worker-{number + 1}": worker for number in range(WORKERS)}
        return _Calls(self._calls, f"{self._path}.{name}")

    def __call__(self, *_: object, **__: object) -> None:
        self._calls.append(self._path)

    def _called(self) -> None:
        self._calls.append(self._path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_begun_and_ended(kind: str) -> None:
    """By something that is done to bed or fleet, both times."""
    calls: list[str] = []
    everything: Any = _Calls(calls)
    injector, fault = Injector(everything, everything), Fault(0.0, kind, 1, 1.0)
    injector.begin(fault)
    begun = len(calls)
    assert injector.end(fault)
    # Latency is a value that is set.
    assert begun or kind == "network-slow"
    assert len(calls) > begun


def test_faults_of_brokers_and_network_exclude_each_other() -> None:
    """With two of three brokers out of reach nothing would be measured; workers and store are beside them."""
    everything: Any = _Calls([])
    injector, active = Injector(everything, everything), [Fault(0.0, "broker-pause", 0, 9.0)]
    assert not injector.may_begin(Fault(1.0, "network-silent", 1, 1.0), active)
    assert injector.may_begin(Fault(1.0, "store-refuses", 1, 1.0), active)
    assert injector.may_begin(Fault(1.0, "worker-kill", 1, 1.0), active)
    assert not injector.may_begin(Fault(1.0, "workers-all-killed", 0, 1.0), [Fault(0.0, "worker-pause-short", 2, 9.0)])


def test_cells_are_all_combinations_and_chosen_by_parts_of_their_names() -> None:
    """2 x 2 x 3 x 3; a name that is none is refused."""
    assert len({cell.name for cell in Cell.all()}) == 36
    assert {cell.how for cell in chosen(["kill-brokers-range-clean", "kill-workers"])} == {"kill"}
    with pytest.raises(ValueError, match="No cell"):
        chosen(["nobody"])
