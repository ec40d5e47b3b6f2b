"""Mistakes of the machine: a port that is taken, a spool that cannot be written: one line, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.deaf_brokers import closed_port


@pytest.mark.slow  # two processes
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"LOGP_HTTP__PORT": "{taken}"}, "http.host 127.0.0.1 and http.port {taken}: Address already in use"),
        ({"LOGP_SPOOL__DIRECTORY": "{file}"}, "no spool in spool.directory: {file}"),
    ],
    ids=["39", "40"],
)
def test_place_of_this_machine_that_cannot_be_had_ends_the_worker_with_one_line(
    variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Before any broker or store is asked; both settings or the path are named."""
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {"taken": str(taken.getsockname()[1]), "file": str(tmp_path / "file")}
        settings = {
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": closed_port(),
            "LOGP_KAFKA__SOURCE_TOPICS": "app-logs",
            "LOGP_S3__BUCKET": "my-logs",
            "LOGP_HTTP__HOST": "127.0.0.1",
            "LOGP_HTTP__PORT": "0",
            "LOGP_LOG__FORMAT": "json",
            "LOGP_SPOOL__DIRECTORY": str(tmp_path / "spool"),
        } | {name: value.format_map(places) for name, value in variables.items()}
        done = subprocess.run(
            [sys.executable, "-m", "log_partitioner", "run"],
            env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    assert done.returncode == 1
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if said.format_map(places) in line]
    assert "Traceback" not in done.stdout + done.stderr, line
