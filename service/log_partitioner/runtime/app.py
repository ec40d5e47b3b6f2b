"""The composition root: settings -> a worker put together; the only file that imports both adapters and runtime."""

from __future__ import annotations

import gc
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Thread

import structlog

from log_partitioner.adapters import logs
from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.health import Health, HealthServer
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.flush_records import KafkaFlushRecords
from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.adapters.metrics import PrometheusMetrics
from log_partitioner.adapters.object_store import S3Store
from log_partitioner.adapters.preflight import Ask, Preflight, ask_once
from log_partitioner.adapters.run_page import run_page
from log_partitioner.adapters.schema_registry import ASK_S, SchemaRegistry
from log_partitioner.adapters.spool import DiskJournal, DiskSpool
from log_partitioner.batch.fast_lane import why_no_lane
from log_partitioner.batch.messages import Sender
from log_partitioner.config.s3_settings import UPLOAD_THREADS
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.errors import LeavingError, SourceError, SpoolError, StopError
from log_partitioner.formats.log_events import WorkerLeft, WorkerStarted, WorkerStopped, tell
from log_partitioner.formats.object_key import key_safe
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.outside import asks_of_kafka, asks_of_registry, asks_of_store, misfit_of
from log_partitioner.patience import LEAVE_S_MAX, Patience, end_process_after
from log_partitioner.proof.live import LiveJudge
from log_partitioner.runtime.ports import Ports, StopFlag
from log_partitioner.runtime.uploader import Uploader
from log_partitioner.runtime.worker import Worker
from log_partitioner.version import product_version

_ALLOCATIONS = 100_000  # between two collections of cycles
_LOOK_S = 1.0  # between two checks that we are a member
_ANSWER_S = 10.0
_LEAVE_ASKING_S = 2.0  # for the last question to end when the worker leaves
_ASK_AGAIN_S = 30.0  # between two questions whether what failed last is mended


def run(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; blocks.

    Raises:
        StopError: the worker cannot go on.
    """
    boot = secrets.token_hex(4)
    logs.configure(level=settings.log.level, style=settings.log.format, worker=settings.worker, boot=boot)
    stop = StopFlag()
    handle_signals(stop)
    with ExitStack() as cleanup:
        try:
            Process(settings, boot, stop, cleanup).run()
        except LeavingError as error:
            tell(structlog.get_logger("worker").info, WorkerLeft(message=str(error)))


def handle_signals(stop: StopFlag) -> None:
    """Have SIGTERM and SIGINT ask to stop, and do nothing else; main thread only.

    An exception in a handler would lose records that were taken (KAFKA_FACTS F4).
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.request())


