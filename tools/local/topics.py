"""The topics and the bucket that a worker needs, with the settings they need.

Everything here may be called again: existing ones stay as they are.
"""

import time
from concurrent.futures import as_completed
from typing import TYPE_CHECKING

from botocore.config import Config
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.local.errors import StackError
from tools.local.s3 import S3Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

_OUTPUT_PARTITIONS = 3
_REQUEST_TIMEOUT_S = 120  # new servers on a busy machine take their time

# The service's topics are the proof and the index of all data: they are kept until an operator decides otherwise.
# In production the retention is at least the audit window, and never shorter than any reader's absence.
_KEEP_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
# Only the newest run record of a backfill counts: a restart goes on from it, and the audit asks for it.
_KEEP_NEWEST = {"cleanup.policy": "compact"}


def create_topics(
    bootstrap_servers: str,
    *,
    source: str = "logs",
    partitions: int = 6,
    references: str = "references",
    flushes: str = "flushes",
    dead_letters: str = "dead-letters",
    replication: int = 1,
) -> None:
    """Create the source topic, the three that the worker writes, and the one of backfills.

    With three brokers, `replication=3` also means that two of them must have a record before it counts.
    """
    durable = {"min.insync.replicas": str(max(1, replication - 1)), "unclean.leader.election.enable": "false"}
    kept = durable | _KEEP_FOREVER
    topics = [NewTopic(source, num_partitions=partitions, replication_factor=replication, config=durable)]
    topics += [
        NewTopic(name, num_partitions=_OUTPUT_PARTITIONS, replication_factor=replication, config=kept)
        for name in (references, flushes, dead_letters)
    ]
    topics.append(
        NewTopic("backfills", num_partitions=1, replication_factor=replication, config=durable | _KEEP_NEWEST)
    )
    create_missing(AdminClient({"bootstrap.servers": bootstrap_servers}), topics)


def create_missing(admin: AdminClient, topics: "Iterable[NewTopic]") -> None:
    """Create those of the topics that do not exist; on return each of their partitions has a leader.

    Raises:
        KafkaException: the cluster refused one for another reason, or did not answer in time.
        StackError: some partition got no leader in time.
    """
    wanted = list(topics)
    futures = admin.create_topics(wanted, operation_timeout=_REQUEST_TIMEOUT_S)
    for future in as_completed(futures.values(), timeout=_REQUEST_TIMEOUT_S):
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    # The controller answers before the brokers have heard of it.
    deadline = time.monotonic() + _REQUEST_TIMEOUT_S
    while missing := [topic.topic for topic in wanted if not _is_led(admin, topic.topic)]:
        if time.monotonic() > deadline:
            raise StackError(f"No leader after {_REQUEST_TIMEOUT_S} s for some partition of: {missing}.")
        time.sleep(0.05)


def _is_led(admin: AdminClient, name: str) -> bool:
    partitions = admin.list_topics(name, timeout=_REQUEST_TIMEOUT_S).topics[name].partitions
    return bool(partitions) and all(partition.leader >= 0 for partition in partitions.values())


def create_bucket(endpoint: S3Endpoint, bucket: str) -> None:
    """Create the bucket if it is not there."""
    client = endpoint.client(Config(connect_timeout=_REQUEST_TIMEOUT_S, read_timeout=_REQUEST_TIMEOUT_S))
    try:
        client.create_bucket(Bucket=bucket)
    except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        client.head_bucket(Bucket=bucket)  # raises if it belongs to another account
    finally:
        client.close()
