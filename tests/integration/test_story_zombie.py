"""The zombie, step by step: a worker that was thought dead comes back in the middle of its transaction.

It is stopped at one of two moments: before `send_offsets`, with its announcements produced, or after it, before the
commit. Brokers cannot tell a stopped worker from a stopped network, so the tests stop the network. The moment decides
which fence refuses the worker. Each fence has a control, the same sequence without the fence, in which records are
announced twice. The tests read producer ids, epochs and markers from the brokers' files.

Confluent's "Transactions in Apache Kafka" (zombie fencing), KIP-98 (epochs) and KIP-447 (members) tell the story.
"""

from collections.abc import Iterator

import pytest

from tests.integration.by_hand import COMMITTED, ONCE, RECORDS, TWICE, WAIT_S, Begun, CommitsAsNobody, Hand, Stage
from tests.integration.flow import some_records
from tests.integration.harness import Deploy
from tests.integration.segments import coordinator, told, transactions_in
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_END_TXN, API_TXN_OFFSET_COMMIT

TRANSACTION_S = 10.0  # the least that goes with the producers' socket.timeout.ms


@pytest.fixture
def stage(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, names: Names) -> Iterator[Stage]:
    """Three records that must be announced once."""
    stage = Stage(kafka_cluster, cluster_helper, names)
    yield stage
    stage.close()


def _stop_at(stage: Stage, zombie: Hand, api_key: int) -> Begun:
    """Let the zombie read all records and commit, and stop it for good when it is to send a request."""
    zombie.join()
    zombie.read_all()
    held = stage.hold_at(api_key, "a")
    begun = zombie.begin_commit()
    held.wait()
    stage.stop_network()
    return begun


def _take_over(successor: Hand) -> None:
    """Let another worker take the zombie's place, read what is not committed, and announce it."""
    successor.join()
    successor.read_all()
    successor.commit()
    successor.settle()


def _dump(stage: Stage) -> list[str]:
    return told(transactions_in(stage.cluster, stage.kafka, stage.announcements))


# Before send_offsets.


def test_zombie_with_an_id_of_its_own_before_send_offsets_is_refused_as_a_member(stage: Stage) -> None:
    """(1) A produces, and stops; (2) the group expels A, B announces the same; (3) A sends its offsets: no member.

    The id of its producer is as good as ever: what refuses A is the group metadata (KIP-447). It aborts.
    """
    zombie = stage.hand("a")
    begun = _stop_at(stage, zombie, API_TXN_OFFSET_COMMIT)
    _take_over(stage.hand("b", beside=True))
    stage.start_network()

    assert begun.outcome() in {"CommitAbortedError: UNKNOWN_MEMBER_ID", "CommitAbortedError: ILLEGAL_GENERATION"}
    stage.settle()
    assert stage.announced() == ONCE
    assert _dump(stage) == ["P1 E0: 3 records", "P2 E0: 3 records", "P2 E0: COMMIT", "P1 E0: ABORT"]


def test_zombie_with_a_shared_id_before_send_offsets_is_fenced_by_the_epoch(stage: Stage) -> None:
    """(1) A produces, and stops; (2) B begins with A's id, which aborts A's transaction, and announces; (3) A goes on.

    No group metadata is compared here: the epoch alone refuses A, which is what fencing was before KIP-447. The marker
    has a higher epoch than the records that it aborts.
    """
    zombie = stage.hand("a", committer=CommitsAsNobody)
    begun = _stop_at(stage, zombie, API_TXN_OFFSET_COMMIT)
    _take_over(stage.hand("b", beside=True, transactional_id="a", committer=CommitsAsNobody))
    stage.start_network()

    assert begun.outcome() == "FencedError: _FENCED"
    stage.settle()
    assert stage.announced() == ONCE
    assert _dump(stage) == ["P1 E0: 3 records", "P1 E1: ABORT", "P1 E2: 3 records", "P1 E2: COMMIT"]


def test_control_zombie_before_send_offsets_without_a_fence_doubles(stage: Stage) -> None:
    """The same: ids of their own, so that no epoch refuses A, and no group metadata: A commits what B has committed."""
    zombie = stage.hand("a", committer=CommitsAsNobody)
    begun = _stop_at(stage, zombie, API_TXN_OFFSET_COMMIT)
    _take_over(stage.hand("b", beside=True, committer=CommitsAsNobody))
    stage.start_network()

    assert begun.outcome() == COMMITTED
    stage.settle()
    assert stage.announced() == TWICE
    assert _dump(stage) == ["P1 E0: 3 records", "P2 E0: 3 records", "P2 E0: COMMIT", "P1 E0: COMMIT"]


# After send_offsets.