class Process:
    """The process around one worker: adapters, probes, metrics, logs."""

    def __init__(self, settings: Settings, boot: str, stop: StopFlag, cleanup: ExitStack) -> None:
        self._settings = settings
        self._boot = boot
        self._stop = stop
        self._log = structlog.get_logger("worker")
        self.clock = SystemClock()
        self.metrics = PrometheusMetrics()
        self._brokers = Brokers(self.clock.now_s)
        self._patience = Patience(lambda: stop.requested)
        self.health = Health(self.clock, live_max_s=settings.flush.live_max_s, trouble=self._trouble)
        self._preflight = Preflight(
            patience=self._patience,
            budget_s=2 * settings.flush.transaction_timeout_s,
            beat=self.health.beat,
            now_s=self.clock.now_s,
        )
        server = HealthServer(
            settings.http.host, settings.http.port, health=self.health, exposition=self._exposition, page=self._page
        )
        self.http_port = server.port
        self._without_max_s = settings.flush.no_membership_max_s
        self._part_at_s = self._looked_at_s = self.clock.now_s()
        self._ask_again_at_s = 0.0
        self._asking: Thread | None = None
        self._misfit = ""
        self._discarded = 0
        self.worker = self._assemble(cleanup)
        server.start()
        cleanup.callback(server.close)

    def run(self) -> None:
        """Work; on return everything is committed or discarded, and the group is left."""
        kafka = self._settings.kafka
        started = WorkerStarted(
            group=kafka.group_id,
            protocol=kafka.group_protocol,
            topics=list(kafka.source_topics),
            bucket=self._settings.s3.bucket,
            http_port=self.http_port,
            version=product_version(),
            fast_lane=why_no_lane(self._settings) or "on",
        )
        tell(self._log.info, started)
        # Records come by the thousand and are in no cycle: looking at them again and again took 8 % of the CPU.
        gc.freeze()
        gc.set_threshold(_ALLOCATIONS, 20, 50)
        self.metrics.set("build_info", 1, worker=self._settings.worker, version=product_version())
        self.metrics.set("spool_limit_bytes", self._settings.spool.bytes_max)
        self.metrics.set("memory_limit_bytes", self._settings.spool.memory_bytes_max)
        try:
            self.worker.run()
        finally:
            self.health.is_draining = True
            with end_process_after(LEAVE_S_MAX):
                self.worker.leave()
                if self._asking is not None:
                    self._asking.join(_LEAVE_ASKING_S)  # as in `_require_outside`
        tell(self._log.info, WorkerStopped(phase=self.worker.controller.state.phase.value))

    def _assemble(self, cleanup: ExitStack) -> Worker:
        settings = self._settings
        directory = Path(settings.spool.directory)
        spool = DiskSpool(directory / key_safe(settings.worker), bytes_max=settings.spool.bytes_max)
        try:
            spool.prepare()
        except SpoolError as error:
            raise StopError(f"no spool in spool.directory: {error}") from error
        cleanup.callback(spool.close)
        self._store = store = S3Store(settings.s3, answer_s=settings.flush.store_answer_s, metrics=self.metrics)
        self._registry = SchemaRegistry(settings.registry, self.clock.now_s) if settings.registry.url else None
        uploader = Uploader(store, threads=UPLOAD_THREADS, trouble=lambda: store.trouble)
        kafka = settings.kafka
        reading = consumer_options(settings, worker=settings.worker)
        self._consumer = KafkaConsumer(reading, kafka.source_topics, brokers=self._brokers, patience=self._patience)
        # init_transactions waits for the broker to end what an earlier producer left open (KAFKA_FACTS T7).
        self._committer = KafkaCommitter(
            producer_options(settings, worker=settings.worker, transactional_id=settings.transactional_id),
            init_budget_s=2 * settings.flush.transaction_timeout_s,
            clock=self.clock,
            brokers=self._brokers,
            patience=self._patience,
            patience_of_flush=Patience(lambda: self._stop.abandoned),
        )
        cleanup.callback(self._committer.close)
        journal = DiskJournal(directory / f"{key_safe(settings.worker)}.journal")
        cleanup.callback(journal.close)
        group = OurGroup(kafka.group_id, alone_on=kafka.sources, accepted=kafka.accept_groups)
        ports = Ports(
            consumer=self._consumer,
            committer=self._committer,
            flush_records=KafkaFlushRecords(reading, kafka.flushes_topic, group=group, patience=self._patience),
            uploads=uploader,
            spool=spool,
            journal=journal,
            clock=self.clock,
            metrics=self.metrics,
            stop=self._stop,
            judge=LiveJudge(
                settings, store, lambda wait: KafkaTopics(reading, wait=wait, log_as="reread"), self._find_schema
            ).judge,
            new_batch_id=batch_ids(self._boot),
            schemas=self._registry,
            beat=self._beat,
            require_outside=self._require_outside,
        )
        own = Sender(settings.worker, self._boot, kafka, settings.s3.bucket)
        return Worker(ports, settings, own)

    def _find_schema(self, ref: SchemaRef) -> Schema | None:
        assert self._registry is not None, "a format that needs schemas has a registry"
        return self._registry.find(ref, deadline=Deadline.after(ASK_S, self.clock.now_s))

    def _require_outside(self) -> None:
        """Wait until store and Kafka meet all needs; the committer reports brokers that do not answer."""
        self._committer.prepare()
        self._preflight.require(self._asks())
        # Not beside the loop: a client that still reads when the interpreter ends takes the process with it.
        self._misfit = self._patience.ask(lambda: misfit_of(self._settings))
        if self._misfit:
            self._log.warning("outside_doubted", message=self._misfit, times=1)

    def _asks(self) -> list[Ask]:
        registry = asks_of_registry(self._settings, self._registry)
        return [*asks_of_store(self._settings, self._store), *asks_of_kafka(self._settings), *registry]

    def _trouble(self) -> str | None:
        """Describe the trouble outside, for the probes."""
        misfit = None if self.worker.recorder.first_look.has_fit else self._misfit
        return self._preflight.unmet or self._last_failure() or self._kept_out() or misfit or None

    def _last_failure(self) -> str | None:
        """Describe the failure of the last request to the store, to brokers or to the registry."""
        of_registry = None if self._registry is None else self._registry.trouble
        return self._store.trouble or self._committer.trouble or of_registry

    def _ask_again(self) -> None:
        """Ask whether the last failure is over: a worker without anything to flush would not find out by itself."""
        is_asking = self._asking is not None and self._asking.is_alive()
        if is_asking or self._last_failure() is None:
            return
        trouble = self._committer.trouble

        def ask() -> None:
            is_missing = any([answer.is_missing for answer in ask_once(self._asks())])  # noqa: C419 - ask for all
            is_idle = self.worker.recorder.opening is None and self._committer.trouble is trouble
            if not is_missing and is_idle:
                self._committer.trouble = None

        self._asking = Thread(target=ask, name="ask-again", daemon=True)
        self._asking.start()

    def _beat(self) -> None:
        """Tell the probes that the loop has turned, and whether we are a member or stop."""
        self.health.beat()
        if (now_s := self.clock.now_s()) >= self._looked_at_s + _LOOK_S:
            self._require_part(now_s)
            if (discarded := self.worker.controller.discarded) != self._discarded:
                self._discarded = discarded
                gc.collect()  # a failed upload leaves its body in a cycle
            if self.worker.recorder.opening is None and now_s >= self._ask_again_at_s:
                self._ask_again_at_s = now_s + _ASK_AGAIN_S
                self._ask_again()
        self.health.is_draining = self._stop.requested
        verification = self.worker.verification
        if verification.differences and self._settings.verify.on_difference != "report":
            self.health.difference = verification.story()

    def _require_part(self, now_s: float) -> None:
        """Require that we take part in the group; a full group is waited for.

        If the last check is too long ago, the process was stopped meanwhile, and that time does not count.

        Raises:
            SourceError: we have been out of it for too long: then another process is started.
        """
        was_stopped = now_s - self._looked_at_s >= self._without_max_s / 2
        self._looked_at_s, without_s = now_s, now_s - self._part_at_s
        is_over = without_s >= self._without_max_s
        is_member = self._consumer.membership().is_proof
        self.health.is_member = self._consumer.is_answered
        self.health.is_positioned = not self.worker.controller.not_positioned
        if is_member:
            self._brokers.joined()
        hindrance, refusal = self._kept_out(), self._brokers.refusal()
        if hindrance is None and not is_member:
            hindrance = "the group has not answered"
        elif refusal is not None and refusal.is_full:
            hindrance = None
        if is_member and hindrance is not None and is_over:  # no record comes, so ask
            deadline = Deadline.after(_ANSWER_S, self.clock.now_s)
            if self._consumer.topic_ids(self._settings.kafka.source_topics, deadline=deadline):
                self._brokers.answered()
                hindrance = None
        if hindrance is None or was_stopped:
            self._part_at_s = now_s
        elif is_over:
            raise SourceError(f"no part in the group for {without_s:.0f} s: {hindrance}")

    def _kept_out(self) -> str | None:
        """Name the reason that keeps us from the brokers, or out of the group."""
        refusal = self._brokers.refusal()
        return self._brokers.trouble() or (None if refusal is None else refusal.text)

    def _page(self) -> bytes:
        ready = self.health.ready()
        state = f"{'Ready' if ready.well else 'Not ready'}: {ready.text}"
        flushes, now_s = self.worker.flusher.recent, self.clock.wall_ms() / 1000
        return run_page(self._settings, state, self.metrics.series, flushes, now_s=now_s)

    def _exposition(self) -> bytes:
        self.metrics.set("ready", self.health.ready().well)
        return self.metrics.exposition()


def batch_ids(boot: str) -> Callable[[], str]:
    """Make unique, sortable batch ids: time, boot (random), number."""
    numbers = count(1)
    return lambda: f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{boot}-{next(numbers)}"
