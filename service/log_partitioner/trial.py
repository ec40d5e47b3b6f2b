"""`log-partitioner try FILE | --topic T`: a sample through the settings; nothing is written, no group is joined.

Takes records apart as the worker does, by its own decoder, partitioner and inference, and shows the result. It prints
values, because a person asked for them, on a terminal of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.adapters.schema_registry import schema_finder
from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.infer import TooDeepError, TooManyFieldsError
from log_partitioner.avro.schema import META, schema_of
from log_partitioner.avro.schema_types import EMPTY_RECORD, join_records
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.section import Names
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.errors import CouldNotTellError, SettingsError
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.projection import NAME_PROPERTY, TYPE_PROPERTY
from log_partitioner.input.decode import BadEntry, RecordDecoder, refused
from log_partitioner.partitioning.event_time import parse_event_time
from log_partitioner.partitioning.locate import compile_path
from log_partitioner.partitioning.partitioner import Partitioner, Placement, Rejection
from log_partitioner.privacy import printable

EXAMPLES = 10
FIELDS = 40
CHARS = 120
SHOWN_MAX = 1000  # fields of the schema: a join with a wide one takes as long as it has fields
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = "not-set"


class _Kafka(KafkaSettings):
    bootstrap_servers: str = _ABSENT
    source_topics: Names = (_ABSENT,)


class _Store(S3Settings):
    bucket: str = _ABSENT


class TrialSettings(Settings):
    """The settings of a worker without its required ones: an entry becomes the same whatever their values are."""

    kafka: _Kafka = _Kafka()
    s3: _Store = _Store()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", nargs="?", help="a file with one record a line, or - for the standard input")
    parser.add_argument(
        "--topic",
        help="try the settings of this topic; without a file, on its newest records, without joining the group",
    )
    parser.add_argument("--records", type=int, default=500, help="read at most so many records (default: %(default)s)")


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Try the settings on a sample; returns 0, 1 if most entries are dead, 2 if there is no sample.

    Raises:
        SettingsError: no broker is set, and a topic is to be read.
    """
    if options.file is None and options.topic is None:
        sys.stderr.write("a file or --topic is needed: see log-partitioner try --help\n")
        return 2
    if options.file is None and settings.kafka.bootstrap_servers == _ABSENT:
        raise SettingsError(
            ["kafka.bootstrap_servers (LOGP_KAFKA__BOOTSTRAP_SERVERS) is not set, and --topic needs it"]
        )
    trial = Trial(settings if options.topic is None else settings.of_topic(options.topic))
    try:
        for record in _sample(options, settings):
            trial.take(record)
    except (CouldNotTellError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("".join(f"{printable(line)}\n" for line in trial.report()))
    if not trial.records:
        return 2
    return 1 if 2 * trial.dead.total() > trial.entries else 0


def _sample(options: argparse.Namespace, settings: Settings) -> Iterator[SourceRecord]:
    if options.file is None:
        with KafkaTopics.of(settings.kafka) as topics:
            yield from newest(topics, options.topic, options.records)
    elif options.file == "-":
        yield from lines(sys.stdin.buffer, options.records)
    else:
        with Path(options.file).open("rb") as file:
            yield from lines(file, options.records)


def newest(topics: KafkaTopics, topic: str, count: int) -> Iterator[SourceRecord]:
    """Yield the newest records of a topic, the same number of each partition."""
    tps = topics.topic_partitions(topic)
    each = -(-count // len(tps))
    ends = {tp: topics.ends(tp) for tp in tps}
    yield from topics.read({tp: (max(end.first, end.next - each), end.next) for tp, end in ends.items()})


def lines(file: BinaryIO, count: int) -> Iterator[SourceRecord]:
    """Yield the lines of a file as records with the present time as Kafka's timestamp."""
    now_ms = time.time_ns() // 1_000_000
    for number, line in enumerate(file):
        if number >= count:
            return
        yield SourceRecord(TopicPartition("line", 0), number + 1, now_ms, None, line.rstrip(b"\r\n"), ())


class Trial:
    """Shows how the settings treat records, which it takes one by one."""

    def __init__(self, settings: Settings) -> None:
        self.records = self.entries = 0
        self.dead: Counter[Reason] = Counter()
        self._settings = settings
        self._decoder = RecordDecoder(settings.input, schema_finder(settings))
        self._partitioner = Partitioner(settings)
        self._types = EntryTypes(settings.schema_bounds)
        self._type = EMPTY_RECORD
        self._times = [(path, compile_path(path)) for path in settings.time.paths]
        self._timed: Counter[str] = Counter()
        self._users: set[str] = set()
        self._keys: set[object] = set()
        self._fields: Counter[str] = Counter()
        self._envelopes = 0
        self._shown: list[str] = []

    def take(self, record: SourceRecord) -> None:
        """Take one record apart."""
        decoded = self._decoder.decode(record.value, record.headers) if record.unreadable is None else refused(record)
        self.records += 1
        self.entries += len(decoded.entries) + len(decoded.bad)
        self._envelopes += any(around is not None for *_, around in decoded.entries)
        for bad in decoded.bad:
            self._reject(record, bad)
        for index, entry, _, around in decoded.entries:
            self._fields.update(entry.keys())
            placed = self._partitioner.partition(entry, around, record)
            if isinstance(placed, Rejection):
                self._reject(record, BadEntry(index, placed.reason, placed.message))
                continue
            try:
                kind = self._types.of(entry)
            except TooDeepError as error:
                self._reject(record, BadEntry(index, Reason.TOO_DEEP, str(error)))
                continue
            except TooManyFieldsError as error:
                self._reject(record, BadEntry(index, Reason.TOO_MANY_FIELDS, str(error)))
                continue
            if len(self._type.by_name) < SHOWN_MAX:
                most = self._settings.schema_bounds.object_keys_max
                self._type = join_records(self._type, kind, object_keys_max=most)
            self._place(record, index, placed, self._origin(entry, around, record, placed))

    def report(self) -> Iterator[str]:
        """Report the outcome of the sample: some of its entries, counts, the paths, and the fields of entries."""
        yield from self._shown
        by_reason = ", ".join(f"{reason} {count}" for reason, count in self.dead.most_common())
        yield f"{self.records} records, {self.entries} entries: {self.entries - self.dead.total()} in files"
        yield f"  dead letters: {self.dead.total()}{f' ({by_reason})' if by_reason else ''}"
        yield f"  times: {', '.join(f'{origin} {count}' for origin, count in self._timed.most_common()) or 'none'}"
        yield f"  users: {len(self._users)}, PartitionKeys: {len(self._keys)}"
        users, times = self._settings.user.paths, self._settings.time.paths
        yield f"  user.paths: {', '.join(users)}; time.paths: {', '.join(times)}"
        if (path := self._settings.input.entries_path) is not None:
            yield f"  records with entries at {path}, input.entries_path: {self._envelopes}"
        names = ", ".join(f"{name} {count}" for name, count in self._fields.most_common(FIELDS))
        yield f"  fields of entries: {names or 'none'}"
        if self._type.by_name:
            yield "schema of these entries, together:"
            yield from (f"  {line}" for line in _schema_lines(schema_of(self._type)["fields"]))

    def _place(self, record: SourceRecord, index: int, placed: Placement, origin: str) -> None:
        is_first = not self._timed[origin]  # of each origin one at least is shown
        self._timed[origin] += 1
        self._users.add(placed.key.user)
        self._keys.add(placed.key)
        if len(self._shown) < EXAMPLES or is_first:
            at = _EPOCH + timedelta(microseconds=placed.event_time_us)
            entry_id = "" if placed.unique_id is None else f", id {placed.unique_id[:CHARS]}"
            user, date, hour = placed.key
            what = (
                f"user {user[:CHARS]}, time {at.isoformat()} ({origin}), PartitionKey ({user[:CHARS]}, {date}, {hour})"
            )
            self._shown.append(f"{_name(record, index)}: {what}{entry_id}")

    def _reject(self, record: SourceRecord, bad: BadEntry) -> None:
        if len(self._shown) < EXAMPLES or not self.dead[bad.reason]:  # of each reason one at least
            self._shown.append(f"{_name(record, bad.number)}: dead letter {bad.reason}: {bad.message}")
        self.dead[bad.reason] += 1

    def _origin(
        self, entry: dict[str, Any], envelope: dict[str, Any] | None, record: SourceRecord, at: Placement
    ) -> str:
        """Name the path of the time, or say why the time is Kafka's."""
        unread = []
        for path, locate in self._times:
            found = locate(entry, envelope, record)
            if parse_event_time(found, self._settings.time, record.timestamp_ms) is not None:
                return f"Kafka's, since {path} is absurd" if at.fallback_time else path
            unread += [path] if found is not None else []
        return f"Kafka's, since {unread[0]} is no time" if unread else "Kafka's"


def _name(record: SourceRecord, index: int | None) -> str:
    where = f"line {record.offset}" if record.tp.topic == "line" else f"{record.tp} {record.offset}"
    return where if not index else f"{where} entry {index}"


def _schema_lines(fields: Iterable[dict[str, Any]]) -> Iterator[str]:
    for field in fields:
        if field["name"] != META:
            mark = f" ({field[TYPE_PROPERTY]})" if TYPE_PROPERTY in field else ""
            yield f"{field.get(NAME_PROPERTY, field['name'])}: {_named(field['type'][1])}{mark}"


def _named(avro: Any) -> str:
    """Write an Avro type in short."""
    if not isinstance(avro, dict):
        return str(avro)
    match avro["type"]:
        case "record":
            return f"{{{', '.join(_schema_lines(avro['fields']))}}}"
        case "array":
            return f"array of {_named(avro['items'][1])}"
        case "map":
            return f"map of {_named(avro['values'][1])}"
        case other:
            return str(avro.get("logicalType", other))
