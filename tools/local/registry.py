"""A schema registry (Apicurio, which speaks Confluent's API, too) as a local process; its schemas live as long as it.

Its jars have a lock list of their own, because only tests of the registry need them: `python -m tools.local.registry`
writes it after a change of registry.pom.xml.
"""

import hashlib
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.local.jars import require_java
from tools.local.ports import LOOPBACK, find_free_ports
from tools.local.processes import ServerProcess
from tools.maven import JarSet

_HERE = Path(__file__).parent
_JARS = JarSet(_HERE / "registry.pom.xml", _HERE / "registry.lock", "Apicurio (142 MB)")
CONFLUENTS, APICURIOS = "/apis/ccompat/v7", "/apis/registry/v2"
"""Paths of its two APIs."""

_ANSWER_S = 30
_READY_LINE = "Listening on:"
_READY_TIMEOUT_S = 300


def ensure_registry(home: Path) -> Path:
    """Return the registry's jar under `home`; the first time it fetches 142 MB.

    Raises:
        MissingPrerequisiteError, StackError: as `ensure_jars`.
    """
    digest = hashlib.sha256(_JARS.pom.read_bytes() + _JARS.lock.read_bytes()).hexdigest()[:12]
    return next(_JARS.ensure(home / f"registry-{digest}").glob("*-runner.jar"))


class RegistryServer:
    """The registry on 127.0.0.1, ready when entered (12-20 s); a context manager that leaves no process behind."""

    def __init__(self, *, jar: Path, root: Path) -> None:
        self.port = find_free_ports(1)[0]
        self.address = f"http://{LOOPBACK}:{self.port}"
        self._jar = jar
        self._log = root / "registry.log"
        self._server: ServerProcess | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            ProcessDiedError: it ended or was not ready in time; none is left running.
        """
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        places = [f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}"]
        command = [require_java(), *options, *places, "-jar", str(self._jar)]
        self._server = ServerProcess("the schema registry", command, log=self._log)
        try:
            self._server.wait_for_line(_READY_LINE, timeout_s=_READY_TIMEOUT_S)
        except BaseException:
            self._server.kill()
            raise
        return self

    def register(self, subject: str, text: str, *, kind: str = "AVRO", references: Sequence[object] = ()) -> int:
        """Add a schema as a producer does; returns its id."""
        body = json.dumps({"schema": text, "schemaType": kind, "references": [*references]}).encode()
        url = f"{self.address}{CONFLUENTS}/subjects/{subject}/versions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - it is ours
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            return int(json.load(answer)["id"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it."""
        if self._server is not None:
            self._server.kill()


if __name__ == "__main__":
    print(_JARS.write_lock())
