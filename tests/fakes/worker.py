"""The product's worker over fakes; any part may be another class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, NamedTuple

from log_partitioner import native
from log_partitioner.avro.entry_types import SchemaBounds
from log_partitioner.avro.schema_types import Limits
from log_partitioner.batch.fast_lane import LaneRules
from log_partitioner.batch.messages import Sender
from log_partitioner.batch.pack_plan import Layout, LayoutRules
from log_partitioner.batch.seal import SealRules
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import (
    FlushSettings,
    IdSettings,
    KafkaSettings,
    Settings,
    TimeSettings,
    VerifySettings,
)
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.control.flush_policy import FlushBounds
from log_partitioner.input.decode import InputRules, RecordDecoder
from log_partitioner.input.json_text import JsonDecoder
from log_partitioner.partitioning.event_time import LATEST_US, TimeRules
from log_partitioner.partitioning.partitioner import KeyRules, Partitioner
from log_partitioner.proof.live import LiveJudge
from log_partitioner.runtime import worker
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.first_look import LookRules
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.positions import StartAt, StartRules
from log_partitioner.runtime.recorder import Recorder, RecorderRules
from log_partitioner.runtime.runloop import Runloop
from log_partitioner.runtime.stop import StopFlag
from log_partitioner.runtime.worker import Ports, Worker, WorkerRules
from tests.fakes.broker import FakeBroker
from tests.fakes.clock import FakeClock
from tests.fakes.committer import FakeCommitter
from tests.fakes.consumer import FakeConsumer, Point, no_point
from tests.fakes.flush_records import FakeFlushRecords
from tests.fakes.journal import FakeJournal
from tests.fakes.member import Member, Member848
from tests.fakes.metrics import RecordingMetrics
from tests.fakes.source import FakeSource
from tests.fakes.spool import FakeSpool
from tests.fakes.store import Bucket, FakeObjectStore
from tests.fakes.uploads import InlineUploader

REFERENCES, FLUSHES, DEAD_LETTERS = "references", "flushes", "dead-letters"
GROUP = "group"

MIB = 1024 * 1024
SCHEMA_BOUNDS = SchemaBounds(
    limits=Limits(depth_max=16, object_keys_max=500, json_depth_max=100), fields_max=1000, bytes_max=MIB // 2
)
SEAL_RULES = SealRules(
    bounds=SCHEMA_BOUNDS,
    layout=LayoutRules(
        "auto", packed_bytes_max=MIB, object_bytes_max=64 * MIB, pack_bytes_max=32 * MIB, line_bytes_max=600_000
    ),
    codec="null",
    block_bytes=64 * 1024,
    group_bytes_max=600_000,
    decode=JsonDecoder(keep_inexact_text=False).decode_again,
)
FLUSH_BOUNDS = FlushBounds(
    interval_s=30.0,
    bytes_max=10**9,
    entries_max=10**6,
    fixed_bytes_max=10**9,
    spool_bytes_max=10**9,
    estimate_max_s=49.0,
)
CONTROL_RULES = FlushSettings(bytes_max=FLUSH_BOUNDS.bytes_max, entries_max=FLUSH_BOUNDS.entries_max)
START_RULES = StartRules(group_id=GROUP, start_at="beginning", accept_unknown_history=False, topics=("source",))


LANE_RULES = LaneRules(
    user_paths=(("entry", ("user",)),),
    time_paths=(("entry", ("time",)),),
    id_paths=(("entry", ("id",)),),
    entries_field=None,
    entries_max=1000,
    is_ndjson=False,
    has_fallback=False,
    no_users=("", "-"),
    missing_user=None,
    epoch_unit="auto",
    is_naive_utc=True,
    earliest_us=946_684_800_000_000,
    latest_us=LATEST_US,
    future_max_us=10 * 365 * 86_400_000_000,
    chain_header="source-topic-chain",
)


def recorder_rules(*, bounds: SchemaBounds = SCHEMA_BOUNDS, memory_bytes_max: int = 2**30) -> RecorderRules:
    """Records are JSON; user, time and id stand in fields of these names."""
    times = TimeRules(
        epoch_unit="auto", zone=UTC, earliest_us=946_684_800_000_000, future_max_us=10 * 365 * 86_400_000_000
    )
    keys = KeyRules(
        user_paths=("user",),
        no_users=frozenset({"", "-"}),
        missing_user=None,
        time_paths=("time",),
        time=times,
        missing_time="dead-letter",
        id_paths=("id",),
        zone=UTC,
    )
    decoder = RecordDecoder(InputRules("json", None, 2**24, 10**5), JsonDecoder(keep_inexact_text=False))
    return RecorderRules(
        decoder=decoder,
        partitioner=Partitioner(keys),
        bounds=bounds,
        memory_bytes_max=memory_bytes_max,
        root_of=lambda _record: None,
        look=LookRules(START_RULES.topics, {"user.paths": keys.user_paths, "time.paths": keys.time_paths}, decoder),
    )


def settings_of(start_at: StartAt = "beginning") -> Settings:
    """Return settings that say what `recorder_rules` says."""
    return Settings(
        kafka=KafkaSettings(
            bootstrap_servers="fake:9092", group_id=GROUP, source_topics=("source",), references_topic=REFERENCES,
            flushes_topic=FLUSHES, dead_letters_topic=DEAD_LETTERS, start_at=start_at,
        ),  # type: ignore[call-arg]
        s3=S3Settings(bucket="bucket"),  # type: ignore[call-arg]
        time=TimeSettings(paths=("time",), missing="dead-letter", future_max_s=10 * 365 * 86_400),  # type: ignore[call-arg]
        id=IdSettings(paths=("id",)),
        flush=CONTROL_RULES,
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
class Rules(WorkerRules):
    """All rules of one worker."""

    recorder: RecorderRules = field(default_factory=recorder_rules)
    settings: Settings = field(default_factory=settings_of)
    seal: SealRules = SEAL_RULES
    start: StartRules = START_RULES
    bounds: FlushBounds = FLUSH_BOUNDS

    def with_bounds(self, **bounds: float) -> Rules:
        """Exchange some flush bounds."""
        return replace(self, bounds=self.bounds._replace(**bounds))  # type: ignore[arg-type]

    def with_start_at(self, start_at: StartAt) -> Rules:
        """Exchange where to start without a committed offset."""
        return replace(self, start=self.start._replace(start_at=start_at))

    def with_layout(self, layout: Layout) -> Rules:
        """Exchange the layout."""
        return self.with_seal(layout=self.seal.layout._replace(layout=layout))

    def with_seal(self, **rules: Any) -> Rules:
        """Exchange some rules of sealing."""
        return replace(self, seal=self.seal._replace(**rules))

    def with_settings(self, **sections: Any) -> Rules:
        """Exchange some sections of the settings."""
        return replace(self, settings=self.settings.model_copy(update=sections))

    def with_message_bytes(self, bytes_max: int) -> Rules:
        """Exchange how large a message may be."""
        kafka = self.settings.kafka.model_copy(update={"message_bytes_max": bytes_max})
        return self.with_settings(kafka=kafka)

    def with_lane(self) -> Rules:
        """Take the fast lane into rows and out of them, where it is installed."""
        lane = LANE_RULES if native.IS_INSTALLED else None
        return replace(self, recorder=self.recorder._replace(fast_lane=lane, is_fast=lane is not None))

    def with_verification(self, **given: Any) -> Rules:
        """Judge flushes right after they are committed."""
        return self.with_settings(verify=verifying(**given))

    def with_memory(self, bytes_max: int) -> Rules:
        """Exchange how much the open batch may take in memory."""
        return replace(self, recorder=self.recorder._replace(memory_bytes_max=bytes_max))


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
        self.flush_records = FakeFlushRecords(broker, FLUSHES, OurGroup(GROUP, alone_on=START_RULES.topics))
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
            judge=LiveJudge(rules.settings, self.store, lambda wait: FakeSource(broker, wait, point=point)),
        )
        self.worker = Worker(
            ports,
            rules,
            sender=Sender(name, boot, GROUP, "bucket", REFERENCES, FLUSHES, DEAD_LETTERS),
            new_batch_id=_batch_ids(f"{name}-{boot}"),
            beat=lambda: None,
            parts=worker.Parts(parts.recorder, parts.flusher, parts.controller, parts.runloop),
        )
        self.verification = self.worker.verification
        self.topics = self.worker.topics
        self.recorder = self.worker.recorder
        self.flusher = self.worker.flusher
        self.flusher.seal_rules = rules.seal
        self.positions = self.worker.positions
        self.controller = self.worker.controller
        self.loop = self.worker.loop
        self.loop.records_max = 100

    def start(self) -> None:
        """Do what comes before the first turn."""
        self.loop.begin()

    def step(self) -> None:
        """Turn the loop once."""
        self.loop.turn()

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
