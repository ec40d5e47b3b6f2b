"""The audit as a command: once or periodically, with history, metrics and an exit code (DESIGN 8)."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import structlog

from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.archive.run import audit_archive, require_ids
from log_partitioner_pipeline.audit.auditor import Auditor, Options
from log_partitioner_pipeline.audit.history import keep, keep_in_store
from log_partitioner_pipeline.audit.metrics import AuditMetrics, last_success_in
from log_partitioner_pipeline.audit.result import Counts, Result, Window, Witness, encode
from log_partitioner_pipeline.audit.text import to_text
from log_partitioner_pipeline.errors import PipelineError, UnforeseenError, cause_of, classes_of, said_of
from log_partitioner_pipeline.jobs.audit_options import archive_of, window_of
from log_partitioner_pipeline.session import is_running, open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from log_partitioner_pipeline.config import JobSettings


def run(settings: JobSettings, arguments: argparse.Namespace) -> int:
    """Audit once and return the exit code: 0 clean, 1 findings, 2 could not tell; or periodically until a signal.

    Raises:
        PipelineError: the audit cannot be done at all; a periodic one keeps that as a result and goes on.
    """
    file = settings.pipeline.audit.metrics_file
    group = settings.worker.kafka.group_id
    metrics = AuditMetrics(group, None if file is None else last_success_in(file))
    try:
        window_of(arguments)  # what is wrong with the options is said before Spark starts
        if archive_of(arguments) is not None:
            require_ids(settings)
        return Runs(cache(lambda: open_session(settings, name="audit")), settings, arguments, metrics).run()
    except Exception:
        _count_failure(metrics, file)
        raise


def _count_failure(metrics: AuditMetrics, file: Path | None) -> None:
    metrics.fail()
    if file is not None:
        with suppress(OSError):  # what the audit ended by says more
            metrics.write(file)


class Runs:
    """The audits of one process; `open_spark` opens its session if one is needed, and returns it from then on."""

    def __init__(
        self,
        open_spark: Callable[[], SparkSession],
        settings: JobSettings,
        arguments: argparse.Namespace,
        metrics: AuditMetrics,
    ) -> None:
        self._open_spark = open_spark
        self._settings = settings
        self._arguments = arguments
        self._metrics = metrics
        self._log = structlog.get_logger("audit")

    def run(self) -> int:
        """Audit once or periodically; blocks until done, or for ever."""
        every = self._arguments.every
        if every is None:
            return self._publish(self._audit())
        port = self._settings.pipeline.audit.metrics_port
        if port is not None:
            self._metrics.serve(port)
        while True:
            begun = time.monotonic()
            result = self._audit_or_say_why_not()
            exit_code = self._publish_or_say_why_not(result)
            self._log.info("audited", exit_code=exit_code, seconds=result.seconds, findings=len(result.findings))
            time.sleep(max(0.0, every - (time.monotonic() - begun)))

    def _audit_or_say_why_not(self) -> Result:
        try:
            return self._audit()
        except PipelineError as error:
            if not is_running(self._open_spark()):
                raise  # no later audit could tell either: whoever has started this process starts it again
            return failed(str(error), window_of(self._arguments), Witness(self._arguments.against))

    def _audit(self) -> Result:
        with _no_trace():
            return self._result()

    def _result(self) -> Result:
        given = self._arguments
        window = window_of(given)
        location = archive_of(given)
        if location is not None:
            return audit_archive(self._open_spark(), self._settings, location, window, examples=given.examples)
        options = Options(
            window=window,
            table=given.table,
            list_objects=window.is_everything if given.list_objects is None else given.list_objects,
            verdicts=given.verdicts,
            require_caught_up=given.require_caught_up,
            examples=given.examples,
        )
        return Auditor(self._open_spark, self._settings, options).run()

    def _publish_or_say_why_not(self, result: Result) -> int:
        try:
            with _no_trace():
                return self._publish(result)
        except PipelineError as error:
            self._log.error("result_not_published", reason=said_of(error))
            _count_failure(self._metrics, self._settings.pipeline.audit.metrics_file)
            return int(ExitCode.COULD_NOT_TELL)

    def _publish(self, result: Result) -> int:
        audit = self._settings.pipeline.audit
        try:
            if self._arguments.json_file is not None:
                self._arguments.json_file.write_bytes(encode(result))
            if audit.history_directory is not None:
                keep(result, audit.history_directory)
            if audit.results_prefix is not None:
                keep_in_store(result, self._settings.worker.s3, audit.results_prefix)
            self._metrics.observe(result)
            if audit.metrics_file is not None:
                self._metrics.write(audit.metrics_file)
        except OSError as error:
            raise PipelineError(f"the result cannot be written: {error}") from error
        sys.stdout.write(to_text(result))
        sys.stdout.flush()
        if self._arguments.html_file is not None:
            from log_partitioner_pipeline.report.page import write_page  # noqa: PLC0415 - matplotlib takes a second to import

            write_page(
                result,
                self._arguments.html_file,
                history=audit.history_directory,
                logs=self._arguments.logs,
            )
        return int(result.exit_code)


@contextmanager
def _no_trace() -> Iterator[None]:
    """Turn any error into a PipelineError: a traceback would exit with 1, which means findings."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        cause = cause_of(error)
        if cause is None:
            structlog.get_logger("audit").exception("failed")
            text = f"{', '.join(classes_of(error))}: {next(iter(str(error).splitlines()), '')}"
            raise UnforeseenError(text) from error
        raise PipelineError(cause) from error


def failed(cause: str, window: Window, against: Witness) -> Result:
    """Make the result of an audit that could not be done."""
    return Result(
        against=against,
        run_id=uuid.uuid4().hex[:12],
        started_at_ms=time.time_ns() // 1_000_000,
        seconds=0.0,
        places={},
        window=window,
        coverage=[],
        counts=Counts(),
        findings=[],
        could_not_tell=[cause],
        notes=[],
        ids=None,
        dead_letters={},
        hours=[],
        record_hours=[],
        flushes=[],
        references_offsets={},
    )
