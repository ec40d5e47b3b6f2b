"""deploy/docker-compose.yaml: its settings are accepted, and it runs if Docker and `docker compose` are there."""

import re
import subprocess

import pytest

from log_partitioner_pipeline.config import load_all
from tests.deployment import tools

FILE = tools.ROOT / "deploy" / "docker-compose.yaml"
COMPOSE = ["/usr/bin/env", "docker", "compose", "--project-name", "logp-test", "--file", str(FILE)]


def test_compose_sets_what_worker_and_pipeline_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting is unknown or breaks a rule, and the topics that they use are those that are made."""
    text = FILE.read_text(encoding="utf-8")
    for name, value in re.findall(r"\b((?:LOGP|PIPELINE)_\w+): ([^,}\n]+)", text):
        monkeypatch.setenv(name, value)

    kafka = load_all().worker.kafka

    used = {*kafka.source_topics, kafka.references_topic, kafka.flushes_topic, kafka.dead_letters_topic}
    assert used == set(re.findall(r"([a-z-]+):\d+:-?\d+\b", text))
    assert f"--topic {kafka.source_topics[0]}\n" in text, "the generator writes to the source topic"


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(3600)  # the first time it builds both images
@pytest.mark.skipif(not tools.has_docker_compose(), reason="no Docker engine answers, or it has no `docker compose`")
def test_compose_delivers_what_its_generator_writes() -> None:
    """Entries come into the table, the worker is healthy by its own check, and an audit of it all is clean."""
    try:
        _compose("up", "--detach", "--build")
        with subprocess.Popen([*COMPOSE, "logs", "--follow", "pipeline"], stdout=subprocess.PIPE, text=True) as logs:
            assert any("references_materialized" in line for line in logs.stdout or ())
            logs.terminate()

        assert _compose("ps", "worker", "--format", "{{.Health}}") == "healthy\n"
        _compose("exec", "-T", "worker", "log-partitioner", "audit")  # exit code 0: clean
    finally:
        print(_compose("logs", "--tail", "200", "worker", "pipeline"))  # pytest shows it if the test failed
        _compose("down", "--volumes")


def _compose(*arguments: str) -> str:
    done = subprocess.run([*COMPOSE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
