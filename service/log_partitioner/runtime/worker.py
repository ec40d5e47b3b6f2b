"""One worker over any adapters that fulfil its ports, from its first turn to its end: product and simulation.

`runtime.app` gives it adapters, `tests/fakes/worker.py` fakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import structlog

from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.batch.messages import Sender
from log_partitioner.config.settings import Settings
from log_partitioner.control.flush_policy import flush_bounds
from log_partitioner.control.state import Phase
from log_partitioner.errors import LeavingError, LogPartitionerError, SettingsError, StopError
from log_partitioner.formats.log_events import WorkerFailed, tell
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.privacy import describe
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.positions import Positions
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.runloop import Runloop
from log_partitioner.runtime.verification import Verification


class Parts(NamedTuple):
    """The classes that a worker is made of: exchanged by tests, to see whether a wrong one is noticed."""

    recorder: type[Recorder] = Recorder
    flusher: type[Flusher] = Flusher
    controller: type[Controller] = Controller
    runloop: type[Runloop] = Runloop


PRODUCT = Parts()


@dataclass(eq=False, repr=False)
class Worker:
    """All parts of one worker; used by one thread."""

    ports: Ports
    settings: Settings
    sender: Sender
    parts: Parts = PRODUCT

    def __post_init__(self) -> None:
        ports, settings, parts = self.ports, self.settings, self.parts
        self._log = structlog.get_logger("worker")
        self.topics = SourceTopics()
        self.recorder = parts.recorder(settings, ports.spool, self._find_schema)
        self.positions = Positions(ports, settings.kafka, self.topics)
        self.flusher = parts.flusher(ports, settings, self.sender, self.topics, self._require_fit)
        self.verification = Verification(ports, settings.verify)
        self.controller = parts.controller(
            ports, settings.flush, self.recorder, self.flusher, self.positions, self.verification
        )
        rate = settings.kafka.entries_per_s_max
        self.loop = parts.runloop(ports, flush_bounds(settings), self.controller, self.recorder, self.flusher, rate)

    def _find_schema(self, ref: SchemaRef) -> Schema | None:
        assert self.ports.schemas is not None, "a format that needs schemas has a registry"
        return self.ports.schemas.find(ref, deadline=self.controller.deadline)

    def _require_fit(self, batch: ClosedBatch) -> None:
        self.recorder.first_look.require_fit(batch, self.positions.flushed_topics)

    def run(self) -> None:
        """Work until asked to stop; blocks. On return everything is committed or discarded.

        Raises:
            StopError: the worker cannot go on; the last events are in the log.
        """
        try:
            self.ports.require_outside()
            self.loop.run()
        except (LeavingError, SettingsError):
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
        except (LogPartitionerError, AssertionError, OSError) as error:  # the error before is raised, not this one
            self._log.warning("not_discarded", message=describe(error))
        finally:
            self.ports.consumer.close()
