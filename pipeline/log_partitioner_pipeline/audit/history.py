"""Results of past audits as JSON files; a bounded number of them in one directory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from log_partitioner_pipeline.audit.result import decode, encode
from log_partitioner_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from log_partitioner_pipeline.audit.result import Result

_NAMES = "audit-*.json"
_RESULTS_MAX = 200


def keep(result: Result, directory: Path) -> Path:
    """Write a result as the newest, and remove the oldest if there are too many; blocks for a moment.

    Raises:
        OSError: the directory cannot be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    began = datetime.fromtimestamp(result.started_at_ms / 1000, UTC)
    file = directory / f"audit-{began:%Y%m%dT%H%M%S}.{result.started_at_ms % 1000:03}Z-{result.run_id}.json"
    partial = file.with_suffix(".partial")
    partial.write_bytes(encode(result))
    partial.replace(file)
    for old in kept(directory)[:-_RESULTS_MAX]:
        old.unlink(missing_ok=True)
    return file


def kept(directory: Path) -> list[Path]:
    """List the results that are kept, the oldest first."""
    return sorted(directory.glob(_NAMES))


def read_result(file: Path) -> Result:
    """Read a result, of the directory or from elsewhere.

    Raises:
        PipelineError: there is none in this file.
    """
    try:
        return decode(file.read_bytes())
    except OSError as error:
        raise PipelineError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise PipelineError(f"{file} is no result of an audit: {error}") from error
