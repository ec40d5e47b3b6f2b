"""The jars that the local stack runs: fetched once by Maven, checked against jars.lock, kept under .local.

The directory is named after the digest of pom.xml and lock and appears by one rename after the check: if
it is there, it is complete and right, and neither the network, nor Maven, nor its repository is needed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import MissingPrerequisiteError, StackError

JAVA_MAJOR_MIN = 17

_HERE = Path(__file__).parent
_POM = _HERE / "pom.xml"
_LOCK = _HERE / "jars.lock"
_MAVEN_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Jars:
    """Where the programs are."""

    java: str
    kafka_dir: Path
    s3proxy_jar: Path


def ensure_jars(home: Path) -> Jars:
    """Return the jars under `home`, fetching them the first time (seconds to minutes, about 110 MB).

    Raises:
        MissingPrerequisiteError: no fitting Java, or jars to fetch and no Maven.
        StackError: Maven failed, or what it brought is not what jars.lock says.
    """
    java = require_java()
    stamped = home / hashlib.sha256(_POM.read_bytes() + _LOCK.read_bytes()).hexdigest()[:12]
    if not stamped.is_dir():
        _fetch(home, stamped)
    return Jars(
        java=java,
        kafka_dir=stamped / "kafka",
        s3proxy_jar=next((stamped / "s3proxy").glob("s3proxy-*.jar")),
    )


def require_java() -> str:
    """Return the `java` to use (of JAVA_HOME, else of PATH), if it is new enough.

    Raises:
        MissingPrerequisiteError: there is none, or it is too old; the message says what to do.
    """
    remedy = f"Install a JDK {JAVA_MAJOR_MIN} or newer (Debian: openjdk-17-jdk-headless) or set JAVA_HOME to one."
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(java_home, "bin", "java")) if java_home else "java")
    if java is None:
        where = f"under JAVA_HOME={java_home}" if java_home else "on the PATH"
        raise MissingPrerequisiteError(f"No `java` was found {where}. {remedy}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        found = answer.stderr.strip().partition("\n")[0] or "no version"
        raise MissingPrerequisiteError(f"{java} is too old: it says {found}. {remedy}")
    return java


def write_lock(home: Path) -> Path:
    """Fetch what pom.xml names and write its digests to jars.lock; needed after a change of pom.xml."""
    require_java()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="fetch-") as fetched:
        _run_maven(Path(fetched))
        _LOCK.write_text(_digests(Path(fetched)), encoding="utf-8")
    return _LOCK


def _fetch(home: Path, stamped: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="fetch-", ignore_cleanup_errors=True) as scratch:
        fetched = Path(scratch, "jars")
        _run_maven(fetched)
        _check(fetched)
        try:
            fetched.rename(stamped)
        except OSError:
            # Another process did the same and was faster; its directory passed the same check.
            if not stamped.is_dir():
                raise


def _run_maven(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPrerequisiteError(
            "No `mvn` was found on the PATH; it fetches the jars, once. Install Maven (Debian: maven)."
        )
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "-Dstyle.color=never",
        f"--file={_POM}",
        f"-Djars.home={target.resolve()}",
    ]
    try:
        run = subprocess.run(
            [*command, "generate-resources"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAVEN_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"Maven did not fetch the jars in {_MAVEN_TIMEOUT_S} s; is the network slow?") from error
    if run.returncode != 0:
        last_lines = "\n".join((run.stdout + run.stderr).strip().splitlines()[-8:])
        raise StackError(f"Maven could not fetch the jars (this needs the network, once):\n{last_lines}")


def _check(fetched: Path) -> None:
    expected, found = _LOCK.read_text(encoding="utf-8"), _digests(fetched)
    if found == expected:
        return
    differing = set(expected.splitlines()) ^ set(found.splitlines())
    names = ", ".join(sorted({line.split()[1] for line in differing}))
    raise StackError(f"Refused, because they differ from {_LOCK.name}: {names}.")


def _digests(directory: Path) -> str:
    """Return one line `sha256  kafka/name.jar` per jar, in the format of sha256sum."""
    jars = sorted(directory.glob("*/*.jar"))
    if not jars:
        raise StackError(f"Maven brought no jars to {directory}.")
    return "".join(f"{_sha256(jar)}  {jar.relative_to(directory).as_posix()}\n" for jar in jars)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
