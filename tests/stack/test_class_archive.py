"""Archives of Java's classes: made once, used where they fit, no hindrance where there is none."""

from pathlib import Path

import pytest

from tests.stack.providers import jars
from tools.demo import options
from tools.local.class_archive import class_archive_of, ensure_class_archive, options_to_load
from tools.local.errors import StackError
from tools.local.kafka import KafkaCluster


@pytest.mark.parametrize("error", [StackError("it did not start"), OSError("no space left")])
def test_first_run_that_fails_leaves_nothing_and_stops_nobody(
    tmp_path: Path, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why, and is tried again the next time."""

    def fails(made: Path) -> None:
        made.write_bytes(b"half")
        raise error

    for _ in range(2):
        ensure_class_archive(tmp_path / "program-1.jsa", fails)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == f"no archive of Java's classes: {error}\n" * 2


def test_archive_is_made_once_and_takes_the_place_of_others(tmp_path: Path) -> None:
    """Those of a class path that is no more would stay for ever; those of other programs do."""
    archive, other, runs = tmp_path / "program-1.jsa", tmp_path / "another-1.jsa", list[int]()
    (tmp_path / "program-0.jsa").touch()
    other.touch()
    for _ in range(2):
        ensure_class_archive(archive, lambda made: runs.append(made.write_bytes(b"classes")))
    assert (len(runs), sorted(tmp_path.iterdir())) == (1, [other, archive])
    assert options_to_load(archive)[0] == f"-XX:SharedArchiveFile={archive}"


def test_java_that_makes_no_archive_is_asked_once_and_runs_without(tmp_path: Path) -> None:
    """One that was built without an archive of its own, for example."""
    archive, runs = tmp_path / "program-1.jsa", list[Path]()
    for _ in range(2):
        ensure_class_archive(archive, runs.append)
    assert (len(runs), options_to_load(archive)) == (1, [])


def test_empty_archive_does_not_take_the_place_of_what_another_process_has_made(tmp_path: Path) -> None:
    """Both began where there was none."""
    archive = tmp_path / "program-1.jsa"
    ensure_class_archive(archive, lambda _: ensure_class_archive(archive, lambda made: made.write_bytes(b"classes")))
    assert archive.read_bytes() == b"classes"


def test_archive_is_of_one_java_and_of_jars_as_they_are(tmp_path: Path) -> None:
    """Java compares the class path by names and times."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"99\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    jar = tmp_path / "one.jar"
    jar.touch()
    own = class_archive_of(tmp_path, "program", jars().java, tmp_path)
    assert own == class_archive_of(tmp_path, "program", jars().java, tmp_path)
    assert own != class_archive_of(tmp_path, "program", str(java), tmp_path)
    jar.write_bytes(b"newer")
    assert own != class_archive_of(tmp_path, "program", jars().java, tmp_path)


def test_spark_is_told_an_archive_in_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits its options for Java as a shell does."""
    archive = tmp_path / "a folder" / "spark-1.jsa"
    archive.parent.mkdir()
    archive.write_bytes(b"classes")
    monkeypatch.setattr(options, "spark_class_archive", lambda: archive)
    told = options.small_spark(is_compiled=True)["PIPELINE_SPARK__PROPERTIES"]
    assert f'\\"-XX:SharedArchiveFile={archive}\\"' in told


def test_broker_loads_from_its_archive(tmp_path: Path) -> None:
    """Java passes over one that does not fit."""
    with KafkaCluster(jars=jars(), root=tmp_path) as kafka:
        maps = Path(f"/proc/{kafka.processes[0].pid}/maps").read_text(encoding="utf-8")
    archive = class_archive_of(jars().kafka_dir.parent, "kafka", jars().java, jars().kafka_dir)
    if not options_to_load(archive):
        pytest.skip("this Java makes no archives")
    assert str(archive) in maps
