"""A schema registry that is silent, slow, refuses us or does not know a schema yet, while Avro records flow.

Records of known schemas go on, the group keeps its member, and nothing is lost or doubled.
"""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import fastavro
import pytest

from tests.contract.fake_registry import FakeRegistry, serving
from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import ToProduce

PARTITIONS = 2
OLD, NEW = 0, 1  # partitions with records of the first schema, and of the newest
RECORDS = 20
FIELDS = [{"name": "user", "type": "string"}, {"name": "time", "type": "string"}, {"name": "n", "type": "int"}]
Trouble = Callable[[], Any]

pytestmark = pytest.mark.slow


class Registry:
    """A registry on one port, which may go away, and the producer's side of it."""

    def __init__(self) -> None:
        self.fake = FakeRegistry()
        self._stack = ExitStack()
        self._stack.enter_context(serving(self.fake))
        self._port = int(self.fake.url.rpartition(":")[2])
        self.schemas: list[Any] = []

    def add(self) -> int:
        """Register another schema; returns its id."""
        self.schemas.append({"type": "record", "name": f"Log{len(self.schemas)}", "fields": FIELDS})
        return self.fake.register("logs-value", json.dumps(self.schemas[-1]))

    @contextmanager
    def killed(self) -> Iterator[None]:
        """No process listens."""
        self._stack.close()
        yield
        self._stack.enter_context(serving(self.fake, self._port))

    @contextmanager
    def answering(self, **how: Any) -> Iterator[None]:
        """It answers, but not with schemas."""
        for name, value in how.items():
            setattr(self.fake, name, value)
        yield
        self.fake.status, self.fake.trickle_s, self.fake.authorization = 200, 0.0, None

    @contextmanager
    def late(self) -> Iterator[None]:
        """It does not know the newest schema yet."""
        newest = self.fake.schemas.pop()
        yield
        self.fake.schemas.append(newest)

    def close(self) -> None:
        """End."""
        self._stack.close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Serve a registry."""
    made = Registry()
    yield made
    made.close()


def records(registry: Registry, number: int, partition: int, first: int) -> Iterator[ToProduce]:
    """Yield records by a schema, framed as Confluent's serializers do."""
    for n in range(first, first + RECORDS):
        out = io.BytesIO(b"\0" + number.to_bytes(4))
        out.seek(5)
        entry = {"user": f"canary-user-{n % 3}", "time": "2026-03-04T05:06:07Z", "n": n}
        fastavro.schemaless_writer(out, registry.schemas[number - 1], entry)
        yield ToProduce(value=out.getvalue(), partition=partition)


def test_nothing_is_lost_or_doubled_whatever_the_registry_does(deploy: Deploy, registry: Registry) -> None:
    variables = {
        "LOGP_INPUT__FORMAT": "avro",
        "LOGP_INPUT__FRAMING": "confluent",
        "LOGP_REGISTRY__URL": registry.fake.url,
        "LOGP_VERIFY__SHARE": "1",
    }
    deployment: Deployment = deploy(partitions=PARTITIONS, settings=variables)
    first = registry.add()
    written = deployment.kafka.produce(deployment.source, records(registry, first, OLD, 0))
    deployment.start("w1")
    deployment.wait_drained(written)

    troubles: dict[str, Trouble] = {
        "killed": registry.killed,
        "503": lambda: registry.answering(status=503),
        "slow": lambda: registry.answering(trickle_s=0.5),
        "refused": lambda: registry.answering(authorization="Bearer other"),
        "late": registry.late,
    }
    for turn, (name, trouble) in enumerate(troubles.items(), start=1):
        newest = registry.add()
        with trouble():
            at = turn * RECORDS
            waiting = deployment.kafka.produce(deployment.source, records(registry, newest, NEW, at))
            going = deployment.kafka.produce(deployment.source, records(registry, first, OLD, at))
            deployment.require_event("unreadable", offset=waiting[0][1])
            deployment.wait_drained(going)
            assert deployment.committed_offsets().get(NEW, 0) <= waiting[0][1], name
            assert deployment.get("w1", "/livez")[0] == 200, name
        deployment.wait_drained([*going, *waiting])
        written += [*going, *waiting]

    codes = {event["code"] for event in deployment.events("w1") if event["event"] == "unreadable"}
    assert codes == {"SCHEMA_UNANSWERED", "SCHEMA_REFUSED", "SCHEMA_UNKNOWN"}
    assert deployment.count("partitions_assigned") == 1
    assert deployment.stop_all() == {"w1": 0}
    report = deployment.require_clean()
    assert report.json["counts"]["entries_in_files"] == len(written)
    assert deployment.dead_letters() == []


def test_id_that_the_registry_does_not_know_is_a_dead_letter_which_the_audit_takes_at_its_word(
    deploy: Deploy, registry: Registry
) -> None:
    """Once the registry knows it the audit says that the record could be replayed."""
    variables = {
        "LOGP_INPUT__FORMAT": "avro",
        "LOGP_INPUT__FRAMING": "confluent",
        "LOGP_REGISTRY__URL": registry.fake.url,
    }
    deployment: Deployment = deploy(partitions=PARTITIONS, settings=variables)
    number = registry.add()
    made = [*records(registry, number, NEW, 0)][:2]
    with registry.late():
        written = deployment.kafka.produce(deployment.source, made)
        deployment.start("w1")
        deployment.wait_drained(written, timeout_s=240)
        assert deployment.stop_all() == {"w1": 0}
        assert deployment.require_clean().json["dead_letters"] == {"unknown_schema": 2}
    report = deployment.require_clean()
    assert f"{deployment.source}-1 offset 0: its dead letter is unknown_schema, and it decodes here" in report.text
