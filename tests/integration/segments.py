"""Transactions in a broker's files, batch by batch, as Kafka's own DumpLogSegments prints them.

A reader sees only committed records; the files also have the producer's id, its epoch, and the marker that ended each
transaction.
"""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tests.stack.kafka_helper import KafkaHelper
from tools.local.kafka import KafkaCluster

DUMP = "org.apache.kafka.tools.DumpLogSegments"
_TOOL = "org.apache.kafka.tools.TransactionsCommand"
_RUNBOOK = Path(__file__).parents[2] / "docs" / "RUNBOOK.md"
_COMMAND = re.compile(r"^kafka-transactions\.sh (.+)$", re.MULTILINE)
_BATCH = re.compile(
    r"^baseOffset: (?P<offset>\d+) .*? count: (?P<count>\d+) .*?producerId: (?P<producer>-?\d+) "
    r"producerEpoch: (?P<epoch>-?\d+) .*?isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+)"
)
_MARKER = re.compile(r"endTxnMarker: (\w+)")
_STATE = re.compile(r"key: (?P<key>\{.*\}) payload: (?P<state>\{.*\})$", re.MULTILINE)
# The values of `transactionStatus` in the coordinator's log.
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class Batch(NamedTuple):
    """A record batch of a transaction, or the marker that ends one."""

    producer: int
    epoch: int
    records: int
    what: str
    """`records`, or the marker: `COMMIT` or `ABORT`."""
    offset: int

    def __str__(self) -> str:
        told = f"{self.records} records" if self.what == "records" else self.what
        return f"offset {self.offset}: producer id {self.producer}, epoch {self.epoch}: {told}"


def leader(kafka: KafkaHelper, topic: str, partition: int) -> int:
    """Return the index of the broker that leads a partition."""
    return kafka.admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader - 1


def coordinating_partition(kafka: KafkaHelper, topic: str, name: str) -> int:
    """Return the partition that keeps a group or a transactional id: Java's hash of its name decides."""
    number = 0
    for unit in name.encode("utf-16-be")[1::2]:  # the names are ASCII
        number = (31 * number + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return abs(signed) % len(kafka.partitions(topic))


def coordinator(kafka: KafkaHelper, topic: str, name: str) -> int:
    """Return the index of the broker that coordinates a group (or, by its topic, a transactional id)."""
    return leader(kafka, topic, coordinating_partition(kafka, topic, name))


def controller(cluster: KafkaCluster) -> int:
    """Return the index of the active controller, as the newest of the nodes' own notes has it."""
    notes = [
        json.loads(file.read_text()) for file in cluster.root.glob("broker-*/data/__cluster_metadata-0/quorum-state")
    ]
    newest = max(notes, key=lambda note: (note["leaderEpoch"], note["leaderId"]))
    return int(newest["leaderId"]) - 1


def bystander(cluster: KafkaCluster, kafka: KafkaHelper, transactional_id: str) -> int:
    """Return the index of a broker that neither controls the cluster nor coordinates a transactional id.

    It can hang without anything else coming to a stop. Some transactional id must have been used before.
    """
    return min({0, 1, 2} - {controller(cluster), coordinator(kafka, "__transaction_state", transactional_id)})


def transactions_in(cluster: KafkaCluster, kafka: KafkaHelper, topic: str, partition: int = 0) -> list[Batch]:
    """Dump the leader's segments of a TopicPartition; return what transactions wrote, in order, and print it."""
    found: list[Batch] = []
    for line in _dump(cluster, kafka, topic, partition, "--print-data-log").splitlines():
        if batch := _BATCH.match(line):
            if batch["transactional"] == "true":
                numbers = (int(batch[name]) for name in ("producer", "epoch", "count"))
                found.append(Batch(*numbers, "records", int(batch["offset"])))
        elif marker := _MARKER.search(line):
            found[-1] = found[-1]._replace(what=marker[1])
    print(f"{topic}-{partition}:", *found, sep="\n  ")
    return found


def told(batches: list[Batch]) -> list[str]:
    """Return them in words, with small numbers for producer ids and epochs, in the order in which they appear.

    `P1 E0: 3 records`, `P1 E1: ABORT`: epochs count from the first one seen of their producer. Batches of records that
    follow each other are one.
    """
    firsts: dict[int, int] = {}
    for batch in batches:
        firsts.setdefault(batch.producer, batch.epoch)
    lines = []
    for (producer, epoch, what), some in groupby(batches, key=lambda one: (one.producer, one.epoch, one.what)):
        records = sum(one.records for one in some)
        number = list(firsts).index(producer) + 1
        lines.append(f"P{number} E{epoch - firsts[producer]}: " + (f"{records} records" if what == "records" else what))
    return lines


def states_of(cluster: KafkaCluster, kafka: KafkaHelper, transactional_id: str) -> list[str]:
    """Dump the coordinator's log; return the states of a transactional id, in order, each with its epoch."""
    topic = "__transaction_state"
    partition = coordinating_partition(kafka, topic, transactional_id)
    text = _dump(cluster, kafka, topic, partition, "--transaction-log-decoder")
    found = [
        json.loads(one["state"])["data"]
        for one in _STATE.finditer(text)
        if json.loads(one["key"])["data"]["transactionalId"] == transactional_id
    ]
    lines = [f"{_STATES[one['transactionStatus']]}, epoch {one['producerEpoch']}" for one in found]
    print(f"{transactional_id}:", *lines, sep="\n  ")
    return lines


def _dump(cluster: KafkaCluster, kafka: KafkaHelper, topic: str, partition: int, *options: str) -> str:
    files = cluster.segments(leader(kafka, topic, partition), topic, partition)
    return cluster.run_tool(DUMP, *options, "--files", ",".join(map(str, files)))


def runbook(cluster: KafkaCluster, command: str, **values: object) -> str:
    """Run a command of the runbook on transactions, with values for the words in capitals; return what it says."""
    (found,) = (line for line in _COMMAND.findall(_RUNBOOK.read_text()) if command in line.split())
    words = [str(values.get(word, word)) for word in found.split()]
    return cluster.run_tool(_TOOL, *words)
