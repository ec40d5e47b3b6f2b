"""Kafka's ids of topics: a topic that was made anew under the same name has another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException, TopicCollection

from log_partitioner.adapters.kafka_log import make_admin
from log_partitioner.control.deadline import Deadline
from log_partitioner.patience import Patience

_ANSWER_S = 10.0
_UNTOLD_S = 60.0
_GONE = "UNKNOWN_TOPIC_OR_PART"

_AS_KAFKA_WRITES = str.maketrans("+/", "-_")  # its tools write ids in the alphabet for URLs, librdkafka does not


class TopicIds:
    """Asks for ids of topics; used by the loop thread only."""

    def __init__(self, options: Mapping[str, Any], patience: Patience) -> None:
        self._options = options
        self._patience = patience
        self._untold: dict[str, float] = {}
        self._log = structlog.get_logger("consumer")

    def ask(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, str]:
        """Return the ids told within 10 s; missing ones are logged once, and asked for again after a minute or later.

        A topic that is not there is asked for each time: it may be on its way to be made anew.

        Raises:
            LeavingError: asked to leave meanwhile.
        """
        now_s = deadline.now_s()
        asked = [topic for topic in topics if self._untold.get(topic, now_s) <= now_s]
        timeout_s = deadline.at_most(_ANSWER_S).timeout_s()
        found, untold = self._patience.ask(lambda: ask_topic_ids(self._options, asked, timeout_s=timeout_s))
        for topic, cause in untold.items():
            if topic not in self._untold:
                self._log.warning("topic_id_unknown", topic=topic, cause=cause)
            self._untold[topic] = now_s + (0.0 if cause == _GONE else _UNTOLD_S)
        return found


def ask_topic_ids(
    options: Mapping[str, Any], topics: Iterable[str], *, timeout_s: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the ids of topics as Kafka's tools print them, and the reasons for missing ones. Never raises.

    By a client of its own that ends here; not inside a callback of another one (see `KafkaConsumer.partitions_of`).
    """
    asked = sorted(set(topics))
    found: dict[str, str] = {}
    untold: dict[str, str] = {}
    if not asked:
        return found, untold
    client = make_admin(options)
    for topic, answer in client.describe_topics(TopicCollection(asked), request_timeout=timeout_s).items():
        try:
            topic_id = answer.result().topic_id
        except KafkaException as error:
            untold[topic] = error.args[0].name()
            continue
        if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
            found[topic] = str(topic_id).translate(_AS_KAFKA_WRITES)
        else:
            untold[topic] = "the broker gives none"
    return found, untold
