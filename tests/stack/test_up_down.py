"""`python -m tools.local`: up, up again, status, env, down."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack.kafka_helper import KafkaHelper
from tests.stack.providers import REPOSITORY, jars
from tests.stack.s3_helper import S3Helper
from tools.local.__main__ import describe, main
from tools.local.ports import find_free_ports
from tools.local.stack import Stack, StackHome, environment_of


@pytest.mark.integration
def test_stack_lives_from_up_to_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jars()
    (tmp_path / "jars").symlink_to(REPOSITORY / ".local" / "jars")
    kafka_port, s3_port = find_free_ports(2)
    options = ["--kafka-port", str(kafka_port), "--s3-port", str(s3_port), "--bucket", "kept"]
    try:
        assert main(["up", *options], home=tmp_path) == 0
        stack = StackHome(tmp_path).load()
        assert stack is not None
        said = capsys.readouterr().out
        assert said.startswith("Started.\n")
        assert stack.s3.secret_key not in said
        assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600

        assert main(["up", *options], home=tmp_path) == 0
        assert capsys.readouterr().out.startswith("It is already up.\n")

        assert main(["env"], home=tmp_path) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"export LOGP_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:{kafka_port}" in lines
        assert f"export LOGP_S3__SECRET_KEY={stack.s3.secret_key}" in lines

        assert KafkaHelper(stack.bootstrap_servers, provider="test").partitions("logs") == list(range(6))
        s3 = S3Helper(stack.s3, provider="test")
        assert s3.keys("kept") == []
        s3.close()
    finally:
        assert main(["down"], home=tmp_path) == 0
    assert capsys.readouterr().out == "Stopped 2 processes.\n"
    assert not stack.is_running()
    assert main(["status"], home=tmp_path) == 3


RECORD = {
    "bootstrap_servers": "127.0.0.1:9092",
    "s3": {"url": "http://127.0.0.1:9000", "access_key": "a", "secret_key": "s", "region": "us-east-1"},
    "source": "logs",
    "bucket": "b",
    "directory": "d",
    "processes": [{"name": "S3", "pid": 1, "started": "another time"}],
}


def test_worker_on_the_stack_is_that_of_production() -> None:
    """Its environment changes nothing but addresses; what is printed is what README teaches, and how to clean up."""
    stack = Stack.parse(json.dumps(RECORD))

    assert [name for name in environment_of(stack) if "VERIFY" in name] == []
    said = describe(stack)
    assert "log-partitioner check-config && " in said
    assert "log-partitioner run\n" in said
    assert "`make down WIPE=1` removes them" in said


def test_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """`status | head -1`: nothing on standard error."""
    (tmp_path / "stack.json").write_text(json.dumps(RECORD), encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    program = (
        "import sys; from pathlib import Path; from tools.local.__main__ import run; "
        f"sys.exit(run(['status'], home=Path({str(tmp_path)!r})))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (0, "")


def test_down_after_a_reboot_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pids of a stale record may belong to anybody."""
    (tmp_path / "stack.json").write_text(json.dumps(RECORD), encoding="utf-8")

    assert main(["env"], home=tmp_path) == 3
    assert main(["down"], home=tmp_path) == 0
    assert capsys.readouterr().out == "Nothing was running.\n"
    assert not (tmp_path / "stack.json").exists()
