"""How the demo shows itself: a picture that is redrawn on a terminal, plain lines elsewhere.

Both take the same two things: news (one line, once) and a picture of the present (as often as there is one).
"""

import sys
import time
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

_PLAIN_STATUS_EVERY_S = 5.0
_REDRAWN_PER_S = 4


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One line of the table of workers."""

    name: str
    state: str
    owned: int | None
    flushes: int
    entries: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The present, in numbers."""

    stage: str
    records_in: int
    entries_in: int
    entries_out: int
    dead_letters: int
    lag: int | None
    flushes: int
    assignment_changes: int
    workers: tuple[WorkerRow, ...]

    def status(self) -> str:
        """Return the numbers as one line."""
        lag = "?" if self.lag is None else f"{self.lag:,}"
        return (
            f"{self.stage} | in: {self.records_in:,} records, {self.entries_in:,} entries | "
            f"out: {self.entries_out:,} entries, {self.dead_letters:,} dead letters | lag {lag} | "
            f"{self.flushes} flushes, {self.assignment_changes} assignment changes"
        )


class Screen(Protocol):
    """A display of the demo."""

    def tell(self, line: str) -> None:
        """Show one piece of news."""

    def show(self, picture: Picture) -> None:
        """Show the present; cheap enough to be called again and again."""

    def leave(self) -> None:
        """Go back to ordinary printing below what is shown."""


class PlainScreen:
    """One line per event, with the seconds since the begin; a status line now and then."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._started = time.monotonic()
        self._shown_at = float("-inf")

    def tell(self, line: str) -> None:
        """Print the line."""
        print(f"{time.monotonic() - self._started:6.1f} s  {line}", file=self._output, flush=True)

    def show(self, picture: Picture) -> None:
        """Print a status line if the last one is some seconds old."""
        if time.monotonic() - self._shown_at >= _PLAIN_STATUS_EVERY_S:
            self._shown_at = time.monotonic()
            self.tell(picture.status())

    def leave(self) -> None:
        """Do nothing: all is printed."""


class LiveScreen:
    """A picture at the bottom of the terminal that is drawn anew in its place; news pass by above it."""

    def __init__(self, output: TextIO) -> None:
        self._started = time.monotonic()
        self._live = Live(console=Console(file=output, highlight=False), refresh_per_second=_REDRAWN_PER_S)

    def tell(self, line: str) -> None:
        """Print the line above the picture."""
        self._live.console.print(f"{time.monotonic() - self._started:6.1f} s  {line}", markup=False, soft_wrap=True)

    def show(self, picture: Picture) -> None:
        """Draw the picture some times a second, the newest one each time."""
        self._live.update(Text("\n".join(render(picture)), no_wrap=True))
        self._live.start()

    def leave(self) -> None:
        """Draw once more and leave the cursor below."""
        self._live.stop()


def render(picture: Picture) -> list[str]:
    """Return the picture as lines of text."""
    lag = "?" if picture.lag is None else f"{picture.lag:,}"
    counts_in = f"{picture.records_in:>10,} records  {picture.entries_in:>10,} entries"
    counts_out = f"{picture.flushes:>10,} flushes  {picture.entries_out:>10,} entries"
    counts_aside = f"{picture.dead_letters:,} dead letters  {picture.assignment_changes} assignment changes"
    return [
        "",
        f"  {picture.stage}",
        f"  in   {counts_in}   lag {lag} records",
        f"  out  {counts_out}   {counts_aside}",
        "",
        f"  {'worker':<10} {'state':<9} {'owns':>4} {'flushes':>8} {'entries':>10}  last",
        *map(_render_worker, picture.workers),
    ]


def _render_worker(row: WorkerRow) -> str:
    owned = "" if row.owned is None else str(row.owned)
    return f"  {row.name:<10} {row.state:<9} {owned:>4} {row.flushes:>8,} {row.entries:>10,}  {row.last}"


def make_screen() -> Screen:
    """Return the screen that suits standard output: live on a terminal, plain elsewhere."""
    return LiveScreen(sys.stdout) if sys.stdout.isatty() else PlainScreen(sys.stdout)
