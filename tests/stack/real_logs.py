"""Real log data for tests, where it is present: it is not part of the repository.

A directory per set, each with files `*.zst`; at LOGP_TEST_DATA, else beside the repository.
"""

import os
from pathlib import Path

from tests.stack.providers import REPOSITORY


def real_log_sets() -> list[Path]:
    """Return the directories of the sets, sorted; none if the data are absent."""
    home = Path(os.environ.get("LOGP_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    return sorted({file.parent for file in home.glob("*/*.zst")})
