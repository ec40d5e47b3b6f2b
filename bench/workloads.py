"""`python -m bench.workloads`: logs of many users for benchmarks, the same for the same seed, into a local topic.

A has few users and many hours, B, C and D have ever more users and two hours. Records are JSON objects of one entry,
373 bytes on average, of up to 14 fields in eight shapes; event time advances from record to record. Records are not
keyed by user: they go around the TopicPartitions. M has entries as A, five in an array to a record; N is the hostile
case (`bench.nested`). The others are real logs (`bench.real`), repeated from their beginning as often as needed.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, cycle, islice
from typing import Literal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import nested, real
from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.model import TopicPartition
from tools.local.errors import StackError
from tools.local.topics import create_missing

PARTITIONS = 8

_FIELDS = 14  # as in the comparison with other systems; more of them are short tags
_RECORD_BYTES = 373
_START_S = 1_714_521_600  # 2024-05-01T00:00:00Z
_ZIPF_EXPONENT = 1.1
_CHUNK = 10_000
_MESSAGES_MASK = 63
_SHAPES = range(8)  # bits: with an error, with a referer, with a request
_SHAPE_WEIGHTS = [18, 2, 6, 1, 50, 6, 15, 2]
_HEAD = (
    '{"id":"%016x","time":"%s.%03dZ","user":"user-%06d","level":"%s","service":"%s","host":"host-%02d",'
    '"trace_id":"%032x","message":"%s"'
)
_HEAD_BYTES = 192
_REQUEST = ',"status":%d,"latency_ms":%d.%03d,"bytes":%d,"path":"/api/v1/%s/%d"'
_REQUEST_BYTES = 81
_STATUS = (200, 200, 200, 200, 201, 304, 404, 500)
_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
_SERVICES = ("checkout", "catalogue", "search", "identity", "payments", "delivery", "reviews", "gateway")
_WORDS = ("request", "user", "order", "item", "cache", "store", "retry", "queue", "token", "page", "session", "reply")
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything that determines the records; equal workloads make equal records.

    spread tells how users take turns: few have most (zipf), by chance (random), one after another (even). A record is
    one entry, or an array of as many as `per_record` says.
    """

    name: str
    records: int = 1_000_000
    users: int = 0
    hours: int = 2
    spread: Literal["zipf", "random", "even"] = "random"
    fields: int = _FIELDS
    seed: int = 1
    shape: Literal["flat", "nested", "real"] = "flat"
    per_record: int = 1
    user_paths: tuple[str, ...] = ("user",)
    time_paths: tuple[str, ...] = ("time",)

    @property
    def entries(self) -> int:
        """The number of entries in the records."""
        return self.records * self.per_record

    @property
    def variables(self) -> dict[str, str]:
        """The settings with which a worker finds users and times."""
        return {"LOGP_USER__PATHS": json.dumps(self.user_paths), "LOGP_TIME__PATHS": json.dumps(self.time_paths)}


def _real(name: str, records: int = 100_000) -> Workload:
    users, times = real.paths_of(name)
    return Workload(name=name, records=records, shape="real", user_paths=users, time_paths=times)


WORKLOADS = {
    "A": Workload(name="A", records=2_000_000, users=200, hours=24, spread="zipf"),
    "B": Workload(name="B", users=10_000),
    "C": Workload(name="C", users=100_000),
    "D": Workload(name="D", users=500_000),
    "M": Workload(name="M", records=200_000, users=200, hours=24, spread="zipf", per_record=5),
    "N": Workload(name="N", records=200_000, users=1_000, shape="nested"),
    **{name: _real(name) for name in (*real.SETS, real.MIX)},
    "winlogbeat": _real("winlogbeat", 80_000),
    "nginx": _real("nginx", 60_000),
}


def generate(workload: Workload) -> Iterator[bytes]:
    """Give the values of the workload's records, in the order of their event times or of their files.

    Raises:
        StackError: they are real logs, which are absent.
    """
    if workload.shape == "real":
        return islice(cycle(real.entries_of(workload.name)), workload.records)
    one_each = replace(workload, records=workload.entries, per_record=1)
    entries = _nested(one_each) if workload.shape == "nested" else _flat(one_each)
    if workload.per_record == 1:
        return entries
    return (b"[" + b",".join(several) + b"]" for several in zip(*[entries] * workload.per_record, strict=True))


def _nested(workload: Workload) -> Iterator[bytes]:
    seeded = random.Random(workload.seed)
    users = _users(workload, seeded)
    span_ms = workload.hours * 3_600_000
    for number, user in zip(range(workload.records), users, strict=False):
        time_ms = _START_S * 1000 + number * span_ms // workload.records
        yield nested.entry(seeded, number=number, user=f"user-{user:06d}", time_ms=time_ms)


