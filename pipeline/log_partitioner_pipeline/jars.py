"""Locates the jars of the Spark session: a directory named after their lock list."""

from __future__ import annotations

import hashlib
from pathlib import Path

from log_partitioner_pipeline.errors import PipelineError

LOCK = Path(__file__).parent / "jars.lock"
DIRECTORY = Path(".local/pipeline-jars")


def find_jars(directory: Path | None) -> list[Path]:
    """Return the jars of the lock list; without a directory they are in the one of `python -m tools.pipeline_jars`.

    Raises:
        PipelineError: one is not there; the message says how to get it.
    """
    directory = directory or DIRECTORY / version()
    names = [line.split()[1] for line in LOCK.read_text(encoding="utf-8").splitlines()]
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise PipelineError(
            f"{len(absent)} of {len(names)} jars are not in {directory} ({absent[0]}, ...): "
            "`python -m tools.pipeline_jars` fetches them; or set PIPELINE_SPARK__JARS_DIRECTORY to where they are."
        )
    return [(directory / name).absolute() for name in names]


def version() -> str:
    """Name the set of jars: the digest of the lock list."""
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
