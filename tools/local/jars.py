"""The jars that the local stack runs, and the Java that runs them; the jars are kept under .local, by `tools.maven`.

The directory is named after the digest of pom.xml and lock.
"""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.local.errors import MissingPrerequisiteError
from tools.maven import JarSet

JAVA_MAJOR_MIN = 17
_REPEATED = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")  # by `java -version`, before what it is asked for

_HERE = Path(__file__).parent
_JARS = JarSet(_HERE / "pom.xml", _HERE / "jars.lock", "Kafka and S3Proxy (107 MB)")


@dataclass(frozen=True, slots=True)
class Jars:
    """The places of the programs."""

    java: str
    kafka_dir: Path
    s3proxy_jar: Path
    compiles_fully: bool = False
    """Whether servers optimise hot code, as measurements need it.

    Without, they take half the CPU in their first minutes: 27 s instead of 50 for three brokers, 60 transactions and a
    restart.
    """

    @property
    def server(self) -> list[str]:
        """Begin of a server's command line."""
        return [self.java, "-XX:+UseSerialGC", *([] if self.compiles_fully else ["-XX:TieredStopAtLevel=1"])]


def ensure_jars(home: Path, *, compiles_fully: bool = False, kafka: str | None = None) -> Jars:
    """Return the jars under `home`; the first time it fetches them (seconds to minutes, 107 MB).

    `kafka` is another version of it, for which there is no lock.

    Raises:
        MissingPrerequisiteError: no fitting Java, or jars to fetch and no Maven.
        StackError: Maven failed, or its downloads differ from jars.lock.
    """
    java = require_java()
    stamp = hashlib.sha256(_JARS.pom.read_bytes() + _JARS.lock.read_bytes()).hexdigest()[:12]
    if kafka is None:
        stamped = _JARS.ensure(home / stamp)
    else:
        stamped = _JARS.ensure(home / f"{stamp}-kafka-{kafka}", properties={"kafka.version": kafka})
    return Jars(
        java=java,
        kafka_dir=stamped / "kafka",
        s3proxy_jar=next((stamped / "s3proxy").glob("s3proxy-*.jar")),
        compiles_fully=compiles_fully,
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
    told = version_of(java)
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        found = told.strip().partition("\n")[0] or "no version"
        raise MissingPrerequisiteError(f"{java} is too old: it says {found}. {remedy}")
    return java


@cache
def version_of(java: str) -> str:
    """Return the version text of a Java; asks it once."""
    environment = {name: value for name, value in os.environ.items() if name not in _REPEATED}
    return subprocess.run([java, "-version"], capture_output=True, text=True, env=environment, check=False).stderr


def write_lock() -> Path:
    """Fetch the jars of pom.xml and write their digests to jars.lock; needed after a change of pom.xml."""
    require_java()
    return _JARS.write_lock()
