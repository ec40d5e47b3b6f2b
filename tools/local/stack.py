"""The stack of `make up`: started here, recorded in stack.json, found and stopped by a later run.

Owns `.local/stack` (data, logs) and `.local/stack.json` (pids, addresses, credentials; mode 0600).
Data outlive `down`; a stale record (after a reboot) does no harm.
"""

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Self

from tools.local.jars import ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.ports import require_free
from tools.local.processes import ProcessRecord
from tools.local.s3 import S3Endpoint, S3Server
from tools.local.topics import create_bucket, create_topics

_STOP_GRACE_S = 15


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options of `up`."""

    kafka_port: int = 9092
    s3_port: int = 9000
    brokers: Literal[1, 3] = 1
    source: str = "logs"
    partitions: int = 6
    bucket: str = "log-partitioner"

    @property
    def kafka_ports(self) -> list[int]:
        """One port per broker, counted up from the first."""
        return list(range(self.kafka_port, self.kafka_port + self.brokers))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running stack, as stack.json has it."""

    bootstrap_servers: str
    s3: S3Endpoint
    source: str
    bucket: str
    directory: str
    processes: tuple[ProcessRecord, ...]

    def is_running(self) -> bool:
        """Say whether all of its processes run."""
        return all(process.is_running() for process in self.processes)

    def encode(self) -> str:
        """Return the JSON of stack.json, credentials included."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the stack that `encode` wrote."""
        fields = json.loads(text)
        fields["s3"] = S3Endpoint(**fields["s3"])
        fields["processes"] = tuple(ProcessRecord(**process) for process in fields["processes"])
        return cls(**fields)


class StackHome:
    """The directory of the one stack that `make up` starts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._record = home / "stack.json"
        self._data = home / "stack"

    def load(self) -> Stack | None:
        """Return the recorded stack, running or not."""
        try:
            return Stack.parse(self._record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def up(self, options: StackOptions) -> tuple[Stack, bool]:
        """Start the servers that are not running; return the stack, and whether it was started now.

        A stack that runs keeps its ports, brokers and bucket, and gets the source topic.

        Raises:
            StackError: a port is taken, a program is missing, a server did not start. Nothing then runs.
        """
        with self._exclusive():
            stack = self.load()
            if stack is not None and stack.is_running():
                _create_topics(stack.bootstrap_servers, options)
                stack = dataclasses.replace(stack, source=options.source)
                self._write(stack)
                return stack, False
            self._stop_recorded()  # one of its processes may have died alone
            for port in options.kafka_ports:
                require_free(port, wanted_by="Kafka", remedy=_remedy("--kafka-port"))
            require_free(options.s3_port, wanted_by="S3", remedy=_remedy("--s3-port"))
            return self._start(options), True

    def down(self, *, wipe: bool = False) -> int:
        """Stop the recorded processes and return their number; with `wipe` remove the data."""
        with self._exclusive():
            stopped = self._stop_recorded()
            if wipe:
                shutil.rmtree(self._data, ignore_errors=True)
            return stopped

    def _start(self, options: StackOptions) -> Stack:
        jars = ensure_jars(self.home / "jars")
        with ExitStack() as started:
            s3 = started.enter_context(S3Server(jars=jars, root=self._data / "s3", port=options.s3_port, leashed=False))
            kafka = started.enter_context(
                KafkaCluster(
                    jars=jars,
                    # A cluster's nodes share an id: three brokers are another cluster than one.
                    root=self._data / f"kafka-{options.brokers}",
                    brokers=options.brokers,
                    ports=options.kafka_ports,
                    leashed=False,
                )
            )
            _create_topics(kafka.bootstrap_servers, options)
            create_bucket(s3.endpoint, options.bucket)
            stack = Stack(
                bootstrap_servers=kafka.bootstrap_servers,
                s3=s3.endpoint,
                source=options.source,
                bucket=options.bucket,
                directory=str(self._data),
                processes=tuple(server.release() for server in (*kafka.processes, s3.process)),
            )
            self._write(stack)
            started.pop_all()  # from here on they live until `down`
        return stack

    def _stop_recorded(self) -> int:
        stack = self.load()
        if stack is None:
            return 0
        stopped = sum(process.stop(grace_s=_STOP_GRACE_S) for process in stack.processes)
        self._record.unlink()
        return stopped

    def _write(self, stack: Stack) -> None:
        scratch = self._record.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(stack.encode())
        scratch.replace(self._record)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let one `up` or `down` at a time work here."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "stack.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _create_topics(servers: str, options: StackOptions) -> None:
    brokers = len(servers.split(","))
    create_topics(servers, source=options.source, partitions=options.partitions, replication=brokers)


def _remedy(option: str) -> str:
    return f"stop what listens there or choose another with {option}"


def environment_of(stack: Stack) -> dict[str, str]:
    """Return the environment that points a worker and the jobs at the stack; the names are those of their settings."""
    return {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": stack.bootstrap_servers,
        "LOGP_KAFKA__SOURCE_TOPICS": stack.source,
        **stack.s3.variables(stack.bucket),
        "LOGP_HTTP__HOST": "127.0.0.1",
        "PIPELINE_CATALOG__URI": str(Path(stack.directory) / "catalog.db"),  # tables go with the data that they are of
    }
