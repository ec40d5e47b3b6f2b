"""Certificates that are renewed on disk: which clients take them, on the real client library (RUNBOOK)."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.options import PINNED_CONSUMER
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CommitAbortedError
from log_partitioner.patience import close_or_leave
from tests.contract.deaf_brokers import serve, silent

LOOK_S = 1.5


def certificate(directory: Path) -> Path:
    """Make a certificate that has signed itself, and its key beside it."""
    directory.mkdir()
    key, made = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True)
    return made


@pytest.mark.slow
@pytest.mark.slow
def test_renewed_file_is_taken_by_the_next_transaction_and_by_a_consumer_that_is_made_anew(tmp_path: Path) -> None:
    """A client reads files when it is made: a producer of each transaction does, the running consumer never again."""
    old, new = certificate(tmp_path / "old"), certificate(tmp_path / "new")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(new, new.parent / "key.pem")
    trusted = tmp_path / "ca.pem"
    shutil.copy(old, trusted)
    shaken: list[float] = []

    def answer(link: socket.socket) -> None:
        with context.wrap_socket(link, server_side=True) as secure:
            shaken.append(time.monotonic())
            silent(secure)

    def look(consumer: KafkaConsumer | None = None) -> bool:
        """Let the consumer try for a while, or a producer be made; tells whether one has taken the certificate."""
        shaken.clear()
        deadline = Deadline.after(LOOK_S, clock.now_s)
        while consumer is not None and not deadline.has_passed():
            consumer.consume(records_max=1, timeout_s=0.1)
        if consumer is None:
            with suppress(CommitAbortedError):
                committer.prepare(deadline=deadline)
        return bool(shaken)

    clock = SystemClock()
    with serve(answer) as address:
        options: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": "ssl", "log_level": 0}
        options |= {"ssl.ca.location": str(trusted), "ssl.endpoint.identification.algorithm": "none"}
        committer = KafkaCommitter({**options, "transactional.id": "t"}, init_budget_s=1.0, clock=clock)
        reading = {**options, **PINNED_CONSUMER, "group.id": "g", "reconnect.backoff.max.ms": 200}
        running = KafkaConsumer(reading, ["source"])
        assert (look(), look(running)) == (False, False)

        shutil.copy(new, trusted)
        assert (look(running), look()) == (False, True)
        made_anew = KafkaConsumer(reading, ["source"])
        assert look(made_anew)
        for consumer in (running, made_anew):
            close_or_leave(consumer.close)