def test_zombie_after_send_offsets_that_comes_in_time_is_waited_for(stage: Stage) -> None:
    """(1) A has sent its offsets, and stops; (2) B owns, and waits for stable offsets; (3) A commits, B goes on behind.

    That A was expelled meanwhile is no matter: its offsets were taken while it was a member. Nothing is read twice.
    """
    zombie = stage.hand("a")
    begun = _stop_at(stage, zombie, API_END_TXN)
    successor = stage.hand("b", beside=True)
    successor.join()
    owning = Begun(lambda: successor.until("it starts", lambda: successor.starts == {stage.source: RECORDS}))
    stage.kafka.wait_for("it owns", lambda: successor.heard == ["assigned"], timeout_s=WAIT_S)
    assert successor.starts == {}, "it waits"
    stage.start_network()

    assert begun.outcome() == COMMITTED
    assert owning.outcome() == COMMITTED
    stage.settle()

    assert successor.read == []
    assert stage.announced() == ONCE
    assert _dump(stage) == ["P1 E0: 3 records", "P1 E0: COMMIT"]


def test_zombie_after_send_offsets_that_comes_too_late_is_aborted(stage: Stage) -> None:
    """(1) A has sent its offsets, and stops; (2) its transaction times out, and B, which has waited, reads all again.

    The broker ends the transaction in a higher epoch of A's producer, so that (3) the commit finds itself fenced.
    """
    zombie = stage.hand("a", transaction_timeout_s=TRANSACTION_S)
    begun = _stop_at(stage, zombie, API_END_TXN)
    _take_over(stage.hand("b", beside=True))
    stage.start_network()

    assert begun.outcome().startswith("CommitUnknownError")
    stage.settle()
    assert stage.announced() == ONCE
    assert _dump(stage) == ["P1 E0: 3 records", "P1 E1: ABORT", "P2 E0: 3 records", "P2 E0: COMMIT"]


def test_zombie_with_a_shared_id_after_send_offsets_is_aborted_by_its_successor(stage: Stage) -> None:
    """(1) A has sent its offsets, and stops; (2) B begins with A's id and waits for no time-out; (3) A is fenced."""
    zombie = stage.hand("a")
    begun = _stop_at(stage, zombie, API_END_TXN)
    _take_over(stage.hand("b", beside=True, transactional_id="a"))
    stage.start_network()

    assert begun.outcome().startswith("CommitUnknownError")
    stage.settle()
    assert stage.announced() == ONCE
    assert _dump(stage) == ["P1 E0: 3 records", "P1 E1: ABORT", "P1 E2: 3 records", "P1 E2: COMMIT"]


def test_control_zombie_after_send_offsets_whose_successor_does_not_wait_doubles(stage: Stage) -> None:
    """The same, with a successor that asks for offsets as they are: it reads what A is about to commit.

    `isolation.level` decides that (KAFKA_FACTS F7); the broker takes both commits, since both were members when they
    sent their offsets.
    """
    zombie = stage.hand("a")
    begun = _stop_at(stage, zombie, API_END_TXN)
    _take_over(stage.hand("b", beside=True, **{"isolation.level": "read_uncommitted"}))
    stage.start_network()

    assert begun.outcome() == COMMITTED
    stage.settle()
    assert stage.announced() == TWICE
    assert _dump(stage) == ["P1 E0: 3 records", "P2 E0: 3 records", "P2 E0: COMMIT", "P1 E0: COMMIT"]


# The worker as a process.


def test_worker_stopped_after_its_offsets_comes_too_late(
    kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, deploy: Deploy
) -> None:
    """SIGSTOP with its EndTxn on the way: B waits until the transaction has timed out, and publishes the same records.

    A wakes up, its EndTxn goes on, and it is fenced: to A that is an unknown outcome, which its next producer settles.
    """
    deployment = deploy(
        kafka=cluster_helper,
        partitions=2,
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        settings={"LOGP_KAFKA__SESSION_TIMEOUT_S": "4", "LOGP_FLUSH__INTERVAL_S": "1"},
    )
    zombie = deployment.start("a")
    deployment.require_event("positioned", "a")
    transactional_id = f"log-partitioner.{deployment.group}.a"
    of_a = kafka_cluster.proxies[coordinator(cluster_helper, "__transaction_state", transactional_id)]
    held = of_a.hold_at(API_END_TXN)
    written = cluster_helper.produce(deployment.source, some_records(20, partitions=2))
    held.wait()
    zombie.pause()
    deployment.start("b", LOGP_KAFKA__BOOTSTRAP_SERVERS=cluster_helper.bootstrap_servers)
    deployment.wait_drained(written)
    zombie.resume()
    held.release()

    (late,) = deployment.require_event("batch_discarded", "a")
    assert late["cause"] == "CommitUnknownError"
    assert deployment.stop_all() == {"a": 0, "b": 0}
    dump = told(transactions_in(kafka_cluster, cluster_helper, deployment.flushes_topic))
    assert dump[:3] == ["P1 E0: 1 records", "P1 E1: ABORT", "P2 E0: 1 records"]
    assert set(dump[3:]) <= {"P2 E0: COMMIT", "P2 E1: 1 records", "P2 E1: COMMIT"}
    deployment.require_clean()
