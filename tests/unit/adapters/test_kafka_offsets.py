"""Offsets set by hand: with their metadata, and refused in words that say what to do."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from log_partitioner.adapters.kafka import errors as kafka_errors
from log_partitioner.adapters.kafka import log as kafka_log
from log_partitioner.adapters.kafka.admin import commit_offsets
from log_partitioner.errors import SourceError
from log_partitioner.formats.model import CommittedOffset
from tests.fakes.records import P0
from tests.unit.adapters.scripted_kafka import kafka_error


class ScriptedAdmin:
    """Answers with errors of the one TopicPartition asked for, or raises; then takes what it is given."""

    answers: deque[int | Exception]
    taken: list[TopicPartition]

    def __init__(self, options: dict[str, Any], **_kwargs: Any) -> None:
        assert options == {"group.id": "g"}

    def alter_consumer_group_offsets(
        self, asked: list[ConsumerGroupTopicPartitions], *, request_timeout: float
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Answer at once."""
        assert request_timeout
        future: Future[ConsumerGroupTopicPartitions] = Future()
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            (one,) = asked[0].topic_partitions or []
            self.taken[:] = [one] if answer is None else []
            future.set_result(ConsumerGroupTopicPartitions("g", [_Answer(answer)]))
        return {"g": future}


class _Answer(TopicPartition):
    def __init__(self, code: int | None) -> None:
        super().__init__("source", 0)
        self.code = code

    def __getattribute__(self, name: str) -> Any:
        if name == "error":
            return None if self.code is None else KafkaError(self.code)
        return super().__getattribute__(name)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedAdmin]:
    """Give the scripted class."""
    made = type("Admin", (ScriptedAdmin,), {"answers": deque(), "taken": []})
    monkeypatch.setattr(kafka_log, "AdminClient", made)
    monkeypatch.setattr(kafka_errors, "_ASK_AGAIN_S", 0.0)
    return made


def commit(timeout_s: float = 10.0) -> None:
    """Commit one offset."""
    commit_offsets({"group.id": "g"}, "g", {P0: CommittedOffset(7, None, "meta")}, timeout_s=timeout_s)


def test_offset_is_committed_with_its_metadata_once_the_coordinator_is_there(admin: type[ScriptedAdmin]) -> None:
    """A coordinator that moves or loads is asked again."""
    passing = KafkaError.COORDINATOR_NOT_AVAILABLE, kafka_error(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    admin.answers.extend([KafkaError.NOT_COORDINATOR, *passing])
    commit()
    assert [(one.offset, one.metadata) for one in admin.taken] == [(7, "meta")]


@pytest.mark.parametrize("answer", [KafkaError.UNKNOWN_MEMBER_ID, kafka_error(KafkaError.NON_EMPTY_GROUP)])
def test_group_with_live_members_is_named(admin: type[ScriptedAdmin], answer: int | Exception) -> None:
    """The broker says unknown member, or non-empty group, if members live."""
    admin.answers.append(answer)
    with pytest.raises(SourceError, match="group g has live members: stop its workers first"):
        commit()
    assert admin.taken == []


def test_refusal_has_the_broker_s_word(admin: type[ScriptedAdmin]) -> None:
    """A permission, or a coordinator that never comes."""
    admin.answers.append(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(SourceError, match="GROUP_AUTHORIZATION_FAILED"):
        commit()
    admin.answers.append(KafkaError.NOT_COORDINATOR)
    with pytest.raises(SourceError, match="NOT_COORDINATOR"):
        commit(timeout_s=-1.0)
