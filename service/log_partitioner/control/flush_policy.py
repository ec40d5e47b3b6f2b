"""Decides when a batch is flushed: (how much it holds, how old it is) -> reason or None (DESIGN 4.2).

Limits are bytes, entries and time, never a number of files or PartitionKeys. The estimated cost of a flush is learnt
from earlier flushes; failed ones count as well, with the work that they finished before their deadline.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline

STEPS = ("seal", "upload", "announce", "commit")
SMOOTHING = 0.4
DISTRUST = 0.5  # of the time that an estimate may fill, after a batch was too large
UNKNOWN_SHARE = 0.05  # the assumed share of a step that was cut short with nothing to show
_RATIO_MIN, _RATIO_MAX = 0.25, 8.0
ESTIMATE_SHARE = 0.7  # of the time for uploads, or of the time that a revoke leaves for them
FIXED_SHARE = 0.5  # of memory, for rows and PartitionKeys; the rest is for entries, which can leave it
SPOOL_SHARE = 0.6  # of the spool: rows that left memory, and the objects that they become


class FlushReason(StrEnum):
    """The reason of a flush; a closed set, used in flush records, logs and metrics."""

    INTERVAL = "interval"
    BYTES = "bytes"
    ENTRIES = "entries"
    MEMORY = "memory"
    SPOOL = "spool"
    ESTIMATE = "estimate"
    SHRUNK = "shrunk"
    REFETCH = "refetch"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    STOPPING = "stopping"


class Size(NamedTuple):
    """The size of a batch, or its limit: bytes of source records, decompressed, and entries."""

    source_bytes: int
    entries: int


def shrunk(size_max: Size | None, discarded: Size) -> Size:
    """Return half of the discarded size or of the limit, whichever is less; at least one byte and one entry."""
    source_bytes, entries = discarded if size_max is None else map(min, size_max, discarded)
    return Size(max(1, source_bytes // 2), max(1, entries // 2))


def grown(size_max: Size | None, full: Size) -> Size | None:
    """Return the doubled limit after a commit; None once a batch may be as large as the settings say."""
    if size_max is None:
        return None
    doubled = Size(2 * size_max.source_bytes, 2 * size_max.entries)
    return None if doubled.source_bytes >= full.source_bytes or doubled.entries >= full.entries else doubled


class FlushBounds(NamedTuple):
    """The triggers; `estimate_max_s` bounds the expected time of sealing, uploading and announcing.

    `fixed_bytes_max` bounds the memory that no spill frees: rows, PartitionKeys and dead letters.
    """

    interval_s: float
    bytes_max: int
    entries_max: int
    fixed_bytes_max: int
    spool_bytes_max: int
    estimate_max_s: float


def flush_bounds(settings: Settings) -> FlushBounds:
    """Return the triggers that settings name."""
    flush, spool = settings.flush, settings.spool
    return FlushBounds(
        interval_s=flush.interval_s,
        bytes_max=flush.bytes_max,
        entries_max=flush.entries_max,
        fixed_bytes_max=round(FIXED_SHARE * spool.memory_bytes_max),
        spool_bytes_max=round(SPOOL_SHARE * spool.bytes_max),
        estimate_max_s=ESTIMATE_SHARE * min(flush.upload_deadline_s, flush.revoke_budget_s - flush.commit_budget_s),
    )


class FlushLoad(NamedTuple):
    """Contents of the open batch; `row_bytes` is the size of its entries as JSON text."""

    source_bytes: int = 0
    memory_bytes: int = 0
    fixed_bytes: int = 0
    spool_bytes: int = 0
    entries: int = 0
    row_bytes: int = 0
    partition_keys: int = 0
    dead_letters: int = 0
    dead_letter_bytes: int = 0


class FlushWork(NamedTuple):
    """The work of a flush: entries and bytes to seal, objects and bytes to upload, lines to announce.

    `messages` counts these lines, the dead letters, and the KiB of the dead letters.
    """

    entries: int
    row_bytes: int
    objects: int
    messages: int


class StepSeconds(NamedTuple):
    """Seconds of the three steps that grow with a batch."""

    seal: float
    upload: float
    announce: float


class FlushSteps:
    """Measures the steps of one flush, and the finished share of one that was cut short.

    `deadline` bounds the step under way; its clock measures.
    """

    def __init__(self, rows: int, deadline: Deadline) -> None:
        self.deadline = deadline
        self.seconds: dict[str, float] = {}
        self.rows_sealed = 0
        self.uploads = 0
        self._rows = rows
        self._last_s = deadline.now_s()
        self._stored_at_s: list[float] = []

    def done(self, step: str) -> None:
        """Note the end of a step."""
        now_s = self.deadline.now_s()
        self.seconds[step] = now_s - self._last_s
        self._last_s = now_s

    def note_stored(self) -> None:
        """Note when an object was stored; called by its upload's thread."""
        self._stored_at_s.append(self.deadline.now_s())

    def so_far(self) -> tuple[StepSeconds, StepSeconds]:
        """Return the seconds of each step, and the finished share of each; 0 s if they tell nothing.

        A step that was cut short counts up to its deadline, without the time that the process was stopped.
        """
        seconds, shares = dict(self.seconds), dict.fromkeys(STEPS, 1.0)
        cut = next((step for step in STEPS if step not in seconds), None)
        if cut is not None:
            end_s = min(self.deadline.now_s(), self.deadline.at_s)
            shares[cut] = self._share_of(cut, end_s)
            if shares[cut] or self.deadline.has_passed():
                seconds[cut] = end_s - self._last_s
        announce = seconds["announce"] + seconds["commit"] if "commit" in seconds else 0.0
        spent = StepSeconds(seconds.get("seal", 0.0), seconds.get("upload", 0.0), announce)
        return spent, StepSeconds(shares["seal"], shares["upload"], shares["commit"])

    def _share_of(self, cut: str, end_s: float) -> float:
        if cut == "seal":
            return self.rows_sealed / max(1, self._rows)
        if cut == "upload":
            late = sum(at_s > (self._last_s + end_s) / 2 for at_s in self._stored_at_s)
            # If the store has become slower meanwhile, the second half tells how fast it is now.
            return min(len(self._stored_at_s), 2 * late) / max(1, self.uploads)
        return 0.0  # how far a transaction came is not known


