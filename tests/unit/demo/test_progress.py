"""How long the demo waits: as long as something moves."""

from tests.log_lines import discarded, read
from tools.demo.announced import Announced
from tools.demo.journal import Tally
from tools.demo.lag import behind
from tools.demo.story import describe_work
from tools.local.patience import Patience


def test_patience_lasts_as_long_as_something_moves() -> None:
    """A slow machine moves every now and then for hours; only a whole window without a move ends it."""
    patience = Patience(180)

    assert not any(patience.is_over(number, number * 179.0) for number in range(100))
    assert not patience.is_over(99, 99 * 179.0 + 179)
    assert patience.is_over(99, 99 * 179.0 + 180)
    assert not patience.is_over(100, 99 * 179.0 + 181)


def test_behind_counts_each_partition_alone() -> None:
    """A partition that is ahead (markers) does not make up for one that is behind; without a commit all is missing."""
    assert behind({0: 10, 1: 10, 2: 4}, {0: 12, 1: 7}) == {0: 0, 1: 3, 2: 4}


def test_tally_adds_up_what_is_read_again() -> None:
    """Batches given up are counted by their event, records by what the event says will be read again."""
    tally = Tally()
    cost = "records 10 to 19 of logs-0, 5 to 5 of logs-1 will be read again"
    tally.add("worker-1", read(discarded(cost=cost), level="warning"))
    tally.add("worker-2", read(discarded(), level="warning"))

    assert (tally.given_up, tally.records_again) == (2, 11)


def test_describe_work_says_what_giving_up_has_cost() -> None:
    """Objects count once, references by their lines; objects that nothing names are uploads that were given up."""
    tally = Tally(records_again=21)
    tally.add("worker-1", read(discarded()))
    announced = Announced(flushes=9, references=4428, objects={"a", "b"}, schemas={"s"}, letters_stored={"l"})
    work, unnamed, given_up = describe_work(announced, tally, objects_stored=7)

    assert "4,428 references" in work
    assert "2 objects with 1 schemas; 7 PUTs" in work
    assert unnamed.startswith("3 of the objects")
    assert given_up == "1 batches given up, 21 records read again for it"
    assert len(describe_work(announced, Tally(), objects_stored=4)) == 1
