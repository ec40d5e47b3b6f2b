"""The commands for the person on call, run as processes after a real worker's run."""

from __future__ import annotations

import json
import re

import pytest

from tests.integration.flow import some_records
from tests.integration.harness import PROTOCOLS, Deploy
from tests.integration.one_worker import UNHURRIED

RECORDS = 40


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_status_says_who_owns_what_and_how_far_it_is(deploy: Deploy, protocol: str) -> None:
    """A live worker with its TopicPartitions; then, when it has left, what it has committed and the lag behind it."""
    deployment = deploy(partitions=2, protocol=protocol)
    deployment.start("w1", **UNHURRIED)
    written = deployment.kafka.produce(deployment.source, some_records(RECORDS, partitions=2))
    deployment.kafka.wait_for(
        "records in the worker", lambda: deployment.metric("w1", "records_total") >= len(written), timeout_s=60
    )

    code, text = deployment.run("status")
    assert code == 0, text
    assert text.startswith("1 worker, 2 TopicPartitions, lag 0 records, no commit, 2 never committed\n"), text
    assert len(re.findall(rf"^{deployment.source} +[01]  w1 ", text, re.MULTILINE)) == 2, text

    assert deployment.stop_all() == {"w1": 0}
    deployment.kafka.produce(deployment.source, some_records(3, partitions=1))
    code, text = deployment.run("status", "--json")
    assert code == 0, text
    status = json.loads(text)
    assert status["summary"].startswith("0 workers, 2 TopicPartitions, lag 3 records, last commit ")
    (worker,) = status["workers"]
    (record,) = deployment.flush_records()
    assert (worker["worker"], worker["host"], worker["reason"]) == ("w1", None, "stopping")
    assert worker["entries"] == record.totals.entries
    committed = [(one["partition"], one["committed"], one["lag"]) for one in status["topic_partitions"]]
    assert committed == [(0, 20, 3), (1, 20, 0)]
