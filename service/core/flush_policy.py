"""When a batch is flushed: (how much it holds, how old it is) -> reason or None (DESIGN 4.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FlushReason(StrEnum):
    """Why a flush happened; a closed set, used in flush records, logs and metrics."""

    INTERVAL = "interval"
    BYTES = "bytes"
    ENTRIES = "entries"
    FILES = "files"
    ESTIMATE = "estimate"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    STOPPING = "stopping"


class FlushBounds(NamedTuple):
    """The triggers; `estimate_max_s` bounds the expected time of sealing and uploading."""

    interval_s: float
    bytes_max: int
    entries_max: int
    files_max: int
    estimate_max_s: float


class FlushLoad(NamedTuple):
    """What the open batch holds."""

    source_bytes: int
    spool_bytes: int
    entries: int
    files: int
    estimate_s: float


class FlushCost(NamedTuple):
    """Measured seconds per file and per byte of rows; smoothed over flushes."""

    seconds_per_file: float = 0.005
    seconds_per_byte: float = 2e-8

    def estimate_s(self, *, files: int, row_bytes: int) -> float:
        """Estimate the seconds that sealing and uploading would take now."""
        return files * self.seconds_per_file + row_bytes * self.seconds_per_byte

    def after(self, *, files: int, row_bytes: int, seconds: float) -> FlushCost:
        """Learn from one flush: scale both rates by how wrong the estimate was, smoothed."""
        expected = self.estimate_s(files=files, row_bytes=row_bytes)
        if expected <= 0 or seconds <= 0:
            return self
        ratio = min(4.0, max(0.25, seconds / expected))
        factor = 0.7 + 0.3 * ratio
        return FlushCost(self.seconds_per_file * factor, self.seconds_per_byte * factor)


def decide_by_load(load: FlushLoad, bounds: FlushBounds) -> FlushReason | None:
    """Decide between two records whether the batch is full."""
    if load.files >= bounds.files_max:
        return FlushReason.FILES
    if load.entries >= bounds.entries_max:
        return FlushReason.ENTRIES
    if max(load.source_bytes, load.spool_bytes) >= bounds.bytes_max:
        return FlushReason.BYTES
    if load.estimate_s >= bounds.estimate_max_s:
        return FlushReason.ESTIMATE
    return None


def decide_by_age(*, opened_at_s: float, now_s: float, bounds: FlushBounds) -> FlushReason | None:
    """Decide whether the batch is old enough."""
    return FlushReason.INTERVAL if now_s - opened_at_s >= bounds.interval_s else None
