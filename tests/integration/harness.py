"""A deployment of the worker for one test: topics, bucket, processes, and the audit as the judge.

Workers are real processes (`python -m log_partitioner run`) with short intervals; their logs are read as JSON lines.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException, Message

from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.flush_record import FlushRecord, decode_flushes, merge_parts
from log_partitioner.formats.reference import Reference, decode_references
from tests import canaries
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.processes import ServerProcess
from tools.local.s3 import S3Endpoint

ANY_TIMESTAMP = {"message.timestamp.after.max.ms": str(2**63 - 1)}  # as brokers before 4.0 have it
PROTOCOLS = ("cooperative-sticky", "consumer")
DRAIN_S = 90.0
EVENT_S = 120  # a machine may have three such tests at once, and more beside them
PUT_AWAY = (Reason.FATAL, Reason.SKIPPED)
_COORDINATOR_S = 30.0
# A broker keeps a fetch of nothing for half a second by default: most of what a short test or audit would take.
CLIENT_PROPERTIES = {"fetch.wait.max.ms": "50"}
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Report:
    """An audit's report and exit code."""

    exit_code: int
    text: str
    json: dict[str, Any]


class Deployment:
    """Everything of one test; a context manager that leaves no process behind."""

    program: Sequence[str] = ("-m", "log_partitioner")
    """The arguments with which Python becomes a worker."""

    def __init__(
        self,
        *,
        kafka: KafkaHelper,
        s3: S3Helper,
        names: Names,
        root: Path,
        partitions: int = 6,
        protocol: str = "cooperative-sticky",
        bootstrap_servers: str | None = None,
        endpoint: S3Endpoint | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.kafka = kafka
        self.s3 = s3
        self.root = root
        self.workers: dict[str, ServerProcess] = {}
        self.group = names.group()
        self.source = kafka.create_topic(names.topic("source"), partitions=partitions, config=ANY_TIMESTAMP)
        self.references_topic = kafka.create_topic(names.topic("references"), partitions=3)
        self.flushes_topic = kafka.create_topic(names.topic("flushes"), partitions=1)
        self.dead_letters_topic = kafka.create_topic(names.topic("dead"), partitions=1)
        self.bucket = s3.create_bucket(names.bucket())
        self._direct = {
            **_client_settings(kafka.bootstrap_servers, s3.endpoint),
            **self._settings(protocol),
            **(settings or {}),
        }
        self._disturbed = self._direct | _client_settings(
            bootstrap_servers or kafka.bootstrap_servers, endpoint or s3.endpoint
        )

    def _settings(self, protocol: str) -> dict[str, str]:
        return {
            "LOGP_KAFKA__GROUP_ID": self.group,
            "LOGP_KAFKA__GROUP_PROTOCOL": "consumer" if protocol == "consumer" else "classic",
            "LOGP_KAFKA__SOURCE_TOPICS": json.dumps([self.source]),
            "LOGP_KAFKA__REFERENCES_TOPIC": self.references_topic,
            "LOGP_KAFKA__FLUSHES_TOPIC": self.flushes_topic,
            "LOGP_KAFKA__DEAD_LETTERS_TOPIC": self.dead_letters_topic,
            "LOGP_KAFKA__CLIENT_PROPERTIES": json.dumps(CLIENT_PROPERTIES),
            "LOGP_KAFKA__SESSION_TIMEOUT_S": "6",
            "LOGP_DEAD_LETTERS__SHARE_MAX": "1",  # a test may begin with nothing but bad records
            "LOGP_FLUSH__INTERVAL_S": "2",
            "LOGP_FLUSH__BUDGET_S": "30",
            "LOGP_S3__BUCKET": self.bucket,
            "LOGP_HTTP__HOST": "127.0.0.1",
            "LOGP_HTTP__PORT": "0",
            "LOGP_LOG__FORMAT": "json",
            "LOGP_SPOOL__DIRECTORY": str(self.root / "spool"),
            "LOGP_TIME__PATHS": '["time", "timestamp", "@timestamp"]',
        }

    def settings(self, **settings: str) -> None:
        """Exchange settings of everything that is started from now on."""
        self._direct |= settings
        self._disturbed |= settings

    def environment(self, **settings: str) -> dict[str, str]:
        """The environment of a worker or a command, past any proxy; nothing of ours is taken over."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOGP_")}
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPOSITORY)]))  # also tests/no_native
        return {**inherited, **self._direct, "PYTHONPATH": path, **settings}

    # Workers.

    def start(self, name: str, *, inside: Sequence[str] = (), **settings: str) -> ServerProcess:
        """Start a worker, `inside` a command if one is given; a name may start again after its process has ended."""
        env = self.environment() | self._disturbed | {"LOGP_WORKER": name, **settings}
        command = [*inside, sys.executable, *self.program, "run"]
        process = ServerProcess(name, command, log=self.log_of(name), env=env)
        self.workers[name] = process
        return process

    def stop_all(self) -> dict[str, int | None]:
        """Ask all workers to stop, wait, and give their exit codes."""
        for process in self.workers.values():
            process.terminate()
        for process in self.workers.values():
            process.wait(grace_s=60)
        return {name: process.exit_code for name, process in self.workers.items()}

    def log_of(self, name: str) -> Path:
        """Give the file that a worker writes to."""
        return self.root / "logs" / f"{name}.log"

    def events(self, *names: str) -> list[dict[str, Any]]:
        """All events of the workers named, or of all."""
        found = []
        for name in names or tuple(self.workers):
            for line in self.log_of(name).read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # a line cut by SIGKILL
                    found += [json.loads(line)] if line.startswith("{") else []
        return found

    def count(self, event: str, *names: str) -> int:
        """How often an event happened."""
        return Counter(found["event"] for found in self.events(*names))[event]

    def require_event(
        self, event: str, *names: str, times: int = 1, timeout_s: float = EVENT_S, **fields: Any
    ) -> list[dict[str, Any]]:
        """Wait until an event with these fields has happened so often; gives all of them."""
        found: list[dict[str, Any]] = []

        def has_happened() -> bool:
            found[:] = [
                one
                for one in self.events(*names)
                if one["event"] == event and all(one.get(name) == value for name, value in fields.items())
            ]
            return len(found) >= times

        what = f"{times} x {event} {fields or ''} of {', '.join(names) or 'any worker'}"
        self.kafka.wait_for(what, has_happened, timeout_s=timeout_s)
        return found

    def exit_code(self, name: str, *, within_s: float = 60) -> int | None:
        """Wait for a worker to end by itself, and give its exit code; it is killed (-9) when the time is over."""
        self.workers[name].wait(grace_s=within_s)
        return self.workers[name].exit_code

    def complaints(self, name: str) -> list[str]:
        """Give the lines of a worker that are no events: an operator sees them on standard error."""
        return [line for line in self.log_of(name).read_text().splitlines() if line and not line.startswith("{")]

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Ask a worker's HTTP port; status 0 if it does not listen yet."""
        started = [event for event in self.events(name) if event["event"] == "worker_started"]
        if not started:
            return 0, ""
        url = f"http://127.0.0.1:{started[-1]['http_port']}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, metric: str) -> float:
        """Sum of a metric over its labels; 0 if the worker does not report it yet."""
        lines = self.get(name, "/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"log_partitioner_{metric}"))

    def wait_metric(self, name: str, metric: str, value: float) -> None:
        """Wait until a metric has a value."""
        self.kafka.wait_for(
            f"{metric} of {name} = {value}", lambda: self.metric(name, metric) == value, timeout_s=EVENT_S
        )

    # Progress.

    def rewinds(self, *names: str) -> list[tuple[int, int]]:
        """Give the offsets at which TopicPartitions were read again, with the first offset of their batch."""
        positioned = (event for event in self.events(*names) if event["event"] == "positioned")
        starts = [start for event in positioned for start in event["starts"].values()]
        return [(offset, first) for offset, _, first in starts if first is not None]

    def committed_offsets(self) -> dict[int, int]:
        """Committed offsets by partition; asks again while the coordinator moves."""
        deadline = time.monotonic() + _COORDINATOR_S
        while True:
            try:
                return self.kafka.committed_offsets(self.group, self.source)
            except (KafkaException, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def require_nobody_failed(self) -> None:
        """Fail at once if all workers have ended and one did so by itself: nothing will change any more."""
        ended = [one for one in self.workers.values() if not one.is_alive()]
        for one in ended:
            if len(ended) == len(self.workers) and one.exit_code not in (0, -9):
                raise AssertionError(f"{one.name} ended with {one.exit_code}:\n{one.last_lines()}")

    def committed(self) -> int:
        """Sum of the committed offsets."""
        return sum(self.committed_offsets().values())

    def wait_drained(self, written: Iterable[tuple[int, int]], *, timeout_s: float = DRAIN_S) -> None:
        """Wait until every record written, as (partition, offset), is below the committed offsets."""
        last: dict[int, int] = {}
        for partition, offset in written:
            last[partition] = max(offset, last.get(partition, -1))

        def is_drained() -> bool:
            self.require_nobody_failed()
            committed = self.committed_offsets()
            return all(committed.get(partition, 0) > offset for partition, offset in last.items())

        self.kafka.wait_for(f"commit past {last}", is_drained, timeout_s=timeout_s)

    # Output.

    def references(self) -> list[Reference]:
        """All committed references, in the order of their messages and lines."""
        messages = self.kafka.read_committed(self.references_topic)
        return [reference for message in messages for reference in decode_references(_value(message))]

    def flush_records(self) -> list[FlushRecord]:
        """All committed flush records, their parts together; without adoptions."""
        found = [decode_flushes(_value(message)) for message in self.kafka.read_committed(self.flushes_topic)]
        whole, problems = merge_parts(one for one in found if isinstance(one, FlushRecord))
        assert not problems, problems
        return whole

    def dead_letters(self) -> list[Message]:
        """All committed dead letters."""
        return self.kafka.read_committed(self.dead_letters_topic)

    def run(self, *arguments: str, **settings: str) -> tuple[int, str]:
        """Run a command of the product as its own process, past any proxy; gives its exit code and what it wrote."""
        command, env = [sys.executable, "-m", "log_partitioner", *arguments], self.environment(**settings)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
        return done.returncode, done.stdout + done.stderr

    def skip(self, *, partition: int, first: int) -> tuple[int, str]:
        """Skip the unreadable offsets from `first` on; the command's output lies beside the workers' logs."""
        where = ["--topic", self.source, "--partition", str(partition), "--from", str(first)]
        code, text = self.run("offsets", "skip", *where, "--yes")
        (self.root / "logs" / "offsets.log").write_text(text)
        return code, text

    def logs(self) -> list[Path]:
        """Give the logs of all workers, and of what was skipped."""
        return sorted((self.root / "logs").glob("*.log"))

    def audit(self, *arguments: str) -> Report:
        """Run the audit as its own process, past any proxy."""
        file = self.root / "audit.json"
        command = [sys.executable, "-m", "log_partitioner", "audit", "--json", str(file), *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=240, check=False)
        report = json.loads(file.read_text()) if file.exists() else {}
        return Report(done.returncode, done.stdout + done.stderr, report)

    def require_clean(self, *, put_away: Mapping[str, int] | None = None) -> Report:
        """Run the audit and fail with its report unless it is clean and complete.

        To the audit what a worker has put away is rightly dead: it is none, or what the test expects by reason.
        """
        report = self.audit("--require-caught-up")
        assert report.exit_code == 0, report.text
        letters = report.json["dead_letters"]
        assert {reason: letters[reason] for reason in PUT_AWAY if reason in letters} == (put_away or {}), report.text
        return report

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs; no log shows a user or a secret (I11)."""
        for process in self.workers.values():
            process.kill()
        for name in self.workers:
            log = self.log_of(name)
            output = log.read_text() if log.exists() else ""  # some tests put it away
            assert canaries.found_in(output) is None, f"I11: {name} has written {canaries.found_in(output)}"
            assert self.s3.endpoint.secret_key not in output, f"I11: {name} has written its secret key"


Deploy = Callable[..., Deployment]
"""Makes a deployment; takes the arguments of `Deployment` that no fixture gives."""


def _client_settings(bootstrap_servers: str, endpoint: S3Endpoint) -> dict[str, str]:
    return {"LOGP_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers, **endpoint.variables()}


def _value(message: Message) -> bytes:
    value = message.value()
    assert value is not None, "references and flush records have values"
    return value
