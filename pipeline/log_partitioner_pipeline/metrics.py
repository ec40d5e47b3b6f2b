"""Gauges of a job, as a textfile or on a port; the pipeline's only user of prometheus_client.

Each has the group whose work it is about as a label, whoever scrapes it. None is an age: a file would make it stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from log_partitioner.formats.findings import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


class Declared(NamedTuple):
    """The gauges of a job: the beginning of their names, and of each its meaning and its labels beside `group`."""

    prefix: str
    gauges: Mapping[str, tuple[str, Mapping[str, Collection[str]]]]


AUDIT = Declared(
    "log_partitioner_audit",
    {
        "exit_code": ("Exit code of the last audit: 0 clean, 1 findings, 2 could not tell.", {}),
        "findings": ("Findings of the last audit by kind.", {"kind": tuple(Kind)}),
        "duration_seconds": ("Seconds that the last audit took.", {}),
        "timestamp_seconds": ("When the last audit ended, in seconds since the epoch.", {}),
        "last_success_timestamp_seconds": (
            "When an audit last ended clean, in seconds since the epoch; 0: never. `time()` less this is how long ago.",
            {},
        ),
    },
)
TABLE = Declared(
    "log_partitioner_table",
    {
        "caught_up_timestamp_seconds": (
            "When materialize last had everything in the table, in seconds since the epoch; none before it has.",
            {},
        ),
        "last_commit_timestamp_seconds": (
            "When materialize last committed references, in seconds since the epoch; none before it has.",
            {},
        ),
        "offsets_behind": ("Offsets of the references topic that are not in the table yet, as last seen.", {}),
    },
)


class Gauges:
    """The gauges that a job has declared, of one group."""

    def __init__(self, declared: Declared, group: str) -> None:
        self._registry = CollectorRegistry()
        self._group = group
        self._gauges = {
            name: Gauge(f"{declared.prefix}_{name}", text, ("group", *labels), registry=self._registry)
            for name, (text, labels) in declared.gauges.items()
        }

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge; `labels` are those beside the group."""
        self._gauges[name].labels(self._group, *labels).set(value)

    def write(self, file: Path) -> None:
        """Replace the textfile.

        Raises:
            OSError: it cannot be written.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(file), self._registry)

    def serve(self, port: int) -> None:
        """Answer on this port from now on, in a thread.

        Raises:
            OSError: the port is taken.
        """
        start_http_server(port, registry=self._registry)


def read_gauge(file: Path, name: str) -> float | None:
    """Return the value of a gauge in an existing textfile; None if it does not say."""
    try:
        families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    return next((one.value for family in families for one in family.samples if one.name == name), None)
