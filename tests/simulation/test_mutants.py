"""A simulation that lets a wrong worker pass proves nothing; each of these must be noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.control import machine
from service.control.deadline import Deadline
from service.control.events import Rewound
from service.formats.model import CommittedOffset, SourceRecord
from service.runtime.controller import Controller
from service.runtime.runloop import Runloop
from service.runtime.start_positions import StartPositions
from tests.fakes.check import InvariantError
from tests.fakes.committer import Outcome
from tests.fakes.records import P0
from tests.fakes.worker import Parts
from tests.simulation import mutants
from tests.simulation.conftest import Run
from tests.simulation.swarm import Style, Swarm
from tests.unit.runtime import test_controller, test_liveness
from tests.unit.runtime import test_start_positions as starts

SEEDS_MAX = 100
EVERYTHING = Swarm(at_zombie=0.006, members=0.08, outcome=0.2, old_library=1.0, store_refused=0.0)


def first_seed_that_notices(run_seed: Run, parts: Parts, style: Style | None = None) -> str:
    """Give what the first seed says that breaks an invariant."""
    for seed in range(SEEDS_MAX):
        try:
            run_seed(seed, style=style, swarm=EVERYTHING, parts=parts)
        except machine.InvalidTransitionError:
            continue  # noticed by the worker itself; what it would do to the data is for another seed
        except (InvariantError, AssertionError) as error:
            return str(error)
    pytest.fail(f"{SEEDS_MAX} seeds notice nothing")


@pytest.mark.parametrize(
    ("parts", "style"),
    [
        pytest.param(Parts(runloop=mutants.DropsBufferedRecords), Style.COOPERATIVE, id="drops-buffered-cooperative"),
        pytest.param(Parts(runloop=mutants.DropsBufferedRecords), Style.KIP848, id="drops-buffered-kip848"),
        pytest.param(Parts(controller=mutants.NeverRewinds), None, id="never-rewinds"),
        pytest.param(Parts(controller=mutants.RewindsNothingKept), Style.COOPERATIVE, id="rewinds-nothing-kept"),
        pytest.param(Parts(controller=mutants.CommitsThePosition), None, id="commits-the-position"),
        pytest.param(
            Parts(controller=mutants.FlushesWhatIsLost, committer=mutants.TrustsAnyMembership),
            Style.EAGER,
            id="flushes-what-is-lost",
        ),
        pytest.param(
            Parts(controller=mutants.IgnoresMemberIds, committer=mutants.TrustsAnyMembership),
            Style.EAGER,
            id="trusts-any-membership",
        ),
        pytest.param(Parts(recorder=mutants.RecordsWhatIsNotOwned), None, id="records-what-is-not-owned"),
        pytest.param(Parts(controller=mutants.AcceptsStaleRecords), Style.EAGER, id="accepts-stale-records"),
        pytest.param(Parts(committer=mutants.AnnouncesOutsideTheTransaction), None, id="announces-outside"),
        pytest.param(Parts(controller=mutants.ForgetsUnknownOutcomes), None, id="forgets-unknown-outcomes"),
        pytest.param(Parts(recorder=mutants.SharesItsProgress), None, id="shares-its-progress"),
    ],
)
def test_wrong_worker_is_noticed_by_the_simulation(parts: Parts, style: Style | None, run_seed: Run) -> None:
    """Some seed breaks an invariant, and the report names it."""
    said = first_seed_that_notices(run_seed, parts, style)
    assert said.startswith(("I", "W")), said


def _flush_on_lost(controller: Controller, tps: frozenset[Any]) -> None:
    controller._callback(machine.Revoked(tps, controller._recorder.has_progress, controller._clock.now_s()))


def _commit_starts_of_everything(own: StartPositions, deadline: Deadline) -> frozenset[Any]:
    everything = own._consumer.partitions_of(P0.topic, deadline=deadline)
    starts = {tp: CommittedOffset(own._consumer.watermarks(tp, deadline=deadline)[0]) for tp in everything}
    own._committer.commit([], starts, own._consumer.membership(), deadline=deadline)
    own._uncommitted = {}
    return frozenset()


def _nothing(*_: Any, **__: Any) -> None:
    """Look at nothing."""


_has_room = Runloop._has_room


def _record_past_a_failed_flush(loop: Runloop, record: SourceRecord) -> bool:
    _has_room(loop, record)
    return True


def _settle_before_init(controller: Controller) -> None:
    tps = controller.state.rewinds
    for tp, start in controller._consumer.committed(tps, deadline=controller._deadline).items():
        controller._recorder.rewind(tp, start or CommittedOffset(0))
        controller._consumer.seek(tp, start or CommittedOffset(0), deadline=controller._deadline)
    controller.handle(Rewound(tps, 0.0))


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "test"),
    [
        pytest.param(
            Controller,
            "on_lost",
            _flush_on_lost,
            test_controller.test_lost_discards_everything_and_rewinds_the_rest,
            id="flush-on-lost",
        ),
        pytest.param(
            StartPositions,
            "_commit",
            _commit_starts_of_everything,
            lambda: starts.test_first_start_of_two_workers_never_sets_a_commit_back("eager", "beginning", "begin"),
            id="start-of-everything",
        ),
        pytest.param(
            StartPositions,
            "unproven",
            frozenset(),
            lambda: starts.test_worker_records_nothing_before_its_start_position_is_committed("cooperative"),
            id="records-what-is-not-proven",
        ),
        pytest.param(
            StartPositions,
            "_require_no_history",
            _nothing,
            lambda: starts.test_lost_offset_is_refused_with_the_offset_to_go_on_from("kip848", "beginning"),
            id="asks-no-flush-records",
        ),
        pytest.param(
            StartPositions,
            "_compare_ids",
            _nothing,
            lambda: starts.test_committed_offset_of_a_topic_that_was_made_anew_is_refused("eager"),
            id="compares-no-ids",
        ),
        pytest.param(
            StartPositions,
            "watch",
            _nothing,
            lambda: starts.test_topic_made_anew_while_a_worker_runs_stops_it("cooperative"),
            id="does-not-watch",
        ),
        pytest.param(
            Controller,
            "rewind_to_committed",
            _settle_before_init,
            test_controller.test_settle_asks_for_committed_offsets_after_the_next_producer_is_ready,
            id="settle-before-init",
        ),
        pytest.param(
            Runloop,
            "_has_room",
            _record_past_a_failed_flush,
            lambda: test_liveness.test_large_record_is_read_again_where_the_flush_before_it_fails(Outcome.UNKNOWN_OPEN),
            id="record-past-a-failed-flush",
        ),
    ],
)
def test_wrong_part_is_noticed_by_a_named_test(
    owner: Any, name: str, wrong: Any, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test that is named for a rule fails where the rule is broken, and passes where it is not."""
    test()
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test()
