"""A worker's checks of Kafka before it joins, and its words for each answer; a scripted administrator."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ConfigResource

from log_partitioner.adapters.kafka import admin as kafka_admin
from log_partitioner.adapters.kafka.admin import KafkaNeeds, topic_config
from log_partitioner.adapters.preflight import Need
from log_partitioner.config.settings import KafkaSettings
from log_partitioner.errors import CouldNotTellError

EVERYTHING = list(AclOperation)
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
DAY_MS = 86_400_000
TOPICS = ("source", "references", "flushes", "dead-letters")


def done(answer: Any) -> Future[Any]:
    """Give a future that answers, or raises the error of that code."""
    future: Future[Any] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future


class Brokers:
    """Answers as it is told to: operations or an error's code by topic, configuration or a code by topic."""

    def __init__(self) -> None:
        self.rights: dict[str, Any] = dict.fromkeys(TOPICS, EVERYTHING)
        self.group: Any = EVERYTHING
        self.kept: dict[str, Any] = dict.fromkeys(TOPICS, KEPT)
        self.offsets_minutes: Any = "10080"
        self.there: list[str] | int = ["app-a", "app-b"]

    def list_topics(self, **_: object) -> Any:
        """Give all there are, and one of others; or raise the error of that code."""
        if isinstance(self.there, int):
            raise KafkaException(KafkaError(self.there))
        return SimpleNamespace(topics=dict.fromkeys([*self.there, "others"]))

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        """Answer for each."""
        del topics
        return {
            topic: done(rights if isinstance(rights, int) else SimpleNamespace(authorized_operations=rights))
            for topic, rights in self.rights.items()
        }

    def describe_consumer_groups(self, groups: Iterable[str], **_: object) -> dict[str, Future[Any]]:
        """Answer for the group."""
        answer = self.group if isinstance(self.group, int) else SimpleNamespace(authorized_operations=self.group)
        return {group: done(answer) for group in groups}

    def describe_cluster(self, **_: object) -> Future[Any]:
        """Give one node."""
        return done(SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    def describe_configs(self, asked: Iterable[ConfigResource], **_: object) -> dict[ConfigResource, Future[Any]]:
        """Answer for topics and for the node."""
        found = {}
        for one in asked:
            kept = {"offsets.retention.minutes": self.offsets_minutes} if one.name == "1" else self.kept[one.name]
            kept = KafkaError.CLUSTER_AUTHORIZATION_FAILED if one.name == "1" and self.offsets_minutes is None else kept
            entries = kept if isinstance(kept, int) else {name: SimpleNamespace(value=kept[name]) for name in kept}
            found[one] = done(entries)
        return found


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Give brokers that every question goes to."""
    made = Brokers()
    monkeypatch.setattr(kafka_admin, "make_admin", lambda _options: made)
    return made


def needs(*source_topics: str) -> list[Need]:
    """Ask for everything."""
    kafka = KafkaSettings(bootstrap_servers="b:9092", group_id="g", source_topics=source_topics or ("source",))
    return list(KafkaNeeds(kafka, {}).ask())


def problems(*source_topics: str) -> list[tuple[str, bool]]:
    """Ask; gives what is wrong, and whether it is a warning."""
    return [(need.problem, need.is_warning) for need in needs(*source_topics) if need.problem is not None]


@pytest.mark.parametrize("told", [EVERYTHING, None, []], ids=["everything", "nothing", "an empty list"])
def test_brokers_that_permit_everything_or_say_nothing_lack_nothing(brokers: Brokers, told: Any) -> None:
    """Old brokers, and those without an authorizer: a line for each topic, for the group, for what is kept."""
    brokers.rights, brokers.group = dict.fromkeys(TOPICS, told), told

    assert [need.problem for need in needs()] == [None] * 8


def test_rights_that_are_missing_are_told_with_the_command(brokers: Brokers) -> None:
    """On topics and on the group; only those that are needed there (KAFKA_FACTS O11)."""
    acls = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:WORKER"
    both = "--operation Describe --operation Write"
    brokers.rights |= {
        "source": [AclOperation.WRITE],
        "references": KafkaError.TOPIC_AUTHORIZATION_FAILED,
        "flushes": [AclOperation.WRITE],
        "dead-letters": [AclOperation.WRITE],
    }
    brokers.group = KafkaError.GROUP_AUTHORIZATION_FAILED

    assert problems() == [
        (f"topic source: Read not permitted: {acls} --operation Read --topic source", False),
        (f"topic references: Describe and Write not permitted: {acls} {both} --topic references", False),
        (f"topic flushes: Read not permitted: {acls} --operation Read --topic flushes", False),
        (f"group g: Read not permitted: {acls} --operation Read --group g", False),
    ]
    brokers.group = [AclOperation.DESCRIBE]
    assert (f"group g: Read not permitted: {acls} --operation Read --group g", False) in problems()


def test_group_of_which_nobody_knows_yet_lacks_nothing(brokers: Brokers) -> None:
    """A first start."""
    brokers.group = KafkaError.GROUP_ID_NOT_FOUND

    assert problems() == []


def test_topic_that_is_not_there_is_told_once_with_its_setting(brokers: Brokers) -> None:
    """The source, too; its configuration is not asked for beside."""
    for topic, setting in (("source", "kafka.source_topics"), ("flushes", "kafka.flushes_topic")):
        brokers.rights[topic] = brokers.kept[topic] = KafkaError.UNKNOWN_TOPIC_OR_PART
        command = f"kafka-topics.sh --bootstrap-server b:9092 --create --topic {topic}"
        assert (f"topic {topic} ({setting}) is not there: create it: {command}", False) in problems()
    assert len(problems()) == 2


def test_pattern_that_matches_no_topic_is_missing_only_if_nothing_else_is_read(brokers: Brokers) -> None:
    """One may come to match; a classic member without any topic never joins (R21). Those that match are needed."""
    brokers.rights |= {"app-a": EVERYTHING, "app-b": [AclOperation.DESCRIBE]}
    acls = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:WORKER"
    unread = (f"topic app-b: Read not permitted: {acls} --operation Read --topic app-b", False)
    assert needs("^app-.*")[0].subject == "pattern ^app-.* (kafka.source_topics): 2 topics match"
    assert problems("^app-.*") == [unread]
    told = "pattern ^app- (kafka.source_topics) matches no topic that may be described"
    told += ": all of a name must match, as ^app-.* does"
    assert problems("^app-") == [(told, False)]
    assert problems("source", "^app-") == [(told, True)]
    brokers.there = KafkaError.REQUEST_TIMED_OUT
    ((told, is_warning),) = problems("^app-.*")
    assert (told.startswith("topics are not told: REQUEST_TIMED_OUT"), is_warning) == (True, False)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compaction_is_refused_with_the_command(brokers: Brokers, policy: str) -> None:
    """It eats the evidence."""
    brokers.kept["dead-letters"] = KEPT | {"cleanup.policy": policy}
    ((told, is_warning),) = problems()

    assert told.startswith("topic dead-letters (kafka.dead_letters_topic) has cleanup.policy compact")
    assert told.endswith("--alter --entity-type topics --entity-name dead-letters --add-config cleanup.policy=delete")
    assert not is_warning


@pytest.mark.parametrize(
    ("kept", "minutes", "said"),
    [
        ({"retention.ms": str(7 * DAY_MS)}, "10080", None),
        ({"retention.ms": str(7 * DAY_MS - 1)}, "10080", "committed offsets are kept for 604800000 ms"),
        ({"retention.ms": "0"}, None, None),
        ({"retention.bytes": "1000"}, "10080", "keeps 1000 bytes of each partition, however young"),
    ],
)
def test_flush_records_that_go_before_committed_offsets_are_told(
    brokers: Brokers, kept: dict[str, str], minutes: Any, said: str | None
) -> None:
    """As a warning: a worker works without them until an offset is lost."""
    brokers.kept["flushes"], brokers.offsets_minutes = KEPT | kept, minutes
    found = problems()

    assert [said in told if said else told for told, _ in found] == ([] if said is None else [True])
    assert all(is_warning for _, is_warning in found)


@pytest.mark.parametrize("name", list(KEPT))
@pytest.mark.parametrize("is_named", [True, False])
def test_configuration_that_a_broker_leaves_out_is_no_problem(brokers: Brokers, name: str, is_named: bool) -> None:  # noqa: FBT001 - a case
    """Managed brokers tell a part of it; a worker does not end for that."""
    rest = {one: value for one, value in KEPT.items() if one != name}
    brokers.kept["flushes"] = rest | ({name: None} if is_named else {})

    assert problems() == []


def test_what_may_not_be_described_is_a_warning_with_the_right(brokers: Brokers) -> None:
    """Not an end: that right is for this look alone."""
    brokers.kept["references"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    ((told, is_warning),) = problems()

    assert "--operation DescribeConfigs --topic references" in told
    assert is_warning


def test_configuration_of_a_topic_that_is_not_told_is_not_taken_for_one_that_keeps_everything(brokers: Brokers) -> None:
    """Else records would be put back so old that the topic deletes them before a worker has read them."""
    brokers.kept["source"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(CouldNotTellError, match=r"source: .*DescribeConfigs.*TOPIC_AUTHORIZATION_FAILED"):
        topic_config({}, "source", timeout_s=1)
    assert topic_config({}, "references", timeout_s=1) == KEPT
