"""The failures, by the rows of the runbook's first table; it names the alerts that have to fire.

Each is a function of three parts: until its first `yield` all is well; until the second, which gives the runbook's
command, the failure is made; then it is taken away.
"""

import dataclasses
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from tests.deployment.tools import ROOT
from tests.failures.bed import Bed, Prepare, good, in_less_time
from tests.integration.segments import runbook
from tests.integration.test_fatal_record import DEADLY
from tests.integration.test_hanging_transaction import hang, make_source
from tests.integration.test_outside import delete

RUNBOOK = ROOT / "docs" / "RUNBOOK.md"
_ROW = re.compile(r"^\| ([^|]+) \| ((?:\[\w+\]\(#logpartitioner\w+\)[^|\[]*)+) \|$", re.MULTILINE)


class Help(NamedTuple):
    """The runbook's command, and the pattern that its output has if it names the cause."""

    command: str
    say: Callable[[], str]
    names: str

    def words(self, said: str) -> str | None:
        """Return the words that name the cause; None if none do."""
        found = re.search(self.names, said)
        return found and found[0]


Story = Iterator[Help | None]


class Failure(NamedTuple):
    """A failure by its name; `row` is what the runbook calls it."""

    row: str
    story: Callable[[Bed], Story]
    brokers: Literal[1, 3]
    prepare: Prepare


FAILURES: dict[str, Failure] = {}


def alerts_by_row() -> dict[str, tuple[str, ...]]:
    """Return the rows of the runbook's first table, each with its alerts, in the order in which they come."""
    table, _, _ = RUNBOOK.read_text().partition("## Alerts")
    return {row: tuple(re.findall(r"\[(\w+)\]", alerts)) for row, alerts in _ROW.findall(table)}


def failure(
    row: str, *, brokers: Literal[1, 3] = 1, prepare: Prepare = lambda *_: 0
) -> Callable[[Callable[[Bed], Story]], Callable[[Bed], Story]]:
    """Put a failure into the catalogue."""

    def put(story: Callable[[Bed], Story]) -> Callable[[Bed], Story]:
        FAILURES[story.__name__.replace("_", "-")] = Failure(row, story, brokers, prepare)
        return story

    return put


def _ask(bed: Bed, *arguments: str, names: str, **settings: str) -> Help:
    """Run a command of the product as the workers are set."""
    shown = " ".join(arguments).replace(bed.deployment.source, "TOPIC")
    return Help(f"log-partitioner {shown}", lambda: bed.deployment.run(*arguments, **settings)[1], names)


def _last_lines(bed: Bed, name: str, names: str) -> Help:
    return Help("kubectl logs --previous | tail -n 5", lambda: bed.last_lines(name), names)


@failure("the store is away")
def store_away(bed: Bed) -> Story:
    """No process listens at its address."""
    bed.worker()
    yield None
    bed.s3.kill()
    yield _ask(bed, "check-config", "--connect", names=rf"{bed.s3.endpoint.url}.*cannot be reached")
    bed.s3.start()


@failure("the store's key was taken back")
def key_taken_back(bed: Bed) -> Story:
    """The store knows another key from now on."""
    bed.worker()
    yield None
    old = bed.s3.endpoint
    bed.s3.stop()
    bed.s3.endpoint = dataclasses.replace(old, access_key="other", secret_key=secrets.token_urlsafe(24))
    bed.s3.start()
    yield _ask(bed, "check-config", "--connect", names=r"403 InvalidAccessKeyId")
    bed.s3.stop()
    bed.s3.endpoint = old
    bed.s3.start()


@failure("Kafka is away")
def kafka_away(bed: Bed) -> Story:
    """The only broker was killed."""
    bed.worker()
    yield None
    bed.entry = None
    bed.kafka.kill(0)
    yield _ask(bed, "check-config", "--connect", names=r"127\.0\.0\.1:\d+.*connection refused")
    bed.kafka.heal()
    bed.entry = good


@failure("a topic that the worker writes to is gone")
def topic_gone(bed: Bed) -> Story:
    """An operator has deleted the topic of references, before there were any that would be lost."""
    bed.entry = None
    bed.worker()
    yield None
    topic = bed.deployment.references_topic
    delete(bed.deployment.kafka, topic)
    bed.entry = good
    yield _ask(bed, "check-config", "--connect", names=rf"topic {topic} .*is not there: create it")
    bed.deployment.run("topics", "create")


@failure("a producer has another format")
def other_format(bed: Bed) -> Story:
    """Its entries have their user elsewhere; they go back once the settings know it."""
    bed.worker()
    yield None
    bed.entry = lambda number: {"usr": f"user-{number % 5}", "time": datetime.now(UTC).isoformat()}
    topic = bed.deployment.source
    yield _ask(bed, "try", "--topic", topic, names=r"no_user: .*")
    bed.deployment.settings(LOGP_USER__PATHS='["user", "usr"]')
    bed.worker()
    bed.wait("a worker with the new settings", bed.is_steady, timeout_s=120)
    _, said = bed.deployment.run("dead-letters", "replay", "--since", "1d", "--yes")
    assert re.search(r"replayed", said), said


