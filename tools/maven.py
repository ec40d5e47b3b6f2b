"""Jars from Maven: fetched once, checked against a lock list, kept in a directory of their own.

The directory appears by one rename after the check: if it is there, it is complete and right, and neither the
network, nor Maven, nor its repository is needed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.local.errors import MissingPrerequisiteError, StackError

_MAVEN_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class JarSet:
    """A pom that copies jars to `jars.home`, and the list of their digests (one `sha256  path` a line)."""

    pom: Path
    lock: Path
    what: str = "jars"
    """How they are called while they are fetched, with their size."""

    def ensure(self, target: Path, *, properties: Mapping[str, str] | None = None) -> Path:
        """Return `target`, filled; the first time it fetches the jars (seconds to minutes).

        `properties` replace the pom's; jars that come by them are in no list: the repository's checksums have to do.

        Raises:
            MissingPrerequisiteError: there is something to fetch and no Maven.
            StackError: Maven failed, or its downloads differ from the lock list.
        """
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        turn = os.open(target.parent, os.O_RDONLY)
        try:
            fcntl.flock(
                turn, fcntl.LOCK_EX
            )  # processes that begin together would spoil Maven's repository for each other
            if not target.is_dir():
                self._fetch(target, properties)
        finally:
            os.close(turn)
        return target

    def _fetch(self, target: Path, properties: Mapping[str, str] | None) -> None:
        print(f"Fetching {self.what} with Maven, once: a minute or two.", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-", ignore_cleanup_errors=True) as scratch:
            fetched = Path(scratch, "jars")
            if properties is None:
                self._run_maven(fetched)
                self._check(fetched)
            else:
                self._run_maven(fetched, "--strict-checksums", *(f"-D{name}={properties[name]}" for name in properties))
            fetched.rename(target)

    def write_lock(self) -> Path:
        """Fetch the jars of the pom and write their digests; needed after a change of the pom."""
        with tempfile.TemporaryDirectory() as fetched:
            self._run_maven(Path(fetched))
            self.lock.write_text(_digests(Path(fetched)), encoding="utf-8")
        return self.lock

    def _run_maven(self, target: Path, *options: str) -> None:
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
            f"--file={self.pom}",
            f"-Djars.home={target.resolve()}",
            *options,
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

    def _check(self, fetched: Path) -> None:
        expected, found = self.lock.read_text(encoding="utf-8"), _digests(fetched)
        if found == expected:
            return
        differing = set(expected.splitlines()) ^ set(found.splitlines())
        names = ", ".join(sorted({line.split()[1] for line in differing}))
        raise StackError(f"Refused, because they differ from {self.lock.name}: {names}.")


def _digests(directory: Path) -> str:
    """Return one line `sha256  path.jar` per jar, in the format of sha256sum."""
    jars = sorted(directory.rglob("*.jar"))
    if not jars:
        raise StackError(f"Maven brought no jars to {directory}.")
    return "".join(f"{_sha256(jar)}  {jar.relative_to(directory).as_posix()}\n" for jar in jars)


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
