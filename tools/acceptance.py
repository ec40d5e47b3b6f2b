"""`python -m tools.acceptance --image NAME:TAG ...`: the chart on a real Kubernetes, under load, from install to audit.

Kafka, S3 and the source run here, as local processes that pods reach at `--host`: a forward must lead from there to
127.0.0.1 of this machine, as kind, minikube or a bridge of your own give it. The cluster is that of KUBECONFIG, and its
nodes hold the images. The namespace `--namespace` is made and removed. Each step prints a line of JSON: its name, its
seconds, and what was seen. The last step is the independent audit, from outside the cluster.

Exit code: 0 if all that was expected was seen, else 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tools.demo.environment import own_variables
from tools.demo.generate import generate
from tools.demo.settings import GeneratorSettings, Rates
from tools.demo.source import SourceThread
from tools.demo.writer import ProduceSettings
from tools.local.jars import ensure_jars
from tools.local.kafka import KafkaCluster
from tools.local.ports import find_free_ports
from tools.local.s3 import S3Server
from tools.local.topics import create_bucket, create_topics

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "log-partitioner"
RELEASE, SOURCE, BUCKET = "logs", "app-logs", "logs"
PODS = "app.kubernetes.io/name=log-partitioner,app.kubernetes.io/instance=logs"
SECRET = "store"  # noqa: S105 - a name
WORKERS = 3
TOPIC_PARTITIONS = 12
GROUP = "log-partitioner"  # of the version before, whose names the next one must be told
NAMES = {
    "kafka": {
        "group_id": GROUP,
        "references_topic": "references",
        "flushes_topic": "flushes",
        "dead_letters_topic": "dead-letters",
        "backfills_topic": "backfills",
    },
    "s3": {"prefix": "logs"},
}
# Pods of a test node: a worker of 1,000 entries/s takes a fraction of what the defaults ask for.
SMALL = {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}}
Values = dict[str, Any]


class Unexpected(Exception):  # noqa: N818 - something was seen that should not be; no error of this program
    """A step did not show what it should."""


class Cluster:
    """A namespace of the cluster, by helm and kubectl."""

    def __init__(self, namespace: str, directory: Path) -> None:
        self._namespace = namespace
        self._directory = directory
        self._helm = shutil.which("helm", path=f"{ROOT / '.local' / 'bin'}{os.pathsep}{os.environ['PATH']}") or "helm"

    def run(self, program: str, *arguments: str, may_fail: bool = False) -> str:
        """Run a program; return what it wrote to both streams.

        Raises:
            Unexpected: it failed, and may not.
        """
        command = [self._helm if program == "helm" else program, "--namespace", self._namespace, *arguments]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=1200
        )
        if done.returncode and not may_fail:
            raise Unexpected(f"{' '.join(command[3:7])}: exit {done.returncode}: {done.stdout.strip()[-1500:]}")
        return done.stdout

    def kubectl(self, *arguments: str, may_fail: bool = False) -> str:
        """Run kubectl."""
        return self.run("kubectl", *arguments, may_fail=may_fail)

    def upgrade(self, chart: Path, *values: Values, wait_s: int = 600, may_fail: bool = False) -> str:
        """Install or upgrade the release; values in front give way to those behind."""
        files = []
        for number, value in enumerate(values):
            file = self._directory / f"values-{number}.json"
            file.write_text(json.dumps(value), encoding="utf-8")
            files += ["--values", str(file)]
        waiting = ["--wait", f"--timeout={wait_s}s"]
        return self.run("helm", "upgrade", "--install", RELEASE, str(chart), *files, *waiting, may_fail=may_fail)

    def statefulset(self) -> str:
        """Return the name of the workers' StatefulSet, with its kind."""
        return self.kubectl("get", "statefulset", "--output=name").strip()

    def pods(self) -> list[dict[str, Any]]:
        """Return the workers' pods."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", f"--selector={PODS}", "--output=json"))[
            "items"
        ]
        return found

    def ready(self) -> int:
        """Count the workers that are ready."""
        return sum(
            condition["status"] == "True"
            for pod in self.pods()
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "Ready"
        )

    def await_rollout(self) -> None:
        """Wait until all workers are of the newest revision, and ready."""
        self.kubectl("rollout", "status", self.statefulset(), "--timeout=900s")

    def scale(self, workers: int) -> None:
        """Set the number of workers, and wait until they are ready and no other is there."""
        self.kubectl("scale", self.statefulset(), f"--replicas={workers}")
        self.await_rollout()
        wait_for(f"{workers} workers", lambda: len(self.pods()) == self.ready() == workers, 300)


def wait_for(what: str, is_so: Callable[[], bool], timeout_s: float) -> None:
    """Ask each half second.

    Raises:
        Unexpected: it never was.
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise Unexpected(f"waited {timeout_s:.0f} s in vain for: {what}")
        time.sleep(0.5)