class FlushCost(NamedTuple):
    """The time of each step that grows with a batch, as a multiple of its time on the first machine measured."""

    seal: float = 1.0
    upload: float = 1.0
    announce: float = 1.0

    def estimate(self, work: FlushWork) -> StepSeconds:
        """Estimate the seconds of each step."""
        return StepSeconds(*map(_estimate, self, _FIXED, _growing(work)))

    def after(self, work: FlushWork, seconds: StepSeconds, done: StepSeconds) -> FlushCost:
        """Learn from a flush; `done` is the share of each step's work that was finished, from 0 to 1.

        A step that was cut short takes at least so long for its share; 0 s teach nothing. A small batch says little
        about a large one.
        """
        return FlushCost(*map(_learn, self, _FIXED, _growing(work), seconds, done))


_FIXED = StepSeconds(seal=0.01, upload=0.05, announce=0.1)


def _growing(work: FlushWork) -> StepSeconds:
    """Return the seconds of the first measurement: two cores beside broker and store (ADR 12)."""
    return StepSeconds(
        seal=work.entries * 25e-6 + work.row_bytes * 1e-8,
        upload=work.objects * 5e-3 + work.row_bytes * 2e-8,
        announce=work.messages * 20e-6,
    )


def _estimate(factor: float, fixed: float, growing: float) -> float:
    return fixed + factor * growing


def _learn(factor: float, fixed: float, growing: float, seconds: float, done: float) -> float:
    if seconds <= 0 or growing <= 0:
        return factor
    if done < 1:  # a step that was cut short is never thought to be faster
        return max(factor, (seconds - fixed) / (growing * (done or UNKNOWN_SHARE)))
    expected = factor * growing
    ratio = min(_RATIO_MAX, max(_RATIO_MIN, (seconds - fixed) / expected))
    weight = SMOOTHING * expected / (fixed + expected)
    return factor * (1 - weight + weight * ratio)


def decide_by_load(
    load: FlushLoad, bounds: FlushBounds, *, estimate_s: float, size_max: Size | None
) -> FlushReason | None:
    """Decide between two records whether the batch is full; `size_max` is set after a batch was too large.

    Then the estimate is trusted half as far, because the store's throughput for one worker depends on the others.
    """
    if load.entries >= bounds.entries_max:
        return FlushReason.ENTRIES
    if load.source_bytes >= bounds.bytes_max:
        return FlushReason.BYTES
    if load.fixed_bytes >= bounds.fixed_bytes_max:
        return FlushReason.MEMORY
    if load.spool_bytes + load.row_bytes >= bounds.spool_bytes_max:
        return FlushReason.SPOOL
    if size_max is not None and (load.source_bytes >= size_max.source_bytes or load.entries >= size_max.entries):
        return FlushReason.SHRUNK
    if estimate_s >= bounds.estimate_max_s * (1 if size_max is None else DISTRUST):
        return FlushReason.ESTIMATE
    return None
