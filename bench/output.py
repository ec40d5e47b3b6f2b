"""Counts the output of a run without judging it: messages in Kafka, objects in S3, lines in the workers' logs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.lab import Run
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.flush_record import decode_flush_record, merge_parts
from log_partitioner.formats.log_events import (
    BatchCommitted,
    BatchDiscarded,
    FlushStarted,
    LogLine,
    PartitionsAssigned,
    read_line,
)
from log_partitioner.formats.model import SourceRecord
from log_partitioner.formats.reference import decode_references

_RETRIES = {
    "upload_repeated": "repeated",
    "upload_confirmed": "taken, ours",
    "key_taken": "taken, not ours",
    "object_not_compared": "taken, not compared",
}


def read_output(run: Run, logs: list[Path]) -> dict[str, float]:
    """Return the figures of a run, each by its name."""
    lines = log_lines(logs)
    announced = _announced(run)
    puts = _puts(run, lines)
    return {
        **announced,
        **_flushed(run),
        **_steps(lines),
        **_flush_times(lines),
        **{f"PUTs: {kind}": count for kind, count in sorted(puts.items())},
        "PUTs": puts.total(),
        "PUTs per 100 PartitionKeys": 100 * puts.total() / max(1.0, announced["PartitionKeys"]),
        "objects": sum(line.event.objects for line in lines if isinstance(line.event, BatchCommitted)),
        "discards": sum(isinstance(line.event, BatchDiscarded) for line in lines),
    }


def log_lines(logs: list[Path]) -> list[LogLine]:
    """Return all lines of workers' logs."""
    return [line for log in logs for line in map(read_line, log.read_bytes().splitlines()) if line is not None]


def flush_seconds(lines: list[LogLine]) -> list[float]:
    """Return how long each committed flush held the worker up, least first."""
    begun = {line.event.batch_id: line.fields["mono"] for line in lines if isinstance(line.event, FlushStarted)}
    committed = (line for line in lines if isinstance(line.event, BatchCommitted))
    return sorted(line.fields["mono"] - begun[line.fields["batch_id"]] for line in committed)


def quantile(ordered: list[float], share: float) -> float:
    """Return the least value that at least this share of the values does not exceed; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def read_topic(bootstrap: str, topic: str) -> Iterator[SourceRecord]:
    """Give all committed messages of a topic."""
    with KafkaTopics.of(KafkaSettings(bootstrap_servers=bootstrap, source_topics=(topic,))) as topics:
        yield from topics.read({tp: topics.ends(tp) for tp in topics.topic_partitions(topic)})


def _announced(run: Run) -> dict[str, float]:
    keys, references, size, names, messages = set(), 0, 0, 0, 0
    for message in read_topic(run.lab.bootstrap, run.topic("references")):
        messages += 1
        size += len(message.key or b"") + len(message.value or b"")
        for reference in decode_references(message.value or b""):
            references += 1
            names += len(reference.partition_key.user.encode())
            keys.add(reference.partition_key)
    return {
        "PartitionKeys": len(keys),
        "references": references,
        "messages of references": messages,
        "bytes per reference": size / max(1, references),
        "bytes per reference, less the user": (size - names) / max(1, references),
    }


def _flushed(run: Run) -> dict[str, float]:
    parts = [decode_flush_record(one.value or b"") for one in read_topic(run.lab.bootstrap, run.topic("flushes"))]
    records, _ = merge_parts(parts)
    return {
        "entries": sum(record.totals.entries for record in records),
        "dead letters": sum(record.totals.dead_letters for record in records),
        "flushes": len(records),
        "references of the largest flush": max((record.totals.references for record in records), default=0),
        "object MB": sum(record.totals.bytes for record in records) / 1e6,
    }


def _steps(lines: list[LogLine]) -> dict[str, float]:
    """Return the seconds of each step, per committed flush; the log has those that end after the flush record."""
    flushes = [line.event.step_seconds for line in lines if isinstance(line.event, BatchCommitted)]
    names = dict.fromkeys(name for flush in flushes for name in flush)
    return {f"s per flush: {name}": sum(flush.get(name, 0.0) for flush in flushes) / len(flushes) for name in names}


def _flush_times(lines: list[LogLine]) -> dict[str, float]:
    """Return how long flushes took, and their share of the time from the first assignment to the last commit."""
    seconds = flush_seconds(lines)
    assigned = min((line.fields["mono"] for line in lines if isinstance(line.event, PartitionsAssigned)), default=0.0)
    last = max((line.fields["mono"] for line in lines if isinstance(line.event, BatchCommitted)), default=assigned)
    return {
        "flush s, p50": quantile(seconds, 0.5),
        "flush s, p99": quantile(seconds, 0.99),
        "share of time not reading": sum(seconds) / (last - assigned) if last > assigned else 0.0,
    }


def _puts(run: Run, lines: list[LogLine]) -> Counter[str]:
    """Count PUTs: each object is one, and each attempt that failed or found its key taken has a line in the log."""
    puts = Counter(_kind(path.relative_to(run.objects)) for path in run.objects.rglob("*") if path.is_file())
    puts.update(_RETRIES[line.head.event] for line in lines if line.head.event in _RETRIES)
    return puts


def _kind(path: Path) -> str:
    return "file" if path.parts[0].startswith("user=") else path.parts[0]
