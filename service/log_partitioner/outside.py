"""Lists everything a worker needs outside: it waits for it before it joins, `check-config --connect` asks once."""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import partial

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.admin import KafkaNeeds
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.log import Brokers
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics, source_topics_of
from log_partitioner.adapters.object_store import S3Store
from log_partitioner.adapters.preflight import Ask, Need, ask_once, asked
from log_partitioner.adapters.schema_registry import SchemaRegistry, schema_finder
from log_partitioner.batch.topic_rules import RulesByTopic
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CommitAbortedError, LogPartitionerError, StopError
from log_partitioner.formats.schema import Kind
from log_partitioner.partitioning.partitioner import Rejection
from log_partitioner.trial import newest

SAMPLE_RECORDS, SAMPLE_ENTRIES = 200, 2000
ENTRIES_TO_HOLD_UP = 100  # fewer keep no worker from being ready
_BROKERS_S = 8.0  # the library reports an unknown host or a silent broker within five


def asks_of_store(settings: Settings, store: S3Store) -> list[Ask]:
    """Return the questions to the store."""
    s3 = settings.s3
    asks = [asked(f"{s3.place}: objects can be created under {s3.prefix}/", store.check)]
    if settings.verify.share:
        asks.append(asked(f"{s3.place}: objects can be read back, for verify.share", store.check_reading))
    return asks


def asks_of_registry(settings: Settings, registry: SchemaRegistry | None) -> list[Ask]:
    """Return the question to a registry, if there is one."""
    if registry is None:
        return []
    framings = {reading.input.framing for _, reading in settings.each_reading()} - {"none"}
    kind: Kind = "global_id" if framings == {"apicurio8"} else "id"
    return [asked("schema registry: schemas can be read", partial(registry.check, kind))]


def asks_of_kafka(settings: Settings) -> list[Ask]:
    """Return the questions to brokers that answer."""
    return [KafkaNeeds(settings.kafka, consumer_options(settings, worker=settings.worker)).ask]


def misfit_of(settings: Settings, *, entries_min: int = ENTRIES_TO_HOLD_UP) -> str:
    """Say that the newest records of a source topic do not fit the settings; empty if they fit, or are too few to tell.

    Fewer than `entries_min` entries are too few.
    Blocks for up to a minute if a producer's open transaction holds the source up. A worker that would turn these
    records into dead letters is not ready, so that a rollout stops at it; at a topic that only a pattern matches it
    does not if another one fits. The check itself publishes nothing (DESIGN 3.9).
    """
    if settings.dead_letters.share_max >= 1:
        return ""
    rules = RulesByTopic(settings, schema_finder(settings))
    try:
        source_topics = source_topics_of(settings.kafka)
    except LogPartitionerError:
        return ""  # as below
    misfit, has_fit = "", False
    for topic in source_topics:
        entries, dead = 0, Counter[str]()
        _, decoder, partitioner = rules[topic]
        try:
            with KafkaTopics.of(settings.kafka) as topics:
                for record in newest(topics, topic, SAMPLE_RECORDS):
                    decoded = decoder.decode(record.value, record.headers)
                    placed = (partitioner.partition(one, around, record) for _, one, _, around in decoded.entries)
                    dead.update(bad.reason for bad in decoded.bad)
                    dead.update(one.reason for one in placed if isinstance(one, Rejection))
                    entries += len(decoded.entries) + len(decoded.bad)
                    if entries >= SAMPLE_ENTRIES:
                        break
        except LogPartitionerError:
            continue  # the question about the topic itself reports its trouble
        if entries < entries_min:
            continue
        if dead.total() < settings.dead_letters.share_max * entries:
            has_fit = True
            continue
        reasons = ", ".join(f"{reason} {count}" for reason, count in dead.most_common())
        told = (
            f"the settings do not fit topic {topic}: {dead.total()} of its newest {entries} entries would be dead "
            f"letters ({reasons}). `log-partitioner try --topic {topic}` shows them; dead_letters.share_max = 1 "
            "takes them"
        )
        if settings.kafka.sources.are_naming(topic):
            return told
        misfit = misfit or told
    return "" if has_fit else misfit


def connect(settings: Settings) -> bool:
    """Ask for everything once, a line each on standard output; returns whether a worker could join."""
    try:
        asks = asks_of_store(settings, S3Store(settings.s3))
    except StopError as error:
        answers = [Need(settings.s3.place, str(error))]
    else:
        answers = list(ask_once(asks))
    if settings.registry.url is not None:
        answers += ask_once(asks_of_registry(settings, SchemaRegistry(settings.registry)))
    answers.append(brokers := _ask_brokers(settings))
    if not brokers.is_missing:
        answers += ask_once(asks_of_kafka(settings))
        misfit = misfit_of(settings, entries_min=1)
        answers.append(
            Need(
                "the newest records of the source fit the settings, or there are none",
                misfit or None,
                is_warning=True,
            )
        )
    for answer in answers:
        word = "ok" if answer.problem is None else "doubtful" if answer.is_warning else "missing"
        sys.stdout.write(f"{word}: {answer.problem or answer.subject}\n")
    return not any(answer.is_missing for answer in answers)


def _ask_brokers(settings: Settings) -> Need:
    """Ask for a transactional producer by an id that no worker has, because it would fence a worker of that id."""
    own_id = f"{settings.transactional_id}/check"
    options = producer_options(settings, worker=settings.worker, transactional_id=own_id)
    committer = KafkaCommitter(options, init_budget_s=_BROKERS_S, clock=SystemClock(), brokers=Brokers())
    subject = f"brokers {settings.kafka.bootstrap_servers}: Write and Describe permitted on transactional ids"
    try:
        committer.prepare(deadline=Deadline.after(_BROKERS_S, time.monotonic))
    except (StopError, CommitAbortedError) as error:
        return Need(subject, str(error))
    return Need(f"{subject} that begin with {settings.transactional_id_prefix}")
