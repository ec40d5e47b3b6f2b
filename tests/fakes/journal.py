"""A journal that outlives its worker if the test hands it on."""

from __future__ import annotations


class FakeJournal:
    """Fulfils `boundary.Journal`."""

    def __init__(self) -> None:
        self.line = b""

    def read(self) -> bytes:
        """Give the line."""
        return self.line

    def write(self, line: bytes) -> None:
        """Replace the line."""
        self.line = line
