"""Republishers that are killed, under rebalances: their replays are discarded, and nothing else is (DESIGN 3.8)."""

import json
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.integration.harness import Deploy, Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tools.local.processes import ServerProcess

SCRIPT = str(Path(__file__).parent / "republish.py")
PARTITIONS, ROOT_PARTITIONS = 6, 3
ROOTS = 150  # before each kill
LIFE_S = 3.0
SETTINGS = {"LOGP_INPUT__DISCARD_REPLAYS": "true", "LOGP_FLUSH__INTERVAL_S": "1", "LOGP_KAFKA__SESSION_TIMEOUT_S": "6"}


def _output_of(message: Message) -> tuple[int, int]:
    entry = json.loads(message.value() or b"")
    return entry["n"], entry["output"]


def _kill_and_judge(kafka: KafkaHelper, names: Names, deployment: Deployment, *, kills: int) -> None:
    roots, group = kafka.create_topic(names.topic("raw"), partitions=ROOT_PARTITIONS), names.group("splitter")
    arguments = [SCRIPT, kafka.bootstrap_servers, group, roots, deployment.source, str(PARTITIONS), "splitter/1"]

    def start(name: str, number: int) -> ServerProcess:
        log = deployment.root / "logs" / f"{name}-{number}.txt"
        return ServerProcess(name, [sys.executable, *arguments], log=log, env=deployment.environment())

    def write(first: int) -> None:
        entries = ({"user": f"u{n % 5}", "time": "2026-03-04T05:06:07Z", "n": n} for n in range(first, first + ROOTS))
        kafka.produce(roots, (ToProduce(value=json.dumps(one).encode()) for one in entries))

    running = {name: start(name, 0) for name in ("r1", "r2")}
    try:
        deployment.start("w1")
        for number in range(1, kills + 1):
            write(number * ROOTS)
            time.sleep(LIFE_S)  # how far it comes is chance
            name = "r1" if number % 2 else "r2"
            running[name].kill()
            running[name] = start(name, number)
            if number % 3 == 1:
                deployment.start("w2")
            elif number % 3 == 2:
                deployment.workers["w2"].kill()
        ends = {one.partition(): one.offset() + 1 for one in kafka.read_committed(roots)}
        kafka.wait_for("all is republished", lambda: kafka.committed_offsets(group, roots) == ends, timeout_s=180)
    finally:
        for process in running.values():
            process.kill()
    published = kafka.read_committed(deployment.source)
    deployment.wait_drained([(one.partition(), one.offset()) for one in published])
    report = deployment.require_clean()

    outputs = {_output_of(one) for one in published}
    lines = [line for flush in deployment.flush_records() for line in flush.topic_partitions]
    discarded = sum(line.discarded_replays for line in lines)
    assert {number for number, _ in outputs} == set(range(ROOTS, (kills + 1) * ROOTS))
    assert discarded == len(published) - len(outputs) > 0
    assert report.json["counts"]["entries_in_files"] == len(outputs)


def test_republishers_that_are_killed_lose_and_double_nothing(kafka: KafkaHelper, names: Names, deploy: Deploy) -> None:
    """Each output is in one row; each discarded record has its twin there, which the audit has looked for."""
    _kill_and_judge(kafka, names, deploy(settings=SETTINGS, partitions=PARTITIONS), kills=3)


@pytest.mark.sweep
def test_republishers_that_are_killed_twenty_times(kafka: KafkaHelper, names: Names, deploy: Deploy) -> None:
    """The same for minutes."""
    _kill_and_judge(kafka, names, deploy(settings=SETTINGS, partitions=PARTITIONS), kills=20)
