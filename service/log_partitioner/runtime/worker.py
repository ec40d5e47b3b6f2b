"""One worker over any adapters that fulfil its ports, from its first turn to its end: product and simulation.

`runtime.app` gives it adapters, `tests/fakes/worker.py` fakes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from log_partitioner.batch.messages import Sender
from log_partitioner.boundary import (
    Clock,
    Committer,
    Consumer,
    FlushJudge,
    FlushRecords,
    Journal,
    Metrics,
    Spool,
)
from log_partitioner.config.settings import Settings
from log_partitioner.control.flush_policy import flush_bounds
from log_partitioner.control.state import Phase
from log_partitioner.errors import LeavingError, LogPartitionerError, StopError
from log_partitioner.formats.log_events import WorkerFailed, tell
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.privacy import describe
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.positions import Positions
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.runloop import Runloop, StopFlag
from log_partitioner.runtime.uploader import Uploader
from log_partitioner.runtime.verification import Verification


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world of one worker; `require_outside` blocks until its needs there are met."""

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
    require_outside: Callable[[], None] = lambda: None


class Parts(NamedTuple):
    """The classes that a worker is made of: exchanged by tests, to see whether a wrong one is noticed."""

    recorder: type[Recorder] = Recorder
    flusher: type[Flusher] = Flusher
    controller: type[Controller] = Controller
    runloop: type[Runloop] = Runloop


class Worker:
    """All parts of one worker; used by one thread."""

    def __init__(
        self,
        ports: Ports,
        settings: Settings,
        *,
        sender: Sender,
        new_batch_id: Callable[[], str],
        beat: Callable[[], None],
        parts: Parts | None = None,
    ) -> None:
        parts = parts or Parts()
        clock, metrics = ports.clock, ports.metrics
        self._ports = ports
        self._log = structlog.get_logger("worker")
        self.topics = SourceTopics()
        self.recorder = parts.recorder(settings, ports.spool)
        self.positions = Positions(
            settings=settings.kafka,
            consumer=ports.consumer,
            flush_records=ports.flush_records,
            topics=self.topics,
            clock=clock,
        )
        self.flusher = parts.flusher(
            settings=settings,
            sender=sender,
            uploader=ports.uploads,
            committer=ports.committer,
            membership=ports.consumer.membership,
            topics=self.topics,
            clock=clock,
            metrics=metrics,
            abandoned=lambda: ports.stop.abandoned,
            require_fit=lambda batch: self.recorder.first_look.require_fit(batch, self.positions.flushed_topics),
        )
        self.verification = Verification(
            settings.verify,
            ports.judge,
            clock=clock,
            metrics=metrics,
            is_hurried=lambda: ports.stop.requested,
        )
        self.controller = parts.controller(
            rules=settings.flush,
            recorder=self.recorder,
            flusher=self.flusher,
            consumer=ports.consumer,
            committer=ports.committer,
            positions=self.positions,
            clock=clock,
            metrics=metrics,
            new_batch_id=new_batch_id,
            verification=self.verification,
        )
        self.loop = parts.runloop(
            bounds=flush_bounds(settings),
            controller=self.controller,
            recorder=self.recorder,
            flusher=self.flusher,
            consumer=ports.consumer,
            journal=ports.journal,
            clock=clock,
            metrics=metrics,
            stop=ports.stop,
            beat=beat,
        )

    def run(self) -> None:
        """Work until asked to stop; blocks. On return everything is committed or discarded.

        Raises:
            StopError: the worker cannot go on; the last events are in the log.
        """
        try:
            self._ports.require_outside()
            self.loop.run()
        except LeavingError:
            raise
        except BaseException as error:
            message = str(error) if isinstance(error, StopError) else describe(error)
            failed = WorkerFailed(type(error).__name__, message, story=list(self.controller.story))
            tell(self._log.error, failed, exc_info=None if isinstance(error, StopError) else error)
            raise

    def leave(self) -> None:
        """Leave the group, whatever else fails: others wait for our TopicPartitions. Nothing is committed any more."""
        try:
            if self.controller.state.phase is not Phase.STOPPED:
                self.controller.fail()
        except (LogPartitionerError, AssertionError, OSError) as error:  # what was wrong before is raised, not this
            self._log.warning("not_discarded", message=describe(error))
        finally:
            self._ports.consumer.close()
