"""Archives of Java's classes: made once, used if they fit, no hindrance if there is none."""

from pathlib import Path

import pytest

from tests.stack.providers import jars
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


def test_broker_loads_from_its_archive(tmp_path: Path) -> None:
    """Java passes over one that does not fit."""
    with KafkaCluster(jars=jars(), root=tmp_path) as kafka:
        maps = Path(f"/proc/{kafka.processes[0].pid}/maps").read_text(encoding="utf-8")
    archive = class_archive_of(jars().kafka_dir.parent, "kafka", jars().java, jars().kafka_dir)
    if not options_to_load(archive):
        pytest.skip("this Java makes no archives")
    assert str(archive) in maps
