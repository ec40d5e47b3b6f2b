"""The product's worker over fakes; any part may be another class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from log_partitioner.batch.messages import Sender
from log_partitioner.batch.pack_plan import SealRules
from log_partitioner.boundary import Schemas
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.section import StartAt
from log_partitioner.config.settings import (
    DeadLettersSettings,
    FlushSettings,
    IdSettings,
    KafkaSettings,
    Layout,
    SchemaBounds,
    Settings,
    SpoolSettings,
    TimeSettings,
    VerifySettings,
)
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.control.flush_policy import FlushBounds
from log_partitioner.input.json_text import JsonDecoder
from log_partitioner.proof.live import LiveJudge
from log_partitioner.runtime import worker
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.ports import Ports, StopFlag
from log_partitioner.runtime.recorder import Recorder
from log_partitioner.runtime.runloop import Runloop
from log_partitioner.runtime.worker import Worker
from tests.fakes.broker import FakeBroker
from tests.fakes.clock import FakeClock
from tests.fakes.committer import FakeCommitter
from tests.fakes.consumer import FakeConsumer, FakeSource, Point, no_point
from tests.fakes.flush_records import FakeFlushRecords
from tests.fakes.journal import FakeJournal
from tests.fakes.member import Member, Member848
from tests.fakes.metrics import RecordingMetrics
from tests.fakes.spool import FakeSpool
from tests.fakes.store import Bucket, FakeObjectStore, InlineUploader

REFERENCES, FLUSHES, DEAD_LETTERS = "references", "flushes", "dead-letters"
GROUP = "group"

MIB = 1024 * 1024
SEAL_RULES = SealRules(
    bounds=SchemaBounds(depth_max=16, object_keys_max=500, json_depth_max=100),
    decode=JsonDecoder(keep_inexact_text=False).decode_again,
    layout="auto",
    packed_bytes_max=MIB,
    schema_texts_min=0,
    object_bytes_max=64 * MIB,
    pack_bytes_max=32 * MIB,
    line_bytes_max=600_000,
    group_bytes_max=600_000,
    codec="null",
    block_bytes=64 * 1024,
)
SOURCE_TOPICS = ("source",)
FLUSH_BOUNDS = FlushBounds(
    interval_s=30.0,
    bytes_max=10**9,
    entries_max=10**6,
    fixed_bytes_max=10**9,
    spool_bytes_max=10**9,
    estimate_max_s=49.0,
)
CONTROL_RULES = FlushSettings(bytes_max=FLUSH_BOUNDS.bytes_max, entries_max=FLUSH_BOUNDS.entries_max)


def settings_of(start_at: StartAt = "beginning") -> Settings:
    """Records are JSON; user, time and id stand in fields of these names."""
    return Settings(
        kafka=KafkaSettings(
            bootstrap_servers="fake:9092", group_id=GROUP, source_topics=SOURCE_TOPICS, references_topic=REFERENCES,
            flushes_topic=FLUSHES, dead_letters_topic=DEAD_LETTERS, start_at=start_at,
        ),  # type: ignore[call-arg]
        s3=S3Settings(bucket="bucket"),  # type: ignore[call-arg]
        time=TimeSettings(paths=("time",), missing="dead-letter", future_max_s=10 * 365 * 86_400),  # type: ignore[call-arg]
        id=IdSettings(paths=("id",)),
        flush=CONTROL_RULES,
        dead_letters=DeadLettersSettings(share_max=1),
        spool=SpoolSettings(memory_bytes_max=2**30),  # type: ignore[call-arg]
        fast_lane="off",
    )  # fmt: skip


def verifying(*, share: float = 1.0, is_stopping: bool = True) -> VerifySettings:
    """Return settings of verification mode."""
    return VerifySettings(share=share, on_difference="stop" if is_stopping else "report")


class Parts(NamedTuple):
    """The classes a worker is made of, and those of its group: exchanged to see whether a wrong one is noticed."""

    recorder: type[Recorder] = Recorder
    flusher: type[Flusher] = Flusher
    controller: type[Controller] = Controller
    runloop: type[Runloop] = Runloop
    committer: type[FakeCommitter] = FakeCommitter
    consumer: type[FakeConsumer] = FakeConsumer
    member848: type[Member848] = Member848


@dataclass(frozen=True)
class Rules:
    """The settings of one worker, and what follows from them that is exchanged by tests."""

    settings: Settings = field(default_factory=settings_of)
    seal: SealRules = SEAL_RULES
    bounds: FlushBounds = FLUSH_BOUNDS
    schemas: Schemas | None = None

    def with_settings(self, **sections: Any) -> Rules:
        """Exchange some settings: values by section, or a section."""
        settings = self.settings
        for name, given in sections.items():
            value = getattr(settings, name).model_copy(update=given) if isinstance(given, dict) else given
            settings = settings.model_copy(update={name: value})
        return replace(self, settings=settings)

    def with_bounds(self, **bounds: float) -> Rules:
        """Exchange some flush bounds."""
        return replace(self, bounds=self.bounds._replace(**bounds))  # type: ignore[arg-type]

    def with_layout(self, layout: Layout) -> Rules:
        """Exchange the layout."""
        return self.with_seal(layout=layout)

    def with_seal(self, **rules: Any) -> Rules:
        """Exchange some rules of sealing."""
        return replace(self, seal=self.seal._replace(**rules))

    def with_lane(self) -> Rules:
        """Take the fast lane into rows and out of them, if it is installed."""
        return self.with_settings(fast_lane="auto")

    def with_verification(self, **given: Any) -> Rules:
        """Judge flushes right after they are committed."""
        return self.with_settings(verify=verifying(**given))


class FakeWorker:
    """The product's worker over fakes; `step` is one turn of its loop."""

    def __init__(
        self,
        name: str,
        broker: FakeBroker,
        member: Member,
        clock: FakeClock,
        bucket: Bucket,
        *,
        rules: Rules | None = None,
        parts: Parts | None = None,
        point: Point = no_point,
        boot: str = "boot",
        journal: FakeJournal | None = None,
    ) -> None:
        parts, rules = parts or Parts(), rules or Rules()
        self.name = name
        self.clock = clock
        self.broker = broker
        self.stop = StopFlag()
        self.metrics = RecordingMetrics()
        self.consumer = parts.consumer(broker, member, clock, point=point)
        self.committer = parts.committer(broker, f"logs.{name}", clock, point=point)
        self.store = FakeObjectStore(bucket, clock, point=point)
        self.spool = FakeSpool(point=point)
        self.journal = journal or FakeJournal()
        self.flush_records = FakeFlushRecords(broker, FLUSHES, OurGroup(GROUP, alone_on=SOURCE_TOPICS))
        ports = Ports(
            consumer=self.consumer,
            committer=self.committer,
            flush_records=self.flush_records,
            uploads=InlineUploader(self.store),
            spool=self.spool,
            journal=self.journal,
            clock=clock,
            metrics=self.metrics,
            stop=self.stop,
            judge=LiveJudge(rules.settings, self.store, lambda wait: FakeSource(broker, wait, point=point)).judge,
            new_batch_id=_batch_ids(f"{name}-{boot}"),
            schemas=rules.schemas,
        )
        self.worker = Worker(
            ports,
            rules.settings,
            Sender(name, boot, rules.settings.kafka, "bucket"),
            worker.Parts(parts.recorder, parts.flusher, parts.controller, parts.runloop),
        )
        self.verification = self.worker.verification
        self.topics = self.worker.topics
        self.recorder = self.worker.recorder
        self.flusher = self.worker.flusher
        self.flusher.seal_rules = rules.seal
        self.positions = self.worker.positions
        self.controller = self.worker.controller
        self.loop = self.worker.loop
        self.loop.bounds = rules.bounds
        self.loop.records_max, self.loop.publish_s = 100, 0.0

    def start(self) -> None:
        """Do what comes before the first turn."""
        self.loop.begin()

    def step(self) -> None:
        """Turn the loop once."""
        self.loop.turn()

    def settle(self) -> None:
        """Do what comes before a poll: have a producer ready, and a place for all that is owned."""
        self.controller.prepare()
        self.controller.position()

    def close(self) -> None:
        """End as the product's process does, however it came."""
        self.worker.leave()


def _batch_ids(prefix: str) -> Callable[[], str]:
    number = 0

    def new() -> str:
        nonlocal number
        number += 1
        return f"{prefix}-{number}"

    return new
