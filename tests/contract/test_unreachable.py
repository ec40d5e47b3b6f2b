"""Brokers that do not answer, on the real client library: what is said, how often, and how soon a stop is heeded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import LeavingError
from log_partitioner.formats.model import TopicPartition
from log_partitioner.patience import Patience
from tests.contract.deaf_brokers import closed_port, hang_up, http, noise, serve, silent, tls, wrong_password
from tools.local.ports import find_free_ports

SSL = {"security.protocol": "ssl"}
SASL = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "canary-secret-1",
}
LOADED = 3  # times as long as promised, if others have most of the machine
Where = Callable[[Path], AbstractContextManager[str]]
WAYS: dict[str, tuple[Where, dict[str, str], str]] = {
    "refused": (lambda _: nullcontext(closed_port()), {}, "connection refused"),
    "unknown host": (lambda _: nullcontext("no-such-host.invalid:9092"), {}, "unknown host"),
    "silent": (lambda _: serve(silent), {}, "no answer"),
    "http": (lambda _: serve(http), {}, "not a Kafka broker"),
    "noise": (lambda _: serve(noise), {}, "not a Kafka broker"),
    "hangs up": (lambda _: serve(hang_up), {}, "closes the connection"),
    "TLS, certificate unknown": (lambda path: serve(tls(path)), SSL, "TLS failed"),
    "TLS to plaintext": (lambda _: serve(http), SSL, "TLS failed"),
    "plaintext to TLS": (lambda path: serve(tls(path)), {}, "not a Kafka broker"),
    "SASL": (lambda _: serve(wrong_password), SASL, "SASL refused"),
}


@pytest.fixture(params=[pytest.param(one, marks=[] if one == "refused" else pytest.mark.slow) for one in WAYS])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str], str]]:
    """Give an address, the options to ask it with, and what is wrong there."""
    where, options, reason = WAYS[request.param]
    with where(tmp_path) as address:
        yield address, options, reason


def committer(address: str, brokers: Brokers, patience: Patience, **options: str) -> KafkaCommitter:
    """Make a committer that asks there."""
    told: dict[str, Any] = {"bootstrap.servers": address, "transactional.id": "t", "socket.timeout.ms": 10_000}
    clock = SystemClock()
    return KafkaCommitter(told | options, init_budget_s=7.0, clock=clock, brokers=brokers, patience=patience)


def test_unreachable_broker_is_named_with_its_reason_within_seconds(way: tuple[str, dict[str, str], str]) -> None:
    """This holds for every reason; the probe says the same, and neither says a secret."""
    address, options, reason = way
    brokers = Brokers()
    began_s = time.monotonic()
    with capture_logs() as logs:

        def is_named() -> bool:
            told = [line for line in logs if line["event"] == "broker_unreachable" and address in str(line)]
            return any(reason in line["reason"] for line in told)

        with pytest.raises(LeavingError):
            committer(address, brokers, Patience(is_named), **options).prepare()
    assert time.monotonic() - began_s < 5 + 2 * LOADED
    assert address in (brokers.trouble() or "")
    assert "canary-secret-1" not in f"{logs}{brokers.trouble()}"


@pytest.mark.parametrize("kind", ["refused", "silent"])
def test_wish_to_leave_is_heeded_while_a_producer_is_made_ready(kind: str, tmp_path: Path) -> None:
    """Within two seconds; it took 114 once."""
    where, _, _ = WAYS[kind]
    stop = threading.Event()
    with where(tmp_path) as address:
        threading.Timer(1.0, stop.set).start()
        begun_s = time.monotonic()
        with pytest.raises(LeavingError):
            committer(address, Brokers(), Patience(stop.is_set)).prepare()
        assert time.monotonic() - begun_s < 1 + 2 * LOADED


@pytest.mark.parametrize("question", ["committed", "partitions_of", "offsets_at", "topic_ids"])
def test_wish_to_leave_is_heeded_while_a_question_is_not_answered(question: str) -> None:
    """Each waits for as long as its deadline allows, and not longer than a second after the wish; leaving ends too."""
    stop, clock = threading.Event(), SystemClock()
    with serve(silent) as address:
        options = {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False}
        consumer = KafkaConsumer(options, ["source"], patience=Patience(stop.is_set))
        deadline, tp = Deadline.after(60.0, clock.now_s), TopicPartition("source", 0)
        ask: dict[str, Callable[[], object]] = {
            "committed": lambda: consumer.committed([tp], deadline=deadline),
            "partitions_of": lambda: consumer.partitions_of("source", deadline=deadline),
            "offsets_at": lambda: consumer.offsets_at([tp], 0, deadline=deadline),
            "topic_ids": lambda: consumer.topic_ids(["source"], deadline=deadline),
        }
        threading.Timer(0.5, stop.set).start()
        begun_s = time.monotonic()
        with pytest.raises(LeavingError):
            ask[question]()
        with suppress(LeavingError):
            consumer.close()
        assert time.monotonic() - begun_s < 0.5 + 2 * LOADED


def test_broker_that_answers_in_time_is_waited_for_although_asked_to_leave() -> None:
    """A second is left for the work to end in order."""
    slow = threading.Event()
    assert Patience(lambda: True).ask(lambda: slow.wait(0.5)) is False
    with pytest.raises(ValueError, match="its own"):
        Patience().ask(lambda: int("its own"))


def worker(address: str, store: str, directory: Path) -> tuple[subprocess.Popen[bytes], Path, int]:
    """Start a worker; gives the process, its output and the port of its probes."""
    (port,) = find_free_ports(1)
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": address, "KAFKA__SOURCE_TOPICS": '["source"]', "S3__BUCKET": "bucket",
        "S3__ENDPOINT_URL": store, "S3__ACCESS_KEY": "canary-secret-2", "S3__SECRET_KEY": "canary-secret-3",
        "SPOOL__DIRECTORY": str(directory / "spool"), "HTTP__HOST": "127.0.0.1", "HTTP__PORT": str(port),
    }  # fmt: skip
    env = {**os.environ, **{f"LOGP_{name}": value for name, value in settings.items()}}
    output = directory / "output"
    with output.open("wb") as file:
        command = [sys.executable, "-m", "log_partitioner", "run"]
        return subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT), output, port


def lines(output: Path) -> list[dict[str, Any]]:
    """Read the lines of a log."""
    return [json.loads(line) for line in output.read_text().splitlines()]


def ready(port: int) -> str:
    """Ask the readiness probe; gives what it says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), [("refused", signal.SIGTERM), ("silent", signal.SIGINT)])