def _flat(workload: Workload) -> Iterator[bytes]:
    seeded = random.Random(workload.seed)
    tags = "".join(f',"tag_{number}":"t{number}"' for number in range(workload.fields - _FIELDS))
    ends = [_end(shape) + tags + "}" for shape in _SHAPES]
    messages = [_messages(seeded, len(end) + (_REQUEST_BYTES if shape & 4 else 0)) for shape, end in enumerate(ends)]
    span_ms = workload.hours * 3_600_000
    second, time = -1, ""
    users = _users(workload, seeded)
    for first in range(0, workload.records, _CHUNK):
        numbers = range(first, min(first + _CHUNK, workload.records))
        shapes = seeded.choices(_SHAPES, _SHAPE_WEIGHTS, k=len(numbers))
        for number, shape, user in zip(numbers, shapes, users, strict=False):
            at_s, ms = divmod(number * span_ms // workload.records, 1000)
            if at_s != second:
                second, time = at_s, datetime.fromtimestamp(_START_S + at_s, UTC).isoformat()[:19]
            dice = seeded.getrandbits(128)
            service = _SERVICES[dice & 7]
            text = _HEAD % (
                *(number, time, ms, user, _LEVELS[dice >> 3 & 3], service, dice >> 5 & 63, dice),
                messages[shape][dice >> 11 & _MESSAGES_MASK],
            )
            if shape & 4:
                path = (service, dice >> 64 & 0xFFFF)
                text += _REQUEST % (
                    _STATUS[dice >> 17 & 7],
                    dice >> 20 & 0x3FF,
                    dice >> 30 & 511,
                    dice >> 40 & 0x3FFFF,
                    *path,
                )
            yield (text + ends[shape]).encode()


def _end(shape: int) -> str:
    error = ',"error":"TimeoutError: no answer within 1500 ms"' if shape & 1 else ""
    return error + (',"referer":"https://shop.example.com/catalogue/list"' if shape & 2 else "")


def _messages(seeded: random.Random, others: int) -> list[str]:
    """Give texts of a length that makes records as long as they should be, `others` bytes beside the head."""
    wanted = max(8, _RECORD_BYTES - _HEAD_BYTES - others)
    lengths = [seeded.randint(wanted * 3 // 4, wanted * 5 // 4) for _ in range(_MESSAGES_MASK + 1)]
    return [" ".join(seeded.choices(_WORDS, k=length // 3))[:length] for length in lengths]


def _users(workload: Workload, seeded: random.Random) -> Iterator[int]:
    """Give the user of each record, without end."""
    if workload.spread == "even":
        while True:
            yield from range(workload.users)
    weights = None
    if workload.spread == "zipf":
        weights = list(accumulate((rank + 1) ** -_ZIPF_EXPONENT for rank in range(workload.users)))
    while True:
        yield from seeded.choices(range(workload.users), cum_weights=weights, k=_CHUNK)


class TopicFiller:
    """Appends records to a topic, which is created if it is missing."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        create_missing(AdminClient({"bootstrap.servers": bootstrap}), [NewTopic(topic, PARTITIONS, 1)])
        self._bootstrap = bootstrap
        self._topic = topic
        self._expected = sum(next_offsets(bootstrap, topic).values())
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 100,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 400_000,
                "log_level": 2,
            }
        )

    def write(self, values: Iterable[bytes]) -> dict[int, int]:
        """Append records; return the next offset of each TopicPartition.

        Raises:
            StackError: Kafka does not hold them all after half a minute without a delivery.
        """
        for number, value in enumerate(values):
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._expected += 1
        self._producer.flush(_TIMEOUT_S)
        found = next_offsets(self._bootstrap, self._topic)
        if sum(found.values()) != self._expected:
            raise StackError(f"{self._topic}: {sum(found.values())} of {self._expected} records are written.")
        return found


def next_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the next offset of each TopicPartition of a topic with PARTITIONS of them.

    Raises:
        CouldNotTellError: Kafka does not answer.
    """
    with KafkaTopics.of(KafkaSettings(bootstrap_servers=bootstrap, source_topics=(topic,))) as topics:
        return {number: topics.ends(TopicPartition(topic, number)).next for number in range(PARTITIONS)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a workload."""
    parser.add_argument("--records", type=int, help="of each workload, instead of its own number")
    parser.add_argument("--users", type=int, help="of each workload, instead of its own number")
    parser.add_argument("--hours", type=int, help="of each workload, instead of its own number")
    parser.add_argument("--fields", type=int, help=f"of an entry at most; default: {_FIELDS}")
    parser.add_argument("--seed", type=int, help="default: 1")


def chosen(name: str, options: argparse.Namespace) -> Workload:
    """Return the workload of this name, changed by the options.

    Raises:
        StackError: there is none of this name.
    """
    if name not in WORKLOADS:
        raise StackError(f"There is no workload {name!r}, but {', '.join(WORKLOADS)}.")
    names = ("records", "users", "hours", "fields", "seed")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return replace(WORKLOADS[name], **given)


def main(arguments: list[str] | None = None) -> int:
    """Write one workload to a topic; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.workloads", description=main.__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="Kafka; default: %(default)s")
    parser.add_argument("--topic", required=True, help="created where it is missing")
    parser.add_argument("--workload", default="A", help=f"of {', '.join(WORKLOADS)}; default: %(default)s")
    add_options(parser)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        workload = chosen(options.workload, options)
        offsets = TopicFiller(options.bootstrap, options.topic).write(generate(workload))
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"{workload.records:,} records in {time.monotonic() - begun:.1f} s; next offsets {offsets}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
