"""Which seeds of the simulation pytest runs: a plugin, since options of a folder's conftest come too late."""

from __future__ import annotations

import pytest

SEEDS_DEFAULT = 60  # `make sim` runs a thousand


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--seed", action="append", type=int, default=[], help="simulation: run this seed (repeatable)")
    parser.addoption("--seeds", type=int, default=SEEDS_DEFAULT, help="simulation: how many seeds")
    parser.addoption("--first-seed", type=int, default=0, help="simulation: the first seed")


def seeds_of(config: pytest.Config) -> list[int]:
    """Return the seeds that were chosen."""
    chosen: list[int] = config.getoption("--seed")
    first: int = config.getoption("--first-seed")
    return chosen or list(range(first, first + config.getoption("--seeds")))


def pytest_report_header(config: pytest.Config) -> str:
    """Say which seeds, so that others can be told from these."""
    seeds = seeds_of(config)
    return f"simulation: {len(seeds)} seeds, {seeds[0]} to {seeds[-1]}" if seeds else "simulation: no seeds"
