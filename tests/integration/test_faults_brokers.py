"""Three brokers, of which one dies while records flow, and commits whose answer is lost.

Each commit has exactly one outcome, and what comes out of a TopicPartition comes out in its order.
"""

import io
from collections import defaultdict
from operator import itemgetter

import fastavro
import pytest

from tests.integration.flow import Flow
from tests.integration.harness import Deploy, Deployment
from tests.integration.segments import coordinator, leader
from tests.stack.kafka_helper import KafkaHelper
from tools.local.kafka import KafkaCluster
from tools.local.tcp_proxy import API_END_TXN, CutMoment, TcpProxy

SETTINGS = {
    "LOGP_FLUSH__INTERVAL_S": "1",
    # The back-off to a broker that is gone or silent, short enough for a test.
    "LOGP_KAFKA__CLIENT_PROPERTIES": '{"reconnect.backoff.max.ms": "1000"}',
}
Place = tuple[int, int]  # offset and index of an entry


@pytest.fixture
def deployment(kafka_cluster: KafkaCluster, cluster_helper: KafkaHelper, deploy: Deploy) -> Deployment:
    """A deployment on three brokers, whose workers reach them through the proxies."""
    return deploy(kafka=cluster_helper, bootstrap_servers=kafka_cluster.bootstrap_servers, settings=SETTINGS)


def _victim(deployment: Deployment, role: str) -> int:
    kafka = deployment.kafka
    if role == "leader of a source partition":
        return leader(kafka, deployment.source, 0)
    if role == "transaction coordinator":
        return coordinator(kafka, "__transaction_state", f"log-partitioner.{deployment.group}.w1")
    return coordinator(kafka, "__consumer_offsets", deployment.group)


def _require_order(deployment: Deployment) -> None:
    """Offsets of a TopicPartition rise flush by flush, row by row in a file, and reference by reference of a key.

    The references of one batch stand in order; between batches their source ranges tell it.
    """
    reached: dict[tuple[str, int], int] = defaultdict(int)
    for flush in deployment.flush_records():
        for one in flush.topic_partitions:
            assert one.first_offset == reached[one.topic, one.partition]
            reached[one.topic, one.partition] = one.next_offset
    found: dict[tuple[object, int], list[tuple[int, list[Place]]]] = defaultdict(list)
    for reference in deployment.references():
        data = deployment.s3.read(deployment.bucket, reference.location.object)
        metas = [row["_meta"] for row in fastavro.reader(io.BytesIO(data))]
        for source in reference.sources:
            places = [(meta["offset"], meta["index"]) for meta in metas if meta["partition"] == source.partition]
            found[reference.partition_key, source.partition].append((source.first_offset, places))
    for key, parts in found.items():
        in_order = [place for _, places in sorted(parts, key=itemgetter(0)) for place in places]
        assert in_order == sorted(set(in_order)), key


def test_brokers_killed_one_after_the_other(kafka_cluster: KafkaCluster, deployment: Deployment) -> None:
    """Records written before, while one is gone, and after its return are there once, in order, whatever it led."""
    with Flow(deployment) as flow:
        for name in ("w1", "w2"):
            deployment.start(name)
        for name in ("w1", "w2"):
            deployment.require_event("flush_committed", name)
        for role in ("leader of a source partition", "transaction coordinator", "group coordinator"):
            victim = _victim(deployment, role)
            kafka_cluster.kill(victim)
            without = _records_committed(deployment)
            deployment.kafka.wait_for(
                f"commits without the {role}",
                lambda without=without: _records_committed(deployment) > without + 200,
                timeout_s=60,
            )
            kafka_cluster.restart(victim)
        written = flow.stop()
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    _require_order(deployment)
    deployment.require_clean()


def _records_committed(deployment: Deployment) -> int:
    return sum(event["records"] for event in deployment.events() if event["event"] == "flush_committed")


def test_commit_whose_connection_is_cut(kafka_cluster: KafkaCluster, deployment: Deployment) -> None:
    """The client library asks again: the batch is committed once, and the next one is not touched by the repetition."""
    with Flow(deployment) as flow:
        deployment.start("w1")
        deployment.require_event("flush_committed", "w1")
        proxy = kafka_cluster.proxies[_victim(deployment, "transaction coordinator")]
        for moment in [*CutMoment, *CutMoment]:
            _wait_cut(deployment, proxy, moment)
            deployment.require_event("flush_committed", "w1", times=deployment.count("flush_committed") + 2)
        written = flow.stop()
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"w1": 0}
    assert deployment.count("flush_committed") == len(deployment.flush_records())
    _require_order(deployment)
    deployment.require_clean()


def _wait_cut(deployment: Deployment, proxy: TcpProxy, moment: CutMoment, *, then_refuse: bool = False) -> None:
    """Cut the next EndTxn and return at once when it is done."""
    done = proxy.cuts_done
    proxy.cut_at(API_END_TXN, moment, then_refuse=then_refuse)
    deployment.kafka.wait_for("a cut", lambda: proxy.cuts_done > done)


def test_commit_whose_outcome_stays_unknown(kafka_cluster: KafkaCluster, deployment: Deployment) -> None:
    """The coordinator is out of reach for longer than the commit may take; afterwards the broker tells the outcome.

    If the request had arrived, the batch is committed although the worker has discarded it, and the worker goes on
    behind it. If it had not, the broker has aborted the transaction, and the worker reads the records again.
    """
    slowly = '{"reconnect.backoff.ms": "2000", "reconnect.backoff.max.ms": "4000"}'
    with Flow(deployment) as flow:
        deployment.start(
            "w1",
            LOGP_KAFKA__CLIENT_PROPERTIES=slowly,
            LOGP_KAFKA__SESSION_TIMEOUT_S="45",  # the broker may be the group's coordinator, too
            LOGP_FLUSH__BUDGET_S="20",
        )
        deployment.require_event("flush_committed", "w1")
        proxy = kafka_cluster.proxies[_victim(deployment, "transaction coordinator")]
        for number, moment in enumerate(CutMoment, 1):
            _wait_cut(deployment, proxy, moment, then_refuse=True)
            unknown = deployment.require_event("batch_discarded", "w1", times=number, cause="CommitUnknownError")[-1]
            rewound = len(deployment.rewinds("w1"))
            proxy.heal()
            deployment.require_event("flush_committed", "w1", times=1 + deployment.count("flush_committed", "w1"))
            was_committed = unknown["batch_id"] in {flush.batch_id for flush in deployment.flush_records()}
            assert was_committed == (moment is CutMoment.BEFORE_ANSWER)
            moved = [offset > first for offset, first in deployment.rewinds("w1")[rewound:]]
            assert any(moved) == was_committed
        written = flow.stop()
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"w1": 0}
    _require_order(deployment)
    deployment.require_clean()
