"""A record that ends the process at once, as a bug in a library would: on real processes, killed and started again."""

import json
import sys

import pytest

from log_partitioner.formats.dead_letter import parse_headers
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import ToProduce

EXIT_CODE = 134
ENDS = 1 + 1 + 2  # with many in hand; with few; alone
DEADLY = """
import os, sys
from log_partitioner.batch.fast_lane import FastLane
from log_partitioner.input.decode import RecordDecoder
decode, take = RecordDecoder.decode, FastLane.take
def deadly(self, value, headers=()):
    if value and b"deadly" in value:
        os._exit(134)
    return decode(self, value, headers)
def deadly_to_the_lane(self, poll, first, stop, *rest, **bounds):
    if any(value and b"deadly" in value for value in poll.values[first:stop]):
        os._exit(134)
    return take(self, poll, first, stop, *rest, **bounds)
RecordDecoder.decode, FastLane.take = deadly, deadly_to_the_lane
from log_partitioner.__main__ import run
sys.argv = ["log-partitioner", "run"]
run()
"""


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    """A deployment of two TopicPartitions."""
    return deploy(partitions=2)


def test_record_that_ends_each_process_is_put_away_and_all_others_are_delivered(deployment: Deployment) -> None:
    """Four processes end; the fifth does not decode it, and the audit, which does not either, is content."""
    values = [{"user": f"u{n % 5}", "time": "2024-05-01T10:00:00Z", "n": n, "text": "fine"} for n in range(400)]
    values[137]["text"] = "deadly"
    records = [ToProduce(value=json.dumps(value).encode(), partition=n % 2) for n, value in enumerate(values)]
    written = deployment.kafka.produce(deployment.source, records)
    for _ in range(ENDS):
        deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
        assert deployment.exit_code("w1", within_s=60) == EXIT_CODE
    deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w1": 0}
    report = deployment.require_clean(put_away={"fatal": 1})
    assert report.json["dead_letters"] == {"fatal": 1}
    (letter,) = deployment.dead_letters()
    says = parse_headers(letter.headers())  # type: ignore[arg-type]
    assert (says.reason, (says.partition, says.offset)) == ("fatal", written[137])
    assert letter.value() == records[137].value
