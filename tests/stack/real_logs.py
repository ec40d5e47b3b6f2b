"""Real log data for tests, if it is present (`bench.real`): a directory per set, each with files `*.zst`."""

from pathlib import Path

from bench.real import DATA


def real_log_sets() -> list[Path]:
    """Return the directories of the sets, sorted; none if the data are absent."""
    return sorted({file.parent for file in DATA.glob("*/*.zst")})
