"""C13: an EndTxn that comes late, when the next transaction of the same transactional id is half written.

Reported by Jepsen of Kafka's protocol (its report on Bufstream 0.1.0, 2024; KAFKA-17754). KIP-890 mends it for clients
that have it, which librdkafka does not (librdkafka #5423). The client knows nothing of it: it sends EndTxn again by
itself when a connection is gone, and that one is answered. The broker takes the first one, when it comes, for the
transaction that is open. A producer of its own for every transaction (ADR 3, KAFKA_FACTS F2) makes it come in an epoch
that is over.
"""

import struct
from collections.abc import Iterator

import pytest

from log_partitioner.adapters.kafka.committer import KafkaCommitter
from tests.integration.by_hand import COMMITTED, Hand, KeepsItsProducer, Stage
from tests.integration.flow import some_records
from tests.integration.harness import Deploy
from tests.integration.segments import coordinator, told, transactions_in
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_END_TXN, API_TXN_OFFSET_COMMIT, HeldRequest

FENCED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
_ANSWER = struct.Struct(">ih")  # throttle time, error code


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> Iterator[Stage]:
    """Three records that are announced in two transactions: the first, then the two others."""
    stage = Stage(kafka_cluster, cluster_helper, names)
    yield stage
    stage.close()


def _deliver(end_txn: HeldRequest) -> int:
    """Let an EndTxn arrive at last; return the broker's error code, or 0 if it has ended the transaction."""
    _, code = _ANSWER.unpack(end_txn.deliver())
    return int(code)


def _first_commit_whose_end_is_lost(stage: Stage, hand: Hand) -> HeldRequest:
    """Commit the first record; the EndTxn is under way when its connection breaks, and the client sends it again."""
    hand.join()
    hand.read_all()
    late = stage.hold_at(API_END_TXN, "a")
    begun = hand.begin_commit([0])
    late.cut()
    assert begun.outcome() == COMMITTED
    stage.kafka.wait_for("its marker", lambda: stage.announced() == ["0"])
    return late


def _then_it_dies_and_another_goes_on(stage: Stage, hand: Hand, late: HeldRequest) -> int:
    """Bring the late EndTxn between the announcements and the offsets of the next transaction, in which A dies.

    Then B, which has A's transactional id, as the same pod has after a restart, reads on from the committed offset.
    """
    offsets = stage.hold_at(API_TXN_OFFSET_COMMIT)
    begun = hand.begin_commit([1, 2])
    offsets.wait()
    code = _deliver(late)
    stage.stop_network()
    successor = stage.hand("b", beside=True, transactional_id="a")
    successor.join()
    successor.until("the records behind the committed offset", lambda: successor.read[-1:] == [2])
    successor.membership = successor.consumer.membership()
    successor.commit()
    stage.start_network()
    assert begun.outcome() != COMMITTED
    stage.settle()
    return code


@pytest.mark.parametrize("committer", [KafkaCommitter, KeepsItsProducer], ids=["epoch-of-its-own", "control"])
def test_c13_late_end_of_one_transaction_and_the_next(stage: Stage, committer: type[KafkaCommitter]) -> None:
    """(1) The end of transaction 1 is lost, and sent again; (2) transaction 2 has announced, and not sent its offsets.

    (3) The lost end arrives. With an epoch for each transaction it is refused, and transaction 2 is aborted whole when
    its worker dies. In the control, one producer for both, it commits the half: announced, without offsets, and
    announced again by the next worker.
    """
    hand = stage.hand("a", committer=committer)
    late = _first_commit_whose_end_is_lost(stage, hand)
    code = _then_it_dies_and_another_goes_on(stage, hand, late)
    dump = told(transactions_in(stage.cluster, stage.kafka, stage.announcements))

    if committer is KafkaCommitter:
        assert code in FENCED
        assert stage.announced() == ["0", "1", "2"]
        assert dump == ["P1 E0: 1 records", "P1 E0: COMMIT", "P1 E1: 2 records", "P1 E2: ABORT", *_of_b(3)]
    else:
        assert code == 0
        assert stage.announced() == ["0", "1", "1", "2", "2"]
        assert dump == ["P1 E0: 1 records", "P1 E0: COMMIT", "P1 E0: 2 records", "P1 E0: COMMIT", *_of_b(1)]


def _of_b(epoch: int) -> list[str]:
    return [f"P1 E{epoch}: 2 records", f"P1 E{epoch}: COMMIT"]


def test_c13_late_end_reaches_a_worker_in_its_next_flush(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, deploy: Deploy
) -> None:
    """The worker itself: the end of its first flush comes in the middle of the second, which is whole all the same."""
    settings = {"LOGP_FLUSH__INTERVAL_S": "1"}
    deployment = deploy(
        kafka=cluster_helper, partitions=2, bootstrap_servers=kafka_cluster.bootstrap_servers, settings=settings
    )
    first = cluster_helper.produce(deployment.source, some_records(20, partitions=2))
    deployment.start("w1")
    deployment.require_event("partitions_assigned", "w1")
    deployment.wait_drained(first)
    transactional_id = f"log-partitioner.{deployment.group}.w1"
    of_w1 = kafka_cluster.proxies[coordinator(cluster_helper, "__transaction_state", transactional_id)]
    of_group = kafka_cluster.proxies[coordinator(cluster_helper, "__consumer_offsets", deployment.group)]
    late = of_w1.hold_at(API_END_TXN)
    second = cluster_helper.produce(deployment.source, some_records(20, partitions=2, first=20))
    late.cut()
    deployment.wait_drained(second)
    offsets = of_group.hold_at(API_TXN_OFFSET_COMMIT)
    third = cluster_helper.produce(deployment.source, some_records(20, partitions=2, first=40))
    offsets.wait()

    assert _deliver(late) in FENCED
    offsets.release()
    deployment.wait_drained(third)
    assert deployment.stop_all() == {"w1": 0}
    assert deployment.count("batch_discarded") == 0
    deployment.require_clean()
