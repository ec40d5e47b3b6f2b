"""Orphans listed and deleted by the command, on real Kafka and S3."""

from __future__ import annotations

import json
import re
import time

import pytest

from log_partitioner import cli
from log_partitioner.operations import orphans
from tests.golden.example import GOLDEN
from tests.integration.flow import some_records
from tests.integration.harness import Deploy
from tests.integration.one_worker import run_through
from tests.stack.kafka_helper import ToProduce

DAY_MS = 86_400_000


def test_orphans_are_deleted_and_nothing_else(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three days after a flush: what it has left unnamed goes; before, or if references are younger, nothing does."""
    deployment = deploy(partitions=2)
    run_through(deployment, some_records(40, partitions=2))
    (batch_id,) = {one.batch_id for one in deployment.references()}
    named = {one.location.object for one in deployment.references()}
    one = min(named)
    stranger = re.sub(r"Z-\w+-", "Z-ffffffff-", one)
    left = [one.replace(f"{batch_id}-", f"{batch_id}-9"), f"logs/pack/{batch_id}-99-1.avro"]
    for key in [*left, stranger, f"logs/_dead-letters/{batch_id}-7", "logs/pack/notes.avro"]:
        deployment.s3.client.put_object(Bucket=deployment.bucket, Key=key, Body=b"rows")
    before = set(deployment.s3.keys(deployment.bucket))
    for name, value in deployment.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["orphans", *arguments])
        return code, *capsys.readouterr()

    first = run("list", "--json")
    assert first[:2] == (0, ""), first  # all of it is too young

    class Later:
        time = staticmethod(lambda: time.time() + 3 * 86_400)

    monkeypatch.setattr(orphans, "time", Later)
    code, text, notes = run("list", "--json")
    assert (code, text, "older than an hour behind the begin of the topic" in notes) == (0, "", True)

    old = ToProduce(value=(GOLDEN / "references.json").read_bytes(), timestamp_ms=round(time.time() * 1000) - DAY_MS)
    later = deployment.kafka.create_topic(f"{deployment.references_topic}-all", partitions=1)
    monkeypatch.setenv("LOGP_KAFKA__REFERENCES_TOPIC", later)
    values = [message.value() for message in deployment.kafka.read_committed(deployment.references_topic)]
    deployment.kafka.produce(later, [old, *(ToProduce(value=value) for value in values)])
    code, text, notes = run("list", "--json")
    assert (code, sorted(json.loads(line)["object"] for line in text.splitlines())) == (0, sorted(left))
    assert f"{len(named)} stay: named by a reference" in notes
    assert "1 stay: of a writer that the topic of references never names" in notes

    code, text, notes = run("delete", "--json")
    assert (code, json.loads(text)["orphans"], "with --yes" in notes) == (0, 2, True)
    assert set(deployment.s3.keys(deployment.bucket)) == before
    assert run("delete", "--yes")[:2] == (0, "deleted: 2\nbytes: 8\n")
    assert set(deployment.s3.keys(deployment.bucket)) == before - set(left)
    assert run("delete", "--yes", "--older-than", "1h")[0] == 2
