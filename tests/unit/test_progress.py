"""The line of progress: how far, and how long it still takes."""

from log_partitioner_pipeline.progress import Picture, describe


def test_time_left_is_at_the_pace_so_far() -> None:
    """A quarter done in 30 seconds: three times that is left."""
    at = Picture("materialize", "references", 30.0, 250, 1000, "offsets", {"entries": 12345, "files": 240})
    expected = "materialize: references 30 s, 250 of 1,000 offsets, 12,345 entries, 240 files, about 1 min 30 s left"
    assert describe(at) == expected


def test_nothing_is_guessed() -> None:
    """Without a total, before the first unit and after the last no time left is named."""
    for done, total in ((0, 0), (0, 10), (10, 10)):
        assert "left" not in describe(Picture("audit", "files", 4000.0, done, total, "tasks", {}))
    assert describe(Picture("audit", "files", 4000.0, 0, 0, "tasks", {})) == "audit: files 1 h 6 min"
