"""If Java, Maven or a port is missing, one line says what to do."""

import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.local import jars
from tools.local.__main__ import main
from tools.local.errors import MissingPrerequisiteError, StackError
from tools.local.ports import LOOPBACK
from tools.maven import JarSet


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is the whole PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


def _install(programs: Path, name: str, script: str) -> None:
    program = programs / name
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def test_java_missing_is_one_line(programs: Path, tmp_path: Path) -> None:
    del programs
    with pytest.raises(MissingPrerequisiteError) as caught:
        jars.ensure_jars(tmp_path)

    assert str(caught.value) == (
        "No `java` was found on the PATH. Install a JDK 17 or newer (Debian: openjdk-17-jdk-headless) "
        "or set JAVA_HOME to one."
    )


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16"])
def test_java_too_old_is_refused(programs: Path, version: str) -> None:
    _install(programs, "java", f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")

    with pytest.raises(MissingPrerequisiteError, match=r"is too old: it says openjdk version .* JDK 17"):
        jars.require_java()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1"])
def test_java_new_enough_is_taken(programs: Path, version: str) -> None:
    _install(programs, "java", f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")

    assert jars.require_java() == str(programs / "java")


def test_maven_failing_shows_its_last_lines(programs: Path, tmp_path: Path) -> None:
    _install(programs, "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")
    _install(programs, "mvn", "echo '[ERROR] no route to host'; exit 1")

    with pytest.raises(StackError, match=r"this needs the network, once.*\n\[ERROR\] no route to host"):
        jars.ensure_jars(tmp_path / "jars")


def test_jars_other_than_locked_are_refused(programs: Path, tmp_path: Path) -> None:
    """A jar whose digest is not in jars.lock never gets to where it would be run."""
    _install(programs, "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")
    _install(
        programs,
        "mvn",
        'for a in "$@"; do case $a in -Djars.home=*) d=${a#*=};; esac; done; '
        '/bin/mkdir -p "$d/kafka"; echo evil > "$d/kafka/lz4-java.jar"',
    )

    with pytest.raises(StackError, match=r"differ from jars\.lock: .*kafka/lz4-java\.jar"):
        jars.ensure_jars(tmp_path / "jars")
    assert list((tmp_path / "jars").iterdir()) == []


def test_jars_that_several_want_at_once_are_fetched_once(programs: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    _install(
        programs,
        "mvn",
        'for a in "$@"; do case $a in -Djars.home=*) d=${a#*=};; esac; done; '
        f'/bin/mkdir -p "$d"; echo call >> {calls}; /bin/sleep 0.1; echo > "$d/one.jar"',
    )
    lock = tmp_path / "jars.lock"
    lock.write_text(hashlib.sha256(b"\n").hexdigest() + "  one.jar\n")
    some = JarSet(tmp_path / "pom.xml", lock)
    with ThreadPoolExecutor(3) as threads:
        found = set(threads.map(some.ensure, [tmp_path / "jars"] * 3))
    assert found == {tmp_path / "jars"}
    assert calls.read_text() == "call\n"


def test_up_on_a_port_in_use_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        exit_code = main(["up", "--kafka-port", str(port)], home=tmp_path)

    assert exit_code == 1
    assert f"Port {port} on 127.0.0.1 is in use" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["stack.lock"]
