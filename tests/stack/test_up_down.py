"""`python -m tools.local`: up, up again, status, env, down."""

import json
from pathlib import Path

import pytest

from tests.stack.kafka_helper import KafkaHelper
from tests.stack.providers import REPOSITORY, jars
from tests.stack.s3_helper import S3Helper
from tools.local.__main__ import main
from tools.local.ports import find_free_ports
from tools.local.stack import StackHome


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

        assert main(["up", *options, "--source", "own", "--partitions", "2"], home=tmp_path) == 0
        assert capsys.readouterr().out.startswith("It is already up.\n")

        assert main(["env"], home=tmp_path) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"export LOGP_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:{kafka_port}" in lines
        assert f"export LOGP_S3__SECRET_KEY={stack.s3.secret_key}" in lines
        assert "export LOGP_KAFKA__SOURCE_TOPICS=own" in lines

        kafka = KafkaHelper(stack.bootstrap_servers, provider="test")
        assert [kafka.partitions(topic) for topic in ("logs", "own")] == [list(range(6)), [0, 1]]
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


def test_down_after_a_reboot_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pids of a stale record may belong to anybody."""
    (tmp_path / "stack.json").write_text(json.dumps(RECORD), encoding="utf-8")

    assert main(["env"], home=tmp_path) == 3
    assert main(["down"], home=tmp_path) == 0
    assert capsys.readouterr().out == "Nothing was running.\n"
    assert not (tmp_path / "stack.json").exists()
