"""The page of performance says what its figures say, and nothing else."""

from pathlib import Path

import pytest

from bench.figures import Amount, Book, F, Machine, Measured, Steady, read_book, write_book
from bench.page_plots import PLOTS, draw
from bench.page_text import render
from bench.worker import CPU, RATE, RSS

_DOCS = Path(__file__).parents[3] / "docs"
_MACHINE = Machine(cpu="a CPU", cores=2, memory_gib=24, python="3.11.7", commit="abc", date="2026-01-01")


def _book(*, loads: list[float], least: list[float]) -> Book:
    measured = []
    for number, us in enumerate(least, start=1):
        measured.append(Measured(round=number, workload="A", system=F, figures={CPU: us}))
        figures = {CPU: 10.0 * us, RATE: 1000.0 * number, RSS: 100.0, "PUTs": 7.0}
        measured.append(Measured(round=number, workload="A", system="fast", figures=figures))
    amount = Amount(records=100, entries=100, bytes=37_300)
    return Book(machine=_MACHINE, loads=loads, wanted_rounds=3, workloads={"A": amount}, measured=measured)


def test_quiet_run_says_so_and_multiples_are_of_the_same_round() -> None:
    """Where F is larger in a round so is the worker: its multiple stays the same."""
    page = render(_book(loads=[0.1], least=[1.0, 1.1, 1.05]))

    assert "The machine was quiet" in page
    assert "| multiples of F | - | 10 |" in page
    assert "| CPU µs per entry | 1.05 (1 - 1.1) | 10.5 (10 - 11) |" in page
    assert "cut short" not in page


@pytest.mark.parametrize(
    ("loads", "least", "sentence"),
    [([0.1, 3.2], [1.0, 1.0, 1.0], "load average 3.20 before it"), ([0.1], [1.0, 1.0, 1.2], "F of A varied by 20%")],
)
def test_run_that_was_not_quiet_says_why_in_its_head(loads: list[float], least: list[float], sentence: str) -> None:
    """A reader sees it before any figure."""
    head = render(_book(loads=loads, least=least)).partition("## A")[0]

    assert sentence in head
    assert "was quiet" not in head


def test_run_that_was_cut_short_and_systems_that_are_absent_are_told() -> None:
    """Nothing is silently missing."""
    book = _book(loads=[0.1], least=[1.0])
    book.absent["flink"] = "pip could not install it"
    page = render(book)

    assert "of 3: the run was cut short" in page
    assert "Flink, to local disk: not measured: pip could not install it" in page


def test_round_that_was_cut_short_is_measured_again_with_an_f_of_its_own() -> None:
    """A multiple is never of an F of another time."""
    book = _book(loads=[0.1], least=[1.0, 1.0])
    book.measured.append(Measured(round=3, workload="A", system=F, figures={CPU: 1.0}))
    book.drop_incomplete("A", [F, "fast"])

    assert [(one.round, one.system) for one in book.measured] == [(1, F), (1, "fast"), (2, F), (2, "fast")]


def test_broken_bound_stands_in_its_row() -> None:
    """Also what did not work is on the page."""
    book = _book(loads=[0.1], least=[1.0])
    names = ("lag p50", "lag p99", "lag max", "lag bound", "share of a core", "flush s, p50", "flush s, p99", RSS)
    figures = dict.fromkeys(names, 1.0)
    book.steady.append(Steady(rate=50_000, minutes=10, settings={}, figures=figures, broken="broken after 9 s"))

    assert "| 50,000 | 10 | default |" in render(book)
    assert "| broken after 9 s |" in render(book)


def test_equal_figures_make_equal_files(tmp_path: Path) -> None:
    """The figures are written and read without loss, and neither page nor plots have a date of their own."""
    book = _book(loads=[0.1], least=[1.0, 1.1, 1.05])
    write_book(book, tmp_path / "figures.json")
    again = read_book(tmp_path / "figures.json")
    draw(book, tmp_path / "1")
    draw(again, tmp_path / "2")

    assert render(again) == render(book)
    for name in PLOTS:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_kept_page_is_made_of_the_kept_figures() -> None:
    """Nobody has edited it by hand."""
    assert (_DOCS / "PERFORMANCE.md").read_text() == render(read_book(_DOCS / "performance" / "figures.json"))