def test_worker_without_a_broker_says_why_and_leaves_at_once(kind: str, number: signal.Signals, tmp_path: Path) -> None:
    """The log and the probe name the broker; a stop ends the process in two seconds, in order."""
    where, _, reason = WAYS[kind]
    with where(tmp_path) as address:
        process, output, port = worker(address, "http://127.0.0.1:9", tmp_path)
        until_s = time.monotonic() + 20 * LOADED
        while "broker_unreachable" not in output.read_text() and time.monotonic() < until_s:
            time.sleep(0.1)
        said = ready(port)
        begun_s = time.monotonic()
        process.send_signal(number)
        code = process.wait(60)
        took_s = time.monotonic() - begun_s

    assert (code, took_s < 2 * LOADED) == (0, True), took_s
    assert f"broker {address}: {reason}" in said
    assert lines(output)[-1]["event"] == "worker_left"
    assert "canary-secret" not in output.read_text()


@pytest.mark.slow
def test_worker_leaves_while_the_store_does_not_answer(tmp_path: Path) -> None:
    """The first question to it has a minute; a stop does not."""
    with serve(silent) as address:
        process, output, _ = worker(closed_port(), f"http://{address}", tmp_path)
        time.sleep(4)
        begun_s = time.monotonic()
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM), "the latter where the machine had not even begun"
    assert time.monotonic() - begun_s < 2 * LOADED
    assert "Traceback" not in output.read_text()
