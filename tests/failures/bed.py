"""The bed of one failure: brokers, a store, workers that are started again as a kubelet does, a Prometheus.

The Prometheus has the chart's rules. Their windows and `for` are divided by FACTOR, and so are its interval, a flush's
and the pauses between two starts of a process; nothing else of the rules is changed.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tests.deployment.tools import RULES
from tests.integration.harness import Deployment
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.prometheus import Prometheus
from tests.stack.providers import jars
from tests.stack.s3_helper import S3Helper
from tools.local.kafka import KafkaCluster
from tools.local.ports import find_free_ports
from tools.local.processes import ServerProcess
from tools.local.s3 import S3Server

FACTOR = 12
SCRAPED_S = 30 / FACTOR
PARTITIONS = 2
RECORDS, TICK_S = 20, 0.5
# Interval and budget are as one to four, as by default: pauses after failures are up to a quarter of the budget.
SETTINGS = {"LOGP_FLUSH__INTERVAL_S": "5", "LOGP_FLUSH__BUDGET_S": "20", "LOGP_DEAD_LETTERS__SHARE_MAX": "0.99"}
_PAUSE_S, _PAUSE_MAX_S = 10 / FACTOR, 300 / FACTOR
_STEADY_S = 600 / FACTOR
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<=for: )(\d+)([smhd])\b|(?<=\[)(\d+)([smhd])(?=])")


def in_less_time(rules: str) -> str:
    """Divide windows and `for` of rules by FACTOR."""

    def divided(found: re.Match[str]) -> str:
        number, unit = found[1] or found[3], found[2] or found[4]
        return f"{round(int(number) * _UNIT_S[unit] * 1000 / FACTOR)}ms"

    return _DURATION.sub(divided, rules)


class Kept:
    """A process that is started again when it has ended, after pauses that double."""

    def __init__(self, start: Callable[[], ServerProcess]) -> None:
        self._start = start
        self._pause_s = _PAUSE_S
        self._ended_at: float | None = None
        self._begin()

    def _begin(self) -> None:
        self.process, self._begun_at, self._ended_at = self._start(), time.monotonic(), None

    def tend(self) -> None:
        """Start it if it has ended and its pause is over."""
        now = time.monotonic()
        if self.process.is_alive():
            return
        if self._ended_at is None:
            self._ended_at = now
            if now - self._begun_at > _STEADY_S:
                self._pause_s = _PAUSE_S
        elif now - self._ended_at >= self._pause_s:
            self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
            self._begin()


class Bed:
    """One failure's deployment; records flow to it whenever something is waited for."""

    def __init__(
        self,
        deployment: Deployment,
        prometheus: Prometheus,
        *,
        kafka: KafkaCluster,
        s3: S3Server,
        names: Names,
        prepared: int,
    ) -> None:
        self.deployment = deployment
        self.prometheus = prometheus
        self.kafka, self.s3 = kafka, s3
        self.names = names
        self.prepared = prepared
        self.written: list[tuple[int, int]] = []
        self.entry: Callable[[int], dict[str, object]] | None = good
        """Makes the next record of its number; none flow without it."""
        self._kept: dict[str, Kept] = {}
        self._ports: dict[str, tuple[str, int]] = {}
        self._tick_at = time.monotonic()
        self._watched: dict[str, int] = {}
        self._watched_at = 0.0

    # Processes.

    def port(self, name: str, job: str = "workers") -> str:
        """Return the port that a process of this name has for its metrics, which are scraped from now on."""
        if name not in self._ports:
            self._ports[name] = job, find_free_ports(1)[0]
            self._scrape()
        return str(self._ports[name][1])

    def _scrape(self) -> None:
        targets: dict[str, list[int]] = {}
        for job, port in self._ports.values():
            targets.setdefault(job, []).append(port)
        self.prometheus.scrape(targets)

    def worker(self, name: str = "w1", *, inside: Sequence[str] = (), **settings: str) -> None:
        """Keep a worker running; one of this name is stopped first."""
        self.stop(name)
        port = self.port(name)
        self._kept[name] = Kept(lambda: self.deployment.start(name, inside=inside, LOGP_HTTP__PORT=port, **settings))

    def pipeline_environment(self) -> dict[str, str]:
        """The environment of a job of the pipeline."""
        from tests.pipeline.conftest import pipeline_variables  # noqa: PLC0415 - needs Spark
        from tools.demo.options import temporary_files  # noqa: PLC0415

        root = self.deployment.root
        return self.deployment.environment() | pipeline_variables(root) | temporary_files(root / "tmp")

    def job(self, name: str, *arguments: str) -> None:
        """Keep a job of the pipeline running that goes on."""
        variable = f"PIPELINE_{name.upper()}__METRICS_PORT"
        env = self.pipeline_environment() | {variable: self.port(name, "pipeline")}
        command = [sys.executable, "-m", "log_partitioner_pipeline", name, *arguments]
        self._kept[name] = Kept(lambda: ServerProcess(name, command, log=self.deployment.log_of(name), env=env))

    def stop(self, *names: str) -> None:
        """Stop these processes, if they run, and start them no more."""
        for process in [self._kept.pop(name).process for name in names if name in self._kept]:
            process.terminate()
            process.wait(grace_s=60)

    def kill(self) -> None:
        """Kill what runs."""
        for one in self._kept.values():
            one.process.kill()

    def forget(self, name: str) -> None:
        """Stop a worker, and scrape it no more."""
        self.stop(name)
        del self._ports[name]
        self._scrape()

    def process(self, name: str = "w1") -> ServerProcess:
        """Return the newest process of a name."""
        return self._kept[name].process

    def last_lines(self, name: str) -> str:
        """Return the end of what the last process that has ended wrote, as `kubectl logs --previous` does."""
        log, process = self.deployment.log_of(name).read_bytes(), self.process(name)
        ended = log[: process._log_start] if process.is_alive() else log
        return "\n".join(ended.decode().splitlines()[-5:])

    # Time.

    def wait(self, what: str, is_so: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait, while records flow and processes are started again."""
        begun = time.monotonic()
        while not is_so():
            if time.monotonic() - begun > timeout_s:
                raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}; firing: {self.firing()}")
            for one in self._kept.values():
                one.tend()
            self._flow()
            self._note()
            time.sleep(max(0.0, self._tick_at + TICK_S - time.monotonic()))
            self._tick_at = time.monotonic()

    def rest(self, seconds: float) -> None:
        """Let so much time pass."""
        until = time.monotonic() + seconds
        self.wait("time", lambda: time.monotonic() >= until, timeout_s=2 * seconds + 60)

    def watch(self) -> dict[str, int]:
        """Note from now on which alert fires after how many seconds, here."""
        self._watched, self._watched_at = {}, time.monotonic()
        return self._watched

    def _note(self) -> None:
        for alert in self.firing():
            self._watched.setdefault(alert, round(time.monotonic() - self._watched_at))

    def _flow(self) -> None:
        if self.entry is None:
            return
        first = len(self.written)
        values = [json.dumps(self.entry(number)).encode() for number in range(first, first + RECORDS)]
        records = [ToProduce(value=value, partition=number % PARTITIONS) for number, value in enumerate(values)]
        self.written += self.deployment.kafka.produce(self.deployment.source, records)

    def firing(self) -> set[str]:
        """Return the alerts that fire, without the product's name."""
        alerts = (one for one in self.prometheus.alerts() if one["state"] == "firing")
        return {one["labels"]["alertname"].removeprefix("LogPartitioner") for one in alerts}

    def is_steady(self) -> bool:
        """Say whether workers are ready and have committed, and jobs had a result, as far as Prometheus knows."""
        ready = self.prometheus.ask("log_partitioner_ready == 1")
        is_flowing = 0 if self.entry is None else 1
        committed = self.prometheus.ask(f"log_partitioner_last_commit_timestamp_seconds >= {is_flowing}")
        jobs = self.prometheus.ask("{__name__=~'log_partitioner_(table_caught_up|audit)_timestamp_seconds'}")
        return len(self._kept) == len(ready) + len(jobs) == len(committed) + len(jobs) and not self.firing()

    def audit(self) -> dict[str, Any]:
        """Drain, stop everything, and give what the small audit says."""
        self.entry = None
        written = dict(sorted(self.written))
        self.wait(
            "a drain",
            lambda: all(self.deployment.committed_offsets().get(at, 0) > last for at, last in written.items()),
            timeout_s=600,
        )
        self.stop(*self._kept)
        report = self.deployment.audit("--require-caught-up").json
        return {"verdict": report["verdict"], "findings": report["findings"], "counts": report["counts"]}


def good(number: int) -> dict[str, object]:
    """Make an entry as all settings here expect it."""
    return {"user": f"user-{number % 5}", "time": datetime.now(UTC).isoformat(), "n": number}


Prepare = Callable[[KafkaCluster, KafkaHelper, Names], int]
"""Makes topics before the deployment does; gives what `Bed.prepared` is."""


@contextmanager
def running_bed(root: Path, name: str, prepare: Prepare, *, brokers: Literal[1, 3]) -> Iterator[Bed]:
    """Start servers, and a deployment without workers."""
    names = Names(name)
    with ExitStack() as running:
        s3 = running.enter_context(S3Server(jars=jars(), root=root / "s3"))
        kafka = running.enter_context(KafkaCluster(jars=jars(), root=root / "kafka", brokers=brokers))
        helper = KafkaHelper(kafka.direct_bootstrap_servers, provider="local process", replication=brokers)
        prepared = prepare(kafka, helper, names)
        deployment = running.enter_context(
            Deployment(
                kafka=helper,
                s3=S3Helper(s3.endpoint, provider="local process"),
                names=names,
                root=root,
                partitions=PARTITIONS,
                settings=SETTINGS,
            )
        )
        prometheus = Prometheus(
            root / "prometheus", {}, rules=in_less_time(RULES.read_text()), interval=f"{SCRAPED_S * 1000:.0f}ms"
        )
        running.callback(prometheus.process.kill)
        bed = Bed(deployment, prometheus, kafka=kafka, s3=s3, names=names, prepared=prepared)
        running.callback(bed.kill)
        yield bed
