"""The protocol in every state that two workers can get into: exact, never stuck; and what each rule is for."""

from __future__ import annotations

import pytest

from tests.model.protocol import Rules, explore


@pytest.mark.slow
def test_design_is_exact_in_every_state_and_never_stuck() -> None:
    """Two faults, put out while standing still or killed, and transactions that time out, at any step of either."""
    found = explore(Rules(), faults_max=2)
    assert (found.way, found.stuck) == ([], 0)
    assert found.states > 50_000


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("offsets_with_membership", "stands still and is put out"),  # the zombie; KIP-447
        ("batch_keeps_membership", "sees that it was put out, and joins again"),  # commits as another member
        ("producer_per_transaction", "has no answer"),  # a late request ends the next transaction
        ("waits_for_open_transactions", "asks to commit"),  # offsets of a transaction that is not over
    ],
)
def test_without_any_one_rule_there_is_a_way_to_a_duplicate(rule: str, told: str) -> None:
    """The shortest one; each begins well, and holds the event that the rule is against."""
    way = explore(Rules()._replace(**{rule: False}), faults_max=1).way
    assert way, f"{rule}: no state is inexact"
    assert any(told in step for step in way), "\n".join(way)
