"""`log-partitioner orphans list | delete`: objects of rows that no reference has ever named."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice

import msgspec

from log_partitioner.adapters.kafka.admin import topic_config
from log_partitioner.adapters.kafka.options import consumer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.adapters.object_store import KEYS_AT_ONCE, ListedObject, S3Bucket
from log_partitioner.config.section import seconds_of
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.errors import CouldNotTellError, SettingsError
from log_partitioner.formats.flush_record import decode_backfill_record
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.object_key import find_rows_key, rows_prefixes
from log_partitioner.formats.reference import decode_known
from log_partitioner.operations.orphan_rules import (
    NamedKeys,
    NamingEvidence,
    Stays,
    reach_of,
    why_it_stays,
    writer_of,
)
from log_partitioner.operations.output import Row, add_json, moment, write_json, write_lines, write_note, write_rows
from log_partitioner.proof.audit.whose import FlushTopics
from log_partitioner.usage import argument_of

NAME = "orphans"
AGE_MIN_S = 86_400.0
_ANSWER_S = 30.0


class _Object(msgspec.Struct):
    key: str


class _Reference(msgspec.Struct):
    format_version: int
    object: _Object


_decode_reference = partial(decode_known, msgspec.json.Decoder(_Reference))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    for action, text in (("list", "list them; nothing is changed"), ("delete", "count them, or delete them")):
        command = actions.add_parser(action, help=text, description=text)
        command.add_argument("--older-than", type=argument_of(seconds_of), default=AGE_MIN_S, metavar="TIME",
                             help="only those of this age: 1d (the least, and the default), 36h")  # fmt: skip
        add_json(command)
        if action == "delete":
            command.add_argument("--yes", action="store_true", help="delete them; without it they are counted")


def main(options: argparse.Namespace, settings: Settings) -> int:
    """List or delete orphans: objects of rows that flushes have left which were never committed.

    It reads the topics of references and backfills as a whole, and lists the objects of rows under the prefix, 1,000
    with each request; memory holds 8 bytes of each named object, some 45 while they are sorted. An object stays if a
    reference names it, if it is older than an hour behind the begin of the topic of references, if a backfill may still
    name it, or if no reference is of the process or backfill that wrote it. Nobody looks at dead letters, schemas and
    what else is under the prefix. How many stay, and why, is said on standard error.

    Example:
      log-partitioner orphans list --older-than 7d

    Exit codes:
      0   listed, counted, or deleted
      2   nobody could tell, or settings or arguments are wrong

    More: docs/RUNBOOK.md
    """
    age_s, least_s = options.older_than, max(AGE_MIN_S, 2 * settings.flush.max_poll_interval_s)
    if age_s < least_s:
        raise SettingsError([f"--older-than {age_s:.0f}s: {least_s:.0f}s is the least, a flush may take long"])
    prefix, bucket, stay = settings.s3.prefix, S3Bucket(settings.s3), Counter[Stays]()
    evidence = _evidence(settings, before_ms=round((time.time() - age_s) * 1000))

    def find() -> Iterator[ListedObject]:
        for listed in chain.from_iterable(map(bucket.list, rows_prefixes(prefix))):
            why = why_it_stays(prefix, listed, evidence)
            if why is None:
                yield listed
            else:
                stay[why] += 1

    if options.action == "list":
        write_rows(map(_row, find()), is_json=options.is_json)
    else:
        done = _delete(bucket, find(), is_meant=options.yes)
        write_json(done) if options.is_json else write_lines(f"{name}: {count:,}" for name, count in done.items())
    for why, count in stay.items():
        write_note(f"{count:,} stay: {why}")
    if evidence.reach_ms is None:
        write_note("the topic of references does not tell how far back it reaches: nothing is taken for an orphan")
    write_note(f"asked for: {bucket.requests:,} lists and deletions, references to {len(evidence.named):,} objects")
    return 0


def _row(listed: ListedObject) -> Row:
    return {"modified": moment(listed.modified_ms), "bytes": listed.size, "object": listed.key}


def _delete(bucket: S3Bucket, orphans: Iterator[ListedObject], *, is_meant: bool) -> dict[str, int]:
    """Delete orphans, some with each request, or only count them; a key is never used twice."""
    count = size = 0
    while some := list(islice(orphans, KEYS_AT_ONCE)):
        if is_meant:
            bucket.delete([one.key for one in some])
        count, size = count + len(some), size + sum(one.size for one in some)
    if is_meant:
        return {"deleted": count, "bytes": size}
    if count:
        write_note("nothing is deleted: repeat the command with --yes if that is meant")
    return {"orphans": count, "bytes": size}


def _evidence(settings: Settings, *, before_ms: int) -> NamingEvidence:
    kafka = settings.kafka
    config = topic_config(consumer_options(settings, worker=NAME), kafka.references_topic, timeout_s=_ANSWER_S)
    if "compact" in config.get("cleanup.policy", "compact"):
        raise CouldNotTellError(f"topic {kafka.references_topic} is compacted: which objects it has named is not known")
    with KafkaTopics.of(kafka) as topics:
        return read_evidence(topics, kafka, settings.s3.prefix, before_ms=before_ms)


def read_evidence(topics: FlushTopics, kafka: KafkaSettings, prefix: str, *, before_ms: int) -> NamingEvidence:
    """Read what decides, references last: what is flushed, or finished, has its references by then.

    A key counts in whichever bucket it is: buckets are copied.

    Raises:
        CouldNotTellError: a message of references cannot be read, a transaction stays open, or no broker answers.
    """
    newest = dict[str, bool]()
    for message in _messages(topics, kafka.backfills_topic, {}):
        try:
            run = decode_backfill_record(message.value or b"")
        except msgspec.DecodeError:
            continue  # its objects stay
        newest[run.batch_id] = run.is_finished
    begins: dict[TopicPartition, tuple[int, int | None]] = {}
    writers = set[str]()

    def keys() -> Iterator[str]:
        for message in _messages(topics, kafka.references_topic, begins):
            key = _key_of(message)
            if found := find_rows_key(prefix, key):
                writers.add(writer_of(found))
            yield key

    named = NamedKeys(keys())
    finished = {batch_id for batch_id, is_finished in newest.items() if is_finished}
    return NamingEvidence(named, writers, finished, reach_of(begins), before_ms)


def _messages(
    topics: FlushTopics, topic: str, begins: dict[TopicPartition, tuple[int, int | None]]
) -> Iterator[SourceRecord]:
    """Yield what is committed of a topic, and note first offset and first timestamp of each partition."""
    ends, open_ones = topics.settled(topics.topic_partitions(topic, may_be_absent=True))
    if open_ones:
        raise CouldNotTellError("; ".join(open_ones))
    begins.update((tp, (first, None)) for tp, (first, _) in ends.items())
    seen: set[TopicPartition] = set()
    for message in topics.read(ends):
        if message.tp not in seen:
            seen.add(message.tp)
            begins[message.tp] = ends[message.tp][0], message.timestamp_ms
        yield message


def _key_of(message: SourceRecord) -> str:
    try:
        found: _Reference = _decode_reference(message.value or b"")
    except msgspec.DecodeError as error:
        text = f"{message.tp} offset {message.offset} is no message of references that this version reads"
        raise CouldNotTellError(f"{text}: {error}: what it names is not known") from error
    return found.object.key
