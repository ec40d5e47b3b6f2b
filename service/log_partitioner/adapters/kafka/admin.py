"""The questions that an admin client puts to brokers: a worker's needs, ids of topics, and groups without members.

A broker without an authorizer permits everything. If a broker does not say what it permits, everything counts as
permitted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export them
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
)

from log_partitioner.adapters.kafka.errors import (
    answer_of,
    is_no_topic,
    not_permitted,
    require_answered,
    without_topic,
)
from log_partitioner.adapters.kafka.log import make_admin
from log_partitioner.adapters.kafka.options import worker_of
from log_partitioner.adapters.kafka.values import offset_to_library, topic_partitions
from log_partitioner.adapters.preflight import Need
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.config.source_topics import SourceNames, is_pattern
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CouldNotTellError, SourceError, TokenError
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.patience import Patience

_NEED_ANSWER_S = 5.0
_MINUTE_MS = 60_000
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
GONE, NO_ID = "UNKNOWN_TOPIC_OR_PART", "the broker gives none"
_AS_KAFKA_WRITES = str.maketrans("+/", "-_")  # its tools write ids in the alphabet for URLs, librdkafka does not
_LIVE = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}


class _Topic(NamedTuple):
    """A topic of the settings, and the worker's operations on it."""

    name: str
    setting: str
    rights: tuple[AclOperation, ...]


class KafkaNeeds:
    """Asks by a client of its own; from any thread, outside callbacks."""

    def __init__(self, kafka: KafkaSettings, options: Mapping[str, Any]) -> None:
        self._kafka = kafka
        self._options = options
        reads = () if kafka.accept_unknown_history else (_READ,)
        self._outputs = (
            _Topic(kafka.references_topic, "kafka.references_topic", (_WRITE,)),
            _Topic(kafka.flushes_topic, "kafka.flushes_topic", (*reads, _WRITE)),
            _Topic(kafka.dead_letters_topic, "kafka.dead_letters_topic", (_WRITE,)),
        )

    def ask(self) -> Iterator[Need]:
        """Ask for everything; returns an answer for each need."""
        admin = make_admin(self._options)
        yield from self._ask_topics(admin)
        yield self._ask_group(admin)
        yield from self.ask_keeping()

    def _ask_topics(self, admin: AdminClient) -> Iterator[Need]:
        there: Collection[str] = ()
        if self._kafka.sources.has_patterns:
            try:
                there = admin.list_topics(timeout=_NEED_ANSWER_S).topics
            except KafkaException as error:
                problem = f"topics are not told: {error.args[0].name()}: {error.args[0].str()}"
                yield Need("topics that match patterns (kafka.source_topics)", problem)
            else:
                yield from self._ask_patterns(there)
        sources = [_Topic(name, "kafka.source_topics", (_READ,)) for name in self._kafka.sources.among(there)]
        topics = [*sources, *self._outputs]
        names = TopicCollection([topic.name for topic in topics])
        answers = admin.describe_topics(names, include_authorized_operations=True, request_timeout=_NEED_ANSWER_S)
        for topic in topics:
            rights = " and ".join(right.name.capitalize() for right in topic.rights)
            subject = f"topic {topic.name} ({topic.setting}): it is there, {rights} permitted"
            try:
                permitted = answers[topic.name].result().authorized_operations
            except KafkaException as error:
                yield Need(subject, self._without_topic(topic, error.args[0]))
            else:
                lacking = [right for right in topic.rights if permitted and right not in permitted]
                yield Need(subject, self._forbidden("topic", topic.name, lacking) if lacking else None)

    def _ask_patterns(self, there: Collection[str]) -> Iterator[Need]:
        """Ask whether patterns match. One may match later, but without any topic no worker joins (KAFKA_FACTS R21)."""
        has_any = bool(self._kafka.sources.among(there))
        for entry in filter(is_pattern, self._kafka.source_topics):
            found, subject = len(SourceNames([entry]).among(there)), f"pattern {entry} (kafka.source_topics)"
            none = f"{subject} matches no topic that may be described: all of a name must match, as ^app-.* does"
            yield Need(f"{subject}: {found} topics match", None if found else none, is_warning=has_any)

    def _without_topic(self, topic: _Topic, error: KafkaError) -> str:
        if is_no_topic(error):
            return without_topic(topic.name, self._kafka.bootstrap_servers, topic.setting)
        if error.code() in _FORBIDDEN:
            return self._forbidden("topic", topic.name, [AclOperation.DESCRIBE, *topic.rights])
        return f"topic {topic.name} ({topic.setting}): {error.name()}: {error.str()}"

    def _ask_group(self, admin: AdminClient) -> Need:
        """Ask for the permitted operations on the group, whether it exists yet or not; other errors are no answer."""
        group, problem = self._kafka.group_id, None
        described = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=_NEED_ANSWER_S
        )
        lacking: list[AclOperation] = []
        try:
            permitted = described[group].result().authorized_operations
            lacking = [_READ] if permitted and _READ not in permitted else []
        except KafkaException as error:
            lacking = [_READ] if error.args[0].code() in _FORBIDDEN else []
        if lacking:
            problem = self._forbidden("group", group, lacking)
        return Need(f"group {group} (kafka.group_id): Read permitted", problem)

    def _forbidden(self, kind: str, name: str, lacking: Sequence[AclOperation]) -> str:
        return not_permitted(kind, name, [right.name.capitalize() for right in lacking], self._kafka.bootstrap_servers)

    @property
    def _servers(self) -> str:
        return f"--bootstrap-server {self._kafka.bootstrap_servers}"

    # The output topics are the evidence that nothing was lost or doubled: they must keep enough.

    def ask_keeping(self) -> Iterator[Need]:
        """Ask whether the output topics keep their messages; a topic that does not exist is passed over."""
        admin = make_admin(self._options)
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic.name) for topic in self._outputs]
        answers = admin.describe_configs(asked, request_timeout=_NEED_ANSWER_S)
        for topic, resource in zip(self._outputs, asked, strict=True):
            subject = f"topic {topic.name}: what is written there is kept"
            try:
                found = answers[resource].result()
            except KafkaException as error:
                if not is_no_topic(error.args[0]):
                    yield Need(subject, self._unknown(topic, error.args[0]), is_warning=True)
                continue
            config = {name: entry.value for name, entry in found.items()}
            if "compact" in str(config.get("cleanup.policy")):
                yield Need(subject, self._compacted(topic))
            elif topic.setting == "kafka.flushes_topic":
                yield Need(subject, self._short(admin, config), is_warning=True)
            else:
                yield Need(subject)

    def _unknown(self, topic: _Topic, error: KafkaError) -> str:
        told = f"whether topic {topic.name} is compacted, or keeps too little, is not known ({error.name()})"
        command = f"--add --allow-principal User:WORKER --operation DescribeConfigs --topic {topic.name}"
        return f"{told}: kafka-acls.sh {self._servers} {command}"

    def _compacted(self, topic: _Topic) -> str:
        command = f"--alter --entity-type topics --entity-name {topic.name} --add-config cleanup.policy=delete"
        return (
            f"topic {topic.name} ({topic.setting}) has cleanup.policy compact: messages would be deleted that say what "
            f"was written: kafka-configs.sh {self._servers} {command}"
        )

    def _short(self, admin: AdminClient, config: Mapping[str, Any]) -> str | None:
        """Say that flush records expire before the committed offsets that they prove; a broker may not tell."""
        topic, kept_ms, kept_bytes = (
            self._kafka.flushes_topic,
            config.get("retention.ms"),
            config.get("retention.bytes"),
        )
        needed_ms = _offsets_kept_ms(admin)
        way = (
            f"workers find lost offsets there: kafka-configs.sh {self._servers} --alter --entity-type topics "
            f"--entity-name {topic} --add-config"
        )
        if needed_ms is not None and kept_ms is not None and 0 <= int(kept_ms) < needed_ms:
            told = f"topic {topic} keeps messages for {kept_ms} ms, committed offsets are kept for {needed_ms} ms"
            return f"{told}, and {way} retention.ms={4 * needed_ms}"
        if kept_bytes is not None and int(kept_bytes) >= 0:
            return (
                f"topic {topic} keeps {kept_bytes} bytes of each partition, however young, and {way} retention.bytes=-1"
            )
        return None


