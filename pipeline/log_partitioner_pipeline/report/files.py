"""Files in, one page out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from log_partitioner_pipeline.audit.history import kept, read_result
from log_partitioner_pipeline.audit.result import Result
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.report.events import Log, read_log
from log_partitioner_pipeline.report.page import render


def write_page(
    result: Result,
    file: Path,
    *,
    earlier: Sequence[Result] = (),
    history: Path | None = None,
    logs: Sequence[Path] = (),
) -> None:
    """Write the page of a result beside earlier ones about the same witness; replaces a page that is there as a whole.

    A file of the history that is no result is left out, and the page says so.

    Raises:
        PipelineError: a log cannot be read, or the page cannot be written.
    """
    kept_results, notes = ([], []) if history is None else _read_history(history)
    beside = [one for one in (*kept_results, *earlier) if one.against is result.against]
    page = render(
        result,
        earlier=[one for one in beside if one.started_at_ms <= result.started_at_ms],
        log=_read_logs(logs) if logs else None,
        notes=notes,
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(page, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise PipelineError(f"the page cannot be written: {error}") from error


def _read_history(directory: Path) -> tuple[list[Result], list[str]]:
    results: list[Result] = []
    notes: list[str] = []
    for file in kept(directory):
        try:
            results.append(read_result(file))
        except PipelineError as error:
            notes.append(f"left out of the history: {error}")
    return results, notes


def _read_logs(files: Iterable[Path]) -> Log:
    try:
        return read_log(line for file in files for line in _lines(file))
    except OSError as error:
        raise PipelineError(f"a log cannot be read: {error}") from error


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        yield from lines
