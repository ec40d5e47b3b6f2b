"""`python -m bench.announce`: what announcing costs for each PartitionKey that has one entry of 20 fields.

CPU of describing each part of a pack, writing its line, and of building and encoding the messages; their bytes with
keys and headers, uncompressed, less the users' names. Each round also measures F (see bench.worker) in a fresh process.
"""

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path

from bench.lab import Lab, open_lab
from bench.worker import Figures, discard, fill, print_table
from bench.workloads import PARTITIONS, WORKLOADS, Workload, generate
from log_partitioner.avro.infer import infer_entry
from log_partitioner.avro.schema import row_schema
from log_partitioner.avro.schema_types import RecordType
from log_partitioner.batch.messages import Sender, Uploaded, reference_messages
from log_partitioner.batch.reference_lines import LineWriter, Numbered
from log_partitioner.batch.row_writer import Blocks
from log_partitioner.batch.seal import SealedObject
from log_partitioner.batch.types import PlainTypes
from log_partitioner.boundary import Message, SealedFile, StoredObject
from log_partitioner.config.settings import KafkaSettings, SchemaBounds
from log_partitioner.formats.model import TopicPartition
from tools.local.errors import StackError

_FIELDS = 20
_LINES_BYTES_MAX = 666_808  # of a message, by default
_FIRST_OFFSET = 123_456_789
_HOUR_US = 1_714_521_600_000_000
_BLOCK_BYTES = 330  # of one entry, compressed
_KAFKA = KafkaSettings(bootstrap_servers="nowhere:1", group_id="group", source_topics=("source",))
_SENDER = Sender("worker-1", "boot-1", _KAFKA, "bucket")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parse(arguments)
    rounds: list[Figures] = []
    try:
        with open_lab(options.home) as lab:
            fill(lab, WORKLOADS["B"])
            rounds += [_measure(lab, options.keys) for _ in range(options.rounds)]
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    print_table({f"{options.keys:,} PartitionKeys": rounds})
    return 0


def _measure(lab: Lab, keys: int) -> Figures:
    least = discard(lab, "B")
    users = [f"user-{number:06}" for number in range(keys)]
    entry_type = _entry_type()
    tps = [TopicPartition("logs", partition) for partition in range(PARTITIONS)]
    begun_s = time.process_time()
    messages = _announce(users, entry_type, tps)
    cpu_us = (time.process_time() - begun_s) / keys * 1e6
    size = sum(map(_size_of, messages)) - sum(map(len, users))
    return {
        "F: CPU us per record": least,
        "CPU us per PartitionKey": cpu_us,
        "times F": cpu_us / least,
        "bytes per PartitionKey, less the user": size / keys,
        "messages": len(messages),
    }


def _announce(users: list[str], entry_type: RecordType, tps: list[TopicPartition]) -> list[Message]:
    """Return the messages that announce a pack of one entry of each user, as the worker's flush makes them."""
    spans = {tp: (_FIRST_OFFSET, _FIRST_OFFSET + len(users)) for tp in tps}
    types = PlainTypes(SchemaBounds())
    numbered, exact_type = Numbered(tps, spans, types, bytes_max=_LINES_BYTES_MAX), types.number(entry_type)
    writer = LineWriter(exact_type, numbered)
    for number, user in enumerate(users):
        offset, time_us = _FIRST_OFFSET + number, _HOUR_US + number * 1_000
        hour = numbered.hour(("2024-05-01", number * 2 // len(users)))
        sources = [(number % len(tps), offset, offset, 1)]
        blocks = Blocks(user, hour, exact_type, _BLOCK_BYTES, 1, time_us, time_us, sources)
        writer.add_line(blocks, 5_000 + number * _BLOCK_BYTES)
    schema = row_schema(entry_type)
    file = SealedFile("0.avro", 5_000 + len(users) * _BLOCK_BYTES, bytes(32), 0)
    rows = tuple((tp, len(users) // len(tps)) for tp in tps)
    sealed = SealedObject(0, file, 5_000, entry_type, schema, None, None, rows, writer.lines, writer.groups())
    stored = StoredObject(f"logs/pack/{'0' * 32}-0.avro", f'"{"0" * 32}"', None)
    uploaded = Uploaded(sealed, stored, f"logs/_schemas/{schema.fingerprint}.avsc", inline=True)
    return list(reference_messages([uploaded], _SENDER, batch_id="0" * 32, generation=1, at_ms=_HOUR_US // 1000))


def _entry_type() -> RecordType:
    """Return the type of an entry that has all fields."""
    workload = Workload(name="", users=1, fields=_FIELDS)
    entries = map(json.loads, islice(generate(workload), 1000))
    return infer_entry(max(entries, key=len), SchemaBounds())


def _size_of(message: Message) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.announce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=20_000, help="PartitionKeys of the flush; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--home", type=Path, default=Path(".local"), help="jars and data; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
