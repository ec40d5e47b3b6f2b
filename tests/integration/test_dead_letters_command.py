"""Dead letters listed, shown and put back, by the command, on real Kafka and S3, while it is killed and doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

from tests.integration.harness import Deploy, Deployment
from tests.integration.one_worker import run_through
from tests.integration.test_outside import configure
from tests.stack.kafka_helper import KafkaHelper, ToProduce

MANY = 4_500  # three transactions
MENDED = {"LOGP_USER__PATHS": "user,who"}
CHAIN = {"source-topic-chain": b'[["raw", 3, 17, 0, "n/1"]]'}


def entry(number: int, name: str = "who") -> dict[str, object]:
    """Make an entry; the first settings do not look for the user at `who`."""
    return {name: f"canary-user-{number % 3}", "time": "2026-03-04T05:06:07Z", "n": number}


def numbers_of(deployment: Deployment) -> Counter[int]:
    """Count the entries in the source by their numbers."""
    found: Counter[int] = Counter()
    for message in deployment.kafka.read_committed(deployment.source):
        document = json.loads(message.value() or b"")
        found.update(one["n"] for one in (document if isinstance(document, list) else [document]))
    return found


def test_dead_letters_go_back_once_and_are_delivered_by_mended_settings(deploy: Deploy, kafka: KafkaHelper) -> None:
    """Only what was dead, with a way of its own along the chain; both records and replay are clean to the audit."""
    deployment = deploy(partitions=2, settings={"LOGP_INPUT__DISCARD_REPLAYS": "true"})
    mixed = [entry(1, "user"), entry(2), entry(3, "user")]
    records = [
        ToProduce(
            value=json.dumps(entry(0)).encode(), key=b"k", partition=0, headers=CHAIN, timestamp_ms=1_772_600_000_000
        ),
        ToProduce(value=json.dumps(mixed).encode(), partition=1),
        ToProduce(value=b'{"canary": ', partition=1),
    ]
    run_through(deployment, records)

    code, text = deployment.run("dead-letters", "list", "--json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(one["reason"], one["letters"], one["entries"], one["replayed"]) for one in rows] == [
        ("malformed", 1, 1, 0), ("no_user", 2, 2, 0)
    ], text  # fmt: skip
    code, text = deployment.run("dead-letters", "show", rows[0]["newest"])
    assert (code, 'value: {"canary": ' in text, "canary-user" in text) == (0, True, False), text

    code, text = deployment.run("dead-letters", "replay", "--reason", "no_user")
    assert (code, "repeat the command with --yes" in text) == (1, True), text
    configure(kafka, deployment.source, "retention.ms", "86400000")
    code, text = deployment.run("dead-letters", "replay", "--reason", "no_user", "--dry-run")
    assert (code, "2 dead letters would go back, 0 were replayed before" in text) == (0, True), text
    assert "1 are as old as what their topic deletes: they get the time of now" in text
    configure(kafka, deployment.source, "retention.ms", "-1")
    assert len(kafka.read_committed(deployment.source)) == 3
    code, text = deployment.run("dead-letters", "replay", "--reason", "no_user", "--yes")
    assert (code, "2 dead letters are back, 0 were replayed before" in text) == (0, True), text
    code, text = deployment.run("dead-letters", "replay", "--reason", "no_user", "--yes", "--json")
    assert (code, json.loads(text)) == (0, {"back": 0, "again": 2, "retimed": 0, "stay": {}})

    back = [one for one in kafka.read_committed(deployment.source) if one.offset() > (one.partition() == 1)]
    first, second = sorted(back, key=lambda one: one.partition())
    assert (first.partition(), first.key(), first.timestamp()[1]) == (0, b"k", 1_772_600_000_000)
    links = json.loads(dict(first.headers() or [])["source-topic-chain"])
    assert (links[0], links[1][:4]) == (["raw", 3, 17, 0, "n/1"], [deployment.source, 0, 0, 0])
    assert json.loads(second.value() or b"") == [entry(2)]

    worker = deployment.start("w2", LOGP_FLUSH__INTERVAL_S="1", **MENDED)
    deployment.wait_drained([(0, first.offset()), (1, second.offset())])
    assert deployment.stop_all()["w2"] == 0, worker.last_lines()
    assert sum(one.entries for one in deployment.references()) == 4
    code, text = deployment.run("audit", "--require-caught-up", **MENDED)
    assert (code, "clean (0)" in text) == (0, True), text


def test_replay_that_is_killed_or_doubled_puts_each_dead_letter_back_once(deploy: Deploy, kafka: KafkaHelper) -> None:
    """SIGKILL between its transactions, then two at the same time: the rest comes, and nothing comes twice."""
    deployment = deploy(partitions=3)
    records = [ToProduce(value=json.dumps(entry(n)).encode(), partition=n % 3) for n in range(MANY)]
    run_through(deployment, records)
    command = [sys.executable, "-m", "log_partitioner", "dead-letters", "replay", "--yes", "--json"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=deployment.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    with start() as killed:
        kafka.wait_for("the first ones are back", lambda: len(kafka.read_uncommitted(deployment.source)) > MANY)
        killed.kill()
    assert len(kafka.read_committed(deployment.source)) < 2 * MANY

    with start() as one, start() as other:
        told = [one.communicate(timeout=240), other.communicate(timeout=240)]
    codes = sorted([one.returncode, other.returncode])
    if codes != [0, 0]:
        assert codes == [0, 1], told
        assert sum("another replay of this group has begun" in error for _, error in told) == 1, told

    assert numbers_of(deployment) == Counter(dict.fromkeys(range(MANY), 2))
    code, text = deployment.run(*command[3:])
    assert (code, json.loads(text)["again"]) == (0, MANY)
    assert deployment.audit().exit_code == 0