@failure("times are in another field")
def other_times(bed: Bed) -> Story:
    """A producer calls it `when`, until it is told not to."""
    bed.worker()
    yield None
    bed.entry = lambda number: {"user": f"user-{number % 5}", "when": datetime.now(UTC).isoformat()}
    yield _ask(bed, "try", "--topic", bed.deployment.source, names=r"when")
    bed.entry = good


@failure("workers are too slow")
def too_slow(bed: Bed) -> Story:
    """They take two entries a second, while forty are written."""
    bed.worker()
    yield None
    bed.worker(LOGP_KAFKA__ENTRIES_PER_S_MAX="2")
    yield _ask(bed, "status", names=r"lag [\d,]+ records, last commit \d+ s ago")
    bed.worker()


@failure("a worker gets no CPU")
def no_cpu(bed: Bed) -> Story:
    """It stands still for three sessions."""
    bed.worker("w1")
    bed.worker("w2")
    yield None
    bed.process("w1").pause()
    bed.rest(18)
    bed.process("w1").resume()
    asked = "min_over_time(up[15m])"
    yield Help(asked, lambda: bed.prometheus.told(in_less_time(asked)), rf"127\.0\.0\.1:{bed.port('w1')} 0")


@failure("a record ends the process")
def deadly_record(bed: Bed) -> Story:
    """As a bug in a library would; the version that bears it comes later."""
    inside = [sys.executable, "-c", DEADLY]
    bed.worker(inside=inside)
    yield None
    deadly = len(bed.written)
    bed.entry = lambda number: good(number) | ({"text": "deadly"} if number == deadly else {})
    yield _ask(bed, "dead-letters", "list", "--since", "1d", names=r"fatal")
    bed.worker()


@failure("another group reads the same topics")
def other_group(bed: Bed) -> Story:
    """A second release has the topics of the first, and a group of its own."""
    bed.worker()
    yield None
    bed.worker("other", LOGP_KAFKA__GROUP_ID=f"{bed.deployment.group}-other")
    yield _last_lines(bed, "other", rf"StartPositionError: group {bed.deployment.group} publishes")
    bed.forget("other")


@failure("a producer's transaction hangs", brokers=3, prepare=make_source)
def hanging_transaction(bed: Bed) -> Story:
    """It has no marker in one TopicPartition, and no coordinator knows of it."""
    bed.worker()
    yield None
    bed.entry = None
    hang(bed.kafka, bed.deployment, bed.names.group("source-writer"), bed.prepared)
    bed.entry = good
    (line,) = bed.deployment.require_event("source_transaction_open", "w1")[:1]
    ((tp, offset),) = line["held_up"].items()
    place = {"BROKER": bed.deployment.kafka.bootstrap_servers, "TOPIC": bed.deployment.source, "PARTITION": tp[-1]}
    yield Help(
        "kafka-transactions.sh find-hanging",
        lambda: runbook(bed.kafka, "find-hanging", **place, MINUTES=15),
        rf"(?m)^{bed.deployment.source}\s+0\s",
    )
    runbook(bed.kafka, "abort", **place, OFFSET=offset)


@failure("materialize is stuck")
def stuck_table(bed: Bed) -> Story:
    """An operator has deleted an object before the table had it, and puts it back."""
    bed.worker()
    bed.job("materialize", "--continuous")
    bed.job("audit", "--every", "20s", "--last", "1h", "--no-verdicts")
    yield None
    known = len(bed.deployment.references())
    bed.stop("materialize")
    bed.wait("more references", lambda: len(bed.deployment.references()) > known, timeout_s=60)
    key = bed.deployment.references()[-1].location.object
    held = bed.deployment.s3.read(bed.deployment.bucket, key)
    bed.deployment.s3.client.delete_object(Bucket=bed.deployment.bucket, Key=key)
    bed.job("materialize", "--continuous")
    yield _last_lines(bed, "materialize", rf"{key.rpartition('/')[2]} is referenced and not there")
    bed.deployment.s3.client.put_object(Bucket=bed.deployment.bucket, Key=key, Body=held)


@failure("somebody has altered an object")
def altered_object(bed: Bed) -> Story:
    """It has one byte more; a copy takes its place again."""
    bed.worker()
    bed.job("audit", "--every", "10s", "--last", "1h", "--no-verdicts")
    yield None
    key = bed.deployment.references()[0].location.object
    held = bed.deployment.s3.read(bed.deployment.bucket, key)
    bed.deployment.s3.client.put_object(Bucket=bed.deployment.bucket, Key=key, Body=held + b"!")
    words = ("pipeline", "audit", "--last", "1h", "--no-verdicts")
    yield _ask(bed, *words, names=rf"{key}: size is .*", **bed.pipeline_environment())
    bed.deployment.s3.client.put_object(Bucket=bed.deployment.bucket, Key=key, Body=held)
