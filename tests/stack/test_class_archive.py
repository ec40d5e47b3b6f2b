"""Archives of Java classes: made once, used where they fit, no hindrance where they do not."""

from pathlib import Path

import pytest

from deploy.local.class_archive import archive_of, archive_options, ensure_archive
from deploy.local.errors import StackError
from deploy.local.kafka import KafkaCluster
from tests.stack.providers import jars


def test_archive_is_made_once_and_as_a_whole(tmp_path: Path) -> None:
    """A first run that fails, or is killed, leaves nothing behind."""
    file, runs = tmp_path / "program.jsa", []

    def fails(made: Path) -> None:
        made.write_bytes(b"half")
        raise StackError("it did not start")

    with pytest.raises(StackError):
        ensure_archive(file, fails)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        ensure_archive(file, lambda made: runs.append(made.write_bytes(b"classes")))
    assert (runs, list(tmp_path.iterdir())) == ([7], [file])
    assert archive_options(file)[0] == f"-XX:SharedArchiveFile={file}"


def test_java_that_makes_no_archive_is_asked_once_and_runs_without(tmp_path: Path) -> None:
    """One that was built without classes of its own, for example."""
    file, runs = tmp_path / "program.jsa", list[Path]()
    for _ in range(2):
        ensure_archive(file, runs.append)
    assert (len(runs), archive_options(file)) == (1, [])


def test_archive_is_of_one_java(tmp_path: Path) -> None:
    """Another one loads classes as ever, until it has its own."""
    other = tmp_path / "java"
    other.write_text("#!/bin/sh\necho 'openjdk version \"99\"' >&2\n", encoding="utf-8")
    other.chmod(0o755)
    assert archive_of(tmp_path, "kafka", str(other)) != archive_of(tmp_path, "kafka", jars().java)


def test_broker_loads_from_its_archive(tmp_path: Path) -> None:
    """One that does not fit is passed over without a word."""
    with KafkaCluster(jars=jars(), root=tmp_path) as kafka:
        maps = Path(f"/proc/{kafka.processes[0].pid}/maps").read_text(encoding="utf-8")
    assert str(archive_of(jars().kafka_dir.parent, "kafka", jars().java)) in maps