def _offsets_kept_ms(admin: AdminClient) -> int | None:
    """Ask for how long committed offsets are kept; None if that may not be asked."""
    try:
        node = admin.describe_cluster(request_timeout=_NEED_ANSWER_S).result().nodes[0]
        broker = ConfigResource(ConfigResource.Type.BROKER, str(node.id))
        found = admin.describe_configs([broker], request_timeout=_NEED_ANSWER_S)[broker].result()
        return int(found["offsets.retention.minutes"].value) * _MINUTE_MS
    except (KafkaException, KeyError, IndexError, TypeError, ValueError):
        return None


def ask_topic_ids(
    options: Mapping[str, Any], topics: Iterable[str], *, timeout_s: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the ids of topics as Kafka's tools print them, and the reasons for missing ones. Never raises.

    A pattern asks for all topics that match it.

    By a client of its own that ends here; not inside a callback of another one (see `KafkaConsumer.partitions_of`).
    """
    asked = sorted(set(topics))
    found: dict[str, str] = {}
    untold: dict[str, str] = {}
    if not asked:
        return found, untold
    names, until_s = SourceNames(asked), time.monotonic() + timeout_s
    try:
        client = make_admin(options)
        if names.has_patterns:
            asked = names.among(client.list_topics(timeout=timeout_s).topics)
            timeout_s = max(0.0, until_s - time.monotonic())
    except TokenError as error:
        return found, dict.fromkeys(asked, str(error))
    except KafkaException as error:
        return found, dict.fromkeys(asked, error.args[0].name())
    for topic, answer in client.describe_topics(TopicCollection(asked), request_timeout=timeout_s).items():
        try:
            topic_id = answer.result().topic_id
        except KafkaException as error:
            untold[topic] = error.args[0].name()
            continue
        if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
            found[topic] = str(topic_id).translate(_AS_KAFKA_WRITES)
        else:
            untold[topic] = NO_ID
    return found, untold


def topic_config(options: Mapping[str, Any], topic: str, *, timeout_s: float) -> dict[str, str]:
    """Ask for the configuration of a topic; raises CouldNotTellError if it is not told."""
    client, asked = make_admin(options), ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = client.describe_configs([asked], request_timeout=timeout_s)[asked].result()
    except KafkaException as error:
        problem = error.args[0]
        text = f"topic {topic}: its configuration is not told (DescribeConfigs)"
        raise CouldNotTellError(f"{text}: {problem.name()}: {problem.str()}") from error
    return {name: str(entry.value) for name, entry in found.items() if entry.value is not None}


def commit_offsets(
    options: Mapping[str, Any], group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_s: float
) -> None:
    """Commit offsets with their metadata; blocks until the broker has taken them.

    Raises:
        SourceError: the group has live members, a permission is missing, or the broker does not answer.
    """
    client = make_admin(options)
    asked = ConsumerGroupTopicPartitions(group_id, [offset_to_library(tp, offset) for tp, offset in offsets.items()])

    def commit() -> None:
        (future,) = client.alter_consumer_group_offsets([asked], request_timeout=timeout_s).values()
        require_answered(future.result().topic_partitions)

    try:
        answer_of(Deadline.after(timeout_s, time.monotonic), commit, Patience())
    except KafkaException as error:
        problem = error.args[0]
        if problem.code() in _LIVE:
            raise _alive(group_id) from error
        text = f"offsets of group {group_id} are not committed: {problem.name()}: {problem.str()}"
        raise SourceError(text) from error


class TopicPlan(NamedTuple):
    """A topic to be created; -1 replicas are as many as brokers give by default."""

    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]


def create_topics(
    options: Mapping[str, Any], plans: Iterable[TopicPlan], *, is_dry_run: bool, timeout_s: float
) -> dict[str, str]:
    """Create topics, or ask whether brokers would; returns the problem of each by name, empty if there is none.

    A topic that somebody has created meanwhile is no problem. Blocks until brokers answer.
    """
    asked = [NewTopic(one.name, one.partitions, one.replicas, config=dict(one.configs)) for one in plans]
    if not asked:
        return {}
    problems = {}
    client = make_admin(options)  # as long as its answers are waited for
    answers = client.create_topics(
        asked, operation_timeout=timeout_s, request_timeout=timeout_s, validate_only=is_dry_run
    )
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            problem = error.args[0]
            is_there = problem.code() == KafkaError.TOPIC_ALREADY_EXISTS
            problems[name] = "" if is_there else f"{problem.name()}: {problem.str()}"
        else:
            problems[name] = ""
    return problems


class Member(NamedTuple):
    """A member of a group; `worker` is its name if it is a worker of ours, else its client's id."""

    worker: str
    host: str
    tps: frozenset[TopicPartition]


class Group(NamedTuple):
    """A group as its coordinator knows it; `state` is Kafka's word for it."""

    state: str
    members: list[Member]


def describe_group(options: Mapping[str, Any], group_id: str, *, timeout_s: float) -> Group:
    """Ask for the members of a group, of either protocol; a group that does not exist has none.

    Raises:
        SourceError: a permission is missing, or the broker does not answer.
    """
    client = make_admin(options)

    def ask() -> Any:
        (future,) = client.describe_consumer_groups([group_id], request_timeout=timeout_s).values()
        return future.result()

    try:
        found = answer_of(Deadline.after(timeout_s, time.monotonic), ask, Patience())
    except KafkaException as error:
        problem = error.args[0]
        if problem.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return Group("DEAD", [])
        raise SourceError(f"group {group_id}: {problem.name()}: {problem.str()}") from error
    members = [
        Member(worker_of(one.client_id), one.host.lstrip("/"), topic_partitions(one.assignment.topic_partitions))
        for one in found.members
    ]
    return Group(found.state.name, members)


def require_nobody(options: Mapping[str, Any], groups: Iterable[str], *, timeout_s: float) -> None:
    """Require that no group has a member: a transaction without a member is taken by one that has (KAFKA_FACTS F3).

    Raises:
        SourceError: one has members, a permission is missing, or the broker does not answer.
    """
    for group_id in groups:
        if describe_group(options, group_id, timeout_s=timeout_s).members:
            raise _alive(group_id)


def _alive(group_id: str) -> SourceError:
    return SourceError(f"group {group_id} has live members: stop its workers first; nothing is changed")