def image_values(image: str) -> Values:
    """Return the chart's values for an image that the nodes hold."""
    repository, _, tag = image.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


class Acceptance:
    """The steps, in their order; each is a method that returns what it saw."""

    def __init__(self, options: argparse.Namespace, directory: Path, running: ExitStack) -> None:
        self.options = options
        self.cluster = Cluster(options.namespace, directory)
        self.directory = directory
        jars = ensure_jars(options.home / "jars")
        (port,) = find_free_ports(1)
        self.kafka = running.enter_context(
            KafkaCluster(jars=jars, root=directory / "kafka", ports=[port], advertised_host=options.host)
        )
        self.s3 = running.enter_context(S3Server(jars=jars, root=directory / "s3"))
        create_topics(f"127.0.0.1:{port}", source=SOURCE, partitions=TOPIC_PARTITIONS)
        create_bucket(self.s3.endpoint, BUCKET)
        self.bootstrap = f"{options.host}:{port}"
        self.store = f"http://{options.host}:{self.s3.port}"
        settings = GeneratorSettings(entries=100_000_000, rates=Rates(broken=0))  # each entry can be counted
        self.source = SourceThread(
            ProduceSettings(
                bootstrap=self.bootstrap, topic=SOURCE, entries_per_s=options.rate, transactional_share=0.05
            ),
            lambda: generate(settings.ending_at(time.time_ns() // 1_000_000)),
        )

    def values(self, image: str) -> Values:
        """Return the values of three workers of this image."""
        return {
            "replicaCount": WORKERS,
            "image": image_values(image),
            "config": {
                "kafka": {
                    "bootstrap_servers": self.bootstrap,
                    "source_topics": [SOURCE],
                    "group_protocol": self.options.protocol,
                },
                "s3": {"bucket": BUCKET, "endpoint_url": self.store},
                "dead_letters": {"share_max": 1},  # the generated source has some; the audit counts them
            },
            "secret": {"name": SECRET},
            **SMALL,
        }

    @property
    def now(self) -> Values:
        """Return the values of this version in place of the one before: they name its group, topics and prefix."""
        values = self.values(self.options.image)
        for section, names in NAMES.items():
            values["config"][section] |= names
        return values

    def make_secret(self) -> None:
        """Create namespace and Secret."""
        self.cluster.kubectl("create", "namespace", self.options.namespace)
        endpoint = self.s3.endpoint
        self.cluster.kubectl(
            *("create", "secret", "generic", SECRET),
            f"--from-literal=LOGP_S3__ACCESS_KEY={endpoint.access_key}",
            f"--from-literal=LOGP_S3__SECRET_KEY={endpoint.secret_key}",
            *(
                [f"--from-literal=PIPELINE_CATALOG__PASSWORD={self.options.catalog_password}"]
                if self.options.catalog
                else []
            ),
        )

    def generations(self) -> int:
        """Return how often the group has been put together anew, as the broker tells (with KIP-848: its epochs)."""
        log = (self.kafka.root / "broker-1" / "server.log").read_text(encoding="utf-8", errors="replace")
        found = re.findall(
            rf"Stabilized group {GROUP} generation (\d+)|GroupId {GROUP}\] Bumped group epoch to (\d+)", log
        )
        return max((int(generation or epoch) for generation, epoch in found), default=0)

    def await_workers(self) -> None:
        """Wait until all workers are ready."""
        wait_for(f"{WORKERS} ready workers", lambda: self.cluster.ready() == WORKERS, 600)

    def refused(self) -> dict[str, Any]:
        """Install without a value."""
        said = self.cluster.upgrade(CHART, {}, may_fail=True)
        if "config.kafka.bootstrap_servers is not set" not in said:
            raise Unexpected(said)
        return {"said": said.strip().splitlines()[-3:]}

    def before(self) -> dict[str, Any]:
        """Install the version before, three workers, and begin to write."""
        self.cluster.upgrade(self.options.before_chart, self.values(self.options.before_image))
        self.source.start()
        wait_for("entries of the version before", lambda: self.committed() > self.options.rate, 180)
        return {"ready": self.cluster.ready()}

    def installed(self) -> dict[str, Any]:
        """Install this version, and begin to write."""
        self.cluster.upgrade(CHART, self.now)
        self.source.start()
        return {"ready": self.cluster.ready()}

    def unnamed(self) -> dict[str, Any]:
        """Upgrade without the names that the release has."""
        said = self.cluster.upgrade(CHART, self.values(self.options.image), may_fail=True)
        if "would publish every record again" not in said:
            raise Unexpected(said)
        return {"said": said.strip().splitlines()[-1]}

    def upgraded(self) -> dict[str, Any]:
        """Roll from the version before to this one."""
        return self._rebalances(lambda: self.cluster.upgrade(CHART, self.now))

    def rolled(self) -> dict[str, Any]:
        """Replace four workers one by one."""
        self.cluster.scale(4)
        return self._rebalances(self._restart)

    def _restart(self) -> None:
        self.cluster.kubectl("rollout", "restart", self.cluster.statefulset())
        self.cluster.await_rollout()

    def _rebalances(self, change: Callable[[], object]) -> dict[str, Any]:
        generation = self.generations()
        change()
        return {"ready": self.cluster.ready(), "rebalances": self.generations() - generation}

    def scaled(self) -> dict[str, Any]:
        """One worker, three, one, three."""
        took = []
        for workers in (1, 3, 1, 3):
            begin = time.monotonic()
            self.cluster.scale(workers)
            took.append(f"to {workers} in {time.monotonic() - begin:.1f} s")
        return {"workers": ", ".join(took)}

    def drained(self) -> dict[str, Any]:
        """Drain the nodes as for maintenance: the budget lets one worker go, and no second until it is back."""
        nodes = self.cluster.kubectl("get", "nodes", "--output=name").split()
        said = ""
        try:
            for node in nodes:
                options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={PODS}", "--timeout=40s")
                said += self.cluster.kubectl("drain", node.removeprefix("node/"), *options, may_fail=True)
            left = self.cluster.ready()
        finally:
            for node in nodes:
                self.cluster.kubectl("uncordon", node.removeprefix("node/"))
        self.await_workers()
        if "violate the pod's disruption budget" not in said or left < WORKERS - 1:
            raise Unexpected(f"{left} workers left ready; {said[-800:]}")
        return {
            "evicted": len(re.findall(r"evicted$", said, re.MULTILINE)),
            "left_ready": left,
            "ready": self.cluster.ready(),
        }

    def killed(self) -> dict[str, Any]:
        """Remove a pod without notice."""
        self.cluster.kubectl("delete", "pod", self.cluster.pods()[0]["metadata"]["name"], "--force", "--grace-period=0")
        self.await_workers()
        return {"ready": self.cluster.ready()}

    def stopped(self, wrong: Values) -> dict[str, Any]:
        """Upgrade to settings that cannot work, look, and roll back: two of three good workers are never touched."""
        self.cluster.upgrade(CHART, self.now, wrong, wait_s=90, may_fail=True)
        said = self.cluster.kubectl("logs", f"--selector={PODS}", "--tail=3", "--prefix", may_fail=True)
        ready = self.cluster.ready()
        begin = time.monotonic()
        self.cluster.run("helm", "rollback", RELEASE, "--wait", "--timeout=600s", may_fail=True)
        self.cluster.await_rollout()
        self.await_workers()
        if ready < WORKERS - 1:
            raise Unexpected(f"only {ready} of {WORKERS} workers stayed ready")
        causes = re.findall(r'"message": "(bucket [^"]*)"', said)
        return {"stayed_ready": ready, "said": causes[-1:], "rolled_back_s": round(time.monotonic() - begin, 1)}

    def wrong_bucket(self) -> dict[str, Any]:
        """Roll towards a bucket that is not there."""
        return self.stopped({"config": {"s3": {"bucket": "nosuch"}}})

    def wrong_key(self) -> dict[str, Any]:
        """Roll towards a key that the store refuses."""
        return self.stopped({"extraEnv": [{"name": "LOGP_S3__SECRET_KEY", "value": "made-up"}]})

    def tested(self) -> dict[str, Any]:
        """Ask brokers, topics, rights and store by `helm test`."""
        said = self.cluster.run("helm", "test", RELEASE, "--logs", "--timeout=180s")
        return {"said": said.strip().splitlines()[-3:]}

    def caught_up(self) -> dict[str, Any]:
        """End the source and wait until all is committed."""
        self.source.stop()
        wait_for("the source", self.source.has_ended, 60)
        wait_for("all offsets", lambda: self.lag() == 0, 300)
        return {"entries": self.source.produced.entries, "records": self.source.produced.records}

    def jobs(self) -> dict[str, Any]:
        """Run each job of the pipeline once, as a Job of its CronJob."""
        pipeline = {
            "enabled": True,
            "image": image_values(self.options.pipeline_image),
            "config": {"catalog": {"type": "postgres", "uri": self.options.catalog, "user": self.options.catalog_user}},
            "resources": {"requests": {"cpu": "50m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
            "table": {"as": "CronJob", "suspend": True},
            "audit": {"suspend": True, "args": ["--table"]},
            "compact": {"suspend": True},
            "userActivity": {"enabled": True, "suspend": True},
        }
        self.cluster.upgrade(CHART, self.now, {"pipeline": pipeline})
        ended = {}
        for job in ("table", "audit", "compact", "user-activity", "command"):
            begin = time.monotonic()
            (cron,) = [
                name
                for name in self.cluster.kubectl("get", "cronjob", "--output=name").split()
                if name.endswith(f"-{job}")
            ]
            self.cluster.kubectl("create", "job", f"once-{job}", f"--from={cron}")
            wait_for(f"the job {job}", partial(self._has_ended, f"job/once-{job}"), 600)
            lines = self.cluster.kubectl("logs", f"job/once-{job}", "--tail=400").strip().splitlines()
            status = self._status_of(f"job/once-{job}")
            if not status.get("succeeded"):
                raise Unexpected(f"{job}: {status}: {lines[-15:]}")
            ended[job] = {"s": round(time.monotonic() - begin, 1), "said": lines[-1:]}
        return {"jobs": ended}

    def _has_ended(self, job: str) -> bool:
        status = self._status_of(job)
        return bool(status.get("succeeded") or status.get("failed"))

    def _status_of(self, job: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.cluster.kubectl("get", job, "--output=json"))["status"]
        return status

    def audited(self) -> dict[str, Any]:
        """Audit from outside the cluster: each entry of the source is in one reference or one dead letter."""
        file = self.directory / "audit.json"
        self._ask("audit", "--require-caught-up", "--json", str(file))
        report = json.loads(file.read_text(encoding="utf-8"))
        seen = {"verdict": report["verdict"], "produced": self.source.produced.entries, "counts": report["counts"]}
        if report["counts"]["source_entries"] != self.source.produced.entries:
            raise Unexpected(f"not what was written: {seen}")
        return seen

    def lag(self) -> int:
        """Return the records that no worker has committed."""
        return self._sum("lag")

    def committed(self) -> int:
        """Return the offsets that are committed."""
        return self._sum("committed")

    def _sum(self, column: str) -> int:
        return sum(row[column] or 0 for row in json.loads(self._ask("status", "--json"))["topic_partitions"])

    def _ask(self, *command: str) -> str:
        variables = own_variables() | {
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "LOGP_KAFKA__SOURCE_TOPICS": SOURCE,
            "LOGP_KAFKA__GROUP_ID": GROUP,
            "LOGP_S3__PREFIX": "logs",
            **self.s3.endpoint.variables(BUCKET),
        }
        command = (sys.executable, "-m", "log_partitioner", *command)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=3600)
        if done.returncode:
            raise Unexpected(f"{command[3:]}: exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        return done.stdout


@contextmanager
def _step(run: str, name: str, record: Path | None) -> Iterator[dict[str, Any]]:
    seen: dict[str, Any] = {"run": run, "step": name}
    begin = time.monotonic()
    try:
        yield seen
    except Unexpected as error:
        seen["unexpected"] = str(error)
    seen["s"] = round(time.monotonic() - begin, 1)
    line = json.dumps(seen)
    print(line, flush=True)
    if record is not None:
        with record.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Take the steps; return 1 if one of them did not show what it should."""
    options = _parse(arguments)
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="acceptance-")))
        acceptance = Acceptance(options, directory, running)
        running.callback(acceptance.source.stop)
        running.callback(
            acceptance.cluster.kubectl, "delete", "namespace", options.namespace, "--timeout=180s", may_fail=True
        )
        acceptance.make_secret()
        steps = [acceptance.refused]
        steps += [acceptance.before, acceptance.unnamed] if options.before_chart else [acceptance.installed]
        steps += [acceptance.upgraded, acceptance.rolled, acceptance.scaled, acceptance.drained, acceptance.killed]
        steps += [acceptance.wrong_bucket, acceptance.wrong_key, acceptance.tested, acceptance.caught_up]
        steps += [acceptance.jobs] if options.catalog else []
        if options.steps:  # what begins and ends a run is always taken
            always = {acceptance.before, acceptance.installed, acceptance.caught_up}
            steps = [step for step in steps if step in always or step.__name__ in options.steps]
        failed = 0
        for step in (*steps, acceptance.audited):
            with _step(options.run, step.__name__, options.record) as seen:
                seen.update(step())
            failed += "unexpected" in seen
        left_out = [
            f"--{name}"
            for name, given in (("before-chart", options.before_chart), ("catalog", options.catalog))
            if not given
        ]
        if left_out:
            print(f"LEFT OUT, since not given: {', '.join(left_out)}", file=sys.stderr)
    return 1 if failed else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.acceptance", description=__doc__)
    add = parser.add_argument
    add("--host", required=True, help="address at which pods and this machine reach this machine's servers")
    add("--image", required=True, metavar="NAME:TAG", help="image of the worker, held by the nodes")
    add("--before-chart", type=Path, help="chart of the version before; without it no upgrade is tried")
    add("--before-image", metavar="NAME:TAG", help="its image")
    add("--pipeline-image", metavar="NAME:TAG", help="image of the pipeline")
    add("--catalog", metavar="HOST:PORT/DATABASE", help="a PostgreSQL for the table; without it no job is run")
    add("--catalog-user", default="iceberg")
    add("--catalog-password", default=os.environ.get("PGPASSWORD", ""), help="default: PGPASSWORD")
    add("--protocol", choices=("classic", "consumer"), default="classic")
    add("--rate", type=float, default=1000.0, help="entries/s of the source (default 1000)")
    add("--namespace", default="acceptance")
    add("--home", type=Path, default=ROOT / ".local", help="what is fetched")
    add("--steps", nargs="+", metavar="STEP", help="only these, by the names that a run prints; default: all")
    add("--run", default="", help="a name for the run, in its lines")
    add("--record", type=Path, help="a file to append each step's line to")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
