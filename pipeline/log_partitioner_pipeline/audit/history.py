"""Results of past audits as JSON: a bounded number of files in one directory, or objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from log_partitioner_pipeline.audit.result import decode, encode
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.objects import Objects

if TYPE_CHECKING:
    from pathlib import Path

    from log_partitioner.config.s3_settings import S3Settings
    from log_partitioner_pipeline.audit.result import Result

_NAMES = "audit-*.json"
_RESULTS_MAX = 200


def keep(result: Result, directory: Path) -> Path:
    """Write a result as the newest, and remove the oldest if there are too many; blocks for a moment.

    Raises:
        OSError: the directory cannot be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / _name_of(result)
    partial = file.with_suffix(".partial")
    partial.write_bytes(encode(result))
    partial.replace(file)
    for old in kept(directory)[:-_RESULTS_MAX]:
        old.unlink(missing_ok=True)
    return file


def keep_in_store(result: Result, settings: S3Settings, prefix: str) -> None:
    """Write a result as an object below the prefix; none is ever removed. Blocks while S3 is asked.

    Raises:
        ObjectError: S3 refuses or does not answer.
    """
    Objects(settings).create(settings.bucket, f"{prefix}/{_name_of(result)}", encode(result), {})


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


def _name_of(result: Result) -> str:
    """Name a result so that names are in the order of time."""
    began = datetime.fromtimestamp(result.started_at_ms / 1000, UTC)
    return f"audit-{began:%Y%m%dT%H%M%S}.{result.started_at_ms % 1000:03}Z-{result.run_id}.json"
