"""The page of performance is what its figures make."""

from pathlib import Path

from bench.figures import read_book
from bench.page_text import render

_DOCS = Path(__file__).parents[3] / "docs"


def test_kept_page_is_made_of_the_kept_figures() -> None:
    """It was not edited by hand."""
    assert (_DOCS / "PERFORMANCE.md").read_text() == render(read_book(_DOCS / "performance" / "figures.json"))
