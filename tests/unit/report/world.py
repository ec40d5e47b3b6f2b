"""Results of audits and lines of workers' logs, made by hand: what a report is made from."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from log_partitioner.formats.findings import Kind
from log_partitioner.formats.log_events import LogEvent, PartitionsLost, PartitionsRevoked
from log_partitioner_pipeline.audit.result import (
    Counts,
    Coverage,
    Example,
    Finding,
    FlushedRange,
    FlushSeen,
    Hour,
    RecordHour,
    Result,
    Verdict,
    Window,
)
from tests.log_lines import assigned, committed, line_of

T0_MS = 1_772_582_400_000  # 2026-03-04 00:00 UTC
HOUR_MS = 3_600_000
FLUSH_MS = 30_000
TOPIC = "logs.of-products"


def flush(
    at_ms: int, ranges: dict[int, tuple[int, int]], *, worker: str = "w1", reason: str = "interval", batch: str = ""
) -> FlushSeen:
    """Make a flush record that ended at this time; `ranges` by partition."""
    return FlushSeen(
        batch_id=batch or f"{worker}-{at_ms}",
        worker=worker,
        boot=f"{worker}-boot",
        seq=1,
        generation=1,
        reason=reason,
        started_at_ms=at_ms - 800,
        ended_at_ms=at_ms,
        entries=sum(end - first for first, end in ranges.values()),
        entries_in_files=sum(end - first for first, end in ranges.values()),
        dead_letters=0,
        references=len(ranges),
        bytes=1000,
        ranges=[
            FlushedRange(
                topic=TOPIC,
                partition=partition,
                first_offset=first,
                next_offset=end,
                entries=end - first,
                dead_letters=0,
                timestamp_max_ms=at_ms - 2000,
            )
            for partition, (first, end) in ranges.items()
        ],
    )


def missing(offset: int, *, partition: int = 0, at_ms: int | None = None, text: str = "", user: str = "u") -> Example:
    """Make a finding of an entry."""
    return Example(
        text=text or "in no file and in no dead letter",
        topic=TOPIC,
        partition=partition,
        offset=offset,
        index=0,
        timestamp_ms=at_ms,
        user=user,
        date="2026-03-04",
        hour=0,
    )


def result(
    findings: Iterable[tuple[Kind, Sequence[Example]]] = (),
    *,
    flushes: Sequence[FlushSeen] = (),
    hours: Sequence[Hour] = (),
    record_hours: Sequence[RecordHour] = (),
    could_not_tell: Sequence[str] = (),
    counts: Counts | None = None,
    run_id: str = "run-1",
    started_at_ms: int = T0_MS + 10 * HOUR_MS,
) -> Result:
    """Make a result; findings are as many as there are examples."""
    return Result(
        run_id=run_id,
        started_at_ms=started_at_ms,
        seconds=12.5,
        places={"brokers": "kafka:9092", "source": TOPIC},
        window=Window(from_ms=T0_MS, until_ms=T0_MS + 8 * HOUR_MS, padding_s=600),
        coverage=[
            Coverage(
                topic=TOPIC,
                partition=0,
                retained_offset=0,
                end_offset=9,
                committed_offset=9,
                first_offset=0,
                next_offset=9,
                window_first_offset=0,
                window_next_offset=9,
            )
        ],
        counts=counts
        or Counts(records=1000, entries=1234, deliverable=1200, dead=34, in_files=1200, in_dead_letters=34),
        findings=[
            Finding(kind=kind, count=sum(one.count for one in examples), examples=list(examples))
            for kind, examples in findings
        ],
        could_not_tell=list(could_not_tell),
        notes=[],
        ids=None,
        dead_letters={"no_user": 34},
        hours=list(hours),
        record_hours=list(record_hours),
        flushes=list(flushes),
        references_offsets={0: 100},
    )


def hour(nth: int, *, findings: dict[str, int] | None = None, references: int = 4) -> Hour:
    """Make the n-th date and hour since `T0_MS`."""
    at = datetime.fromtimestamp((T0_MS + nth * HOUR_MS) / 1000, UTC)
    return Hour(
        date=f"{at:%Y-%m-%d}",
        hour=at.hour,
        verdict=Verdict.FINDINGS if findings else Verdict.CLEAN,
        expected=100,
        in_files=100,
        findings=findings or {},
        references=references,
        bytes=references * 2048,
    )


def record_hour(nth: int | None, *, entries: int = 100, missing: int = 0, lag_ms: int = 20_000) -> RecordHour:
    """Make the n-th hour of record timestamps since `T0_MS`; None: of records without a timestamp."""
    return RecordHour(
        begins_ms=None if nth is None else T0_MS + nth * HOUR_MS,
        records=entries,
        entries=entries,
        in_files=entries - missing,
        in_dead_letters=0,
        missing=missing,
        duplicated=0,
        lag_p50_ms=lag_ms,
        lag_p99_ms=lag_ms * 2,
        lag_max_ms=lag_ms * 3,
    )


class WorkerLog:
    """The log of one boot of a worker, as the worker writes it."""

    def __init__(self, worker: str = "w1", boot: str = "") -> None:
        self.worker = worker
        self.boot = boot or f"{worker}-boot"
        self.lines: list[bytes] = []

    def write(self, at_ms: int, event: LogEvent | str) -> "WorkerLog":
        """Write one line."""
        seq = len(self.lines) + 1
        self.lines.append(line_of(event, at_ms=at_ms, worker=self.worker, boot=self.boot, seq=seq) + b"\n")
        return self

    def assigned(self, at_ms: int, *partitions: int) -> "WorkerLog":
        """Write that these partitions were assigned."""
        return self.write(at_ms, assigned(*(f"{TOPIC}-{number}" for number in partitions)))

    def revoked(self, at_ms: int, *partitions: int) -> "WorkerLog":
        """Write that these partitions were revoked."""
        return self.write(at_ms, PartitionsRevoked([f"{TOPIC}-{number}" for number in partitions], 1))

    def lost(self, at_ms: int, *partitions: int) -> "WorkerLog":
        """Write that these partitions were lost."""
        return self.write(at_ms, PartitionsLost([f"{TOPIC}-{number}" for number in partitions], 1))

    def committed(self, at_ms: int, ranges: dict[int, tuple[int, int]], *, batch: str) -> "WorkerLog":
        """Write that a flush was committed."""
        offsets = {
            f"{TOPIC}-{number}": {
                "first_offset": first,
                "min_offset": first,
                "max_offset": end - 1,
                "next_offset": end,
            }
            for number, (first, end) in ranges.items()
        }
        return self.write(at_ms, committed(batch_id=batch, entries=9, offsets=offsets))
