"""Plans of faults: determined by the seed, with all kinds in them."""

from __future__ import annotations

from collections import Counter

from tools.chaos.faults import BROKERS, KINDS, WORKERS, Fault, plan_chaos


def plan(seed: int) -> list[Fault]:
    return list(plan_chaos(seed=seed, begin_s=5.0, until_s=6_000.0, every_s=15.0, spared=None))


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
