"""What is said when Java, Maven or a port is missing: one line that says what to do."""

import socket
from pathlib import Path

import pytest

from tools.local import jars
from tools.local.__main__ import main
from tools.local.errors import MissingPrerequisiteError, PortInUseError, StackError
from tools.local.ports import LOOPBACK, find_free_ports, require_free


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


def test_java_missing_under_java_home_names_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(programs, "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    with pytest.raises(MissingPrerequisiteError, match="No `java` was found under JAVA_HOME=/nowhere"):
        jars.require_java()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16"])
def test_java_too_old_is_refused(programs: Path, version: str) -> None:
    _install(programs, "java", f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")

    with pytest.raises(MissingPrerequisiteError, match=r"is too old: it says openjdk version .* JDK 17"):
        jars.require_java()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1"])
def test_java_new_enough_is_taken(programs: Path, version: str) -> None:
    _install(programs, "java", f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")

    assert jars.require_java() == str(programs / "java")


def test_maven_missing_is_one_line(programs: Path, tmp_path: Path) -> None:
    _install(programs, "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")

    with pytest.raises(MissingPrerequisiteError) as caught:
        jars.ensure_jars(tmp_path / "jars")

    assert str(caught.value) == (
        "No `mvn` was found on the PATH; it fetches the jars, once. Install Maven (Debian: maven)."
    )


def test_fetch_is_announced_with_its_size(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What takes minutes says so before it begins."""
    _install(programs, "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")

    with pytest.raises(MissingPrerequisiteError):
        jars.ensure_jars(tmp_path / "jars")

    assert capsys.readouterr().err == ("Fetching Kafka and S3Proxy (107 MB) with Maven, once: a minute or two.\n")


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


def test_port_in_use_names_port_user_and_remedy() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUseError) as caught:
            require_free(port, wanted_by="Kafka", remedy="choose another with --kafka-port")

    assert caught.value.port == port
    assert str(caught.value) == (
        f"Port {port} on 127.0.0.1 is in use, but Kafka needs it: choose another with --kafka-port "
        f"(`ss -ltnp 'sport = :{port}'` names the process)."
    )


def test_up_on_a_port_in_use_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        exit_code = main(["up", "--kafka-port", str(port)], home=tmp_path)

    assert exit_code == 1
    assert f"Port {port} on 127.0.0.1 is in use" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["stack.lock"]


def test_free_ports_are_different_and_no_source_ports() -> None:
    ports = find_free_ports(50)

    assert len(set(ports)) == 50
    assert max(ports) < 32_768
