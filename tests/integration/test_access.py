"""A worker and what reads its output log in by each way, with exactly the rights of deploy/kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.formats.model import TopicPartition
from log_partitioner_pipeline.kafka import _read, ask_topic_id, partition_ends
from tests.integration.flow import Flow, some_records
from tests.integration.harness import Deploy, Deployment
from tests.integration.secured import (
    READER,
    WORKER,
    SecuredKafka,
    bindings_of,
    lines_of,
    secured_kafka,
    token_server,
)

QUICK = {"LOGP_FLUSH__INTERVAL_S": "0.5"}
ENDED_S = 300  # two poll intervals, and what a loaded machine adds
ACL_TOOL = "org.apache.kafka.tools.AclCommand"  # kafka-acls.sh
WAYS = ("mtls", "scram", "oidc", "msk")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One broker for the tests of this module."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def deployment(deploy: Deploy, secured: SecuredKafka) -> Deployment:
    """A deployment on the secured brokers; the test itself reads them as the administrator."""
    return deploy(kafka=secured.helper, partitions=2, settings=QUICK)


def log_in(way: str, name: str, secured: SecuredKafka, directory: Path, until: ExitStack) -> dict[str, str]:
    """Return the settings of a way to log in."""
    match way:
        case "mtls":
            return secured.mtls(name)
        case "scram":
            return secured.scram(name)
        case "oidc":
            return secured.oidc(name, until.enter_context(token_server(name, life_s=60)))
        case _:
            return secured.msk(name, directory)


@pytest.mark.parametrize("way", WAYS)
def test_worker_audit_and_a_load_of_the_table_have_all_rights_that_they_need(
    deployment: Deployment, secured: SecuredKafka, tmp_path: Path, way: str
) -> None:
    """A worker with the rights of one file, readers with those of the other."""
    secured.permit(WORKER, "acls-worker.txt", deployment)
    secured.permit(READER, "acls-reader.txt", deployment)
    written = secured.helper.produce(deployment.source, some_records(400, partitions=2))
    with ExitStack() as until:
        deployment.start("w1", **log_in(way, WORKER, secured, tmp_path, until))
        deployment.wait_drained(written)
        reading = log_in(way, READER, secured, tmp_path, until)
        code, text = deployment.run("audit", "--require-caught-up", **reading)
        assert code == 0, text
        assert set(deployment.stop_all().values()) == {0}
        if way != "msk":  # in this process the signer does not stand for AWS's
            assert read_references(deployment, reading) == len(
                secured.helper.read_committed(deployment.references_topic)
            )


@pytest.mark.parametrize("file", ["acls-worker.txt", "acls-reader.txt"])
def test_lines_of_rights_are_what_kafkas_own_tool_takes(secured: SecuredKafka, file: str) -> None:
    """It gives what the tests of this module give by the client library."""
    user = file.removesuffix(".txt")
    for line in lines_of(file):
        servers = ["--bootstrap-server", secured.cluster.bootstrap_servers]
        secured.cluster.run_tool(ACL_TOOL, *servers, "--add", "--allow-principal", f"User:{user}", *line)
    whose = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert set(secured.helper.admin.describe_acls(whose).result(20)) == set(bindings_of(file, user, {}))


def read_references(deployment: Deployment, reading: dict[str, str]) -> int:
    """Read all messages of references as a job does; returns their number."""
    secrets = json.loads(reading["LOGP_KAFKA__SECRET_PROPERTIES"])
    settings = KafkaSettings(
        bootstrap_servers=reading["LOGP_KAFKA__BOOTSTRAP_SERVERS"],
        source_topics=(deployment.source,),
        group_id=deployment.group,
        client_properties=json.loads(reading["LOGP_KAFKA__CLIENT_PROPERTIES"]),
        secret_properties={name: SecretStr(value) for name, value in secrets.items()},
    )
    topic = deployment.references_topic
    assert ask_topic_id(settings, topic)
    ends = partition_ends(settings, topic)
    return sum(
        batch.num_rows
        for partition, end in ends.items()
        for batch in _read(TopicPartition(topic, partition), end, settings=settings)
    )


def test_each_missing_right_is_named_with_the_command_that_gives_it(
    deployment: Deployment, secured: SecuredKafka
) -> None:
    """By `check-config --connect`, for each line of the file; none is there in vain."""
    settings = secured.scram(WORKER)
    bindings = secured.permit(WORKER, "acls-worker.txt", deployment)
    code, text = deployment.run("check-config", "--connect", **settings)
    assert (code, "missing:" in text, "doubtful:" in text) == (0, False, False), text
    for missing in bindings:
        secured.forbid(missing)
        code, text = deployment.run("check-config", "--connect", **settings)
        secured.allow(missing)

        (line, *more) = [line for line in text.splitlines() if not line.startswith("ok: ")]
        is_warning = missing.operation is AclOperation.DESCRIBE_CONFIGS
        assert (code, line.partition(":")[0], more) == ((0, "doubtful", []) if is_warning else (1, "missing", [])), text
        assert "kafka-acls.sh" in line, text
        assert f"--operation {''.join(map(str.capitalize, missing.operation.name.split('_')))}" in line, text
        assert f"--{missing.restype.name.lower().replace('_', '-')} {missing.name}" in line, text


@pytest.mark.parametrize("life_s", [6, pytest.param(60, marks=pytest.mark.sweep)])
def test_worker_outlives_its_tokens_and_a_signer_that_fails(
    deployment: Deployment, secured: SecuredKafka, tmp_path: Path, life_s: int
) -> None:
    """Tokens end under load, then none is given for longer than one lives: nothing is lost or doubled."""
    secured.permit(WORKER, "acls-worker.txt", deployment)
    signed, refused = tmp_path / "signed", tmp_path / "refused"

    def wait_for_tokens(count: int) -> None:
        deployment.kafka.wait_for(
            f"{count} tokens", lambda: len(signed.read_text().splitlines()) >= count, timeout_s=4 * count * life_s
        )

    deployment.start("w1", **secured.msk(WORKER, tmp_path, life_s=life_s))
    with Flow(deployment, partitions=2) as flow:
        deployment.require_event("flush_committed", "w1")
        wait_for_tokens(4)
        refused.touch()
        deployment.require_event("token_refused", "w1")
        time.sleep(life_s + 5)
        refused.unlink()
        wait_for_tokens(6)
        written = flow.stop()
    deployment.wait_drained(written)
    assert set(signed.read_text().splitlines()) == {"eu-central-1"}
    assert set(deployment.stop_all().values()) == {0}
    deployment.require_clean()


@pytest.mark.sweep
def test_worker_whose_password_was_changed_ends_and_the_next_one_reads_the_new_one(
    deployment: Deployment, secured: SecuredKafka
) -> None:
    """As the runbook says; nothing is lost."""
    secured.permit(WORKER, "acls-worker.txt", deployment)
    old = secured.scram(WORKER)
    deployment.start("w1", LOGP_FLUSH__BUDGET_S="20", **old)
    written = secured.helper.produce(deployment.source, some_records(40, partitions=2))
    deployment.wait_drained(written)
    new = secured.scram(WORKER, "canary-secret-scram-2")
    written = secured.helper.produce(deployment.source, some_records(40, partitions=2, first=40))
    assert deployment.exit_code("w1", within_s=ENDED_S) == 1
    assert "SASL" in "\n".join(deployment.complaints("w1"))
    deployment.start("w2", **new)
    deployment.wait_drained(written)
    assert deployment.stop_all() == {"w1": 1, "w2": 0}
    deployment.require_clean()
