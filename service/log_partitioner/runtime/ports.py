"""The outside world of one worker, as its parts are given it: product, simulation and tests exchange it whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from log_partitioner.boundary import (
    Clock,
    Committer,
    Consumer,
    FlushJudge,
    FlushRecords,
    Journal,
    Metrics,
    Schemas,
    Spool,
)
from log_partitioner.runtime.uploader import Uploader


class StopFlag:
    """The requests to stop: the first asks for a flush and an orderly leave, the second abandons the flush.

    Both are as safe.
    """

    def __init__(self) -> None:
        self.requests = 0

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self.requests > 0

    @property
    def abandoned(self) -> bool:
        """Whether to stop without finishing the flush."""
        return self.requests > 1

    def request(self) -> None:
        """Ask once more."""
        self.requests += 1


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside; `require_outside` blocks until the worker's needs there are met.

    `beat` is called once a turn of the loop, for the probes.
    """

    consumer: Consumer
    committer: Committer
    flush_records: FlushRecords
    uploads: Uploader
    spool: Spool
    journal: Journal
    clock: Clock
    metrics: Metrics
    stop: StopFlag
    judge: FlushJudge
    new_batch_id: Callable[[], str]
    schemas: Schemas | None = None
    beat: Callable[[], None] = lambda: None
    require_outside: Callable[[], None] = lambda: None
