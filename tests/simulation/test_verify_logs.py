"""What workers of the simulation tell of themselves, held against the rules of verify-logs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random

import pytest
import structlog

from service.verify.history import History, Judgement
from service.verify.lines import LogFiles
from tests.fakes.worker import Parts
from tests.simulation import mutants
from tests.simulation.swarm import Style, Swarm
from tests.simulation.telling import TellingWorld

STEPS = 150
SEEDS = 4
SEEDS_MAX = 40
WILD = Swarm(at_zombie=0.006, members=0.08, outcome=0.2, old_library=1.0, store_refused=0.0)
Tell = Callable[[TellingWorld], list[bytes]]


@pytest.fixture
def tell() -> Iterator[Tell]:
    """Give a function that runs a world and returns the lines of its workers, whatever becomes of it."""

    def run(world: TellingWorld) -> list[bytes]:
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            processors=[world.hear],
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        world.run(STEPS)
        return world.lines

    yield run
    structlog.reset_defaults()


def judged(lines: list[bytes]) -> Judgement:
    """Judge lines."""
    with ExitStack() as cleanup:
        history = History()
        for line in LogFiles([], io.BytesIO(b"".join(lines)), cleanup).read():
            history.add(line)
        return history.judge()


@pytest.mark.parametrize("style", list(Style))
def test_workers_under_faults_tell_what_passes(style: Style, tell: Tell) -> None:
    """Kills, zombies, lost answers, clocks minutes apart, lines in any order: no false alarm."""
    for seed in range(SEEDS):
        lines = tell(TellingWorld(seed, style=style, swarm=WILD))
        Random(seed).shuffle(lines)

        found = judged(lines)

        assert (found.violations, found.doubts) == ([], []), f"seed {seed}"


@pytest.mark.parametrize(
    ("parts", "style"),
    [
        pytest.param(Parts(controller=mutants.CommitsThePosition), Style.COOPERATIVE, id="commits-the-position"),
        pytest.param(
            Parts(controller=mutants.FlushesWhatIsLost, committer=mutants.TrustsAnyMembership),
            Style.EAGER,
            id="flushes-what-is-lost",
        ),
        pytest.param(Parts(controller=mutants.NeverRewinds), Style.COOPERATIVE, id="never-rewinds"),
        pytest.param(Parts(recorder=mutants.RecordsWhatIsNotOwned), Style.EAGER, id="records-what-is-not-owned"),
        pytest.param(Parts(controller=mutants.ForgetsUnknownOutcomes), Style.COOPERATIVE, id="forgets-unknown"),
    ],
)
def test_wrong_worker_tells_on_itself(parts: Parts, style: Style, tell: Tell) -> None:
    """Some seed's logs break a rule."""
    for seed in range(SEEDS_MAX):
        world = TellingWorld(seed, style=style, swarm=WILD, parts=parts)
        with suppress(Exception):  # what it breaks is for the simulation's own tests
            tell(world)
        if judged(world.lines).violations:
            return
    pytest.fail(f"{SEEDS_MAX} seeds notice nothing")
