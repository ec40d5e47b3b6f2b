"""`log-partitioner status`: who is in the group, what it owns, how far it is, and when each worker has flushed last."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from log_partitioner.adapters.kafka.admin import Group, describe_group
from log_partitioner.adapters.kafka.options import consumer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.boundary import END_OFFSET
from log_partitioner.config.settings import Settings
from log_partitioner.errors import CouldNotTellError, SourceError
from log_partitioner.formats.flush_record import Adoption, FlushRecord, decode_flushes
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.operations.output import Row, add_json, table, write_json, write_lines
from log_partitioner.proof.accounting import tp_of
from log_partitioner.trial import newest

NAME = "status"
RECORDS_MAX = 2000  # of the flushes topic, the newest: 100 workers that flush each 30 s write as many in ten minutes
ANSWER_S = 30.0
_FLUSH = ("flushed_s_ago", "reason", "entries", "dead_letters", "references", "took_s")


class Status(NamedTuple):
    """The state of a group: a sentence, a row for each worker, a row for each TopicPartition."""

    summary: str
    workers: list[Row]
    topic_partitions: list[Row]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_json(parser)


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Show the workers of the group with their last flushes, and the lag of each TopicPartition.

    The first line is a summary. Only the newest messages of the flushes topic are read. A worker without a host
    has flushed, and is no member now. `behind_s` is the age of the newest record that is committed, by Kafka's
    timestamps; a TopicPartition without lag has none.

    Example:
      log-partitioner status

    Exit codes:
      0   shown
      2   brokers do not tell, or settings or arguments are wrong

    More: docs/RUNBOOK.md
    """
    kafka = settings.kafka
    try:
        group = describe_group(consumer_options(settings, worker=NAME), kafka.group_id, timeout_s=ANSWER_S)
    except SourceError as error:
        raise CouldNotTellError(str(error)) from error
    with KafkaTopics.of(kafka) as topics:
        tps = topics.source_topic_partitions(kafka.sources)
        committed, ends = topics.committed(tps), topics.offsets_at(tps, END_OFFSET)
        flushes = list(flushes_of(kafka.group_id, newest(topics, kafka.flushes_topic, RECORDS_MAX)))
    status = put_together(group, committed, ends, flushes, at_ms=time.time_ns() // 1_000_000)
    if options.is_json:
        write_json({"group": kafka.group_id, "state": group.state, **status._asdict()})
    else:
        write_lines([status.summary, "", *table(status.workers), "", *table(status.topic_partitions)])
    return 0


def flushes_of(group_id: str, messages: Iterable[SourceRecord]) -> Iterator[FlushRecord]:
    """Yield the flush records of a group, or parts of them; not what this version cannot read."""
    for message in messages:
        try:
            record = decode_flushes(message.value or b"")
        except msgspec.DecodeError:
            continue
        if not isinstance(record, Adoption) and record.group_id == group_id:
            yield record


def put_together(
    group: Group,
    committed: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int | None],
    flushes: Iterable[FlushRecord],
    *,
    at_ms: int,
) -> Status:
    """Say how the group, each worker and each TopicPartition stand at this time."""
    last: dict[str, FlushRecord] = {}
    up_to_ms: dict[TopicPartition, int | None] = {}
    for record in sorted(flushes, key=lambda record: record.ended_at_ms):
        last[record.worker] = record
        for line in record.topic_partitions:
            tp = tp_of(line)
            up_to_ms[tp] = line.timestamp_max_ms or up_to_ms.get(tp)  # a flush of no records of it says nothing
    owners = {tp: member.worker for member in group.members for tp in member.tps}
    lags = {tp: None if offset is None else max(0, (ends[tp] or 0) - offset) for tp, offset in committed.items()}
    lag_of = Counter[str]()
    for tp, lag in lags.items():
        lag_of[owners.get(tp, "")] += lag or 0
    members = {member.worker: (member.host, len(member.tps)) for member in group.members}
    never, idle = sum(lag is None for lag in lags.values()), len(lags.keys() - owners.keys())
    parts = [
        _count(len(group.members), "worker"),
        _count(len(lags), "TopicPartition"),
        f"lag {_count(lag_of.total(), 'record')}",
        f"last commit {_ago_s(max(one.ended_at_ms for one in last.values()), at_ms):,} s ago" if last else "no commit",
        f"{never:,} never committed (not in the lag)" if never else "",
        f"{idle:,} without a worker" if idle else "",
        "" if group.state in ("STABLE", "EMPTY") else f"the group is in state {group.state}",
    ]
    return Status(
        ", ".join(filter(None, parts)),
        [
            {
                "worker": name,
                "host": members.get(name, (None, 0))[0],
                "topic_partitions": members.get(name, (None, 0))[1],
                "lag": lag_of[name],
                **_flush(last.get(name), at_ms),
            }
            for name in sorted(members.keys() | last.keys())
        ],
        [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "worker": owners.get(tp),
                "committed": offset,
                "end": ends[tp],
                "lag": lags[tp],
                "behind_s": _ago_s(up_to_ms.get(tp), at_ms) if lags[tp] else None,
            }
            for tp, offset in sorted(committed.items())
        ],
    )


def _flush(record: FlushRecord | None, at_ms: int) -> Row:
    """Say how the last flush of a worker was."""
    if record is None:
        return dict.fromkeys(_FLUSH)
    totals, took_s = record.totals, round(sum(record.step_seconds.values()), 1)
    counts = (totals.entries, totals.dead_letters, totals.references)
    return dict(zip(_FLUSH, (_ago_s(record.ended_at_ms, at_ms), record.reason, *counts, took_s), strict=True))


def _ago_s(then_ms: int | None, at_ms: int) -> int | None:
    return None if then_ms is None else max(0, at_ms - then_ms) // 1000


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
