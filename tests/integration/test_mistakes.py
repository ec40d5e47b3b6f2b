# ruff: noqa: E501 - a mistake is a line
"""Mistakes that only brokers and stores show: one line names place, setting and next step, within seconds.

The numbers are those of docs/MISTAKES.md. A worker that cannot work says so and is not ready; none of these lines comes
only after the first flush.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.contract.deaf_brokers import closed_port, serve, silent
from tests.integration.flow import some_records
from tests.integration.harness import Deployment
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

LOADED = 3  # times as long as promised, if others have most of the machine


class Mistake(NamedTuple):
    """The settings, the words that one line of the log must have, and the seconds that it may take."""

    number: int
    variables: dict[str, str]
    said: tuple[str, ...]
    within_s: float = 10


_NO_TOPIC = "topic gone (kafka.{}) is not there: create it: kafka-topics.sh"
MISTAKES = [
    Mistake(27, {"LOGP_KAFKA__SOURCE_TOPICS": "gone"}, (_NO_TOPIC.format("source_topics"),)),
    Mistake(29, {"LOGP_KAFKA__FLUSHES_TOPIC": "gone"}, (_NO_TOPIC.format("flushes_topic"),)),
    Mistake(30, {"LOGP_S3__BUCKET": "not-there"}, ("bucket not-there at http://", "there is no such bucket: create it")),
    Mistake(32, {"LOGP_S3__SECRET_KEY": "wrong"}, ("{bucket} at http://", "403", "set s3.access_key and s3.secret_key right")),
    Mistake(34, {"LOGP_S3__ENDPOINT_URL": "http://{closed}"}, ("{bucket} at http://{closed}: it cannot be reached", "set s3.endpoint_url right")),
    Mistake(34, {"LOGP_S3__ENDPOINT_URL": "http://no-such-host.invalid:9"}, ("{bucket} at http://no-such-host.invalid:9: it cannot be reached",)),
    Mistake(34, {"LOGP_S3__ENDPOINT_URL": "http://{kafka}"}, ("{bucket} at http://{kafka}: it closes the connection: no S3",)),
    Mistake(35, {"LOGP_S3__ENDPOINT_URL": "http://{silent}"}, ("{bucket} at http://{silent}: no answer in time",)),
    Mistake(41, {"LOGP_KAFKA__START_AT": "fail"}, ("kafka.start_at is fail: set it to",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def deployment(kafka: KafkaHelper, s3: S3Helper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Topics and a bucket for all of them: none gets as far as to write."""
    with Deployment(
        kafka=kafka, s3=s3, names=Names("mistakes"), root=tmp_path_factory.mktemp("mistakes"), partitions=2
    ) as made:
        yield made


@pytest.fixture(scope="module")
def places(deployment: Deployment) -> Iterator[dict[str, str]]:
    """The values that fill the texts of the mistakes."""
    with ExitStack() as stack:
        yield {
            "bucket": f"bucket {deployment.bucket}",
            "closed": closed_port(),
            "kafka": deployment.kafka.bootstrap_servers,
            "silent": stack.enter_context(serve(silent)),
        }


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: f"{one.number} {'-'.join(one.variables)}")
def test_mistake_is_told_in_one_line_within_seconds_and_nobody_is_ready(
    mistake: Mistake, deployment: Deployment, places: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """By its setting, endpoint, bucket or topic, and with the next step."""
    name = request.node.callspec.id.replace(" ", "-").lower()
    variables = {"LOGP_KAFKA__GROUP_ID": name}  # a worker that was killed is a member of its group for a while
    variables |= {key: value.format_map(places) for key, value in mistake.variables.items()}
    said = [part.format_map(places) for part in mistake.said]
    worker = deployment.start(name, **variables)
    begun_s = time.monotonic()
    try:
        while not (found := _line_with(deployment, name, said)):
            assert time.monotonic() - begun_s < mistake.within_s * LOADED, worker.last_lines()
            time.sleep(0.1)
        assert len(found) < 1000
        assert deployment.get(name, "/readyz")[0] != 200
    finally:
        worker.kill()


def test_two_workers_of_one_name_are_told_that_another_has_it(deployment: Deployment) -> None:
    """Mistake 42: a worker that is fenced names the name, and both go on; each needs a name of its own.

    Both have records to commit: a worker whose TopicPartitions are empty takes the name once, and fences no other.
    """
    flushes = deployment.kafka.create_topic(
        f"{deployment.source}-flushes-of-twins"
    )  # others would find their group there
    settings = {"LOGP_WORKER": "twin", "LOGP_KAFKA__GROUP_ID": "twins", "LOGP_FLUSH__INTERVAL_S": "0.5"}
    settings |= {"LOGP_KAFKA__FLUSHES_TOPIC": flushes}
    twins = ("twin-1", "twin-2")
    first = 0
    try:
        for twin in twins:
            deployment.start(twin, **settings | {"LOGP_SPOOL__DIRECTORY": str(deployment.root / twin)})
            deployment.require_event("partitions_assigned", twins[0])
        begun_s = time.monotonic()
        while not any(_line_with(deployment, twin, ["another process has the name of this worker"]) for twin in twins):
            assert time.monotonic() - begun_s < 20 * LOADED, deployment.events(*twins)
            deployment.kafka.produce(deployment.source, some_records(4, partitions=2, first=first))
            first += 4
            time.sleep(0.5)
    finally:
        for twin in twins:
            deployment.workers[twin].kill()


def _line_with(deployment: Deployment, name: str, said: list[str]) -> str:
    """Return the first line that says all of it."""
    log = deployment.log_of(name)
    lines = log.read_text().splitlines() if log.exists() else []
    return next((line for line in lines if all(part in line for part in said)), "")
