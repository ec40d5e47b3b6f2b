"""A transaction of the source that stays open is told by metric and log, from the worker's loop on."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from log_partitioner.formats.model import TopicPartition
from log_partitioner.runtime.open_transactions import AGAIN_MAX_S, TELL_S, OpenTransactions
from tests.fakes.clock import FakeClock
from tests.fakes.metrics import RecordingMetrics
from tests.fakes.records import P0, P1
from tests.fakes.rig import owning


class Watched:
    """The watch, its clock, and what it has said."""

    def __init__(self) -> None:
        self.clock, self.metrics = FakeClock(), RecordingMetrics()
        self.watch = OpenTransactions(self.clock, self.metrics)

    def look(self, blocked: dict[TopicPartition, int], *, next_offset: int = 0) -> None:
        """Look at these TopicPartitions that stand still, of which there is more."""
        owned = (P0, P1)
        self.watch.watch(blocked, {tp: blocked.get(tp, next_offset) for tp in owned}, dict.fromkeys(owned, 100))

    @property
    def seconds(self) -> float:
        """The gauge's value."""
        return self.metrics.gauges["open_transaction_seconds", ()]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_gauge_is_the_age_of_the_oldest_and_none_is_none(watched: Watched) -> None:
    """The age is that of one place; a TopicPartition that has moved begins anew."""
    watched.look({P0: 5})
    watched.clock.advance(4)
    watched.look({P0: 5, P1: 0})
    assert watched.seconds == 4
    watched.clock.advance(1)
    watched.look({P0: 9, P1: 0})
    assert watched.seconds == 1
    watched.look({}, next_offset=10)
    assert watched.seconds == 0


def test_age_is_kept_while_records_before_it_are_read_again(watched: Watched) -> None:
    """As after a batch that was discarded. It ends once the place is passed, or nothing is behind it."""
    watched.look({P0: 5}, next_offset=5)
    watched.clock.advance(700)
    watched.look({P0: 5}, next_offset=5)
    watched.clock.advance(3000)
    watched.look({}, next_offset=2)
    assert watched.seconds == 700, "nobody knows whether it is still open"
    watched.look({P0: 5}, next_offset=5)
    watched.clock.advance(300)
    watched.look({P0: 5}, next_offset=5)
    assert watched.seconds == 1000
    watched.look({}, next_offset=6)
    assert watched.seconds == 0
    watched.look({P0: 7}, next_offset=7)
    watched.clock.advance(9)
    watched.watch.watch({}, {P0: 7}, {P0: 7})
    assert watched.seconds == 0


def test_line_names_what_is_held_up_for_a_while_at_growing_distances(watched: Watched) -> None:
    """Not what a producer holds for a moment; at twice the age, then every five minutes; anew for the next one."""
    with capture_logs() as lines:
        for _ in range(1300):
            watched.look({P0: 5} if watched.clock.now_s() % 2 else {P0: 5, P1: 1}, next_offset=2)
            watched.clock.advance(1)
        watched.look({}, next_offset=6)
        watched.look({P1: 3})
        watched.clock.advance(TELL_S)
        watched.look({P1: 3})
    told = [(line["event"], line["held_up"], line["seconds"]) for line in lines]
    ages = [15, 30, 60, 120, 240, 480, 480 + AGAIN_MAX_S, 480 + 2 * AGAIN_MAX_S]
    assert told == [
        *(("source_transaction_open", {str(P0): 5}, age) for age in ages),
        ("source_transaction_open", {str(P1): 3}, 15),
    ]


def test_worker_tells_of_it_and_goes_on_when_it_has_ended() -> None:
    """Records before it are flushed; the worker reads the other TopicPartition on."""
    rig, worker = owning()
    rig.fill(P0, 2)
    log = rig.broker.logs[P0]
    log.open_at = log.end
    log.append_hole()
    rig.fill(P0, 3)
    with capture_logs() as lines:
        rig.turn_until(lambda: rig.committed().get(P0) == 2)
        rig.fill(P1, 1)
        rig.turn_until(lambda: rig.committed().get(P1) == 1)
        rig.turn_until(lambda: worker.metrics.gauges["open_transaction_seconds", ()] > TELL_S)
    assert {str(P0): 2} in [line["held_up"] for line in lines if line["event"] == "source_transaction_open"]
    assert rig.committed()[P0] == 2
    log.open_at = None
    rig.turn_until(lambda: rig.committed()[P0] == 6)
    assert worker.metrics.gauges["open_transaction_seconds", ()] == 0
    rig.check()
