"""The journal on a real disk: the next process reads the last line, and no file is left if nothing was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_partitioner.adapters.spool import DiskJournal
from log_partitioner.errors import SpoolError


def opened(path: Path) -> tuple[DiskJournal, bytes]:
    """Give a journal of a process that begins, and what it has read."""
    journal = DiskJournal(path)
    return journal, journal.read()


def test_last_line_outlives_the_process(tmp_path: Path) -> None:
    """The line may be shorter than the one before it, and the process may not have closed the file."""
    path = tmp_path / "w1.journal"
    journal, line = opened(path)
    assert line == b""
    journal.write(b"a longer line")
    journal.write(b"short")
    journal, line = opened(path)
    assert line == b"short"
    journal.close()
    assert opened(path)[1] == b"short"


@pytest.mark.parametrize("lines", [[], [b""], [b"something", b""]])
def test_journal_that_says_nothing_is_deleted_when_it_is_closed(tmp_path: Path, lines: list[bytes]) -> None:
    """A worker that ends in order leaves no file."""
    path = tmp_path / "w1.journal"
    journal, _ = opened(path)
    for line in lines:
        journal.write(line)
    journal.close()
    journal.close()
    assert not path.exists()


def test_disk_that_refuses_is_told(tmp_path: Path) -> None:
    """The worker cannot know what was in hand."""
    with pytest.raises(SpoolError, match="journal"):
        DiskJournal(tmp_path / "absent" / "w1.journal").read()
