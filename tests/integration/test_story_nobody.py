"""Members that are none any more, and what a broker makes of what they commit (KAFKA_FACTS F3, F6).

C23: a loss that is told as an ordinary revoke (librdkafka pull request 5604), so that a worker flushes what another one
owns. C24: the bypass, a transaction whose group metadata have generation -1 and no member id, which brokers take from
anybody (`ClassicGroup.validateOffsetCommit`): librdkafka's metadata are of that kind once the group has called its
generation illegal and its session has ended.
"""

import struct
from collections.abc import Iterator

import pytest

from log_partitioner.adapters.kafka.committer import KafkaCommitter
from tests.integration.by_hand import (
    COMMITTED,
    ONCE,
    SESSION_S,
    TWICE,
    WAIT_S,
    CommitsAsNobody,
    Hand,
    HasNoGuard,
    Stage,
    outcome_of,
)
from tests.integration.segments import told, transactions_in
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_HEARTBEAT

POLL_S = SESSION_S + 1  # the library takes no interval below the session's
ILLEGAL_GENERATION = struct.pack(">ih", 0, 22)  # a heartbeat's answer: throttle time, error code
OF_SUCCESSOR = ["P1 E0: 3 records", "P1 E0: COMMIT"]
OF_BOTH = [*OF_SUCCESSOR, "P2 E0: 3 records", "P2 E0: COMMIT"]
REFUSED_HERE = "MembershipError: "
REFUSED_THERE = "CommitAbortedError: UNKNOWN_MEMBER_ID"


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> Iterator[Stage]:
    """Three records that must be announced once; two TopicPartitions, one of which moves if another worker joins."""
    stage = Stage(kafka_cluster, cluster_helper, names, partitions=2)
    yield stage
    stage.close()


def _dump(stage: Stage) -> list[str]:
    return told(transactions_in(stage.cluster, stage.kafka, stage.announcements))


def _announce_by_another(stage: Stage) -> Hand:
    """Let another member own the source, read it, and announce it; it goes on as a member."""
    other = stage.hand("b", beside=True)
    other.join()
    other.read_all()
    other.commit()
    other.settle()
    return other


@pytest.mark.parametrize(
    ("committer", "outcome"),
    [
        pytest.param(KafkaCommitter, REFUSED_HERE, id="worker"),
        pytest.param(HasNoGuard, REFUSED_THERE, id="without-the-guard"),
        pytest.param(CommitsAsNobody, COMMITTED, id="control"),
    ],
)
def test_c23_loss_that_is_told_as_a_revoke(stage: Stage, committer: type[KafkaCommitter], outcome: str) -> None:
    """(1) B joins, A, busy, is to give one back; (2) A's poll interval ends: it is out, B announces what A has read.

    (3) A polls, is told of a revoke and not of a loss, and flushes in it. Its metadata have no member id: the guard
    refuses them, and the broker would. Only the control's, which name no generation either, are taken: twice.
    """
    busy = stage.hand("a", committer=committer, **{"max.poll.interval.ms": round(POLL_S * 1000)})
    busy.join()
    busy.read_all()
    _announce_by_another(stage)
    told_of: list[str] = []

    def flush() -> None:
        busy.at_revoke = lambda: None  # it may own again when it leaves
        assert busy.consumer.membership().member_id == ""
        told_of.append(outcome_of(lambda: busy.commit(membership=busy.consumer.membership())))

    busy.at_revoke = flush
    busy.until("it is told", lambda: bool(told_of))
    stage.settle()

    assert busy.heard[:2] == ["assigned", "revoked"], busy.heard
    assert told_of == [outcome]
    assert stage.announced() == (TWICE if outcome == COMMITTED else ONCE)
    if outcome == REFUSED_HERE:
        assert _dump(stage) == OF_SUCCESSOR, "nothing of A has reached a broker"
    elif outcome == COMMITTED:
        assert _dump(stage) == OF_BOTH
    else:
        assert _dump(stage) == [*OF_SUCCESSOR, "P2 E0: 3 records", "P2 E0: ABORT"]


@pytest.mark.parametrize(
    ("committer", "outcome"),
    [
        pytest.param(KafkaCommitter, REFUSED_HERE, id="worker"),
        pytest.param(HasNoGuard, COMMITTED, id="control"),
    ],
)
def test_c24_bypass_by_a_member_of_generation_minus_one(
    stage: Stage, committer: type[KafkaCommitter], outcome: str
) -> None:
    """(1) A, busy, is told that its generation is illegal, and its session ends; (2) B announces what A has read.

    (3) A flushes. Its library's metadata name no member: the guard refuses them before anything is sent. In the control
    they are sent as they are, and the broker takes the transaction of a member that is none.
    """
    busy = stage.hand("a", committer=committer)
    busy.join()
    busy.read_all()
    stage.hold_at(API_HEARTBEAT).answer(ILLEGAL_GENERATION)
    stage.kafka.wait_for("it is nobody", lambda: busy.consumer.membership()[:2] == (-1, ""), timeout_s=WAIT_S)
    _announce_by_another(stage)

    assert outcome_of(lambda: busy.commit(membership=busy.consumer.membership())) == outcome
    stage.settle()
    assert stage.announced() == (TWICE if outcome == COMMITTED else ONCE)
    assert _dump(stage) == (OF_BOTH if outcome == COMMITTED else OF_SUCCESSOR)
