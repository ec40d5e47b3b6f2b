"""`init_transactions` settles the state that it finds of a transactional id: three cases (KIP-98, KAFKA_FACTS T7).

A worker's start and each of its flushes begin with it. After it, a transaction of an earlier process has ended, and the
committed offsets say how. The coordinator's own log shows the states that the id went through.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from tests.integration.by_hand import ONCE, RECORDS, WAIT_S, Stage
from tests.integration.segments import bystander, coordinating_partition, states_of, told, transactions_in
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_END_TXN, CutMoment
from tools.local.topics import create_missing


@pytest.fixture
def leader(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> int:
    """The index of the broker that leads the announcements, and may hang."""
    options = {"bootstrap.servers": kafka_cluster.direct_bootstrap_servers, "transactional.id": names.group("used")}
    Producer(options).init_transactions(WAIT_S)
    leader = bystander(kafka_cluster, cluster_helper, f"{names.group()}.a")
    replicas = [leader + 1, *(number + 1 for number in range(3) if number != leader)]
    create_missing(
        cluster_helper.admin, [NewTopic(names.topic("references"), num_partitions=1, replica_assignment=[replicas])]
    )
    return leader


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names, leader: int) -> Iterator[Stage]:
    """Three records that must be announced once."""
    stage = Stage(kafka_cluster, cluster_helper, names, announcements=names.topic("references"))
    yield stage
    kafka_cluster.resume(leader)
    stage.close()


def _states(stage: Stage) -> list[str]:
    return states_of(stage.cluster, stage.kafka, stage.transactional_id("a"))


def _dump(stage: Stage) -> list[str]:
    return told(transactions_in(stage.cluster, stage.kafka, stage.announcements))


def test_init_transactions_of_a_new_id(stage: Stage) -> None:
    """Nothing was ever there: an epoch, and no marker anywhere."""
    stage.hand("a").committer.prepare()

    assert _states(stage) == ["Empty, epoch 0"]
    assert _dump(stage) == []


def test_init_transactions_aborts_what_is_open(stage: Stage) -> None:
    """(1) A is gone before its commit was asked for; (2) the next of its id begins: aborted, in a higher epoch.

    Nothing is visible, and nothing is committed: it reads all records again.
    """
    dying = stage.hand("a")
    dying.join()
    dying.read_all()
    held = stage.hold_at(API_END_TXN, "a")
    begun = dying.begin_commit()
    held.wait()
    stage.stop_network()
    successor = stage.hand("b", beside=True, transactional_id="a")
    successor.committer.prepare()

    assert _states(stage)[1:] == ["Ongoing, epoch 0"] * 2 + [
        "PrepareAbort, epoch 1",
        "CompleteAbort, epoch 1",
        "Empty, epoch 2",
    ]
    assert told(transactions_in(stage.cluster, stage.kafka, stage.announcements)) == [
        "P1 E0: 3 records",
        "P1 E1: ABORT",
    ]
    assert (stage.announced(), stage.committed()) == ([], None)
    stage.start_network()
    assert begun.outcome().startswith("CommitUnknownError")


def test_init_transactions_waits_for_what_is_prepared_and_the_outcome_is_found(stage: Stage, leader: int) -> None:
    """(1) The coordinator has decided to commit, and A never hears it; (2) the announcements' leader hangs.

    (3) The next of A's id cannot begin: the decision stands, and its marker is not written (CONCURRENT_TRANSACTIONS).
    (4) Another broker leads, and writes it: the worker begins, and goes on behind what was committed.
    """
    dying = stage.hand("a")
    dying.join()
    dying.read_all()
    number = stage.transaction_coordinator("a")
    held = stage.hold_at(API_END_TXN, "a")
    stage.cluster.proxies[number].cut_at(API_END_TXN, CutMoment.BEFORE_ANSWER, then_refuse=True)
    begun = dying.begin_commit()
    held.wait()
    decisions = stage.cluster.segments(number, "__transaction_state", _partition(stage))[-1]
    size = decisions.stat().st_size
    stage.cluster.pause(leader)
    held.release()
    stage.kafka.wait_for("a decision", lambda: decisions.stat().st_size > size)
    stage.stop_network()
    successor = stage.hand("b", beside=True, transactional_id="a")
    with capture_logs() as lines:
        successor.committer.prepare()
    assert "CONCURRENT_TRANSACTIONS" in {
        line["code"] for line in lines if line["event"] == "init_transactions_repeated"
    }

    stage.cluster.resume(leader)
    assert _states(stage)[-3:] == ["PrepareCommit, epoch 0", "CompleteCommit, epoch 0", "Empty, epoch 1"]
    successor.join()
    successor.until("it starts", lambda: successor.starts == {stage.source: RECORDS})
    assert (stage.announced(), successor.read) == (ONCE, [])
    assert _dump(stage) == ["P1 E0: 3 records", "P1 E0: COMMIT"]
    stage.start_network()
    assert begun.outcome().startswith("CommitUnknownError")


def _partition(stage: Stage) -> int:
    return coordinating_partition(stage.kafka, "__transaction_state", stage.transactional_id("a"))
