"""`log-partitioner topics create`: the topics that workers and backfills write, as they need them."""

from __future__ import annotations

import argparse

from log_partitioner.adapters.kafka.admin import KafkaNeeds, TopicPlan, create_topics
from log_partitioner.adapters.kafka.options import consumer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics, UnansweredError
from log_partitioner.config.section import seconds_of
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.operations.output import add_json, write_note, write_rows
from log_partitioner.usage import argument_of

NAME = "topics"
ANSWER_S = 60.0
THERE_S = 10.0  # to say whether they are there: an address that is wrong is told soon
BROKERS_DEFAULT = -1
DURABLE_FROM = 3  # replicas: two of them then have a message before it counts (DESIGN, conditions)
MESSAGE_BYTES_DEFAULT = 1_000_000  # Kafka's max.message.bytes is a little more; a batch of one message, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    create = actions.add_parser("create", help="create those that are not there; the others stay as they are")
    create.add_argument(
        "--partitions", type=int, default=6, metavar="N", help="of references and dead letters (default: %(default)s)"
    )
    create.add_argument(
        "--replication-factor", type=int, default=BROKERS_DEFAULT, metavar="N", help="default: the brokers' own"
    )
    create.add_argument(
        "--retention", type=argument_of(seconds_of), metavar="DURATION",
        help="how long messages are kept, such as 90d: as long as you want to audit; default: for ever",
    )  # fmt: skip
    create.add_argument("--dry-run", action="store_true", help="ask the brokers whether they would, and create nothing")
    add_json(create)


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Create the topics of references, flush records, dead letters and backfills.

    A topic that is there is never changed; its faults are told, with the command that mends them. The source topics are
    yours to create.

    Example:
      log-partitioner topics create --replication-factor 3 --retention 365d --dry-run

    Exit codes:
      0   all are there (a dry run: would be)
      1   one is not, or is compacted
      2   brokers do not tell, or settings or arguments are wrong

    More: docs/ACCESS.md
    """
    kafka, client = settings.kafka, consumer_options(settings, worker=NAME)
    plans = plans_of(kafka, options.partitions, options.replication_factor, options.retention)
    with KafkaTopics.of(kafka, answer_s=THERE_S) as topics:
        there = {plan.name: len(topics.topic_partitions(plan.name, may_be_absent=True)) for plan in plans}
        absent = [name for name in kafka.sources.among(()) if _is_absent(topics, name)]
    problems = create_topics(
        client, [plan for plan in plans if not there[plan.name]], is_dry_run=options.dry_run, timeout_s=ANSWER_S
    )
    done = "would be created" if options.dry_run else "created"
    write_rows(
        [
            {
                "topic": plan.name,
                "partitions": there[plan.name] or plan.partitions,
                "state": "is there" if there[plan.name] else problems[plan.name] or done,
                "configs": "" if there[plan.name] else " ".join(f"{name}={value}" for name, value in plan.configs),
            }
            for plan in plans
        ],
        is_json=options.is_json,
    )
    doubts = [need for need in KafkaNeeds(kafka, client).ask_keeping() if need.problem]
    for need in doubts:
        write_note(str(need.problem))
    for name in absent:
        write_note(f"source topic {name} is not there: it is yours to create")
    return 1 if any(problems.values()) or any(need.is_missing for need in doubts) else 0


def _is_absent(topics: KafkaTopics, source: str) -> bool:
    """Return whether a source topic is known not to be there: the command needs no right on it."""
    try:
        return not topics.topic_partitions(source, may_be_absent=True)
    except UnansweredError:
        return False


def plans_of(kafka: KafkaSettings, partitions: int, replicas: int, retention_s: float | None) -> list[TopicPlan]:
    """Say how each topic is created: evidence is deleted by age alone, run records once there is a newer one."""
    every = [("unclean.leader.election.enable", "false")]
    if replicas >= DURABLE_FROM:
        every.append(("min.insync.replicas", "2"))
    if kafka.message_bytes_max > MESSAGE_BYTES_DEFAULT:
        every.append(("max.message.bytes", str(2 * kafka.message_bytes_max)))
    retention_ms = -1 if retention_s is None else round(1000 * retention_s)
    kept = (("cleanup.policy", "delete"), ("retention.ms", str(retention_ms)), ("retention.bytes", "-1"), *every)
    return [
        TopicPlan(kafka.references_topic, partitions, replicas, kept),
        TopicPlan(kafka.flushes_topic, 1, replicas, kept),
        TopicPlan(kafka.dead_letters_topic, partitions, replicas, kept),
        TopicPlan(kafka.backfills_topic, 1, replicas, (("cleanup.policy", "compact"), *every)),
    ]
