"""Cases from other people's bug reports, on the real client library and its mock cluster: the worker passes them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.options import PINNED_PRODUCER
from log_partitioner.boundary import Message
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import CommitAbortedError
from tests.contract.mock_cluster import ADD_PARTITIONS, MockCluster, batch
from tests.contract.reader import WAIT_S, Reader, poll_until
from tools.local.ports import find_free_ports
from tools.local.tcp_proxy import TcpProxy


def test_flush_whose_transactional_id_has_expired_is_aborted_and_the_next_one_is_committed() -> None:
    """P09: an idle worker holds a producer that brokers have forgotten; nothing of its flush becomes visible."""
    clock = SystemClock()
    with MockCluster("references") as cluster:
        options = {**PINNED_PRODUCER, "bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0}
        committer = KafkaCommitter(options, init_budget_s=WAIT_S, clock=clock)
        message = Message("references", None, b"value", [])
        cluster.fail(ADD_PARTITIONS, KafkaError.INVALID_PRODUCER_ID_MAPPING)
        with pytest.raises(CommitAbortedError):
            committer.publish([message], deadline=Deadline.after(WAIT_S, clock.now_s))
        committer.publish([message], deadline=Deadline.after(WAIT_S, clock.now_s))


def test_consumer_goes_on_when_all_brokers_have_come_back_at_other_addresses() -> None:
    """P11: the bootstrap address alone is asked again; a proxy there leads to the old ones, then to the new ones."""
    (port,) = find_free_ports(1)
    with ExitStack() as cleanup:
        with MockCluster("source") as old:
            old.append(batch(b"before"))
            proxy = TcpProxy(upstream_port=int(old.bootstrap.rpartition(":")[2]), port=port)
            proxy.start()
            reader = Reader(f"127.0.0.1:{port}", ["source"])
            cleanup.callback(reader.consumer.close)
            poll_until(lambda: reader.values == [b"before"], reader)
            proxy.stop()
        new = cleanup.enter_context(MockCluster("source"))
        new.append(batch(b"before", b"after"))
        proxy = TcpProxy(upstream_port=int(new.bootstrap.rpartition(":")[2]), port=port)
        proxy.start()
        cleanup.callback(proxy.stop)
        poll_until(lambda: reader.values[-1] == b"after", reader)
