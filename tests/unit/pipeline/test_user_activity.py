"""User-activity counts together what it reads within an interval."""

from collections.abc import Iterator

from msgspec.structs import replace

from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.jobs.user_activity import join
from log_partitioner_pipeline.topic_log import Slice
from tests.pipeline.packs import KEY, Entry, write_object

INTERVAL_S = 60.0
(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


class Clock:
    """Seconds, moved on by whoever reads a slice."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def read(self, number: int, *, seconds: float) -> Iterator[Slice[Reference]]:
        """Read as many slices, of a reference each, in so many seconds each."""
        for offset in range(number):
            self.now_s += seconds
            yield Slice([replace(REFERENCE, reference_id=f"b-{offset}")], {0: offset + 1})

    def joined(self, slices: Iterator[Slice[Reference]], counting_s: float = 0.0) -> list[tuple[int, int]]:
        """Join them and count what is joined in so many seconds: how many references, and up to which offset."""
        found = []
        for one in join(slices, interval_s=INTERVAL_S, now_s=lambda: self.now_s):
            found.append((len(one.items), one.offsets[0]))
            self.now_s += counting_s
        return found


def test_driver_reads_until_it_has_caught_up() -> None:
    """Three slices that are there are one write of states."""
    clock = Clock()
    assert clock.joined(clock.read(3, seconds=1)) == [(3, 3)]
    assert clock.joined(clock.read(0, seconds=1)) == []


def test_driver_that_does_not_catch_up_writes_after_an_interval() -> None:
    """The time of the writes is none of the next interval."""
    clock = Clock()
    assert clock.joined(clock.read(7, seconds=20), counting_s=1000) == [(3, 3), (3, 6), (1, 7)]


def test_driver_that_is_far_behind_holds_a_bounded_number_of_references() -> None:
    """However fast it reads them."""
    clock = Clock()
    assert clock.joined(clock.read(90, seconds=0.1)) == [(40, 40), (40, 80), (10, 90)]
