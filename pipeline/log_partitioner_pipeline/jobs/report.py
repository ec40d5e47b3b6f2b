"""Results of audits as a page for people, as a command; needs neither Spark nor settings."""

from __future__ import annotations

import argparse

from log_partitioner_pipeline.audit.history import read_result
from log_partitioner_pipeline.report.page import write_page


def run(arguments: argparse.Namespace) -> int:
    """Write the page of the newest of these results; returns 0 whatever the audit's verdict is.

    Raises:
        PipelineError: a file is no result of an audit, a log cannot be read, or the page cannot be written.
    """
    results = sorted(map(read_result, arguments.results), key=lambda one: (one.started_at_ms, one.run_id))
    *earlier, newest = results
    write_page(newest, arguments.html_file, earlier=earlier, history=arguments.history, logs=arguments.logs)
    return 0
